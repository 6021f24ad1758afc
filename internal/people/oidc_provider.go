package people

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
)

// ProviderSettings configure an OpenID Connect provider. The operator trusts it: the owner of a member's
// email address at the provider is that member.
type ProviderSettings struct {
	Issuer       string
	ClientID     string
	ClientSecret string
	RedirectURL  string // of the page that calls FinishOIDC
	TrustEmail   bool   // accepts addresses that the provider doesn't mark as verified
}

// Provider is an OpenID Connect provider. It is discovered at the first sign-in, so that the server starts
// without it.
type Provider struct {
	settings ProviderSettings
	client   *http.Client

	discovery singleflight.Group // one at a time, which guards the fields below
	found     *oidc.Provider
	failed    error
	failedAt  time.Time
}

// retryProviderAfter is how long a failed discovery is cached, so that sign-ins don't queue for it.
const retryProviderAfter = 30 * time.Second

// NewProvider returns a Provider. The client must have a timeout.
func NewProvider(s ProviderSettings, client *http.Client) *Provider {
	return &Provider{settings: s, client: client}
}

// Issuer returns the provider's issuer URL.
func (o *Provider) Issuer() string { return o.settings.Issuer }

func (o *Provider) discover(ctx context.Context, now func() time.Time) (*oidc.Provider, error) {
	// A canceled request doesn't cancel the discovery for others. The client's timeout ends it.
	result := o.discovery.DoChan("", func() (any, error) { return o.cachedOrFetched(context.WithoutCancel(ctx), now) })
	select {
	case r := <-result:
		found, _ := r.Val.(*oidc.Provider)
		return found, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (o *Provider) cachedOrFetched(ctx context.Context, now func() time.Time) (*oidc.Provider, error) {
	if o.found == nil && now().Sub(o.failedAt) >= retryProviderAfter {
		o.found, o.failed = oidc.NewProvider(oidc.ClientContext(ctx, o.client), o.settings.Issuer)
		o.failedAt = now()
	}
	if o.found == nil {
		return nil, fault.New(fault.Upstream, "The sign-in provider is unreachable. Retry in 30 seconds, or sign in another way.").Because(o.failed)
	}
	return o.found, nil
}

func (o *Provider) oauth(found *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{ClientID: o.settings.ClientID, ClientSecret: o.settings.ClientSecret, RedirectURL: o.settings.RedirectURL,
		Endpoint: found.Endpoint(), Scopes: []string{oidc.ScopeOpenID, "email", "profile"}}
}

type claims struct {
	token    *oidc.IDToken
	userInfo func() (*oidc.UserInfo, error)

	Email         string `json:"email"`
	EmailVerified *bool  `json:"email_verified"`
	Name          string `json:"name"`

	// AuthTime is when the person last authenticated. Not every provider sends it.
	AuthTime json.Number `json:"auth_time"`

	// Methods are how the person authenticated (RFC 8176): an array of strings, which not every provider
	// sends. Another type must not fail a sign-in.
	Methods any `json:"amr"`
}

// readUserInfo reads the email address from the provider's user info.
func (c *claims) readUserInfo() error {
	info, err := c.userInfo()
	if err != nil {
		return fmt.Errorf("user info: %w", err)
	}
	if info.Subject != c.token.Subject {
		return errors.New("user info of another person")
	}
	c.Email, c.EmailVerified = info.Email, &info.EmailVerified
	return nil
}

// secondFactor reports whether the provider checked more than one factor.
func (c *claims) secondFactor() bool {
	methods, _ := c.Methods.([]any)
	return slices.Contains(methods, any("mfa"))
}

// skew is how far ahead the provider's clock may be.
const skew = time.Minute

// provenAt returns when the person authenticated at the provider. If the provider doesn't report it, it is
// long ago, because the person may have been signed in there all day.
func (c *claims) provenAt(now time.Time) (at time.Time, reported bool) {
	seconds, err := c.AuthTime.Float64()
	if err != nil {
		return time.UnixMicro(0), false
	}
	at = time.Unix(int64(seconds), 0)
	switch {
	case at.After(now.Add(skew)):
		return time.UnixMicro(0), true // a future time proves nothing
	case at.After(now):
		return now, true
	}
	return at, true
}

func errOIDC(cause error) error {
	return fault.New(fault.Authentication, "The sign-in at the provider failed. Retry.").Because(cause)
}

// exchangeVerified is exchange with a verified email address.
func (p *People) exchangeVerified(ctx context.Context, o *Provider, c OIDCCallback, f challengeFor) (*claims, error) {
	who, err := p.exchange(ctx, o, c, f)
	if err != nil {
		return nil, err
	}
	var cause error
	if who.EmailVerified == nil && !o.settings.TrustEmail { // Okta reports it only as user info
		cause = who.readUserInfo()
	}
	who.Email = accounts.NormalizeEmail(who.Email)
	verified := o.settings.TrustEmail || who.EmailVerified != nil && *who.EmailVerified
	if !verified || checkEmail(who.Email) != nil {
		return nil, fault.New(fault.Authentication, "The provider has not verified your email address, so you cannot sign in with it.").Because(cause)
	}
	return who, nil
}

// exchange checks the callback, and gets and verifies the ID token.
func (p *People) exchange(ctx context.Context, o *Provider, c OIDCCallback, f challengeFor) (*claims, error) {
	var state oidcState
	if err := p.consumeChallenge(ctx, c.Cookie, f, &state); err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(state.State), []byte(c.State)) != 1 {
		return nil, errOIDC(errors.New("wrong state"))
	}
	found, err := o.discover(ctx, p.now)
	if err != nil {
		return nil, err
	}
	tokens, err := o.oauth(found).Exchange(oidc.ClientContext(ctx, o.client), c.Code, oauth2.VerifierOption(state.Verifier))
	if err != nil {
		return nil, errOIDC(fmt.Errorf("exchange the code: %w", err))
	}
	raw, _ := tokens.Extra("id_token").(string)
	token, err := found.Verifier(&oidc.Config{ClientID: o.settings.ClientID, Now: p.now}).Verify(ctx, raw)
	if err != nil {
		return nil, errOIDC(fmt.Errorf("verify the ID token: %w", err))
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(state.Nonce)) != 1 {
		return nil, errOIDC(errors.New("wrong nonce"))
	}
	who := claims{token: token, userInfo: func() (*oidc.UserInfo, error) {
		return found.UserInfo(oidc.ClientContext(ctx, o.client), oauth2.StaticTokenSource(tokens))
	}}
	if err := token.Claims(&who); err != nil {
		return nil, errOIDC(fmt.Errorf("claims: %w", err))
	}
	return &who, nil
}
