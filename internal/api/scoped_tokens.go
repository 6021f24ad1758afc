package api

import (
	"encoding/json"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/access"
	"turnpike/internal/db"
	"turnpike/internal/ids"
)

type scopedTokenObject struct {
	ID          string          `json:"id"`
	Object      string          `json:"object"`
	Value       string          `json:"value,omitzero"`
	Scopes      []string        `json:"scopes"`
	ExpiresIn   int64           `json:"expires_in"`
	ExpiresAt   int64           `json:"expires_at"`
	Metadata    json.RawMessage `json:"metadata"`
	Project     *string         `json:"project"`
	Environment string          `json:"environment"`
	CreatedAt   int64           `json:"created_at"`
	Revoked     bool            `json:"revoked"`
}

func newScopedTokenObject(t *access.Token, value string) *scopedTokenObject {
	return &scopedTokenObject{ID: t.ID, Object: "scoped_token", Value: value, Scopes: t.Scopes,
		ExpiresIn: int64(t.ExpiresAt.Sub(t.CreatedAt) / time.Second), ExpiresAt: t.ExpiresAt.Unix(), Metadata: t.Metadata,
		Project: orNil(t.Project), Environment: string(t.Environment), CreatedAt: t.CreatedAt.Unix(), Revoked: t.RevokedAt != nil}
}

type createScopedTokenRequest struct {
	Scopes    []string       `json:"scopes"`
	ExpiresIn *int64         `json:"expires_in"`
	Metadata  jsontext.Value `json:"metadata"`
}

func createScopedToken(c *Call, tx *db.Tx, in createScopedTokenRequest) (any, error) {
	lifetime := access.MaxTokenLifetime
	if in.ExpiresIn != nil {
		// Anything out of range is as wrong as one second too much, and must
		// not overflow on the way.
		lifetime = time.Duration(min(max(*in.ExpiresIn, 0), int64(access.MaxTokenLifetime/time.Second)+1)) * time.Second
	}
	t := &access.Token{Scopes: in.Scopes, Project: c.Project, Metadata: json.RawMessage("{}")}
	if len(in.Metadata) > 0 && in.Metadata.Kind() != 'n' {
		t.Metadata = json.RawMessage(in.Metadata)
	}
	if err := c.createProjectIn(tx); err != nil { // the token's requests can't
		return nil, err
	}
	value, err := c.s.Tokens.Mint(c.Context(), tx, c.Principal, t, lifetime)
	if err != nil {
		return nil, err
	}
	return newScopedTokenObject(t, value), nil
}

func revokeScopedToken(c *Call, tx *db.Tx, _ struct{}) (any, error) {
	id, err := c.pathID(ids.ScopedToken, "scoped token")
	if err != nil {
		return nil, err
	}
	t, err := c.s.Tokens.Revoke(c.Context(), tx, c.Caller(), c.Principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	return newScopedTokenObject(t, ""), nil
}
