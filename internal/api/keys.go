package api

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/jsonbody"
	"turnpike/internal/spend"
)

// KeyObject is a key as the interface shows it. Value is there only in the
// answers that make a secret.
type KeyObject struct {
	ID             string          `json:"id"`
	Object         string          `json:"object"`
	Name           string          `json:"name"`
	Prefix         string          `json:"prefix"`
	LastFour       string          `json:"last_four"`
	Value          string          `json:"value,omitzero"`
	Environment    string          `json:"environment"`
	Scopes         []string        `json:"scopes"`
	MonthlyBudget  *credits.Micro  `json:"monthly_budget"`
	SpentThisMonth credits.Micro   `json:"spent_this_month"`
	Project        *string         `json:"project"`
	AllowedIPs     []string        `json:"allowed_ips"`
	RateLimit      *int64          `json:"rate_limit"`
	Status         string          `json:"status"`
	CreatedAt      int64           `json:"created_at"`
	CreatedBy      string          `json:"created_by"`
	ParentKeyID    *string         `json:"parent_key_id"`
	LastUsedAt     *int64          `json:"last_used_at"`
	LastUsedIP     *string         `json:"last_used_ip"`
	ExpiresAt      *int64          `json:"expires_at"`
	Previous       *previousObject `json:"previous"`
}

type previousObject struct {
	LastFour   string `json:"last_four"`
	ExpiresAt  int64  `json:"expires_at"`
	LastUsedAt *int64 `json:"last_used_at"`
}

// KeyObjects shows keys with what they have spent. The command line shows the
// same. Test calls are free.
func KeyObjects(ctx context.Context, q db.Querier, now time.Time, list ...*access.Key) ([]*KeyObject, error) {
	out, ids := make([]*KeyObject, len(list)), make([]string, len(list))
	for i, k := range list {
		out[i], ids[i] = NewKeyObject(k, now), k.ID
	}
	spent, err := spend.Spent(ctx, q, spend.Key, ids, spend.PeriodOf(now))
	for _, o := range out {
		o.SpentThisMonth = spent[o.ID]
	}
	return out, err
}

// NewKeyObject shows a key that has spent nothing.
func NewKeyObject(k *access.Key, now time.Time) *KeyObject {
	o := &KeyObject{ID: k.ID, Object: "key", Name: k.Name, Prefix: k.Prefix, LastFour: k.LastFour, Environment: string(k.Environment),
		Scopes: k.Scopes, MonthlyBudget: k.MonthlyBudget, Project: orNil(k.Project), RateLimit: k.RateLimit, Status: k.Status(now),
		CreatedAt: k.CreatedAt.Unix(), CreatedBy: k.CreatedBy, ParentKeyID: orNil(k.ParentID), LastUsedAt: unix(k.LastUsedAt), LastUsedIP: orNil(k.LastUsedIP), ExpiresAt: unix(k.ExpiresAt)}
	o.AllowedIPs = make([]string, len(k.AllowedIPs))
	for i, n := range k.AllowedIPs {
		o.AllowedIPs[i] = showPrefix(n)
	}
	if p := k.Previous; p != nil && now.Before(p.ExpiresAt) {
		o.Previous = &previousObject{p.LastFour, p.ExpiresAt.Unix(), unix(p.LastUsedAt)}
	}
	return o
}

// showPrefix writes a range of one address as the address.
func showPrefix(n netip.Prefix) string {
	if n.IsSingleIP() {
		return n.Addr().String()
	}
	return n.String()
}

func (c *Call) key(q db.Querier, k *access.Key) (*KeyObject, error) {
	list, err := KeyObjects(c.Context(), q, c.s.Now(), k)
	return list[0], err
}

// lockKey reads the key that the path names, within the caller's tenancy, for
// a change.
func (c *Call) lockKey(tx *db.Tx) (*access.Key, error) {
	id, err := c.pathID(ids.Key, "key")
	if err != nil {
		return nil, err
	}
	return c.s.Keys.GetLocked(c.Context(), tx, c.Principal.Visibility(), id)
}

type createKeyRequest struct {
	Name          string         `json:"name"`
	Scopes        []string       `json:"scopes"`
	MonthlyBudget *credits.Micro `json:"monthly_budget"`
	Project       *string        `json:"project"`
	AllowedIPs    []string       `json:"allowed_ips"`
	RateLimit     *int64         `json:"rate_limit"`
	ExpiresAt     *int64         `json:"expires_at"`
}

func createKey(c *Call, tx *db.Tx, in createKeyRequest) (any, error) {
	k := &access.Key{WorkspaceID: c.Principal.WorkspaceID, Environment: c.Principal.Environment, Name: in.Name, Scopes: in.Scopes,
		MonthlyBudget: in.MonthlyBudget, RateLimit: in.RateLimit}
	var err error
	if k.ExpiresAt, err = expiry(in.ExpiresAt); err != nil {
		return nil, err
	}
	if k.AllowedIPs, err = access.ParseAllowedIPs(in.AllowedIPs); err != nil {
		return nil, err
	}
	if in.Project != nil {
		if err := c.s.Keys.PinToProject(c.Context(), tx, c.Caller(), k, *in.Project); err != nil {
			return nil, err
		}
	}
	value, err := c.s.Keys.Create(c.Context(), tx, c.Caller(), k)
	if err != nil {
		return nil, err
	}
	o, err := c.key(tx, k)
	o.Value = value
	return o, err
}

