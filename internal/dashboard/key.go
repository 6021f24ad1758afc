package dashboard

import (
	"time"

	"turnpike/internal/access"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/leaks"
	"turnpike/internal/spend"
	"turnpike/internal/web"
)

const (
	// shortList is how many rows a list has that links to a longer one.
	shortList = 10
	// recentRequests is how many of a key's newest requests tell where it is used
	// from.
	recentRequests = 500
)

type keyData struct {
	Key       keyRow
	IPs       string
	Secret    string    // if it was just created
	Examples  []codeTab // requests that the key may send, with the secret
	Manages   bool      // the person may change it
	Revokes   bool      // or at least revoke it
	Days      *daily
	Limits    []limitRow
	LooksBack int
	Addresses []keyAddress
	Requests  []*audit.Entry
	Tokens    []tokenRow
	More      bool // tokens
	Leaks     []*leaks.Note

	Descendants     []keyRow // the keys that it created, directly or through others
	MoreDescendants bool
	CanRevokeMore   bool // some of them are still active
}

func showKey(req *request, k *access.Key) (*view, error) {
	rows, err := req.keyRows(k)
	if err != nil {
		return nil, err
	}
	d := &keyData{Key: rows[0], IPs: showAddresses(k.AllowedIPs), Secret: req.shownSecret(k.ID), Manages: req.caller().CanManage(k), Revokes: req.caller().CanRevoke(k), LooksBack: recentRequests}
	if d.Secret != "" {
		d.Examples = req.keyTabs(k, d.Secret)
	}
	return &view{template: "key", title: k.Name, data: d, live: true}, req.keyHistory(d)
}

func (req *request) key() (*access.Key, error) {
	return req.s.Keys.Get(req.Context(), req.s.DB, req.principal.Visibility(), req.id())
}

func (req *request) keyHistory(d *keyData) (err error) {
	k := d.Key.Key
	if d.Days, err = req.lastDays(spend.UsageQuery{KeyID: k.ID}, k.Raise.Apply(k.MonthlyBudget, req.now())); err != nil {
		return err
	}
	if d.Limits, err = req.limitRows(spend.Account{Level: spend.Key, ID: k.ID}, k.Limits); err != nil {
		return err
	}
	if d.Addresses, err = addressesOf(req.Context(), req.s.DB, k.ID); err != nil {
		return err
	}
	found, err := audit.List(req.Context(), req.s.DB, req.principal.Visibility(), audit.Filter{KeyID: k.ID}, db.Page{Limit: shortList})
	if err != nil {
		return err
	}
	d.Requests = found.Rows
	tokens, more, err := req.s.Tokens.ListByKey(req.Context(), req.s.DB, k.ID, db.Page{Limit: shortList})
	if err != nil {
		return err
	}
	d.Tokens, d.More = tokenRows(tokens, req.now()), more
	if d.Leaks, err = leaks.ListByKey(req.Context(), req.s.DB, k.ID, shortList); err != nil {
		return err
	}
	return req.keyFamily(d)
}

// keyFamily reads the key's descendants.
func (req *request) keyFamily(d *keyData) (err error) {
	k := d.Key.Key
	list, more, err := req.s.Keys.Descendants(req.Context(), req.s.DB, k.ID, events.MaxDescendants)
	if err != nil {
		return err
	}
	d.MoreDescendants, d.CanRevokeMore = more, more
	d.Descendants, err = req.keyRows(list...)
	for _, row := range d.Descendants {
		d.CanRevokeMore = d.CanRevokeMore || row.RevokedAt == nil
	}
	return err
}

type tokenRow struct {
	*access.Token
	State string
}

func tokenRows(list []*access.Token, now time.Time) []tokenRow {
	return web.Map(list, func(t *access.Token) tokenRow { return tokenRow{t, t.Status(now)} })
}

type tokensData struct {
	Key    *access.Key
	Tokens []tokenRow
	Next   pager
}

func tokensPage(req *request, k *access.Key) (*view, error) {
	page := req.page(ids.ScopedToken)
	list, more, err := req.s.Tokens.ListByKey(req.Context(), req.s.DB, k.ID, page)
	if err != nil {
		return nil, err
	}
	d := tokensData{Key: k, Tokens: tokenRows(list, req.now()), Next: req.pager(page, more, func() string { return list[len(list)-1].ID })}
	return &view{template: "key_tokens", title: "Scoped tokens of " + k.Name, data: d, live: true}, nil
}

func revokeToken(req *request) (*view, error) {
	keyID, id := req.id(), req.R.PathValue("token")
	return req.save(req.to("keys/"+keyID), "Scoped token revoked.", func(tx *db.Tx) error {
		t, err := req.s.Tokens.Get(req.Context(), tx, req.principal.Visibility(), id)
		if err != nil {
			return err
		}
		if t.KeyID != keyID {
			return fault.NoSuch("scoped token", id)
		}
		_, err = req.s.Tokens.Revoke(req.Context(), tx, req.caller(), req.principal.Visibility(), id)
		return err
	})
}
