package people

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// RequestPasswordReset makes a link to a new password, to be mailed in the same
// transaction. It is nil for an address that nobody has, and when one was made
// a moment ago: say the same in every case.
func (p *People) RequestPasswordReset(ctx context.Context, tx *db.Tx, email string, from Browser) (*Link, error) {
	person, err := p.byEmail(ctx, tx, normal(email))
	if err != nil || person == nil {
		return nil, err
	}
	if person, err = p.lock(ctx, tx, person.ID); err != nil {
		return nil, err
	}
	var recent int64
	err = tx.QueryRow(ctx, "SELECT count(*) FROM one_time_links WHERE user_id = $1 AND created_at > $2",
		person.ID, p.now().Add(-resetPause).UnixMicro()).Scan(&recent)
	if err != nil || recent > 0 {
		return nil, err
	}
	l, err := p.passwordLink(ctx, tx, person, ResetLimit)
	if err != nil || l.WorkspaceID == "" { // a member of nothing has nothing to sign in to
		return nil, err
	}
	return l, p.log(ctx, tx, from.actor("anonymous"), person.ID, "password.reset_requested", nil)
}

// NewPasswordLink is RequestPasswordReset for operators, who hand the link over
// themselves. Older links of the person are dead.
func (p *People) NewPasswordLink(ctx context.Context, tx *db.Tx, userID string, validFor time.Duration) (*Link, error) {
	person, err := p.lock(ctx, tx, userID)
	if err != nil {
		return nil, err
	}
	if err := endLinks(ctx, tx, person.ID); err != nil {
		return nil, err
	}
	l, err := p.passwordLink(ctx, tx, person, validFor)
	if err != nil {
		return nil, err
	}
	return l, p.log(ctx, tx, Operator().actor, person.ID, "password.link_created", nil)
}

// passwordLink leaves older links alone: anybody may ask for a reset, and must
// not take away a link that the person already has.
func (p *People) passwordLink(ctx context.Context, tx *db.Tx, person *Person, validFor time.Duration) (*Link, error) {
	memberships, err := Memberships(ctx, tx, person.ID)
	if err != nil {
		return nil, err
	}
	expires := p.now().Add(validFor)
	l := &Link{Path: PasswordPath, Person: person, ExpiresAt: &expires}
	if len(memberships) > 0 {
		l.WorkspaceID = memberships[0].WorkspaceID
	}
	return l, p.storeLink(ctx, tx, kindPassword, l)
}

// RemoveSecondFactor is for operators, when a person has lost both the app and
// the recovery codes.
func (p *People) RemoveSecondFactor(ctx context.Context, tx *db.Tx, userID string) error {
	if _, err := p.lock(ctx, tx, userID); err != nil {
		return err
	}
	return p.removeTOTP(ctx, tx, Operator(), userID)
}

// FindPasswordLink returns whose password a link is for.
func (p *People) FindPasswordLink(ctx context.Context, q db.Querier, token string) (*Person, error) {
	person, err := scanPerson(q.QueryRow(ctx, "SELECT "+personColumns+` FROM one_time_links l JOIN users u ON u.id = l.user_id
		WHERE l.token_hash = $1 AND l.kind = $2 AND l.expires_at > $3`, hashToken(token), kindPassword, p.now().UnixMicro()))
	if errors.Is(err, db.ErrNotFound) {
		return nil, errDeadLink()
	}
	return person, err
}

// ResetPassword uses a password link, and leaves no other way to sign in: the
// account may have been made, and furnished, by somebody else who knew the
// address first. The person signs in afterwards, with the second factor if there
// is one: whoever reads the mail alone does not get in.
func (p *People) ResetPassword(ctx context.Context, token, password string, from Browser) (OtherWays, error) {
	person, err := p.FindPasswordLink(ctx, p.db, token)
	if err != nil {
		return OtherWays{}, err
	}
	if err := CheckPassword(password, person.Email); err != nil {
		return OtherWays{}, err
	}
	hash, err := p.passwords.hash(ctx, password)
	if err != nil {
		return OtherWays{}, err
	}
	return p.useReset(ctx, token, person.ID, hash, from)
}

