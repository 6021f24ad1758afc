package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
)

type scopedTokenObject struct {
	ID        string          `json:"id"`
	Object    string          `json:"object"`
	Value     string          `json:"value,omitzero"`
	Scopes    []string        `json:"scopes"`
	ExpiresIn int64           `json:"expires_in"`
	ExpiresAt int64           `json:"expires_at"`
	Metadata  json.RawMessage `json:"metadata"`
	Project   *string         `json:"project"`
	User      *string         `json:"user"`
	allowedLists
	Environment accounts.Environment `json:"environment"`
	CreatedAt   int64                `json:"created_at"`
	Revoked     bool                 `json:"revoked"`
}

func newScopedTokenObject(t *access.Token, value, user string) *scopedTokenObject {
	return &scopedTokenObject{ID: t.ID, Object: "scoped_token", Value: value, Scopes: t.Scopes,
		ExpiresIn: int64(t.ExpiresAt.Sub(t.CreatedAt) / time.Second), ExpiresAt: t.ExpiresAt.Unix(), Metadata: t.Metadata,
		Project: orNil(t.Project), User: orNil(user), allowedLists: newAllowedLists(t.Allowed), Environment: t.Environment, CreatedAt: t.CreatedAt.Unix(), Revoked: t.RevokedAt != nil}
}

type createScopedTokenRequest struct {
	Scopes    []string       `json:"scopes"`
	ExpiresIn *int64         `json:"expires_in"`
	Metadata  jsontext.Value `json:"metadata"`
	allowedLists
	User       *string           `json:"user"`
	UserLimits *userLimitsObject `json:"user_limits"`
}

func createScopedToken(ctx context.Context, c *Call, tx *db.Tx, in createScopedTokenRequest) (any, error) {
	lifetime := access.MaxTokenLifetime
	if in.ExpiresIn != nil {
		lifetime = fromSeconds(*in.ExpiresIn, access.MaxTokenLifetime)
	}
	t := &access.Token{Scopes: in.Scopes, Project: c.Project, Metadata: json.RawMessage("{}")}
	if len(in.Metadata) > 0 && in.Metadata.Kind() != 'n' {
		t.Metadata = json.RawMessage(in.Metadata)
	}
	var err error
	if t.Allowed, err = c.readAllowed(in.allowedLists, c.routesIn(ctx, tx, t.Project)); err != nil {
		return nil, err
	}
	if err := c.createProjectIn(ctx, tx); err != nil { // the token's own requests can't create it
		return nil, err
	}
	user, err := c.assignUser(ctx, tx, t, in)
	if err != nil {
		return nil, err
	}
	value, err := c.s.Tokens.Mint(ctx, tx, c.Principal, t, lifetime)
	if err != nil {
		return nil, err
	}
	return newScopedTokenObject(t, value, user), nil
}

// assignUser gives the token its end user, whose account gets the limits in the request. It returns the name.
func (c *Call) assignUser(ctx context.Context, tx *db.Tx, t *access.Token, in createScopedTokenRequest) (string, error) {
	if in.User == nil {
		if in.UserLimits != nil {
			return "", fault.Missing("user", "user is required with user_limits. It is your ID of the user.")
		}
		return "", nil
	}
	var limits accounts.UserLimits
	if in.UserLimits != nil {
		limits = in.UserLimits.limits()
	}
	u, err := spend.AssignUser(ctx, tx, t, endusers.Use{Tenant: c.Principal.Tenant, Name: *in.User, Limits: limits, At: c.s.Now()})
	if err != nil {
		return "", err
	}
	return u.Name, nil
}

func revokeScopedToken(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	t, err := c.s.Tokens.Revoke(ctx, tx, c.Caller(), c.Principal.Visibility(), c.id())
	if err != nil {
		return nil, err
	}
	var user string
	if t.EndUserID != "" {
		u, err := endusers.Get(ctx, tx, t.Tenant, t.EndUserID)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		if u != nil {
			user = u.Name
		}
	}
	return newScopedTokenObject(t, "", user), nil
}
