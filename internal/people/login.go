package people

import (
	"context"
	"errors"
	"time"

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
	Half    string   // token of the half-way sign-in, for FinishLogin
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
	try, err := p.begin(ctx, emailSubject(email), from)
	if err != nil {
		return nil, err
	}
	person, err := p.byEmail(ctx, p.db, email)
	if err != nil {
		return nil, err
	}
	stored := ""
	if person != nil {
		stored = person.passwordHash
	}
	right, err := p.passwords.verify(ctx, password, stored)
	if err != nil {
		return nil, errors.Join(err, p.undo(ctx, try))
	}
	if !right {
		return nil, errors.Join(errWrong(), p.noteFailure(ctx, person, try, from))
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
		if err := try.succeeded(ctx, tx); err != nil {
			return err
		}
		if better != "" {
			if _, err := tx.Exec(ctx, "UPDATE users SET password_hash = $2 WHERE id = $1", person.ID, better); err != nil {
				return err
			}
		}
		out, err = p.enter(ctx, tx, person, ByPassword, replaced, from)
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
// failure would let an attacker fill the log. person is nil for nobody.
func (p *People) noteFailure(ctx context.Context, person *Person, try *attempt, from Browser) error {
	if person == nil || try.count != freePerAccount {
		return nil
	}
	return p.db.Write(ctx, func(tx *db.Tx) error {
		return p.log(ctx, tx, from.actor("anonymous"), person.ID, "person.login_throttled", map[string]any{"failures": try.count})
	})
}

// enter is what follows the first proof: a session, or the wait for the second
// factor. The person must be locked.
func (p *People) enter(ctx context.Context, tx *db.Tx, person *Person, method Method, replaced string, from Browser) (*SignIn, error) {
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
	if second && method != ByPasskey {
		half := newToken()
		_, err := tx.Exec(ctx, "INSERT INTO half_logins (token_hash, user_id, method, expires_at) VALUES ($1, $2, $3, $4)",
			hashToken(half), person.ID, string(method), p.now().Add(halfLimit).UnixMicro())
		return &SignIn{Person: person, Half: half}, err
	}
	return p.admit(ctx, tx, person, method, replaced, from)
}

// admit ends the session that the browser had and starts another.
func (p *People) admit(ctx context.Context, tx *db.Tx, person *Person, method Method, replaced string, from Browser) (*SignIn, error) {
	if replaced != "" {
		if _, err := tx.Exec(ctx, "DELETE FROM sessions WHERE token_hash = $1", hashToken(replaced)); err != nil {
			return nil, err
		}
	}
	s, token, err := p.startSession(ctx, tx, person, method, from)
	return &SignIn{Person: person, Session: s, Token: token}, err
}

// FinishLogin signs in with the second factor: a code of the app, or a recovery
// code. A wrong one may be tried again while the half-way sign-in lasts.
func (p *People) FinishLogin(ctx context.Context, half, code, replaced string, from Browser) (*SignIn, error) {
	userID, err := p.halfOf(ctx, p.db, half)
	if err != nil {
		return nil, err
	}
	try, err := p.begin(ctx, factorSubject(userID), from)
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
		if err := try.succeeded(ctx, tx); err != nil {
			return err
		}
		out, err = p.admit(ctx, tx, person, method, replaced, from)
		return err
	})
	if fault.Is(err, fault.Authentication) {
		return nil, errors.Join(err, p.noteFailure(ctx, person, try, from))
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
// session's new token.
func (p *People) Confirm(ctx context.Context, s *Session, proof Proof, from Browser) (token string, err error) {
	try, err := p.begin(ctx, confirmSubject(s.UserID), from)
	if err != nil {
		return "", err
	}
	if proof.Code == "" {
		if err := p.comparePassword(ctx, s.UserID, proof.Password, try); err != nil {
			return "", err
		}
	}
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := p.lock(ctx, tx, s.UserID); err != nil {
			return err
		}
		if proof.Code != "" {
			if _, err := p.useCode(ctx, tx, s.UserID, proof.Code); err != nil {
				return err
			}
		}
		if err := try.succeeded(ctx, tx); err != nil {
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
