package people

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

const (
	kindOIDC        = "oidc"
	kindOIDCConfirm = "oidc_confirm"
	kindOIDCLink    = "oidc_link"
)

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
	asking   singleflight.Group // one attempt at a time, for all who wait

	mu       sync.Mutex // not held while the provider is asked
	found    *oidc.Provider
	failed   error
	failedAt time.Time
}

// failureLasts is how long a provider that did not answer is left alone, so
// that sign-ins do not queue for it.
const failureLasts = 30 * time.Second

// NewProvider makes a Provider. The client must have a timeout.
func NewProvider(s ProviderSettings, client *http.Client) *Provider {
	return &Provider{settings: s, client: client}
}

// Issuer is the provider's name for itself, as in Identity.
func (o *Provider) Issuer() string { return o.settings.Issuer }

func (o *Provider) discover(ctx context.Context, now func() time.Time) (*oidc.Provider, error) {
	if found, err := o.known(now()); found != nil || err != nil {
		return found, err
	}
	// Whoever leaves does not end the attempt for the others; the client's timeout does.
	answer := o.asking.DoChan("", func() (any, error) { return o.ask(context.WithoutCancel(ctx), now) })
	select {
	case a := <-answer:
		found, _ := a.Val.(*oidc.Provider)
		return found, a.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// known is what the last attempt has found, or why it failed a moment ago.
func (o *Provider) known(now time.Time) (*oidc.Provider, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil && now.Sub(o.failedAt) < failureLasts {
		return nil, o.failed
	}
	return o.found, nil
}

func (o *Provider) ask(ctx context.Context, now func() time.Time) (*oidc.Provider, error) {
	if found, err := o.known(now()); found != nil || err != nil {
		return found, err // another attempt has ended meanwhile
	}
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, o.client), o.settings.Issuer)
	if err != nil {
		err = fault.New(fault.Upstream, "the sign-in provider cannot be reached; try again in half a minute, or sign in another way").Because(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found, o.failed, o.failedAt = found, err, now()
	return found, err
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
	return p.startOIDC(ctx, o, kindOIDC, "")
}

// StartOIDCLink is StartOIDC for somebody who is signed in and wants to link
// their account at the provider.
func (p *People) StartOIDCLink(ctx context.Context, o *Provider, s *Session) (address, cookie string, err error) {
	return p.startOIDC(ctx, o, kindOIDCLink, s.UserID)
}

// StartOIDCConfirm is StartOIDC for Confirm: the provider is told to ask who it
// is, also somebody who is signed in there.
func (p *People) StartOIDCConfirm(ctx context.Context, o *Provider, s *Session) (address, cookie string, err error) {
	return p.startOIDC(ctx, o, kindOIDCConfirm, s.UserID, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
}

func (p *People) startOIDC(ctx context.Context, o *Provider, kind, userID string, more ...oauth2.AuthCodeOption) (address, cookie string, err error) {
	found, err := o.discover(ctx, p.now)
	if err != nil {
		return "", "", err
	}
	state := oidcState{State: newToken(), Nonce: newToken(), Verifier: oauth2.GenerateVerifier()}
	err = p.db.Write(ctx, func(tx *db.Tx) (err error) {
		cookie, err = p.beginCeremony(ctx, tx, kind, userID, state)
		return err
	})
	options := append(more, oidc.Nonce(state.Nonce), oauth2.S256ChallengeOption(state.Verifier))
	return o.oauth(found).AuthCodeURL(state.State, options...), cookie, err
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

	// When they last proved there who they are. Not every provider says it.
	AuthTime json.Number `json:"auth_time"`

	// How they proved it (RFC 8176). Not every provider says that either.
	Methods authMethods `json:"amr"`
}

// authMethods reads what is not a list of words as none: it must not end a
// sign-in.
type authMethods []string

// UnmarshalJSON implements json.Unmarshaler.
func (m *authMethods) UnmarshalJSON(text []byte) error {
	var list []string
	if json.Unmarshal(text, &list) == nil {
		*m = list
	}
	return nil
}

// secondFactor reports whether the provider says that it asked for more than
// one factor.
func (c *claims) secondFactor() bool { return slices.Contains(c.Methods, "mfa") }

// skew is how far the provider's clock may be ahead.
const skew = time.Minute

// proven is when the person proved to the provider who they are. It is long ago
// when the provider does not say: they may have been signed in there all day.
func (c *claims) proven(now time.Time) (at time.Time, said bool) {
	seconds, err := c.AuthTime.Float64()
	if err != nil {
		return time.UnixMicro(0), false
	}
	at = time.Unix(int64(seconds), 0)
	switch {
	case at.After(now.Add(skew)):
		return time.UnixMicro(0), true // nonsense proves nothing
	case at.After(now):
		return now, true
	}
	return at, true
}

func errOIDC(cause error) error {
	return fault.New(fault.Authentication, "the sign-in at the provider did not work; try again").Because(cause)
}

// FinishOIDC signs in a member, or somebody who is invited and so becomes one.
// An authenticator app is still asked for: the provider's own factors are not
// known here. Somebody who is signed in already goes on in their session, with
// another token; the session of anybody else ends.
func (p *People) FinishOIDC(ctx context.Context, o *Provider, a OIDCAnswer, from Browser) (*SignIn, error) {
	token, who, err := p.vouched(ctx, o, a, kindOIDC, "")
	if err != nil {
		return nil, err
	}
	var out *SignIn
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		here, err := p.recognise(ctx, tx, a.Replaced)
		if err != nil && !fault.Is(err, fault.Authentication) {
			return err
		}
		person, linked, err := p.identified(ctx, tx, token, who, here, from)
		if err != nil {
			return err
		}
		if here != nil && here.UserID == person.ID {
			out, err = p.goOn(ctx, tx, here, who)
		} else {
			proven, _ := who.proven(p.now())
			out, err = p.enter(ctx, tx, person, entry{method: ByOIDC, proven: proven, replaced: a.Replaced, from: from, secondFactor: who.secondFactor()})
		}
		if err == nil {
			out.Linked = linked
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// FinishOIDCLink links the account at the provider to the person of the session,
// which goes on with another token. An account of anybody else is refused before
// it changes anything: nobody becomes another person by linking.
func (p *People) FinishOIDCLink(ctx context.Context, o *Provider, s *Session, a OIDCAnswer, from Browser) (*SignIn, error) {
	token, who, err := p.vouched(ctx, o, a, kindOIDCLink, s.UserID)
	if err != nil {
		return nil, err
	}
	var out *SignIn
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		if err := p.ownAccount(ctx, tx, token, who, s); err != nil {
			return err
		}
		person, linked, err := p.identified(ctx, tx, token, who, s, from)
		if err != nil {
			return err
		}
		if person.ID != s.UserID {
			return errOthers() // it was linked meanwhile
		}
		if out, err = p.goOn(ctx, tx, s, who); err == nil {
			out.Linked = linked
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func errOthers() error {
	return fault.New(fault.Authentication, "that account at the provider belongs to somebody else; sign out there, or here, first")
}

// ownAccount refuses a token that is not of the session's person: by the
// provider's id if it is known here, or else by the address.
func (p *People) ownAccount(ctx context.Context, tx *db.Tx, token *oidc.IDToken, who *claims, s *Session) error {
	known, err := p.knownAs(ctx, tx, token)
	switch {
	case err != nil:
		return err
	case known == "" && who.Email != s.Person.Email:
		return fault.New(fault.Authentication, "that account at the provider belongs to %s, and you are signed in as %s; sign out there, or here, first", who.Email, s.Person.Email)
	case known != "" && known != s.UserID:
		return errOthers()
	}
	return nil
}

// goOn renews the session of somebody who has signed in again at the provider.
// That confirms it if it was just now, and if there is no app to ask for.
func (p *People) goOn(ctx context.Context, tx *db.Tx, s *Session, who *claims) (*SignIn, error) {
	app, err := p.hasTOTP(ctx, tx, s.UserID)
	if err != nil {
		return nil, err
	}
	confirmed := s.ConfirmedAt
	if proven, said := who.proven(p.now()); said && !app && proven.After(confirmed) {
		confirmed = proven
	}
	if who.secondFactor() {
		if err := p.noteSecondFactor(ctx, tx, s); err != nil {
			return nil, err
		}
	}
	token, err := p.renewToken(ctx, tx, s, confirmed)
	return &SignIn{Person: s.Person, Session: s, Token: token}, err
}

// FinishOIDCConfirm is Confirm by a sign-in at the provider. It returns the
// session's new token.
func (p *People) FinishOIDCConfirm(ctx context.Context, o *Provider, s *Session, a OIDCAnswer) (token string, err error) {
	answer, who, err := p.exchange(ctx, o, a, kindOIDCConfirm, s.UserID)
	if err != nil {
		return "", err
	}
	proven, said := who.proven(p.now())
	if !said {
		proven = p.now() // it was asked to ask them, and does not say that it did not
	}
	if p.now().Sub(proven) > confirmLimit {
		return "", fault.New(fault.Authentication, "the provider did not ask who you are, so this confirms nothing; sign out there and try again, or confirm in another way")
	}
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		person, err := p.lock(ctx, tx, s.UserID)
		if err != nil {
			return err
		}
		if known, err := p.knownAs(ctx, tx, answer); err != nil {
			return err
		} else if known != person.ID {
			return fault.New(fault.Authentication, "that is another account at the provider than the one that is linked to %s", person.Email)
		}
		if err := p.requirePasswordEnough(ctx, tx, person.ID); err != nil {
			return err
		}
		if who.secondFactor() {
			if err := p.noteSecondFactor(ctx, tx, s); err != nil {
				return err
			}
		}
		token, err = p.renewToken(ctx, tx, s, proven)
		return err
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

// vouched is exchange for what goes by the address too, which the provider must
// have verified.
func (p *People) vouched(ctx context.Context, o *Provider, a OIDCAnswer, kind, userID string) (*oidc.IDToken, *claims, error) {
	token, who, err := p.exchange(ctx, o, a, kind, userID)
	if err != nil {
		return nil, nil, err
	}
	who.Email = normal(who.Email)
	if !who.EmailVerified || checkEmail(who.Email) != nil {
		return nil, nil, fault.New(fault.Authentication, "the provider has not verified your e-mail address, so you cannot sign in with it")
	}
	return token, who, nil
}

// exchange checks the answer, and gets and checks the provider's token.
func (p *People) exchange(ctx context.Context, o *Provider, a OIDCAnswer, kind, userID string) (*oidc.IDToken, *claims, error) {
	var state oidcState
	if err := p.endCeremony(ctx, a.Cookie, kind, userID, &state); err != nil {
		return nil, nil, err
	}
	if subtle.ConstantTimeCompare([]byte(state.State), []byte(a.State)) != 1 {
		return nil, nil, errOIDC(errors.New("another state"))
	}
	found, err := o.discover(ctx, p.now)
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

// knownAs is the person that the provider's id is linked to, or empty.
func (p *People) knownAs(ctx context.Context, q db.Querier, token *oidc.IDToken) (userID string, err error) {
	err = q.QueryRow(ctx, "SELECT user_id FROM identities WHERE issuer = $1 AND subject = $2", token.Issuer, token.Subject).Scan(&userID)
	if errors.Is(err, db.ErrNotFound) {
		return "", nil
	}
	return userID, err
}

// knownStill locks the person whom the provider's id is linked to, and looks
// again: a new password may have ended the link meanwhile.
func (p *People) knownStill(ctx context.Context, tx *db.Tx, token *oidc.IDToken, userID string) (*Person, error) {
	person, err := p.lock(ctx, tx, userID)
	if err != nil {
		return nil, err
	}
	known, err := p.knownAs(ctx, tx, token)
	if err == nil && known != userID {
		err = errOIDC(errors.New("the link was removed meanwhile"))
	}
	return person, err
}

// identified finds the person of a token, and lets those in who are invited. The
// provider's id of a person counts before the address, which may be given to
// somebody else one day. here is the browser's session, or nil.
func (p *People) identified(ctx context.Context, tx *db.Tx, token *oidc.IDToken, who *claims, here *Session, from Browser) (person *Person, linked bool, err error) {
	userID, err := p.knownAs(ctx, tx, token)
	if err != nil {
		return nil, false, err
	}
	if userID != "" {
		if person, err = p.knownStill(ctx, tx, token, userID); err != nil {
			return nil, false, err
		}
		// Who was a member of nothing comes in like somebody new.
		if member, err := p.hasAccount(ctx, tx, person, ""); err != nil || member || person.Email != who.Email {
			return person, false, err
		}
	}
	accepted, err := p.acceptAll(ctx, tx, who, from)
	if err != nil || userID != "" && accepted == 0 {
		return person, false, err
	}
	if person, err = p.byEmail(ctx, tx, who.Email); err != nil {
		return nil, false, err
	}
	if person == nil {
		return nil, false, fault.New(fault.Authentication, "%s is not a member of any workspace here; ask an owner to invite you", who.Email)
	}
	if person, err = p.lock(ctx, tx, person.ID); err != nil {
		return nil, false, err
	}
	if err := p.mayLink(ctx, tx, person, here); err != nil {
		return nil, false, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO identities (issuer, subject, user_id, created_at) VALUES ($1, $2, $3, $4)",
		token.Issuer, token.Subject, person.ID, p.now().UnixMicro())
	if errors.Is(err, db.ErrExists) {
		return nil, false, fault.New(fault.Authentication, "%s belongs to another account at the provider; ask the operator", who.Email)
	}
	if err != nil {
		return nil, false, err
	}
	// The provider has said who the person is: a link to a first password may
	// still be in other hands.
	if err := endLinks(ctx, tx, person.ID); err != nil {
		return nil, false, err
	}
	return person, true, p.log(ctx, tx, from.actor(person.ID), person.ID, "identity.linked", map[string]any{"issuer": token.Issuer})
}

// mayLink wants whoever has a password or a passkey to have used it: somebody
// else may have made the account by that address, and would share it from then on.
func (p *People) mayLink(ctx context.Context, tx *db.Tx, person *Person, here *Session) error {
	if here != nil && here.UserID == person.ID {
		return nil
	}
	var passkeys int64
	err := tx.QueryRow(ctx, "SELECT count(*) FROM passkeys WHERE user_id = $1", person.ID).Scan(&passkeys)
	if err != nil || passkeys == 0 && !person.HasPassword {
		return err
	}
	return fault.New(fault.Authentication, "%s has an account here that is not linked yet: sign in with your password or passkey, then link it under Your account", person.Email)
}

// acceptAll accepts the open invitations of an address that the provider vouches
// for, and returns how many there were. An account that was a member of nothing
// begins anew by them.
func (p *People) acceptAll(ctx context.Context, tx *db.Tx, who *claims, from Browser) (int, error) {
	rows, err := tx.Query(ctx, "SELECT "+invitationColumns+" FROM invitations WHERE "+open+" AND email = $2 ORDER BY id", p.now().UnixMicro(), who.Email)
	invitations, err := db.All(rows, err, scanInvitation)
	if err != nil || len(invitations) == 0 {
		return 0, err
	}
	if person, err := p.byEmail(ctx, tx, who.Email); err != nil {
		return 0, err
	} else if person != nil {
		if _, err := p.BeginAnew(ctx, tx, person.ID, ""); err != nil {
			return 0, err
		}
	}
	if accounts.CheckName("name", who.Name) != nil {
		who.Name = ""
	}
	for _, i := range invitations {
		if err := p.useInvitation(ctx, tx, i); err != nil {
			return 0, err
		}
		if member, err := p.isMember(ctx, tx, i); err != nil {
			return 0, err
		} else if member {
			continue // an operator was faster
		}
		u := &accounts.User{Email: i.Email, Name: who.Name, WorkspaceID: i.WorkspaceID, Role: i.Role}
		if err := accounts.CreateUser(ctx, tx, u, p.now()); err != nil {
			return 0, err
		}
		if err := p.logInvitation(ctx, tx, from.actor(u.ID), i, "invitation.accepted"); err != nil {
			return 0, err
		}
	}
	return len(invitations), nil
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
