package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"turnpike/internal/access"
	"turnpike/internal/audit"
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

	Creator     string // the name of a person or a key
	CreatorLink string // the page of that key, or empty
}

// creatorID returns the person, key or command that created the key. For a scoped token
// it is the token's key.
func creatorID(k *access.Key) string {
	if ids.Valid(ids.AdminCredential, k.CreatedBy) {
		return audit.Operator.Name
	}
	return cmp.Or(k.ParentID, k.CreatedBy)
}

func (req *request) keyRows(list ...*access.Key) ([]keyRow, error) {
	names := web.Map(list, func(k *access.Key) string { return k.ID })
	spent, err := spend.Spent(req.Context(), req.ledger(), spend.Key, names, spend.PeriodOf(req.now()))
	if err != nil {
		return nil, err
	}
	creators := web.Map(list, creatorID)
	people, err := req.peopleNames(creators...)
	if err != nil {
		return nil, err
	}
	keys, err := req.keyNames(creators)
	rows := make([]keyRow, len(list))
	for i, k := range list {
		rows[i] = keyRow{Key: k, State: k.Status(req.now()), Spent: spent[k.ID], Creator: actorName(creatorID(k), people, keys)}
		if id := creatorID(k); keys[id] != "" {
			rows[i].CreatorLink = req.to("keys/" + id)
		}
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
