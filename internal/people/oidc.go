package people

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

const kindOIDC = "oidc"

// ProviderSettings name a provider of OpenID Connect that the operator trusts:
// whoever it says owns a member's e-mail address is that member.
type ProviderSettings struct {
	Issuer       string
	ClientID     string
	ClientSecret string
	RedirectURL  string // of the page that calls FinishOIDC
}

// Provider is such a provider. It is asked about itself at the first sign-in,
// so that a start does not depend on it.
type Provider struct {
	settings ProviderSettings
	client   *http.Client

	mu    sync.Mutex
	found *oidc.Provider
}

// NewProvider makes a Provider. The client must have a timeout.
func NewProvider(s ProviderSettings, client *http.Client) *Provider {
	return &Provider{settings: s, client: client}
}

func (o *Provider) discover(ctx context.Context) (*oidc.Provider, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.found != nil {
		return o.found, nil
	}
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, o.client), o.settings.Issuer)
	if err != nil {
		return nil, fault.New(fault.Upstream, "the sign-in provider cannot be reached; try again, or sign in another way").Because(err)
	}
	o.found = found
	return found, nil
}

func (o *Provider) oauth(found *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{ClientID: o.settings.ClientID, ClientSecret: o.settings.ClientSecret, RedirectURL: o.settings.RedirectURL,
		Endpoint: found.Endpoint(), Scopes: []string{oidc.ScopeOpenID, "email", "profile"}}
}

// oidcState is what the provider's answer is checked against.
type oidcState struct{ State, Nonce, Verifier string }

// StartOIDC begins a sign-in at a provider. The browser goes to address, and
// keeps cookie, which binds the answer to it.
func (p *People) StartOIDC(ctx context.Context, o *Provider) (address, cookie string, err error) {
	found, err := o.discover(ctx)
	if err != nil {
		return "", "", err
	}
	state := oidcState{State: newToken(), Nonce: newToken(), Verifier: oauth2.GenerateVerifier()}
	err = p.db.Write(ctx, func(tx *db.Tx) (err error) {
		cookie, err = p.beginCeremony(ctx, tx, kindOIDC, "", state)
		return err
	})
	return o.oauth(found).AuthCodeURL(state.State, oidc.Nonce(state.Nonce), oauth2.S256ChallengeOption(state.Verifier)), cookie, err
}

// OIDCAnswer is what the browser comes back with.
type OIDCAnswer struct {
	Cookie   string // of StartOIDC
	State    string // from the address
	Code     string // from the address
	Replaced string // as for Login
}

// claims are what we read of a person.
type claims struct {
	Email         string `json:"email"`
	EmailVerified bool   `json:"email_verified"`
	Name          string `json:"name"`
}

func errOIDC(cause error) error {
	return fault.New(fault.Authentication, "the sign-in at the provider did not work; try again").Because(cause)
}

