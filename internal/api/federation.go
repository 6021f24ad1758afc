package api

import (
	"cmp"
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/federation"
	"turnpike/internal/ids"
	"turnpike/internal/jsonbody"
	"turnpike/internal/web"
)

type federationRuleObject struct {
	ID       string   `json:"id"`
	Object   string   `json:"object"`
	Name     string   `json:"name"`
	Issuer   string   `json:"issuer"`
	Audience string   `json:"audience"`
	Subject  string   `json:"subject"`
	KeyID    string   `json:"key_id"`
	Scopes   []string `json:"scopes"`
	allowedLists
	Grants         []federation.Grant   `json:"grants"`
	UserClaim      *string              `json:"user_claim"`
	UserLimits     userLimitsObject     `json:"user_limits"`
	ExpiresIn      int64                `json:"expires_in"`
	MetadataClaims []string             `json:"metadata_claims"`
	Project        *string              `json:"project"`
	Environment    accounts.Environment `json:"environment"`
	CreatedAt      int64                `json:"created_at"`
	CreatedBy      string               `json:"created_by"`
	LastUsedAt     *int64               `json:"last_used_at"`
}

func newFederationRuleObject(r *federation.Rule) *federationRuleObject {
	return &federationRuleObject{ID: r.ID, Object: "federation_rule", Name: r.Name, Issuer: r.Issuer, Audience: r.Audience, Subject: r.Subject, KeyID: r.KeyID,
		Scopes: append([]string{}, r.Scopes...), allowedLists: newAllowedLists(r.Allowed), Grants: append([]federation.Grant{}, r.Grants...), UserClaim: orNil(r.UserClaim), UserLimits: newUserLimitsObject(r.UserLimits), ExpiresIn: r.ExpiresIn, MetadataClaims: append([]string{}, r.MetadataClaims...),
		Project: orNil(r.Project), Environment: r.Environment, CreatedAt: r.CreatedAt.Unix(), CreatedBy: r.CreatedBy, LastUsedAt: unix(r.LastUsedAt)}
}

type createFederationRuleRequest struct {
	Name     string   `json:"name"`
	Issuer   string   `json:"issuer"`
	Audience string   `json:"audience"`
	Subject  string   `json:"subject"`
	KeyID    string   `json:"key_id"`
	Scopes   []string `json:"scopes"`
	allowedLists
	Grants         []federation.Grant `json:"grants"`
	UserClaim      string             `json:"user_claim"`
	UserLimits     *userLimitsObject  `json:"user_limits"`
	ExpiresIn      *int64             `json:"expires_in"`
	MetadataClaims []string           `json:"metadata_claims"`
}

func createFederationRule(ctx context.Context, c *Call, tx *db.Tx, in createFederationRuleRequest) (any, error) {
	r := &federation.Rule{Tenant: c.Principal.Tenant, Name: in.Name, Issuer: in.Issuer, Audience: in.Audience, Subject: in.Subject, KeyID: in.KeyID,
		Scopes: in.Scopes, Grants: in.Grants, UserClaim: in.UserClaim, MetadataClaims: in.MetadataClaims}
	if in.UserLimits != nil {
		r.UserLimits = in.UserLimits.limits()
	}
	var err error
	routes := c.routesOfKey(ctx, tx, r.KeyID)
	if r.Allowed, err = c.readAllowed(in.allowedLists, routes); err != nil {
		return nil, err
	}
	if err := cmp.Or(setExpiresIn(r, in.ExpiresIn), c.checkGranted(in.Grants, routes)); err != nil {
		return nil, err
	}
	return show(r, c.s.Federation.Create(ctx, tx, c.Caller(), r), newFederationRuleObject)
}

// routesOfKey is routesIn for the project of a rule's key. The rule's own checks report an unknown key.
func (c *Call) routesOfKey(ctx context.Context, q db.Querier, id string) func() ([]string, error) {
	return func() ([]string, error) {
		k, err := c.s.Keys.Get(ctx, q, c.Principal.Visibility(), id)
		if fault.Is(err, fault.NotFound) {
			return c.routesIn(ctx, q, "")()
		}
		if err != nil {
			return nil, err
		}
		return c.routesIn(ctx, q, k.Project)()
	}
}

func (c *Call) checkGranted(grants []federation.Grant, routes func() ([]string, error)) error {
	return federation.CheckGranted(grants, func(a catalog.Allowed) error { return c.s.Gateway.CheckAllowed(a, routes) })
}

