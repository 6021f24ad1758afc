package dashboard

import (
	"slices"
	"strings"
	"unicode/utf8"

	"turnpike/internal/access"
	"turnpike/internal/credits"
	"turnpike/internal/ids"
	"turnpike/internal/spend"
	"turnpike/internal/web"
)

type keyRow struct {
	*access.Key
	State     string
	Spent     credits.Micro
	GraceLeft string // of the previous secret
}

func (req *request) keyRows(list ...*access.Key) ([]keyRow, error) {
	names := web.Map(list, func(k *access.Key) string { return k.ID })
	spent, err := spend.Spent(req.Context(), req.s.DB, spend.Key, names, spend.PeriodOf(req.now()))
	rows := make([]keyRow, len(list))
	for i, k := range list {
		rows[i] = keyRow{Key: k, State: k.Status(req.now()), Spent: spent[k.ID]}
		if k.Previous != nil {
			rows[i].GraceLeft = countdown(k.Previous.ExpiresAt.Sub(req.now()))
		}
	}
	return rows, err
}

type keysData struct {
	States []string
	State  string // of the filter; empty for all
	Text   string // of the search
	Sort   access.KeySort
	Sorts  []keySortLink
	Keys   []keyRow
	Next   pager
}

// keySortLink is a choice of the list's order.
type keySortLink struct {
	Sort  access.KeySort
	Title string
}

var keySortLinks = []keySortLink{{access.SortByCreation, "newest first"}, {access.SortByName, "by name"}, {access.SortByLastUse, "last used first"}}

// maxSearch limits the text of a search.
const maxSearch = 200

func keysPage(req *request) (*view, error) {
	page := req.page(ids.Key)
	d := keysData{States: access.States, Sorts: keySortLinks}
	if text := strings.TrimSpace(req.query("q")); len(text) <= maxSearch && utf8.ValidString(text) {
		d.Text = text
	}
	if by := access.KeySort(req.query("sort")); slices.Contains(access.KeySorts, by) {
		d.Sort = by
	}
	if state := req.query("state"); slices.Contains(access.States, state) {
		d.State = state
	}
	keys, more, err := req.s.Keys.Search(req.Context(), req.s.DB, req.principal.Visibility(), access.KeyFilter{State: d.State, Text: d.Text, Sort: d.Sort}, page)
	if err != nil {
		return nil, err
	}
	if d.Keys, err = req.keyRows(keys...); err != nil {
		return nil, err
	}
	d.Next = req.pager(page, more, func() string { return keys[len(keys)-1].ID })
	return &view{template: "keys", title: "API keys", data: d, live: true}, nil
}