// useReset checks the link again: meanwhile another request may have used it.
func (p *People) useReset(ctx context.Context, token, userID, hash string, from Browser) (removed OtherWays, err error) {
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		person, err := p.lock(ctx, tx, userID)
		if err != nil {
			return err
		}
		n, err := tx.Exec(ctx, "DELETE FROM one_time_links WHERE token_hash = $1 AND kind = $2 AND user_id = $3 AND expires_at > $4",
			hashToken(token), kindPassword, person.ID, p.now().UnixMicro())
		if err != nil {
			return err
		}
		if n == 0 {
			return errDeadLink()
		}
		// The link has proved more than a guess could: the waits may end.
		account := emailSubject(person.Email)
		for _, subject := range []string{account, networkSubject(account, addressSubject(from.IP)), deviceSubject(account, from.Device)} {
			if err := forgetFailures(ctx, tx, subject); err != nil {
				return err
			}
		}
		if err := p.setPassword(ctx, tx, person, hash, ""); err != nil {
			return err
		}
		if removed, err = removeWays(ctx, tx, person.ID); err != nil {
			return err
		}
		var detail map[string]any
		if removed != (OtherWays{}) {
			detail = map[string]any{"passkeys_removed": removed.Passkeys, "identities_removed": removed.Identities}
		}
		return p.log(ctx, tx, from.actor(person.ID), person.ID, "password.reset", detail)
	})
	if err != nil {
		return OtherWays{}, err
	}
	return removed, nil
}

// removeWays ends every way to sign in but the password, and an app whose set-up
// is not finished: its secret may have been seen. One that is in use stays.
func removeWays(ctx context.Context, tx *db.Tx, userID string) (r OtherWays, err error) {
	if r.Passkeys, err = tx.Exec(ctx, "DELETE FROM passkeys WHERE user_id = $1", userID); err != nil {
		return r, err
	}
	if r.Identities, err = tx.Exec(ctx, "DELETE FROM identities WHERE user_id = $1", userID); err != nil {
		return r, err
	}
	_, err = tx.Exec(ctx, "DELETE FROM totp WHERE user_id = $1 AND enabled_at IS NULL", userID)
	return r, err
}

// BeginAnew takes every way to sign in from an account that was a member of
// nothing before it was added to a workspace: nobody relies on it, and whoever
// made it may be somebody else. It leaves one alone that belongs to others.
func (p *People) BeginAnew(ctx context.Context, tx *db.Tx, userID, added string) (anew bool, err error) {
	person, err := p.lock(ctx, tx, userID)
	if err != nil {
		return false, err
	}
	if others, err := p.hasAccount(ctx, tx, person, added); err != nil || others {
		return false, err
	}
	if _, err := removeWays(ctx, tx, person.ID); err != nil {
		return false, err
	}
	if err := deleteTOTP(ctx, tx, person.ID); err != nil {
		return false, err
	}
	return true, p.setPassword(ctx, tx, person, "", "")
}

// ChangePassword replaces the password of somebody who is signed in and returns
// the session's new token; all other sessions end. Who has no password yet sets
// one in a confirmed session, and old is not read.
func (p *People) ChangePassword(ctx context.Context, s *Session, old, password string, from Browser) (token string, err error) {
	person, err := p.Get(ctx, p.db, s.UserID)
	if err != nil {
		return "", err
	}
	if err := CheckPassword(password, person.Email); err != nil {
		return "", err
	}
	var try *attempt
	if person.HasPassword {
		if try, err = p.beginProof(ctx, s.UserID, confirmSubject(s.UserID), from); err != nil {
			return "", err
		}
		if err := p.comparePassword(ctx, s.UserID, old, try); fault.Is(err, fault.Authentication) {
			return "", errors.Join(err, p.noteFailure(ctx, person, try, from.actor(s.UserID)))
		} else if err != nil {
			return "", err
		}
	} else if err := p.RequireConfirmed(s); err != nil {
		return "", err
	}
	hash, err := p.passwords.hash(ctx, password)
	if err != nil {
		return "", err
	}
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		person, err := p.lock(ctx, tx, s.UserID)
		if err != nil {
			return err
		}
		if try != nil {
			if err := try.succeeded(ctx, tx, p.now()); err != nil {
				return err
			}
		}
		if err := p.setPassword(ctx, tx, person, hash, s.ID); err != nil {
			return err
		}
		// The password confirms, unless there is an app, whose code it did not need.
		confirmed := p.now()
		if err := p.requirePasswordEnough(ctx, tx, s.UserID); fault.Is(err, fault.Authentication) {
			confirmed = s.ConfirmedAt
		} else if err != nil {
			return err
		}
		if token, err = p.renewToken(ctx, tx, s, confirmed); err != nil {
			return err
		}
		return p.log(ctx, tx, from.actor(s.UserID), s.UserID, "password.changed", nil)
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

// setPassword stores a hash, or none, and ends what the old password or a link
// could still open: sessions but the one to keep, half-way sign-ins, links.
func (p *People) setPassword(ctx context.Context, tx *db.Tx, person *Person, hash, keep string) error {
	if _, err := tx.Exec(ctx, "UPDATE users SET password_hash = $2 WHERE id = $1", person.ID, db.OrNull(hash)); err != nil {
		return err
	}
	if err := endLinks(ctx, tx, person.ID); err != nil {
		return err
	}
	person.passwordHash, person.HasPassword = hash, hash != ""
	_, err := endSessions(ctx, tx, person.ID, keep)
	return err
}