// FinishOIDC signs in a member, or somebody who is invited and so becomes one.
// An authenticator app is still asked for: the provider's own factors are not
// known here.
func (p *People) FinishOIDC(ctx context.Context, o *Provider, a OIDCAnswer, from Browser) (*SignIn, error) {
	token, who, err := p.exchange(ctx, o, a)
	if err != nil {
		return nil, err
	}
	who.Email = normal(who.Email)
	if !who.EmailVerified || checkEmail(who.Email) != nil {
		return nil, fault.New(fault.Authentication, "the provider has not verified your e-mail address, so you cannot sign in with it")
	}
	var out *SignIn
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		person, err := p.identified(ctx, tx, token, who, from)
		if err != nil {
			return err
		}
		out, err = p.enter(ctx, tx, person, ByOIDC, a.Replaced, from)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// exchange checks the answer, and gets and checks the provider's token.
func (p *People) exchange(ctx context.Context, o *Provider, a OIDCAnswer) (*oidc.IDToken, *claims, error) {
	var state oidcState
	if err := p.endCeremony(ctx, a.Cookie, kindOIDC, "", &state); err != nil {
		return nil, nil, err
	}
	if subtle.ConstantTimeCompare([]byte(state.State), []byte(a.State)) != 1 {
		return nil, nil, errOIDC(errors.New("another state"))
	}
	found, err := o.discover(ctx)
	if err != nil {
		return nil, nil, err
	}
	answer, err := o.oauth(found).Exchange(oidc.ClientContext(ctx, o.client), a.Code, oauth2.VerifierOption(state.Verifier))
	if err != nil {
		return nil, nil, errOIDC(fmt.Errorf("exchange the code: %w", err))
	}
	raw, _ := answer.Extra("id_token").(string)
	token, err := found.Verifier(&oidc.Config{ClientID: o.settings.ClientID, Now: p.now}).Verify(ctx, raw)
	if err != nil {
		return nil, nil, errOIDC(fmt.Errorf("verify the id token: %w", err))
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(state.Nonce)) != 1 {
		return nil, nil, errOIDC(errors.New("another nonce"))
	}
	var who claims
	if err := token.Claims(&who); err != nil {
		return nil, nil, errOIDC(fmt.Errorf("claims: %w", err))
	}
	return token, &who, nil
}

// identified finds the person of a token, and lets those in who are invited. The
// provider's id of a person counts before the address, which may be given to
// somebody else one day.
func (p *People) identified(ctx context.Context, tx *db.Tx, token *oidc.IDToken, who *claims, from Browser) (*Person, error) {
	var userID string
	err := tx.QueryRow(ctx, "SELECT user_id FROM identities WHERE issuer = $1 AND subject = $2", token.Issuer, token.Subject).Scan(&userID)
	if err == nil {
		return p.lock(ctx, tx, userID)
	}
	if !errors.Is(err, db.ErrNotFound) {
		return nil, err
	}
	if err := p.acceptAll(ctx, tx, who, from); err != nil {
		return nil, err
	}
	person, err := p.byEmail(ctx, tx, who.Email)
	if err != nil {
		return nil, err
	}
	if person == nil {
		return nil, fault.New(fault.Authentication, "%s is not a member of any workspace here; ask an owner to invite you", who.Email)
	}
	if person, err = p.lock(ctx, tx, person.ID); err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO identities (issuer, subject, user_id, created_at) VALUES ($1, $2, $3, $4)",
		token.Issuer, token.Subject, person.ID, p.now().UnixMicro())
	if errors.Is(err, db.ErrExists) {
		return nil, fault.New(fault.Authentication, "%s belongs to another account at the provider; ask the operator", who.Email)
	}
	if err != nil {
		return nil, err
	}
	return person, p.log(ctx, tx, from.actor(person.ID), person.ID, "identity.linked", map[string]any{"issuer": token.Issuer})
}

// acceptAll accepts the open invitations of an address that the provider vouches for.
func (p *People) acceptAll(ctx context.Context, tx *db.Tx, who *claims, from Browser) error {
	rows, err := tx.Query(ctx, "SELECT "+invitationColumns+" FROM invitations WHERE "+open+" AND email = $2 ORDER BY id", p.now().UnixMicro(), who.Email)
	invitations, err := db.All(rows, err, scanInvitation)
	if err != nil {
		return err
	}
	if accounts.CheckName("name", who.Name) != nil {
		who.Name = ""
	}
	for _, i := range invitations {
		if err := p.useInvitation(ctx, tx, i); err != nil {
			return err
		}
		if member, err := p.isMember(ctx, tx, i); err != nil {
			return err
		} else if member {
			continue // an operator was faster
		}
		u := &accounts.User{Email: i.Email, Name: who.Name, WorkspaceID: i.WorkspaceID, Role: i.Role}
		if err := accounts.CreateUser(ctx, tx, u, p.now()); err != nil {
			return err
		}
		if err := p.logInvitation(ctx, tx, from.actor(u.ID), i, "invitation.accepted"); err != nil {
			return err
		}
	}
	return nil
}

// Identity is a person's account at a provider.
type Identity struct {
	Issuer    string
	CreatedAt time.Time
}

// Identities lists a person's accounts at providers.
func (p *People) Identities(ctx context.Context, q db.Querier, userID string) ([]Identity, error) {
	rows, err := q.Query(ctx, "SELECT issuer, created_at FROM identities WHERE user_id = $1 ORDER BY issuer", userID)
	return db.All(rows, err, func(r db.Row) (i Identity, err error) {
		var created int64
		err = r.Scan(&i.Issuer, &created)
		i.CreatedAt = time.UnixMicro(created)
		return i, err
	})
}
