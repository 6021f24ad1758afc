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

// OIDCPurpose is why a person goes to a provider.
type OIDCPurpose string

// The purposes.
const (
	OIDCSignIn  OIDCPurpose = "oidc"
	OIDCLink    OIDCPurpose = "oidc_link"    // an account there to the signed-in person
	OIDCConfirm OIDCPurpose = "oidc_confirm" // that it is the signed-in person
)

func (purpose OIDCPurpose) challenge(s *Session) challengeFor {
	if purpose == OIDCSignIn {
		return challengeFor{kind: string(purpose)}
	}
	return challengeFor{string(purpose), s.UserID}
}

// oidcState is what the provider's callback is checked against.
type oidcState struct{ State, Nonce, Verifier string }

// StartOIDC sends a person to a provider. The browser goes to address and keeps cookie, which binds the
// callback to it. A sign-in ignores the session.
func (p *People) StartOIDC(ctx context.Context, o *Provider, purpose OIDCPurpose, s *Session) (address, cookie string, err error) {
	found, err := o.discover(ctx, p.now)
	if err != nil {
		return "", "", err
	}
	state := oidcState{State: newToken(), Nonce: newToken(), Verifier: oauth2.GenerateVerifier()}
	cookie, err = inTx(ctx, p.db, func(tx *db.Tx) (string, error) { return p.storeChallenge(ctx, tx, purpose.challenge(s), state) })
	options := []oauth2.AuthCodeOption{oidc.Nonce(state.Nonce), oauth2.S256ChallengeOption(state.Verifier)}
	if purpose == OIDCConfirm { // the provider must authenticate the person again
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	return o.oauth(found).AuthCodeURL(state.State, options...), cookie, err
}

// OIDCCallback is what the browser returns from the provider with.
type OIDCCallback struct {
	Cookie   string   // of StartOIDC
	State    string   // from the address
	Code     string   // from the address
	Replaced string   // as for Login
	LinkTo   *Session // whose person links the account; nil for a sign-in
}

// FinishOIDC signs in a member, or an invited person, who becomes one. An authenticator app is still
// required. If the person is already signed in, the session continues with a new token; the session of
// anyone else in this browser ends. A link to an account of another person is rejected.
func (p *People) FinishOIDC(ctx context.Context, o *Provider, c OIDCCallback, from Browser) (*SignIn, error) {
	purpose := OIDCSignIn
	if c.LinkTo != nil {
		purpose = OIDCLink
	}
	who, err := p.exchangeVerified(ctx, o, c, purpose.challenge(c.LinkTo))
	if err != nil {
		return nil, err
	}
	return inTx(ctx, p.db, func(tx *db.Tx) (_ *SignIn, err error) {
		current := c.LinkTo
		if current != nil {
			err = p.checkOwnAccount(ctx, tx, who, current)
		} else if current, err = p.LookUpSession(ctx, tx, c.Replaced); fault.Is(err, fault.Authentication) {
			err = nil
		}
		if err != nil {
			return nil, err
		}
		person, linked, err := p.findOrLinkPerson(ctx, tx, who, current, from)
		if err != nil {
			return nil, err
		}
		if current != nil && current.UserID == person.ID {
			return p.resumeSession(ctx, tx, current, who, linked)
		}
		if c.LinkTo != nil {
			return nil, errOtherPersonsAccount() // it was linked concurrently
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
	who, err := p.exchange(ctx, o, c, OIDCConfirm.challenge(s))
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
	return withLocked(ctx, p, s.UserID, func(tx *db.Tx, person *Person) (string, error) {
		known, err := p.linkedUser(ctx, tx, who)
		if err != nil {
			return "", err
		}
		if known != person.ID {
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
	return userID, ifNotFound(err, nil)
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
	passkeys, err := count(ctx, tx, "SELECT count(*) FROM passkeys WHERE user_id = $1", person.ID)
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
