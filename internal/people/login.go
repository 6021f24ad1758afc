package people

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// halfLimit is how long the second factor may take.
const halfLimit = 10 * time.Minute

// SignIn is what came of a sign-in: a session, or, when a second factor is
// missing, the way to go on.
type SignIn struct {
	Person  *Person
	Session *Session // nil while the second factor is missing
	Token   string   // of the session, for the cookie; shown this once
	Device  string   // token of the browser, for a cookie that outlives the session
	Half    string   // token of the half-way sign-in, for FinishLogin
	Linked  bool     // an account at the provider was linked by it
}

// Complete reports whether the person is signed in.
func (s *SignIn) Complete() bool { return s.Session != nil }

// errWrong does not say which: that would tell who exists.
func errWrong() error {
	return fault.New(fault.Authentication, "the e-mail address or the password is wrong")
}

// Login signs in with a password. replaced is the session token that the
// browser came with, if any: that session ends, and its token is never used on.
func (p *People) Login(ctx context.Context, email, password, replaced string, from Browser) (*SignIn, error) {
	email = normal(email)
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
	try, err := p.begin(ctx, loginCounts(email, known, from))
	if err != nil {
		return nil, err
	}
	right, err := p.passwords.verify(ctx, password, stored)
	if err != nil {
		return nil, errors.Join(err, p.undo(ctx, try))
	}
	if !right {
		return nil, errors.Join(errWrong(), p.noteFailure(ctx, person, try, from.actor("anonymous")))
	}
	better, err := p.betterHash(ctx, password, stored)
	if err != nil {
		return nil, errors.Join(err, p.undo(ctx, try))
	}
	return p.passwordWasRight(ctx, person, better, try, replaced, from)
}