// expiry reads a Unix time; what is too large for a clock is no time.
func expiry(seconds *int64) (*time.Time, error) {
	if seconds == nil {
		return nil, nil
	}
	if *seconds < 0 || *seconds > farFuture {
		return nil, fault.Invalid("expires_at", "expires_at must be a Unix time in seconds")
	}
	t := time.Unix(*seconds, 0)
	return &t, nil
}

func listKeys(c *Call) (any, error) {
	q := c.query(pageParams...)
	page := q.page(ids.Key)
	if q.err != nil {
		return nil, q.err
	}
	keys, more, err := c.s.Keys.List(c.Context(), c.s.DB, c.Principal.Visibility(), page)
	if err != nil {
		return nil, err
	}
	data, err := KeyObjects(c.Context(), c.s.DB, c.s.Now(), keys...)
	if err != nil {
		return nil, err
	}
	return newList(data, func(k *KeyObject) string { return k.ID }, more), nil
}

func getKey(c *Call) (any, error) {
	id, err := c.pathID(ids.Key, "key")
	if err != nil {
		return nil, err
	}
	k, err := c.s.Keys.Get(c.Context(), c.s.DB, c.Principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	return c.key(c.s.DB, k)
}

type updateKeyRequest struct {
	Name          jsonbody.Optional[string]        `json:"name"`
	Scopes        jsonbody.Optional[[]string]      `json:"scopes"`
	MonthlyBudget jsonbody.Optional[credits.Micro] `json:"monthly_budget"`
	Project       jsonbody.Optional[string]        `json:"project"`
	AllowedIPs    jsonbody.Optional[[]string]      `json:"allowed_ips"`
	RateLimit     jsonbody.Optional[int64]         `json:"rate_limit"`
	ExpiresAt     jsonbody.Optional[int64]         `json:"expires_at"`
}

func updateKey(c *Call, tx *db.Tx, in updateKeyRequest) (any, error) {
	before, err := c.lockKey(tx)
	if err != nil {
		return nil, err
	}
	k := *before
	if in.Name.Set {
		k.Name = in.Name.Value
	}
	if in.Scopes.Set {
		k.Scopes = in.Scopes.Value
	}
	if in.MonthlyBudget.Set {
		k.MonthlyBudget = in.MonthlyBudget.Pointer()
	}
	if in.RateLimit.Set {
		k.RateLimit = in.RateLimit.Pointer()
	}
	if in.ExpiresAt.Set {
		if k.ExpiresAt, err = expiry(in.ExpiresAt.Pointer()); err != nil {
			return nil, err
		}
	}
	if in.AllowedIPs.Set {
		if k.AllowedIPs, err = access.ParseAllowedIPs(in.AllowedIPs.Value); err != nil {
			return nil, err
		}
	}
	if in.Project.Set {
		k.Project = ""
		if !in.Project.Null {
			if err := c.s.Keys.PinToProject(c.Context(), tx, c.Caller(), &k, in.Project.Value); err != nil {
				return nil, err
			}
		}
	}
	if err := c.s.Keys.Update(c.Context(), tx, c.Caller(), before, &k); err != nil {
		return nil, err
	}
	spend.ReclaimLeases(tx, spend.Account{Level: spend.Key, ID: k.ID}, spend.PeriodOf(c.s.Now()))
	return c.key(tx, &k)
}

func revokeKey(c *Call, tx *db.Tx, _ struct{}) (any, error) {
	q := c.query("descendants")
	descendants := q.boolean("descendants")
	if q.err != nil {
		return nil, q.err
	}
	k, err := c.lockKey(tx)
	if err != nil {
		return nil, err
	}
	if descendants {
		_, err = c.s.Keys.RevokeWithDescendants(c.Context(), tx, c.Caller(), k)
	} else {
		err = c.s.Keys.Revoke(c.Context(), tx, c.Caller(), k)
	}
	if err != nil {
		return nil, err
	}
	return c.key(tx, k)
}

type rotateKeyRequest struct {
	GracePeriodSeconds *int64 `json:"grace_period_seconds"`
	Force              bool   `json:"force"`
}

func rotateKey(c *Call, tx *db.Tx, in rotateKeyRequest) (any, error) {
	k, err := c.lockKey(tx)
	if err != nil {
		return nil, err
	}
	r := access.Rotation{Force: in.Force}
	if in.GracePeriodSeconds == nil {
		w, err := accounts.GetWorkspace(c.Context(), tx, k.WorkspaceID)
		if err != nil {
			return nil, err
		}
		r.Grace = w.RotationGrace
	} else if s := *in.GracePeriodSeconds; s >= 0 && s <= int64(accounts.MaxRotationGrace/time.Second) {
		r.Grace = time.Duration(s) * time.Second
	} else {
		r.Grace = -1 // out of range, and too large for a Duration perhaps: Rotate says so
	}
	value, err := c.s.Keys.Rotate(c.Context(), tx, c.Caller(), k, r)
	if err != nil {
		return nil, err
	}
	if k, err = c.lockKey(tx); err != nil {
		return nil, errors.Join(errors.New("read rotated key"), err)
	}
	o, err := c.key(tx, k)
	o.Value = value
	return o, err
}

func endKeyGrace(c *Call, tx *db.Tx, _ struct{}) (any, error) {
	k, err := c.lockKey(tx)
	if err != nil {
		return nil, err
	}
	if err := c.s.Keys.EndGrace(c.Context(), tx, c.Caller(), k); err != nil {
		return nil, err
	}
	k.Previous = nil
	return c.key(tx, k)
}