// setExpiresIn sets the lifetime of a rule's tokens; nil means the default.
func setExpiresIn(r *federation.Rule, seconds *int64) error {
	if seconds == nil {
		r.ExpiresIn = 0
		return nil
	}
	if *seconds == 0 { // which would mean the default
		return fault.Invalid("expires_in", "expires_in must be at least 1 second.")
	}
	r.ExpiresIn = *seconds
	return nil
}

func listFederationRules(ctx context.Context, c *Call) (any, error) {
	q := c.query(pageParams...)
	page := q.page(ids.FederationRule)
	if q.err != nil {
		return nil, q.err
	}
	found, err := c.s.Federation.List(ctx, c.s.DB, c.Principal.Visibility(), page)
	if err != nil {
		return nil, err
	}
	return foundList(found, web.Map(found.Rows, newFederationRuleObject), func(r *federation.Rule) string { return r.ID }), nil
}

func getFederationRule(ctx context.Context, c *Call) (any, error) {
	r, err := c.s.Federation.Get(ctx, c.s.DB, c.Principal.Visibility(), c.id())
	return show(r, err, newFederationRuleObject)
}

type updateFederationRuleRequest struct {
	Name     jsonbody.Optional[string]   `json:"name"`
	Issuer   jsonbody.Optional[string]   `json:"issuer"`
	Audience jsonbody.Optional[string]   `json:"audience"`
	Subject  jsonbody.Optional[string]   `json:"subject"`
	KeyID    jsonbody.Optional[string]   `json:"key_id"`
	Scopes   jsonbody.Optional[[]string] `json:"scopes"`
	allowedChanges
	Grants         jsonbody.Optional[[]federation.Grant] `json:"grants"`
	UserClaim      jsonbody.Optional[string]             `json:"user_claim"`
	UserLimits     jsonbody.Optional[userLimitsObject]   `json:"user_limits"`
	ExpiresIn      jsonbody.Optional[int64]              `json:"expires_in"`
	MetadataClaims jsonbody.Optional[[]string]           `json:"metadata_claims"`
}

func updateFederationRule(ctx context.Context, c *Call, tx *db.Tx, in updateFederationRuleRequest) (any, error) {
	r, err := c.s.Federation.Change(ctx, tx, federation.RuleChange{Visibility: c.Principal.Visibility(), ID: c.id(),
		Change: access.Change[federation.Rule]{By: c.Caller(), Apply: func(r *federation.Rule) error { return in.apply(ctx, c, tx, r) }}})
	return show(r, err, newFederationRuleObject)
}

func (in *updateFederationRuleRequest) apply(ctx context.Context, c *Call, tx *db.Tx, r *federation.Rule) error {
	set(&r.Name, in.Name)
	set(&r.Issuer, in.Issuer)
	set(&r.Audience, in.Audience)
	set(&r.Subject, in.Subject)
	set(&r.KeyID, in.KeyID)
	set(&r.Scopes, in.Scopes)
	set(&r.Grants, in.Grants)
	routes := c.routesOfKey(ctx, tx, r.KeyID)
	if err := cmp.Or(c.changeAllowed(&r.Allowed, in.allowedChanges, routes), c.checkGranted(in.Grants.Value, routes)); err != nil {
		return err
	}
	set(&r.UserClaim, in.UserClaim)
	if in.UserLimits.Set {
		r.UserLimits = in.UserLimits.Value.limits()
	}
	set(&r.MetadataClaims, in.MetadataClaims)
	if in.ExpiresIn.Set {
		return setExpiresIn(r, in.ExpiresIn.Pointer())
	}
	return nil
}

func deleteFederationRule(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	r, err := c.s.Federation.GetLocked(ctx, tx, c.Principal.Visibility(), c.id())
	if err != nil {
		return nil, err
	}
	return deletedObject{r.ID, "federation_rule", true}, c.s.Federation.Delete(ctx, tx, c.Caller(), r)
}

const (
	maxTokenRequest = 64 << 10

	tokenExchangeGrant = "urn:ietf:params:oauth:grant-type:token-exchange"
	tokenTypePrefix    = "urn:ietf:params:oauth:token-type:"
)

// issuedToken is the response of RFC 8693.
type issuedToken struct {
	AccessToken     string `json:"access_token"`
	IssuedTokenType string `json:"issued_token_type"`
	TokenType       string `json:"token_type"`
	ExpiresIn       int64  `json:"expires_in"`
	Scope           string `json:"scope"`
}

