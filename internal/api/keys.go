package api

import (
	"context"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/jsonbody"
	"turnpike/internal/spend"
	"turnpike/internal/web"
)

// KeyObject is a key. Only responses that create a secret have Value.
type KeyObject struct {
	ID             string               `json:"id"`
	Object         string               `json:"object"`
	Name           string               `json:"name"`
	Prefix         string               `json:"prefix"`
	LastFour       string               `json:"last_four"`
	Value          string               `json:"value,omitzero"`
	Environment    accounts.Environment `json:"environment"`
	Scopes         []string             `json:"scopes"`
	MonthlyBudget  *credits.Micro       `json:"monthly_budget"`
	SpentThisMonth credits.Micro        `json:"spent_this_month"`
	limitsObject
	Project      *string           `json:"project"`
	AllowedIPs   []string          `json:"allowed_ips"`
	RateLimit    *int64            `json:"rate_limit"`
	AllowedTools *[]string         `json:"allowed_tools"`
	ExternalID   *string           `json:"external_id"`
	Metadata     map[string]string `json:"metadata"`
	allowedLists
	ContentLogDays *int64          `json:"content_log_days"`
	ContentOptOut  bool            `json:"content_log_opt_out"`
	Status         string          `json:"status"`
	CreatedAt      int64           `json:"created_at"`
	CreatedBy      string          `json:"created_by"`
	ParentKeyID    *string         `json:"parent_key_id"`
	LastUsedAt     *int64          `json:"last_used_at"`
	LastUsedIP     *string         `json:"last_used_ip"`
	ExpiresAt      *int64          `json:"expires_at"`
	Previous       *previousObject `json:"previous"`

	AlertThresholds *accounts.AlertThresholds `json:"alert_thresholds"`
	AlertEmail      *string                   `json:"alert_email"`
	Forecast        *forecastObject           `json:"forecast"`
}

type previousObject struct {
	LastFour   string `json:"last_four"`
	ExpiresAt  int64  `json:"expires_at"`
	LastUsedAt *int64 `json:"last_used_at"`
}

// KeyObjects returns keys with their spending, for the API and the CLI. Test
// requests are free.
func KeyObjects(ctx context.Context, q db.Querier, now time.Time, list ...*access.Key) ([]*KeyObject, error) {
	out, ids := make([]*KeyObject, len(list)), make([]string, len(list))
	for i, k := range list {
		out[i], ids[i] = NewKeyObject(k, now), k.ID
	}
	spent, err := spend.Spent(ctx, q, spend.Key, ids, spend.PeriodOf(now))
	if err != nil {
		return out, err
	}
	underLimits, err := spend.SpentUnderLimits(ctx, q, web.Map(list, spend.KeyBudgets), now)
	for _, o := range out {
		o.SpentThisMonth = spent[o.ID]
		o.Forecast = newForecastObject(o.SpentThisMonth, o.MonthlyBudget, now)
		o.addSpent(underLimits)
	}
	return out, err
}

// NewKeyObject returns a key without its spending.
func NewKeyObject(k *access.Key, now time.Time) *KeyObject {
	o := &KeyObject{ID: k.ID, Object: "key", Name: k.Name, Prefix: k.Prefix, LastFour: k.LastFour, Environment: k.Environment,
		Scopes: k.Scopes, MonthlyBudget: k.MonthlyBudget, Project: orNil(k.Project), RateLimit: k.RateLimit, Status: k.Status(now),
		CreatedAt: k.CreatedAt.Unix(), CreatedBy: k.CreatedBy, ParentKeyID: orNil(k.ParentID), LastUsedAt: unix(k.LastUsedAt), LastUsedIP: orNil(k.LastUsedIP), ExpiresAt: unix(k.ExpiresAt)}
	o.AlertThresholds, o.AlertEmail = thresholdsOrNull(k.AlertThresholds), orNil(k.AlertEmail)
	o.allowedLists, o.ContentLogDays, o.ContentOptOut = newAllowedLists(k.Allowed), k.ContentDays, k.ContentOptOut
	o.limitsObject = newLimitsObject(k.Limits, k.Raise, now)
	o.ExternalID, o.Metadata = orNil(k.ExternalID), k.Metadata
	if o.Metadata == nil {
		o.Metadata = map[string]string{}
	}
	o.AllowedIPs = web.Map(k.AllowedIPs, web.ShowPrefix)
	if k.AllowedTools != nil {
		o.AllowedTools = &k.AllowedTools
	}
	if p := k.Previous; p != nil && now.Before(p.ExpiresAt) {
		o.Previous = &previousObject{p.LastFour, p.ExpiresAt.Unix(), unix(p.LastUsedAt)}
	}
	return o
}