// passwordWasRight lets a person in whose password was compared, and stores the
// better hash, if there is one.
func (p *People) passwordWasRight(ctx context.Context, compared *Person, better string, try *attempt, replaced string, from Browser) (*SignIn, error) {
	var out *SignIn
	err := p.db.Write(ctx, func(tx *db.Tx) error {
		person, err := p.lock(ctx, tx, compared.ID)
		if err != nil {
			return err
		}
		if person.passwordHash != compared.passwordHash {
			return errWrong() // it was changed while we compared
		}
		if err := try.succeeded(ctx, tx, p.now()); err != nil {
			return err
		}
		if better != "" {
			if _, err := tx.Exec(ctx, "UPDATE users SET password_hash = $2 WHERE id = $1", person.ID, better); err != nil {
				return err
			}
		}
		out, err = p.enter(ctx, tx, person, entry{method: ByPassword, proven: p.now(), replaced: replaced, from: from})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// betterHash is the hash at today's cost, or empty when the stored one has it.
func (p *People) betterHash(ctx context.Context, password, stored string) (string, error) {
	if !p.passwords.outdated(stored) {
		return "", nil
	}
	return p.passwords.hash(ctx, password)
}

// noteFailure logs once per storm that an account is being tried: each single
// failure would let an attacker fill the log. person is nil for nobody, for whom
// a row is written that says nothing: the time must not tell who exists.
func (p *People) noteFailure(ctx context.Context, person *Person, try *attempt, by audit.Actor) error {
	if try.storm == 0 {
		return nil
	}
	return p.db.Write(ctx, func(tx *db.Tx) error {
		if person == nil {
			return p.noteNobody(ctx, tx, try)
		}
		return p.log(ctx, tx, by, person.ID, "person.login_throttled", map[string]any{"failures": try.storm})
	})
}

// noteNobody costs what log does for a member of one workspace.
func (p *People) noteNobody(ctx context.Context, tx *db.Tx, try *attempt) error {
	if _, err := Memberships(ctx, tx, ""); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO login_failures (subject, failures, first_at, blocked_until) VALUES ($1, 0, $2, 0)
		ON CONFLICT (subject) DO UPDATE SET first_at = excluded.first_at`, "nobody:"+try.counts[0].subject, p.now().UnixMicro())
	return err
}

// entry is how somebody comes in.
type entry struct {
	method   Method
	proven   time.Time // when they proved who they are
	replaced string    // as for Login
	from     Browser
	// secondFactor is set when the sign-in provider has asked for one.
	secondFactor bool
}

// enter is what follows the first proof: a session, or the wait for the second
// factor. The person must be locked.
func (p *People) enter(ctx context.Context, tx *db.Tx, person *Person, e entry) (*SignIn, error) {
	memberships, err := Memberships(ctx, tx, person.ID)
	if err != nil {
		return nil, err
	}
	if len(memberships) == 0 {
		return nil, fault.New(fault.Authentication, "you are not a member of any workspace; ask an owner to invite you")
	}
	second, err := p.hasTOTP(ctx, tx, person.ID)
	if err != nil {
		return nil, err
	}
	// A passkey checks the person itself, by a finger or a PIN: it is two factors.
	if second && e.method != ByPasskey {
		half := newToken()
		_, err := tx.Exec(ctx, "INSERT INTO half_logins (token_hash, user_id, method, expires_at) VALUES ($1, $2, $3, $4)",
			hashToken(half), person.ID, string(e.method), p.now().Add(halfLimit).UnixMicro())
		return &SignIn{Person: person, Half: half}, err
	}
	return p.admit(ctx, tx, person, e)
}

// admit ends the session that the browser had and starts another.
func (p *People) admit(ctx context.Context, tx *db.Tx, person *Person, e entry) (*SignIn, error) {
	if e.replaced != "" {
		if _, err := tx.Exec(ctx, "DELETE FROM sessions WHERE token_hash = $1", hashToken(e.replaced)); err != nil {
			return nil, err
		}
	}
	s, token, err := p.startSession(ctx, tx, person, e)
	if err != nil {
		return nil, err
	}
	device, err := p.rememberSource(ctx, tx, person.ID, e.from)
	return &SignIn{Person: person, Session: s, Token: token, Device: device}, err
}

// FinishLogin signs in with the second factor: a code of the app, or a recovery
// code. A wrong one may be tried again while the half-way sign-in lasts.
func (p *People) FinishLogin(ctx context.Context, half, code, replaced string, from Browser) (*SignIn, error) {
	userID, err := p.halfOf(ctx, p.db, half)
	if err != nil {
		return nil, err
	}
	try, err := p.beginProof(ctx, userID, factorSubject(userID), from)
	if err != nil {
		return nil, err
	}
	var out *SignIn
	var person *Person
	err = p.db.Write(ctx, func(tx *db.Tx) (err error) {
		if person, err = p.lock(ctx, tx, userID); err != nil {
			return err
		}
		// Again under the lock: another request may have used it up.
		if _, err := p.halfOf(ctx, tx, half); err != nil {
			return err
		}
		method, err := p.useCode(ctx, tx, userID, code)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM half_logins WHERE token_hash = $1", hashToken(half)); err != nil {
			return err
		}
		if err := try.succeeded(ctx, tx, p.now()); err != nil {
			return err
		}
		out, err = p.admit(ctx, tx, person, entry{method: method, proven: p.now(), replaced: replaced, from: from})
		return err
	})
	if fault.Is(err, fault.Authentication) {
		return nil, errors.Join(err, p.noteFailure(ctx, person, try, from.actor("anonymous")))
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (p *People) halfOf(ctx context.Context, q db.Querier, half string) (userID string, err error) {
	err = q.QueryRow(ctx, "SELECT user_id FROM half_logins WHERE token_hash = $1 AND expires_at > $2", hashToken(half), p.now().UnixMicro()).Scan(&userID)
	if errors.Is(err, db.ErrNotFound) {
		return "", fault.New(fault.Authentication, "this sign-in took too long; begin again with your password")
	}
	return userID, err
}

// Proof is what a person shows to confirm who they are: the password, or a code
// of the app or a recovery code.
type Proof struct {
	Password string
	Code     string
}

// Confirm checks a proof from somebody who is signed in, and returns the
// session's new token. Who has an authenticator app must show a code: the
// password alone does not sign them in either.
func (p *People) Confirm(ctx context.Context, s *Session, proof Proof, from Browser) (token string, err error) {
	if proof.Code == "" {
		if err := p.requirePasswordEnough(ctx, p.db, s.UserID); err != nil {
			return "", err
		}
	}
	try, err := p.beginProof(ctx, s.UserID, confirmSubject(s.UserID), from)
	if err != nil {
		return "", err
	}
	if token, err = p.confirm(ctx, s, proof, try); fault.Is(err, fault.Authentication) {
		return "", errors.Join(err, p.noteFailure(ctx, s.Person, try, from.actor(s.UserID)))
	}
	return token, err
}

func (p *People) requirePasswordEnough(ctx context.Context, q db.Querier, userID string) error {
	app, err := p.hasTOTP(ctx, q, userID)
	if err == nil && app {
		err = fault.Param(fault.Authentication, "code", "type a code of your authenticator app or a recovery code, or use a passkey")
	}
	return err
}

func (p *People) confirm(ctx context.Context, s *Session, proof Proof, try *attempt) (token string, err error) {
	if proof.Code == "" {
		if err := p.comparePassword(ctx, s.UserID, proof.Password, try); err != nil {
			return "", err
		}
	}
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := p.lock(ctx, tx, s.UserID); err != nil {
			return err
		}
		if proof.Code == "" { // again under the lock: the app may have come meanwhile
			if err := p.requirePasswordEnough(ctx, tx, s.UserID); err != nil {
				return err
			}
		}
		if proof.Code != "" {
			if _, err := p.useCode(ctx, tx, s.UserID, proof.Code); err != nil {
				return err
			}
			if err := p.noteSecondFactor(ctx, tx, s); err != nil {
				return err
			}
		}
		if err := try.succeeded(ctx, tx, p.now()); err != nil {
			return err
		}
		// A password that was changed meanwhile has ended the session or its token.
		token, err = p.renewToken(ctx, tx, s, p.now())
		return err
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

func errWrongPassword() error {
	return fault.Param(fault.Authentication, "password", "the password is wrong")
}

func (p *People) comparePassword(ctx context.Context, userID, password string, try *attempt) error {
	person, err := p.Get(ctx, p.db, userID)
	if err != nil {
		return err
	}
	right, err := p.passwords.verify(ctx, password, person.passwordHash)
	if err != nil {
		return errors.Join(err, p.undo(ctx, try))
	}
	if !right {
		return errWrongPassword()
	}
	return nil
}
