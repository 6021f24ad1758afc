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
)

const (
	// shortList is how many rows a list has that leads to a longer one.
	shortList = 10
	// looksBack is how many of a key's newest requests tell where it is used
	// from.
	looksBack = 500
)

type keyData struct {
	Now       time.Time
	Key       keyRow
	IPs       string
	CreatedBy string
	Secret    string // right after it was made
	Example   string // a call that the key may make, with the secret
	Manages   bool   // whether the person may change it
	Days      *daily
	LooksBack int
	Addresses []keyAddress
	Requests  []*audit.Entry
	Tokens    []tokenRow
	More      bool // tokens
	Leaks     []*leaks.Note

	Parent          *access.Key // the key that created it
	Descendants     []keyRow    // the keys that it created, directly or through others
	MoreDescendants bool
	CanRevokeMore   bool // some of them work
}

func keyPage(v *visit) (*view, error) {
	id, err := v.pathID(ids.Key, "key")
	if err != nil {
		return nil, err
	}
	k, err := v.s.Keys.Get(v.ctx(), v.s.DB, v.principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	rows, err := v.keyRows(k)
	if err != nil {
		return nil, err
	}
	d := &keyData{Now: v.now(), Key: rows[0], IPs: showAddresses(k.AllowedIPs), Secret: v.shownSecret(k.ID), Manages: v.caller().CanManage(k), LooksBack: looksBack}
	if d.Secret != "" {
		d.Example = v.example(k, d.Secret)
	}
	if err := v.keyHistory(d); err != nil {
		return nil, err
	}
	return &view{template: "key", title: k.Name, data: d, live: true}, nil
}

// keyHistory reads what the key was used for.
func (v *visit) keyHistory(d *keyData) (err error) {
	k := d.Key.Key
	names, err := v.peopleNames(k.CreatedBy)
	if err != nil {
		return err
	}
	d.CreatedBy = actorName(k.CreatedBy, names, nil)
	if d.Days, err = v.lastDays(spend.UsageQuery{KeyID: k.ID}); err != nil {
		return err
	}
	if d.Addresses, err = addressesOf(v.ctx(), v.s.DB, k.ID); err != nil {
		return err
	}
	found, err := audit.List(v.ctx(), v.s.DB, v.principal.Visibility(), audit.Filter{KeyID: k.ID}, db.Page{Limit: shortList})
	if err != nil {
		return err
	}
	d.Requests = found.Rows
	tokens, more, err := v.s.Tokens.ListByKey(v.ctx(), v.s.DB, k.ID, db.Page{Limit: shortList})
	if err != nil {
		return err
	}
	d.Tokens, d.More = tokenRows(tokens, v.now()), more
	if d.Leaks, err = leaks.ListByKey(v.ctx(), v.s.DB, k.ID, shortList); err != nil {
		return err
	}
	return v.keyFamily(d)
}

// keyFamily reads which key created the key, and which keys it created.
func (v *visit) keyFamily(d *keyData) (err error) {
	k := d.Key.Key
	if k.ParentID != "" {
		if d.Parent, err = v.s.Keys.Get(v.ctx(), v.s.DB, v.principal.Visibility(), k.ParentID); err != nil {
			return err
		}
	}
	list, more, err := v.s.Keys.Descendants(v.ctx(), v.s.DB, k.ID, events.MaxDescendants)
	if err != nil {
		return err
	}
	d.MoreDescendants, d.CanRevokeMore = more, more
	d.Descendants, err = v.keyRows(list...)
	for _, row := range d.Descendants {
		d.CanRevokeMore = d.CanRevokeMore || row.RevokedAt == nil
	}
	return err
}

// example is a call for the command line that the key may make.
func (v *visit) example(k *access.Key, secret string) string {
	_, grant, err := access.ParseScopes(k.Scopes)
	if err == nil && grant.Allows(access.ChatCompletionsCreate) {
		return exampleCall(v.s.PublicURL, secret)
	}
	return "curl " + v.s.PublicURL + "/v1/models -H \"Authorization: Bearer " + secret + "\""
}

func exampleCall(base, secret string) string {
	return "curl " + base + "/v1/chat/completions \\\n  -H \"Authorization: Bearer " + secret + "\" \\\n  -H \"Content-Type: application/json\" \\\n" +
		`  -d '{"model":"gpt-4o-mini","messages":[{"role":"user","content":"Hello!"}]}'`
}

// tokenRow is a scoped token with how it stands.
type tokenRow struct {
	*access.Token
	State string
}

func tokenRows(list []*access.Token, now time.Time) []tokenRow {
	out := make([]tokenRow, len(list))
	for i, t := range list {
		out[i] = tokenRow{t, t.Status(now)}
	}
	return out
}

type tokensData struct {
	Now    time.Time
	Key    *access.Key
	Tokens []tokenRow
	Next   pager
}

func tokensPage(v *visit) (*view, error) {
	id, err := v.pathID(ids.Key, "key")
	if err != nil {
		return nil, err
	}
	k, err := v.s.Keys.Get(v.ctx(), v.s.DB, v.principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	page := v.page(ids.ScopedToken)
	list, more, err := v.s.Tokens.ListByKey(v.ctx(), v.s.DB, k.ID, page)
	if err != nil {
		return nil, err
	}
	d := tokensData{Now: v.now(), Key: k, Tokens: tokenRows(list, v.now()), Next: v.pager(page, more, func() string { return list[len(list)-1].ID })}
	return &view{template: "key_tokens", title: "Scoped tokens of " + k.Name, data: d, live: true}, nil
}

func revokeToken(v *visit) (*view, error) {
	keyID, id := v.r.PathValue("id"), v.r.PathValue("token")
	err := v.write(func(tx *db.Tx) error {
		t, err := v.s.Tokens.Get(v.ctx(), tx, v.principal.Visibility(), id)
		if err != nil {
			return err
		}
		if t.KeyID != keyID {
			return fault.NoSuch("scoped token", id)
		}
		_, err = v.s.Tokens.Revoke(v.ctx(), tx, v.caller(), v.principal.Visibility(), id)
		return err
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("keys/"+keyID), flash{Notice: "The scoped token was revoked."})
	return nil, nil
}
