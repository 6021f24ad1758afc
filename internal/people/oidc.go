package people

import (
	"context"
	"errors"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

const (
	kindOIDC        = "oidc"
	kindOIDCConfirm = "oidc_confirm"
	kindOIDCLink    = "oidc_link"
)

// oidcState is what the provider's callback is checked against.
type oidcState struct{ State, Nonce, Verifier string }

// StartOIDC starts a sign-in at a provider. The browser goes to address and keeps cookie, which binds the
// callback to it.
func (p *People) StartOIDC(ctx context.Context, o *Provider) (address, cookie string, err error) {
	return p.startOIDC(ctx, o, challengeFor{kindOIDC, ""})
}

// StartOIDCLink is StartOIDC for a signed-in person who links an account at the provider.
func (p *People) StartOIDCLink(ctx context.Context, o *Provider, s *Session) (address, cookie string, err error) {
	return p.startOIDC(ctx, o, challengeFor{kindOIDCLink, s.UserID})
}

// StartOIDCConfirm is StartOIDC for a confirmation: the provider must authenticate the person again.
func (p *People) StartOIDCConfirm(ctx context.Context, o *Provider, s *Session) (address, cookie string, err error) {
	return p.startOIDC(ctx, o, challengeFor{kindOIDCConfirm, s.UserID}, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
}

func (p *People) startOIDC(ctx context.Context, o *Provider, f challengeFor, more ...oauth2.AuthCodeOption) (address, cookie string, err error) {
	found, err := o.discover(ctx, p.now)
	if err != nil {
		return "", "", err
	}
	state := oidcState{State: newToken(), Nonce: newToken(), Verifier: oauth2.GenerateVerifier()}
	cookie, err = inTx(ctx, p.db, func(tx *db.Tx) (string, error) { return p.storeChallenge(ctx, tx, f, state) })
	options := append(more, oidc.Nonce(state.Nonce), oauth2.S256ChallengeOption(state.Verifier))
	return o.oauth(found).AuthCodeURL(state.State, options...), cookie, err
}

// OIDCCallback is what the browser returns from the provider with.
type OIDCCallback struct {
	Cookie   string // of StartOIDC
	State    string // from the address
	Code     string // from the address
	Replaced string // as for Login
}

// FinishOIDC signs in a member, or an invited person, who becomes one. An authenticator app is still
// required. If the person is already signed in, the session continues with a new token; the session of
// anyone else in this browser ends.
func (p *People) FinishOIDC(ctx context.Context, o *Provider, c OIDCCallback, from Browser) (*SignIn, error) {
	who, err := p.exchangeVerified(ctx, o, c, challengeFor{kindOIDC, ""})
	if err != nil {
		return nil, err
	}
	return inTx(ctx, p.db, func(tx *db.Tx) (*SignIn, error) {
		current, err := p.LookUpSession(ctx, tx, c.Replaced)
		if err != nil && !fault.Is(err, fault.Authentication) {
			return nil, err
		}
		person, linked, err := p.findOrLinkPerson(ctx, tx, who, current, from)
		if err != nil {
			return nil, err
		}
		if current != nil && current.UserID == person.ID {
			return p.resumeSession(ctx, tx, current, who, linked)
		}
		proven, _ := who.provenAt(p.now())
		in, err := p.continueSignIn(ctx, tx, person, signInParams{method: ByOIDC, provenAt: proven, replaced: c.Replaced, from: from, secondFactor: who.secondFactor()})
		if err != nil {
			return nil, err
		}
		in.Linked = linked
		return in, nil
	})
}

// FinishOIDCLink links an account at the provider to the person of the session, which continues with a new
// token. The account of another person is rejected.
func (p *People) FinishOIDCLink(ctx context.Context, o *Provider, s *Session, c OIDCCallback, from Browser) (*SignIn, error) {
	who, err := p.exchangeVerified(ctx, o, c, challengeFor{kindOIDCLink, s.UserID})
	if err != nil {
		return nil, err
	}
	return inTx(ctx, p.db, func(tx *db.Tx) (*SignIn, error) {
		if err := p.checkOwnAccount(ctx, tx, who, s); err != nil {
			return nil, err
		}
		person, linked, err := p.findOrLinkPerson(ctx, tx, who, s, from)
		if err != nil {
			return nil, err
		}
		if person.ID != s.UserID {
			return nil, errOtherPersonsAccount() // it was linked concurrently
		}
		return p.resumeSession(ctx, tx, s, who, linked)
	})
}

func errOtherPersonsAccount() error {
	return fault.New(fault.Authentication, "That account at the provider belongs to someone else. Sign out there or here first.")
}

// checkOwnAccount rejects claims of another person than the session's: by the linked identity or, if there
// is none, by the email address.
func (p *People) checkOwnAccount(ctx context.Context, tx *db.Tx, who *claims, s *Session) error {
	known, err := p.linkedUser(ctx, tx, who)
	switch {
	case err != nil:
		return err
	case known == "" && who.Email != s.Person.Email:
		return fault.New(fault.Authentication, "That account at the provider belongs to %s, and you are signed in as %s. Sign out there or here first.", who.Email, s.Person.Email)
	case known != "" && known != s.UserID:
		return errOtherPersonsAccount()
	}
	return nil
}

// resumeSession renews the session of a person who signed in again at the provider. It confirms the session
// if the authentication is newer and the person has no app.
func (p *People) resumeSession(ctx context.Context, tx *db.Tx, s *Session, who *claims, linked bool) (*SignIn, error) {
	app, err := p.hasTOTP(ctx, tx, s.UserID)
	if err != nil {
		return nil, err
	}
	confirmed := s.ConfirmedAt
	if proven, reported := who.provenAt(p.now()); reported && !app && proven.After(confirmed) {
		confirmed = proven
	}
	if who.secondFactor() {
		if err := p.recordSecondFactor(ctx, tx, s); err != nil {
			return nil, err
		}
	}
	token, err := p.renewToken(ctx, tx, s, confirmed)
	return &SignIn{Person: s.Person, Session: s, Token: token, Linked: linked}, err
}

// FinishOIDCConfirm confirms the session by a sign-in at the provider and returns its new token.
func (p *People) FinishOIDCConfirm(ctx context.Context, o *Provider, s *Session, c OIDCCallback) (token string, err error) {
	who, err := p.exchange(ctx, o, c, challengeFor{kindOIDCConfirm, s.UserID})
	if err != nil {
		return "", err
	}
	proven, reported := who.provenAt(p.now())
	if !reported {
		proven = p.now() // the provider was told to authenticate the person
	}
	if p.now().Sub(proven) > confirmationLifetime {
		return "", fault.New(fault.Authentication, "The provider did not ask you to sign in again. Sign out there and retry, or confirm in another way.")
	}
	return inTx(ctx, p.db, func(tx *db.Tx) (string, error) {
		person, err := p.lock(ctx, tx, s.UserID)
		if err != nil {
			return "", err
		}
		if known, err := p.linkedUser(ctx, tx, who); err != nil {
			return "", err
		} else if known != person.ID {
			return "", fault.New(fault.Authentication, "That is not the account at the provider that is linked to %s.", person.Email)
		}
		if err := p.requireNoTOTPCode(ctx, tx, person.ID); err != nil {
			return "", err
		}
		if who.secondFactor() {
			if err := p.recordSecondFactor(ctx, tx, s); err != nil {
				return "", err
			}
		}
		return p.renewToken(ctx, tx, s, proven)
	})
}

// linkedUser returns the person that an identity is linked to, or "".
func (p *People) linkedUser(ctx context.Context, q db.Querier, who *claims) (userID string, err error) {
	err = q.QueryRow(ctx, "SELECT user_id FROM identities WHERE issuer = $1 AND subject = $2", who.token.Issuer, who.token.Subject).Scan(&userID)
	if errors.Is(err, db.ErrNotFound) {
		return "", nil
	}
	return userID, err
}

// lockLinkedPerson locks the person of an identity and checks the link again, because a password reset may
// have removed it.
func (p *People) lockLinkedPerson(ctx context.Context, tx *db.Tx, who *claims, userID string) (*Person, error) {
	person, err := p.lock(ctx, tx, userID)
	if err != nil {
		return nil, err
	}
	known, err := p.linkedUser(ctx, tx, who)
	if err == nil && known != userID {
		err = errOIDC(errors.New("the link was removed concurrently"))
	}
	return person, err
}

// findOrLinkPerson returns the person of the claims and accepts their invitations. A linked identity takes
// precedence over the email address, which may get another owner one day. current is the browser's
// session, or nil.
func (p *People) findOrLinkPerson(ctx context.Context, tx *db.Tx, who *claims, current *Session, from Browser) (person *Person, linked bool, err error) {
	userID, err := p.linkedUser(ctx, tx, who)
	if err != nil {
		return nil, false, err
	}
	if userID != "" {
		if person, err = p.lockLinkedPerson(ctx, tx, who, userID); err != nil {
			return nil, false, err
		}
		// A person without workspaces is treated as new.
		if member, err := p.isMemberElsewhere(ctx, tx, person, ""); err != nil || member || person.Email != who.Email {
			return person, false, err
		}
	}
	accepted, err := p.acceptInvitations(ctx, tx, who, from)
	if err != nil || userID != "" && accepted == 0 {
		return person, false, err
	}
	if person, err = p.byEmail(ctx, tx, who.Email); err != nil {
		return nil, false, err
	}
	if person == nil {
		return nil, false, fault.New(fault.Authentication, "%s is not a member of any workspace. Ask an owner to invite you.", who.Email)
	}
	if person, err = p.lock(ctx, tx, person.ID); err != nil {
		return nil, false, err
	}
	if err := p.checkLinkAllowed(ctx, tx, person, current); err != nil {
		return nil, false, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO identities (issuer, subject, user_id, created_at) VALUES ($1, $2, $3, $4)",
		who.token.Issuer, who.token.Subject, person.ID, p.now().UnixMicro())
	if errors.Is(err, db.ErrExists) {
		return nil, false, fault.New(fault.Authentication, "%s is linked to another account at the provider. Ask the operator.", who.Email)
	}
	if err != nil {
		return nil, false, err
	}
	// The provider identified the person, so a link to a first password is no longer needed.
	if err := deleteLinks(ctx, tx, person.ID); err != nil {
		return nil, false, err
	}
	return person, true, p.log(ctx, tx, from.actor(person.ID), personAction{person.ID, "identity.linked", map[string]any{"issuer": who.token.Issuer}})
}

// checkLinkAllowed requires a person with a password or a passkey to be signed in. Otherwise someone who
// created the account with that address would share it.
func (p *People) checkLinkAllowed(ctx context.Context, tx *db.Tx, person *Person, current *Session) error {
	if current != nil && current.UserID == person.ID {
		return nil
	}
	var passkeys int64
	err := tx.QueryRow(ctx, "SELECT count(*) FROM passkeys WHERE user_id = $1", person.ID).Scan(&passkeys)
	if err != nil || passkeys == 0 && !person.HasPassword() {
		return err
	}
	return fault.New(fault.Authentication, "The account of %s is not linked yet. Sign in with your password or passkey, then link it under Your account.", person.Email)
}

// acceptInvitations accepts the open invitations of a verified address and returns how many there were. An
// account without workspaces is reset.
func (p *People) acceptInvitations(ctx context.Context, tx *db.Tx, who *claims, from Browser) (int, error) {
	rows, err := tx.Query(ctx, "SELECT "+invitationColumns+" FROM invitations WHERE "+openInvitation+" AND email = $2 ORDER BY id", p.now().UnixMicro(), who.Email)
	invitations, err := db.All(rows, err, scanInvitation)
	if err != nil || len(invitations) == 0 {
		return 0, err
	}
	if person, err := p.byEmail(ctx, tx, who.Email); err != nil {
		return 0, err
	} else if person != nil {
		if _, err := p.ResetAccount(ctx, tx, person.ID, ""); err != nil {
			return 0, err
		}
	}
	if accounts.CheckName("name", who.Name) != nil {
		who.Name = ""
	}
	for _, i := range invitations {
		if err := p.consumeInvitation(ctx, tx, i); err != nil {
			return 0, err
		}
		if member, err := p.isMember(ctx, tx, i); err != nil {
			return 0, err
		} else if member {
			continue // added concurrently by an operator
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

// Identities returns a person's accounts at providers.
func (p *People) Identities(ctx context.Context, q db.Querier, userID string) ([]Identity, error) {
	rows, err := q.Query(ctx, "SELECT issuer, created_at FROM identities WHERE user_id = $1 ORDER BY issuer", userID)
	return db.All(rows, err, func(r db.Row) (i Identity, err error) {
		err = db.Scan(r, &i.Issuer, &i.CreatedAt)
		return i, err
	})
}
