package dashboard

import (
	"slices"

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
	Keys   []keyRow
	Next   pager
}

func keysPage(req *request) (*view, error) {
	page := req.page(ids.Key)
	d := keysData{States: access.States}
	if state := req.query("state"); slices.Contains(access.States, state) {
		d.State = state
	}
	keys, more, err := req.s.Keys.Search(req.Context(), req.s.DB, req.principal.Visibility(), access.KeyFilter{State: d.State}, page)
	if err != nil {
		return nil, err
	}
	if d.Keys, err = req.keyRows(keys...); err != nil {
		return nil, err
	}
	d.Next = req.pager(page, more, func() string { return keys[len(keys)-1].ID })
	return &view{template: "keys", title: "API keys", data: d, live: true}, nil
}
