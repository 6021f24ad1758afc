package people

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// pendingLifetime is how long a sign-in waits for its second factor.
const pendingLifetime = 10 * time.Minute

// SignIn is a complete sign-in with a session, or a pending one that needs a second factor.
type SignIn struct {
	Person  *Person
	Session *Session // nil while the second factor is missing
	Token   string   // of the session, for the cookie
	Device  string   // token of the browser, for a cookie that outlives the session
	Linked  bool     // it linked an account at the provider
	// PendingToken is for FinishLogin while the second factor is missing.
	PendingToken string
}

// Complete reports whether the person is signed in.
func (s *SignIn) Complete() bool { return s.Session != nil }

// errInvalidCredentials doesn't reveal whether the account exists.
func errInvalidCredentials() error {
	return fault.New(fault.Authentication, "The email address or the password is wrong.")
}

// Login signs in with a password. replaced is the browser's current session token, if any; that session
// ends.
func (p *People) Login(ctx context.Context, email, password, replaced string, from Browser) (*SignIn, error) {
	email = accounts.NormalizeEmail(email)
	person, err := p.byEmail(ctx, p.db, email)
	if err != nil {
		return nil, err
	}
	userID, stored := "", ""
	if person != nil {
		userID, stored = person.ID, person.passwordHash
	}
	known, err := p.familiarityOf(ctx, p.db, userID, from)
	if err != nil {
		return nil, err
	}
	attempt, err := p.startAttempt(ctx, loginCounters(email, known, from))
	if err != nil {
		return nil, err
	}
	right, err := p.passwords.verify(ctx, password, stored)
	if err != nil {
		return nil, errors.Join(err, p.cancelAttempt(ctx, attempt))
	}
	if !right {
		return nil, errors.Join(errInvalidCredentials(), p.logFailures(ctx, userID, attempt, from.actor("anonymous")))
	}
	newHash := stored
	if p.passwords.outdated(stored) {
		if newHash, err = p.passwords.hash(ctx, password); err != nil {
			return nil, errors.Join(err, p.cancelAttempt(ctx, attempt))
		}
	}
	return p.completePasswordLogin(ctx, person, newHash, attempt, signInParams{method: ByPassword, provenAt: p.now(), replaced: replaced, from: from})
}

// completePasswordLogin signs the person in, unless the password was changed since it was compared.
func (p *People) completePasswordLogin(ctx context.Context, compared *Person, newHash string, attempt *loginAttempt, in signInParams) (*SignIn, error) {
	return withLocked(ctx, p, compared.ID, func(tx *db.Tx, person *Person) (*SignIn, error) {
		if person.passwordHash != compared.passwordHash {
			return nil, errInvalidCredentials()
		}
		if err := attempt.succeeded(ctx, tx, p.now()); err != nil {
			return nil, err
		}
		if newHash != person.passwordHash {
			if _, err := tx.Exec(ctx, "UPDATE users SET password_hash = $2 WHERE id = $1", person.ID, newHash); err != nil {
				return nil, err
			}
		}
		return p.continueSignIn(ctx, tx, person, in)
	})
}

// logFailures logs when an account's free attempts are exhausted. Logging every failure would let an
// attacker fill the log. If userID is empty, it writes a dummy row, so that the time doesn't reveal who
// has an account.
func (p *People) logFailures(ctx context.Context, userID string, attempt *loginAttempt, by audit.Actor) error {
	if attempt.exhausted == 0 {
		return nil
	}
	return p.db.Write(ctx, func(tx *db.Tx) error {
		if userID == "" {
			return p.logUnknownAccount(ctx, tx, attempt)
		}
		return p.log(ctx, tx, by, personAction{userID, "person.login_throttled", map[string]any{"failures": attempt.exhausted}})
	})
}