func (c *Call) key(ctx context.Context, q db.Querier, k *access.Key) (*KeyObject, error) {
	list, err := KeyObjects(ctx, q, c.s.Now(), k)
	return list[0], err
}

func (c *Call) lockKey(ctx context.Context, tx *db.Tx) (*access.Key, error) {
	return c.s.Keys.GetLocked(ctx, tx, c.Principal.Visibility(), c.id())
}

type createKeyRequest struct {
	Name          string         `json:"name"`
	Scopes        []string       `json:"scopes"`
	MonthlyBudget *credits.Micro `json:"monthly_budget"`
	Project       *string        `json:"project"`
	AllowedIPs    []string       `json:"allowed_ips"`
	RateLimit     *int64         `json:"rate_limit"`
	AllowedTools  *[]string      `json:"allowed_tools"`
	ExpiresAt     *int64         `json:"expires_at"`
	limitFields

	AlertThresholds accounts.AlertThresholds `json:"alert_thresholds"`
	AlertEmail      string                   `json:"alert_email"`
	allowedLists
	ContentLogDays *int64            `json:"content_log_days"`
	ContentOptOut  bool              `json:"content_log_opt_out"`
	ExternalID     string            `json:"external_id"`
	Metadata       map[string]string `json:"metadata"`
}

func createKey(ctx context.Context, c *Call, tx *db.Tx, in createKeyRequest) (any, error) {
	k := &access.Key{Tenant: c.Principal.Tenant, Name: in.Name, Scopes: in.Scopes,
		MonthlyBudget: in.MonthlyBudget, RateLimit: in.RateLimit, AlertThresholds: in.AlertThresholds, AlertEmail: in.AlertEmail,
		ExternalID: in.ExternalID, Metadata: in.Metadata, ContentDays: in.ContentLogDays, ContentOptOut: in.ContentOptOut}
	if in.AllowedTools != nil {
		k.AllowedTools = *in.AllowedTools
	}
	var err error
	if err := c.applyLimits(in.limitFields, &k.Limits, &k.Raise); err != nil {
		return nil, err
	}
	if k.ExpiresAt, err = fromUnix("expires_at", in.ExpiresAt); err != nil {
		return nil, err
	}
	if k.AllowedIPs, err = access.ParseAllowedIPs(in.AllowedIPs); err != nil {
		return nil, err
	}
	if in.Project != nil {
		if err := c.s.Keys.PinToProject(ctx, tx, c.Caller(), k, *in.Project); err != nil {
			return nil, err
		}
	}
	if k.Allowed, err = c.readAllowed(in.allowedLists, c.routesIn(ctx, tx, k.Project)); err != nil {
		return nil, err
	}
	value, err := c.s.Keys.Create(ctx, tx, c.Caller(), k)
	if err != nil {
		return nil, err
	}
	o, err := c.key(ctx, tx, k)
	o.Value = value
	return o, err
}

func listKeys(ctx context.Context, c *Call) (any, error) {
	q, metadata := c.queryWithMetadata(append(pageParams, "status", "project", "external_id", "search")...)
	page := q.page(ids.Key)
	f := access.KeyFilter{State: choice(q, "status", access.States), Project: q.text("project"), ExternalID: q.text("external_id"), Text: q.text("search"), Metadata: metadata}
	if q.err != nil {
		return nil, q.err
	}
	keys, more, err := c.s.Keys.Search(ctx, c.s.DB, c.Principal.Visibility(), f, page)
	if err != nil {
		return nil, err
	}
	data, err := KeyObjects(ctx, c.s.DB, c.s.Now(), keys...)
	if err != nil {
		return nil, err
	}
	return newList(data, func(k *KeyObject) string { return k.ID }, more), nil
}

func getKey(ctx context.Context, c *Call) (any, error) {
	k, err := c.s.Keys.Get(ctx, c.s.DB, c.Principal.Visibility(), c.id())
	if err != nil {
		return nil, err
	}
	return c.key(ctx, c.s.DB, k)
}

type updateKeyRequest struct {
	Name          jsonbody.Optional[string]        `json:"name"`
	Scopes        jsonbody.Optional[[]string]      `json:"scopes"`
	MonthlyBudget jsonbody.Optional[credits.Micro] `json:"monthly_budget"`
	Project       jsonbody.Optional[string]        `json:"project"`
	AllowedIPs    jsonbody.Optional[[]string]      `json:"allowed_ips"`
	RateLimit     jsonbody.Optional[int64]         `json:"rate_limit"`
	AllowedTools  jsonbody.Optional[[]string]      `json:"allowed_tools"`
	ExpiresAt     jsonbody.Optional[int64]         `json:"expires_at"`
	limitFields

	AlertThresholds jsonbody.Optional[accounts.AlertThresholds] `json:"alert_thresholds"`
	AlertEmail      jsonbody.Optional[string]                   `json:"alert_email"`
	allowedChanges
	ContentLogDays jsonbody.Optional[int64]             `json:"content_log_days"`
	ContentOptOut  jsonbody.Optional[bool]              `json:"content_log_opt_out"`
	ExternalID     jsonbody.Optional[string]            `json:"external_id"`
	Metadata       jsonbody.Optional[map[string]string] `json:"metadata"`
}