// exchangeToken exchanges a token of an OpenID Connect issuer for a scoped token (RFC 8693). Its errors
// have OAuth's format.
func exchangeToken(c *Call) error {
	c.W.Header().Set("Cache-Control", "no-store")
	t, err := c.exchange()
	if err != nil {
		return c.sendOAuthError(err)
	}
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, jsonType, body)
	return nil
}

func (c *Call) exchange() (*issuedToken, error) {
	if err := retryAfter(c.s.Federation.Admit(c.IP), "Too many failed exchanges from this address."); err != nil {
		header := c.W.Header()
		header.Set("Connection", "close") // don't wait for the body
		return nil, err
	}
	form, err := c.readURLEncoded(maxTokenRequest)
	if err != nil {
		return nil, err
	}
	one := func(name string) string {
		if err == nil && len(form[name]) > 1 {
			err = fault.Invalid(name, "%s can be given only once.", name)
		}
		return form.Get(name)
	}
	grantType, kind, requested := one("grant_type"), one("subject_token_type"), one("requested_token_type")
	x := federation.Exchange{RuleID: one("client_id"), Token: one("subject_token"), Scopes: strings.Fields(one("scope")), IP: c.IP,
		From: audit.Actor{IP: c.IP.String(), RequestID: c.ID}}
	switch {
	case err != nil:
	case grantType != tokenExchangeGrant:
		err = fault.Invalid("grant_type", "grant_type must be %s.", tokenExchangeGrant)
	case x.Token == "":
		err = fault.Missing("subject_token", "subject_token is required: the token of your OpenID Connect issuer.")
	case kind != tokenTypePrefix+"jwt" && kind != tokenTypePrefix+"id_token":
		err = fault.Invalid("subject_token_type", "subject_token_type must be %[1]sjwt or %[1]sid_token.", tokenTypePrefix)
	case requested != "" && requested != tokenTypePrefix+"access_token":
		err = fault.Invalid("requested_token_type", "requested_token_type must be %saccess_token.", tokenTypePrefix)
	case form.Has("actor_token"):
		err = fault.Invalid("actor_token", "actor_token isn't supported.")
	}
	if err != nil {
		return nil, err
	}
	t, value, err := c.s.Federation.Exchange(c.Context(), x)
	if err != nil {
		return nil, err
	}
	return &issuedToken{AccessToken: value, IssuedTokenType: tokenTypePrefix + "access_token", TokenType: "Bearer",
		ExpiresIn: int64(t.ExpiresAt.Sub(t.CreatedAt) / time.Second), Scope: strings.Join(t.Scopes, " ")}, nil
}

// readURLEncoded reads a body with form fields.
func (c *Call) readURLEncoded(limit int64) (url.Values, error) {
	if kind, _, _ := mime.ParseMediaType(c.R.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return nil, fault.New(fault.UnsupportedMediaType, "The Content-Type must be application/x-www-form-urlencoded.")
	}
	body, err := c.readBody(limit)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fault.New(fault.InvalidParameter, "The form is malformed.")
	}
	return form, nil
}

// sendOAuthError sends an error in the format of RFC 6749. Others keep the API's format.
func (c *Call) sendOAuthError(err error) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	code, status := "invalid_request", http.StatusBadRequest
	switch f.Code {
	case fault.Authentication, fault.IPNotAllowed, fault.LimitReached:
		code = "invalid_grant"
	case fault.InsufficientScope, fault.ScopedTokenNotAllowed:
		code = "invalid_scope"
	case fault.RateLimitExceeded:
		code, status = "slow_down", http.StatusTooManyRequests
		c.W.Header().Set("Retry-After", strconv.Itoa(int(f.RetryAfter.Seconds())+1))
	case fault.Upstream:
		code, status = "temporarily_unavailable", http.StatusServiceUnavailable
	case fault.InvalidParameter, fault.MissingParameter, fault.UnsupportedMediaType, fault.RequestTooLarge:
		if f.Param == "grant_type" {
			code = "unsupported_grant_type"
		}
	default:
		return err
	}
	body, err := json.Marshal(map[string]string{"error": code, "error_description": f.Message, "request_id": c.ID})
	if err != nil {
		return err
	}
	c.send(status, jsonType, body)
	return nil
}
