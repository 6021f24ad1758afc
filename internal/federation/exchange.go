package federation

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/sync/singleflight"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/addrlimit"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/safehttp"
	"turnpike/internal/spend"
)

const (
	// failuresPerMinute limits the failed exchanges of an address, as for refused keys.
	failuresPerMinute = 60
	// tokensPerMinute limits the tokens of a subject under a rule, on each node. Each token can live 15 minutes.
	tokensPerMinute = 60

	issuerTimeout = 10 * time.Second
	issuerTTL     = time.Hour // keys are also read again when a token names an unknown one
	// retryIssuerAfter is how long a failure is cached, so that exchanges don't queue for it.
	retryIssuerAfter = 30 * time.Second
	maxIssuers       = 1000
)

// Options configure the service.
type Options struct {
	DB     *db.DB
	Keys   *access.Keys
	Tokens *access.Tokens
	Guard  *safehttp.Guard
	Now    func() time.Time
}

// Service manages rules and exchanges tokens.
type Service struct {
	Options
	client    *http.Client
	addresses *addrlimit.Limiter
	subjects  subjectLimiter

	discovery singleflight.Group
	mu        sync.Mutex
	issuers   map[string]*issuer
}

// issuer is the result of a discovery.
type issuer struct {
	provider *oidc.Provider
	err      error
	until    time.Time
}

// New returns the service.
func New(o Options) *Service {
	client := o.Guard.Client(safehttp.ClientOptions{})
	client.Timeout = issuerTimeout
	return &Service{Options: o, client: client, addresses: addrlimit.New(failuresPerMinute, o.Now), issuers: map[string]*issuer{}}
}

// Exchange is a request for a scoped token.
type Exchange struct {
	RuleID string
	Token  string   // of the issuer
	Scopes []string // a subset to ask for; empty for all that the rule gives
	From   audit.Actor
	IP     netip.Addr
}

// Admit returns how long the client must wait before its next exchange, or counts it.
func (s *Service) Admit(ip netip.Addr) time.Duration { return s.addresses.Allow(ip) }

// Exchange verifies a token of an issuer and returns a scoped token with its value. Only failed exchanges
// count toward the limit of their address. Others count toward that of their subject.
func (s *Service) Exchange(ctx context.Context, x Exchange) (*access.Token, string, error) {
	r, err := s.rule(ctx, x.RuleID)
	if err != nil {
		return nil, "", err
	}
	claims, err := s.verify(ctx, r, x.Token)
	if err != nil {
		return nil, "", err
	}
	if wait := s.subjects.allow(r.ID+" "+claims.text("sub"), s.Now()); wait > 0 {
		f := fault.New(fault.RateLimitExceeded, "The rule gives a subject at most %d tokens per minute. Use each token until it expires. Retry in %d s.", tokensPerMinute, int(wait.Seconds())+1)
		f.RetryAfter = wait
		return nil, "", f
	}
	given := r.grant(claims)
	scopes := given.scopes
	if len(scopes) == 0 {
		return nil, "", refused("The token has none of the claims that the rule %s gives scopes for.", r.ID)
	}
	if len(x.Scopes) > 0 {
		_, requested, err := access.ParseScopes(x.Scopes)
		if err != nil {
			return nil, "", err
		}
		if _, possible, err := access.ParseScopes(scopes); err != nil {
			return nil, "", err
		} else if missing := requested.Without(possible); missing != "" {
			return nil, "", fault.Param(fault.InsufficientScope, "scope", "The rule doesn't give this token the scope %s.", missing)
		}
		scopes = x.Scopes
	}
	metadata, err := r.metadata(claims)
	if err != nil {
		return nil, "", err
	}
	t := &access.Token{Scopes: scopes, Metadata: metadata, Allowed: given.allowed}
	var value string
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		parent, err := access.PrincipalOf(ctx, tx, r.KeyID, nil, s.Now())
		if err != nil {
			return err
		}
		if parent == nil {
			return refused("The key of the rule %s is revoked or has expired.", r.ID)
		}
		if !parent.AllowsIP(x.IP) {
			return fault.New(fault.IPNotAllowed, "The key of the rule %s can't be used from this address.", r.ID)
		}
		t.Project = parent.Project
		if r.UserClaim != "" {
			name := claims.text(r.UserClaim)
			if name == "" {
				return refused("The token has no claim %q, which the rule %s takes the user from.", r.UserClaim, r.ID)
			}
			if _, err := spend.AssignUser(ctx, tx, t, endusers.Use{Tenant: r.Tenant, Name: name, Limits: given.limits, At: s.Now()}); err != nil {
				return err
			}
		}
		if value, err = s.Tokens.Mint(ctx, tx, parent, t, given.lifetime); err != nil {
			return err
		}
		now := s.Now()
		if _, err := tx.Exec(ctx, "UPDATE federation_rules SET last_used_at = $2 WHERE id = $1", r.ID, now.UnixMicro()); err != nil {
			return err
		}
		x.From.Name = r.ID
		return x.From.Log(ctx, tx, audit.Action{Tenant: r.Tenant, Project: t.Project, Action: "scoped_token.exchanged", Target: t.ID},
			map[string]any{"rule": r.ID, "key_id": r.KeyID, "subject": claims.text("sub"), "scopes": t.Scopes}, now)
	})
	if err != nil {
		return nil, "", err
	}
	s.addresses.Remove(x.IP)
	return t, value, nil
}

// refused is the error of a token that the rule doesn't accept.
func refused(format string, args ...any) *fault.Error {
	return fault.New(fault.Authentication, format, args...)
}