// logUnknownAccount costs as much as log for a member of one workspace.
func (p *People) logUnknownAccount(ctx context.Context, tx *db.Tx, attempt *loginAttempt) error {
	if _, err := Memberships(ctx, tx, ""); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO login_failures (subject, failures, first_at, blocked_until) VALUES ($1, 0, $2, 0)
		ON CONFLICT (subject) DO UPDATE SET first_at = excluded.first_at`, "nobody:"+attempt.counters[0].subject, p.now().UnixMicro())
	return err
}

type signInParams struct {
	method   Method
	provenAt time.Time // when the person authenticated
	replaced string    // as for Login
	from     Browser
	// secondFactor is set if the sign-in provider checked one.
	secondFactor bool
}

// continueSignIn follows the first factor. It starts a session, or waits for the second factor. The person
// must be locked.
func (p *People) continueSignIn(ctx context.Context, tx *db.Tx, person *Person, in signInParams) (*SignIn, error) {
	memberships, err := Memberships(ctx, tx, person.ID)
	if err != nil {
		return nil, err
	}
	if len(memberships) == 0 {
		return nil, fault.New(fault.Authentication, "You are not a member of any workspace. Ask an owner to invite you.")
	}
	second, err := p.hasTOTP(ctx, tx, person.ID)
	if err != nil {
		return nil, err
	}
	// A passkey verifies the person by biometrics or a PIN, so it counts as two factors.
	if second && in.method != ByPasskey {
		pending := newToken()
		_, err := tx.Exec(ctx, "INSERT INTO half_logins (token_hash, user_id, method, expires_at) VALUES ($1, $2, $3, $4)",
			hashToken(pending), person.ID, string(in.method), p.now().Add(pendingLifetime).UnixMicro())
		return &SignIn{Person: person, PendingToken: pending}, err
	}
	return p.completeSignIn(ctx, tx, person, in)
}

// completeSignIn replaces the browser's session by a new one.
func (p *People) completeSignIn(ctx context.Context, tx *db.Tx, person *Person, in signInParams) (*SignIn, error) {
	if in.replaced != "" {
		if _, err := tx.Exec(ctx, "DELETE FROM sessions WHERE token_hash = $1", hashToken(in.replaced)); err != nil {
			return nil, err
		}
	}
	s, token, err := p.startSession(ctx, tx, person, in)
	if err != nil {
		return nil, err
	}
	device, err := p.recordSource(ctx, tx, person.ID, in.from)
	return &SignIn{Person: person, Session: s, Token: token, Device: device}, err
}

// FinishLogin completes a pending sign-in with a code of the app or a recovery code. A wrong code may be
// corrected while the sign-in is pending.
func (p *People) FinishLogin(ctx context.Context, pending, code, replaced string, from Browser) (*SignIn, error) {
	userID, err := p.pendingUser(ctx, p.db, pending)
	if err != nil {
		return nil, err
	}
	attempt, err := p.startProofAttempt(ctx, userID, factorSubject(userID), from)
	if err != nil {
		return nil, err
	}
	in, err := withLocked(ctx, p, userID, func(tx *db.Tx, person *Person) (*SignIn, error) {
		// Check again under the lock, because another request may have used it.
		if _, err := p.pendingUser(ctx, tx, pending); err != nil {
			return nil, err
		}
		method, err := p.consumeCode(ctx, tx, userID, code)
		if err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM half_logins WHERE token_hash = $1", hashToken(pending)); err != nil {
			return nil, err
		}
		if err := attempt.succeeded(ctx, tx, p.now()); err != nil {
			return nil, err
		}
		return p.completeSignIn(ctx, tx, person, signInParams{method: method, provenAt: p.now(), replaced: replaced, from: from})
	})
	if fault.Is(err, fault.Authentication) {
		err = errors.Join(err, p.logFailures(ctx, userID, attempt, from.actor("anonymous")))
	}
	return in, err
}

func (p *People) pendingUser(ctx context.Context, q db.Querier, pending string) (userID string, err error) {
	err = q.QueryRow(ctx, "SELECT user_id FROM half_logins WHERE token_hash = $1 AND expires_at > $2", hashToken(pending), p.now().UnixMicro()).Scan(&userID)
	return userID, ifNotFound(err, fault.New(fault.Authentication, "This sign-in took too long. Start again with your password."))
}

// Proof is a password, or a code of the app or a recovery code.
type Proof struct {
	Password string
	Code     string
}

// Confirm checks a proof of a signed-in person and returns the session's new token. If the person has an
// authenticator app, the proof must be a code.
func (p *People) Confirm(ctx context.Context, s *Session, proof Proof, from Browser) (token string, err error) {
	if proof.Code == "" {
		if err := p.requireNoTOTPCode(ctx, p.db, s.UserID); err != nil {
			return "", err
		}
	}
	attempt, err := p.startProofAttempt(ctx, s.UserID, confirmSubject(s.UserID), from)
	if err != nil {
		return "", err
	}
	if token, err = p.confirm(ctx, s, proof, attempt); fault.Is(err, fault.Authentication) {
		return "", errors.Join(err, p.logFailures(ctx, s.UserID, attempt, from.actor(s.UserID)))
	}
	return token, err
}

func (p *People) requireNoTOTPCode(ctx context.Context, q db.Querier, userID string) error {
	app, err := p.hasTOTP(ctx, q, userID)
	if err == nil && app {
		err = fault.Param(fault.Authentication, "code", "Enter a code of your authenticator app or a recovery code, or use a passkey.")
	}
	return err
}

func (p *People) confirm(ctx context.Context, s *Session, proof Proof, attempt *loginAttempt) (string, error) {
	if proof.Code == "" {
		if err := p.comparePassword(ctx, s.UserID, proof.Password, attempt); err != nil {
			return "", err
		}
	}
	return withLocked(ctx, p, s.UserID, func(tx *db.Tx, _ *Person) (string, error) {
		if proof.Code == "" { // check again under the lock
			if err := p.requireNoTOTPCode(ctx, tx, s.UserID); err != nil {
				return "", err
			}
		} else {
			if _, err := p.consumeCode(ctx, tx, s.UserID, proof.Code); err != nil {
				return "", err
			}
			if err := p.recordSecondFactor(ctx, tx, s); err != nil {
				return "", err
			}
		}
		if err := attempt.succeeded(ctx, tx, p.now()); err != nil {
			return "", err
		}
		// A concurrent password change has ended the session or renewed its token.
		return p.renewToken(ctx, tx, s, p.now())
	})
}

func errWrongPassword() error {
	return fault.Param(fault.Authentication, "password", "The password is wrong.")
}

func (p *People) comparePassword(ctx context.Context, userID, password string, attempt *loginAttempt) error {
	person, err := p.Get(ctx, p.db, userID)
	if err != nil {
		return err
	}
	right, err := p.passwords.verify(ctx, password, person.passwordHash)
	if err != nil {
		return errors.Join(err, p.cancelAttempt(ctx, attempt))
	}
	if !right {
		return errWrongPassword()
	}
	return nil
}