// set sets a field that the body contains.
func set[T any](field *T, in jsonbody.Optional[T]) {
	if in.Set {
		*field = in.Value
	}
}

func setNullable[T any](field **T, in jsonbody.Optional[T]) {
	if in.Set {
		*field = in.Pointer()
	}
}

func updateKey(ctx context.Context, c *Call, tx *db.Tx, in updateKeyRequest) (any, error) {
	k, err := c.s.Keys.Change(ctx, tx, c.id(), access.Change[access.Key]{By: c.Caller(), Apply: func(k *access.Key) error { return in.apply(ctx, c, tx, k) }})
	if err != nil {
		return nil, err
	}
	return c.key(ctx, tx, k)
}

func (in *updateKeyRequest) apply(ctx context.Context, c *Call, tx *db.Tx, k *access.Key) (err error) {
	set(&k.Name, in.Name)
	set(&k.Scopes, in.Scopes)
	setNullable(&k.MonthlyBudget, in.MonthlyBudget)
	setNullable(&k.RateLimit, in.RateLimit)
	set(&k.AlertThresholds, in.AlertThresholds)
	set(&k.AlertEmail, in.AlertEmail)
	set(&k.AllowedTools, in.AllowedTools)
	setNullable(&k.ContentDays, in.ContentLogDays)
	set(&k.ContentOptOut, in.ContentOptOut)
	if err := c.applyLimits(in.limitFields, &k.Limits, &k.Raise); err != nil {
		return err
	}
	set(&k.ExternalID, in.ExternalID)
	set(&k.Metadata, in.Metadata)
	if in.ExpiresAt.Set {
		if k.ExpiresAt, err = fromUnix("expires_at", in.ExpiresAt.Pointer()); err != nil {
			return err
		}
	}
	if in.AllowedIPs.Set {
		if k.AllowedIPs, err = access.ParseAllowedIPs(in.AllowedIPs.Value); err != nil {
			return err
		}
	}
	if in.Project.Set && in.Project.Null {
		k.Project = ""
	} else if in.Project.Set {
		if err := c.s.Keys.PinToProject(ctx, tx, c.Caller(), k, in.Project.Value); err != nil {
			return err
		}
	}
	return c.changeAllowed(&k.Allowed, in.allowedChanges, c.routesIn(ctx, tx, k.Project))
}

func revokeKey(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	q := c.query("descendants")
	descendants := q.boolean("descendants")
	if q.err != nil {
		return nil, q.err
	}
	k, err := c.lockKey(ctx, tx)
	if err != nil {
		return nil, err
	}
	if descendants {
		_, err = c.s.Keys.RevokeWithDescendants(ctx, tx, c.Caller(), k)
	} else {
		err = c.s.Keys.Revoke(ctx, tx, c.Caller(), k)
	}
	if err != nil {
		return nil, err
	}
	return c.key(ctx, tx, k)
}

type rotateKeyRequest struct {
	GracePeriodSeconds *int64 `json:"grace_period_seconds"`
	Force              bool   `json:"force"`
}

func rotateKey(ctx context.Context, c *Call, tx *db.Tx, in rotateKeyRequest) (any, error) {
	k, err := c.lockKey(ctx, tx)
	if err != nil {
		return nil, err
	}
	r := access.Rotation{Force: in.Force}
	if in.GracePeriodSeconds == nil {
		w, err := accounts.GetWorkspace(ctx, tx, k.WorkspaceID)
		if err != nil {
			return nil, err
		}
		r.Grace = w.RotationGrace
	} else {
		r.Grace = fromSeconds(*in.GracePeriodSeconds, accounts.MaxRotationGrace)
	}
	value, err := c.s.Keys.Rotate(ctx, tx, c.Caller(), k, r)
	if err != nil {
		return nil, err
	}
	if k, err = c.lockKey(ctx, tx); err != nil {
		return nil, err
	}
	o, err := c.key(ctx, tx, k)
	o.Value = value
	return o, err
}

func endKeyGrace(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	k, err := c.lockKey(ctx, tx)
	if err != nil {
		return nil, err
	}
	if err := c.s.Keys.EndGrace(ctx, tx, c.Caller(), k); err != nil {
		return nil, err
	}
	k.Previous = nil
	return c.key(ctx, tx, k)
}