// rule returns a rule of any workspace. Its ID is public.
func (s *Service) rule(ctx context.Context, id string) (*Rule, error) {
	if !ids.Valid(ids.FederationRule, id) {
		return nil, fault.Missing("client_id", "client_id must be the ID of a federation rule (%s…).", ids.FederationRule)
	}
	r, err := scanRule(s.DB.QueryRow(ctx, "SELECT "+ruleColumns+" FROM federation_rules WHERE id = $1", id))
	if errors.Is(err, db.ErrNotFound) {
		return nil, refused("There is no federation rule %s.", id)
	}
	return r, err
}

// claimSet is the content of a verified token. Numbers are a json.Number, because IDs above 2^53 aren't exact
// as a float64.
type claimSet map[string]any

func (c *claimSet) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode((*map[string]any)(c))
}

// text returns a claim as text, or "".
func (c claimSet) text(name string) string {
	switch v := c[name].(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
}

// matches reports whether the claim, or one of its elements, matches the pattern.
func (c claimSet) matches(name, pattern string) bool {
	if list, ok := c[name].([]any); ok {
		return slices.ContainsFunc(list, func(v any) bool { return matches(pattern, fmt.Sprint(v)) })
	}
	_, exists := c[name]
	return exists && matches(pattern, c.text(name))
}

// matches reports whether text matches a pattern in which * stands for anything.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[last])
}

// verify returns the claims of a token that the rule accepts. Nothing is fetched for a token of another
// issuer.
func (s *Service) verify(ctx context.Context, r *Rule, raw string) (claimSet, error) {
	claimed, err := unverified(raw)
	if err != nil {
		return nil, fault.Invalid("subject_token", "subject_token must be a JSON Web Token of an OpenID Connect issuer.").Because(err)
	}
	if claimed.Issuer != r.Issuer {
		return nil, refused("The token's issuer isn't the one of the rule %s.", r.ID)
	}
	provider, err := s.discover(ctx, r.Issuer)
	if err != nil {
		return nil, err
	}
	// Keys are fetched with the guarded client too, and for longer than this request.
	verifier := provider.VerifierContext(oidc.ClientContext(context.WithoutCancel(ctx), s.client), &oidc.Config{ClientID: r.Audience, Now: s.Now})
	token, err := verifier.Verify(oidc.ClientContext(ctx, s.client), raw)
	var expired *oidc.TokenExpiredError
	switch {
	case errors.As(err, &expired):
		return nil, refused("The token has expired. Get a new one.")
	case err != nil:
		return nil, refused("The token isn't valid for the rule %s: its signature, audience or time is wrong.", r.ID).Because(err)
	case !matches(r.Subject, token.Subject):
		return nil, refused("The token's subject doesn't match the rule %s.", r.ID)
	}
	claims := claimSet{}
	if err := token.Claims(&claims); err != nil {
		return nil, refused("The claims of the token can't be read.").Because(err)
	}
	return claims, nil
}

// unverified reads the issuer of a token before its signature is checked.
func unverified(raw string) (claims struct {
	Issuer string `json:"iss"`
}, err error) {
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return claims, errors.New("not a JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims, err
	}
	return claims, json.Unmarshal(payload, &claims)
}

// discover returns the issuer's endpoints and keys. Concurrent exchanges share one request.
func (s *Service) discover(ctx context.Context, url string) (*oidc.Provider, error) {
	result := s.discovery.DoChan(url, func() (any, error) {
		s.mu.Lock()
		known := s.issuers[url]
		s.mu.Unlock()
		if known != nil && s.Now().Before(known.until) {
			return known.provider, known.err
		}
		found := &issuer{}
		ttl := issuerTTL
		// The client's timeout ends it. A canceled request must not end it for others.
		if found.provider, found.err = oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), s.client), url); found.err != nil {
			ttl = retryIssuerAfter
		}
		found.until = s.Now().Add(ttl)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.issuers) >= maxIssuers {
			clear(s.issuers)
		}
		s.issuers[url] = found
		return found.provider, found.err
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-result:
		if r.Err != nil {
			return nil, fault.New(fault.Upstream, "The issuer %s can't be reached or isn't an OpenID Connect issuer. Retry in 30 seconds.", url).Because(r.Err)
		}
		provider, _ := r.Val.(*oidc.Provider)
		return provider, nil
	}
}

// granted is what a rule gives to a token.
type granted struct {
	scopes   []string
	allowed  catalog.Allowed
	limits   accounts.UserLimits // of the end user
	lifetime time.Duration
}

// grant returns what the rule gives to a token with these claims.
func (r *Rule) grant(claims claimSet) granted {
	scopes, seconds := slices.Clone(r.Scopes), r.ExpiresIn
	allowed, limits := r.Allowed, r.UserLimits
	for _, g := range r.Grants {
		applies := true
		for name, pattern := range g.Claims {
			applies = applies && claims.matches(name, pattern)
		}
		if !applies {
			continue
		}
		for _, scope := range g.Scopes {
			if !slices.Contains(scopes, scope) {
				scopes = append(scopes, scope)
			}
		}
		allowed = allowed.Join(g.Allowed)
		limits = g.UserLimits.Or(limits)
		if g.ExpiresIn != nil {
			seconds = min(seconds, *g.ExpiresIn)
		}
	}
	return granted{scopes, allowed, limits, time.Duration(seconds) * time.Second}
}

// metadata returns the scoped token's metadata. Tokens with the same metadata see each other's jobs and
// runs, so it always has the issuer's subject.
func (r *Rule) metadata(claims claimSet) (json.RawMessage, error) {
	m := map[string]string{"federation_rule": r.ID, "sub": claims.text("sub")}
	for _, name := range r.MetadataClaims {
		if _, ok := claims[name]; ok {
			m[name] = claims.text(name)
		}
	}
	return json.Marshal(m)
}
