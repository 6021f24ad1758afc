package dashboard

import (
	"slices"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/credits"
	"turnpike/internal/ids"
	"turnpike/internal/spend"
)

// keyRow is a key with what it has spent this month.
type keyRow struct {
	*access.Key
	State     string
	Spent     credits.Micro
	GraceLeft string // for how long the previous secret still works
}

// keyRows adds what a list of keys does not know of itself.
func (v *visit) keyRows(list ...*access.Key) ([]keyRow, error) {
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = k.ID
	}
	spent, err := spend.Spent(v.ctx(), v.s.DB, spend.Key, names, spend.PeriodOf(v.now()))
	rows := make([]keyRow, len(list))
	for i, k := range list {
		rows[i] = keyRow{Key: k, State: k.Status(v.now()), Spent: spent[k.ID]}
		if k.Previous != nil {
			rows[i].GraceLeft = countdown(k.Previous.ExpiresAt.Sub(v.now()))
		}
	}
	return rows, err
}

type keysData struct {
	Now    time.Time
	States []string
	State  string // that is looked at; empty for all
	Keys   []keyRow
	Next   pager
}

func keysPage(v *visit) (*view, error) {
	page := v.page(ids.Key)
	d := keysData{Now: v.now(), States: access.States}
	if state := v.query("state"); slices.Contains(access.States, state) {
		d.State = state
	}
	keys, more, err := v.s.Keys.Search(v.ctx(), v.s.DB, v.principal.Visibility(), access.KeyFilter{State: d.State}, page)
	if err != nil {
		return nil, err
	}
	if d.Keys, err = v.keyRows(keys...); err != nil {
		return nil, err
	}
	d.Next = v.pager(page, more, func() string { return keys[len(keys)-1].ID })
	return &view{template: "keys", title: "API keys", data: d, live: true}, nil
}
