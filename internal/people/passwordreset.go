package people

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// RequestPasswordReset creates a password link, to be sent in the same transaction. It returns nil for an
// unknown address and shortly after another request. The response must be the same in every case.
func (p *People) RequestPasswordReset(ctx context.Context, tx *db.Tx, email string, from Browser) (*Link, error) {
	person, err := p.byEmail(ctx, tx, accounts.NormalizeEmail(email))
	if err != nil || person == nil {
		return nil, err
	}
	if person, err = p.lock(ctx, tx, person.ID); err != nil {
		return nil, err
	}
	recent, err := count(ctx, tx, "SELECT count(*) FROM one_time_links WHERE user_id = $1 AND created_at > $2", person.ID, p.now().Add(-resetPause).UnixMicro())
	if err != nil || recent > 0 {
		return nil, err
	}
	l, err := p.passwordLink(ctx, tx, person, ResetLimit)
	if err != nil || l.WorkspaceID == "" { // without a workspace there is nothing to sign in to
		return nil, err
	}
	return l, p.log(ctx, tx, from.actor("anonymous"), personAction{person.ID, "password.reset_requested", nil})
}

// NewPasswordLink creates a password link for operators and deletes earlier ones.
func (p *People) NewPasswordLink(ctx context.Context, tx *db.Tx, userID string, validFor time.Duration) (*Link, error) {
	person, err := p.lock(ctx, tx, userID)
	if err != nil {
		return nil, err
	}
	if err := deleteLinks(ctx, tx, person.ID); err != nil {
		return nil, err
	}
	l, err := p.passwordLink(ctx, tx, person, validFor)
	if err != nil {
		return nil, err
	}
	return l, p.log(ctx, tx, Operator().actor, personAction{person.ID, "password.link_created", nil})
}

// passwordLink keeps earlier links: anyone may request a reset, which must not invalidate them.
func (p *People) passwordLink(ctx context.Context, tx *db.Tx, person *Person, validFor time.Duration) (*Link, error) {
	memberships, err := Memberships(ctx, tx, person.ID)
	if err != nil {
		return nil, err
	}
	expires := p.now().Add(validFor)
	l := &Link{Path: passwordPath, Person: person, ExpiresAt: &expires}
	if len(memberships) > 0 {
		l.WorkspaceID = memberships[0].WorkspaceID
	}
	return l, p.storeLink(ctx, tx, kindPassword, l)
}

// RemoveSecondFactor removes the app of a person who lost it and the recovery codes. It is for operators.
func (p *People) RemoveSecondFactor(ctx context.Context, tx *db.Tx, userID string) error {
	if _, err := p.lock(ctx, tx, userID); err != nil {
		return err
	}
	return p.removeTOTP(ctx, tx, Operator(), userID)
}

// FindPasswordLink returns the person of a password link.
func (p *People) FindPasswordLink(ctx context.Context, q db.Querier, token string) (*Person, error) {
	person, err := scanPerson(q.QueryRow(ctx, "SELECT "+personColumns+` FROM one_time_links l JOIN users u ON u.id = l.user_id
		WHERE l.token_hash = $1 AND l.kind = $2 AND l.expires_at > $3`, hashToken(token), kindPassword, p.now().UnixMicro()))
	return person, ifNotFound(err, errInvalidLink())
}

// ResetPassword uses a password link and removes other credentials, because someone else may have created
// the account with this address. It doesn't sign in: the person still needs the second factor, if any.
func (p *People) ResetPassword(ctx context.Context, token, password string, from Browser) (OtherCredentials, error) {
	person, err := p.FindPasswordLink(ctx, p.db, token)
	if err != nil {
		return OtherCredentials{}, err
	}
	if err := checkPassword(password, person.Email); err != nil {
		return OtherCredentials{}, err
	}
	hash, err := p.passwords.hash(ctx, password)
	if err != nil {
		return OtherCredentials{}, err
	}
	return p.consumeResetLink(ctx, token, person.ID, hash, from)
}

// consumeResetLink checks the link again, because another request may have used it.
func (p *People) consumeResetLink(ctx context.Context, token, userID, hash string, from Browser) (OtherCredentials, error) {
	return withLocked(ctx, p, userID, func(tx *db.Tx, person *Person) (removed OtherCredentials, err error) {
		n, err := tx.Exec(ctx, "DELETE FROM one_time_links WHERE token_hash = $1 AND kind = $2 AND user_id = $3 AND expires_at > $4",
			hashToken(token), kindPassword, person.ID, p.now().UnixMicro())
		if err != nil {
			return removed, err
		}
		if n == 0 {
			return removed, errInvalidLink()
		}
		// The link proves who the person is, so the blocks of failed attempts end.
		account := emailSubject(person.Email)
		for _, subject := range []string{account, networkSubject(account, addressSubject(from.IP)), deviceSubject(account, from.Device)} {
			if err := deleteFailures(ctx, tx, subject); err != nil {
				return removed, err
			}
		}
		if err := p.setPassword(ctx, tx, person, hash, ""); err != nil {
			return removed, err
		}
		if removed, err = removeOtherCredentials(ctx, tx, person.ID); err != nil {
			return removed, err
		}
		var detail map[string]any
		if removed != (OtherCredentials{}) {
			detail = map[string]any{"passkeys_removed": removed.Passkeys, "identities_removed": removed.Identities}
		}
		return removed, p.log(ctx, tx, from.actor(person.ID), personAction{person.ID, "password.reset", detail})
	})
}

// removeOtherCredentials removes passkeys, identities and an app that is not enabled yet, whose secret
// someone may have seen. An enabled app stays.
func removeOtherCredentials(ctx context.Context, tx *db.Tx, userID string) (r OtherCredentials, err error) {
	if r.Passkeys, err = tx.Exec(ctx, "DELETE FROM passkeys WHERE user_id = $1", userID); err != nil {
		return r, err
	}
	if r.Identities, err = tx.Exec(ctx, "DELETE FROM identities WHERE user_id = $1", userID); err != nil {
		return r, err
	}
	_, err = tx.Exec(ctx, "DELETE FROM totp WHERE user_id = $1 AND enabled_at IS NULL", userID)
	return r, err
}

// ResetAccount removes all credentials of an account that had no workspace before it was added to one,
// because someone else may have created it. It doesn't touch members of other workspaces.
func (p *People) ResetAccount(ctx context.Context, tx *db.Tx, userID, added string) (reset bool, err error) {
	person, err := p.lock(ctx, tx, userID)
	if err != nil {
		return false, err
	}
	if others, err := p.isMemberElsewhere(ctx, tx, person, added); err != nil || others {
		return false, err
	}
	if _, err := removeOtherCredentials(ctx, tx, person.ID); err != nil {
		return false, err
	}
	if err := deleteTOTP(ctx, tx, person.ID); err != nil {
		return false, err
	}
	return true, p.setPassword(ctx, tx, person, "", "")
}

// ChangePassword changes the password of a signed-in person, ends other sessions and returns the session's
// new token. Without a password yet, the session must be confirmed, and old is ignored.
func (p *People) ChangePassword(ctx context.Context, s *Session, old, password string, from Browser) (token string, err error) {
	person, err := p.Get(ctx, p.db, s.UserID)
	if err != nil {
		return "", err
	}
	if err := checkPassword(password, person.Email); err != nil {
		return "", err
	}
	var attempt *loginAttempt
	if person.HasPassword() {
		if attempt, err = p.startProofAttempt(ctx, s.UserID, confirmSubject(s.UserID), from); err != nil {
			return "", err
		}
		if err := p.comparePassword(ctx, s.UserID, old, attempt); fault.Is(err, fault.Authentication) {
			return "", errors.Join(err, p.logFailures(ctx, s.UserID, attempt, from.actor(s.UserID)))
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
	return withLocked(ctx, p, s.UserID, func(tx *db.Tx, person *Person) (string, error) {
		if attempt != nil {
			if err := attempt.succeeded(ctx, tx, p.now()); err != nil {
				return "", err
			}
		}
		if err := p.setPassword(ctx, tx, person, hash, s.ID); err != nil {
			return "", err
		}
		app, err := p.hasTOTP(ctx, tx, s.UserID)
		if err != nil {
			return "", err
		}
		confirmed := p.now()
		if app { // the password alone doesn't confirm the session
			confirmed = s.ConfirmedAt
		}
		token, err := p.renewToken(ctx, tx, s, confirmed)
		if err != nil {
			return "", err
		}
		return token, p.log(ctx, tx, from.actor(s.UserID), personAction{s.UserID, "password.changed", nil})
	})
}

// setPassword stores a hash, or none, and deletes links, pending sign-ins and sessions, except for the one
// to keep.
func (p *People) setPassword(ctx context.Context, tx *db.Tx, person *Person, hash, keep string) error {
	if _, err := tx.Exec(ctx, "UPDATE users SET password_hash = $2 WHERE id = $1", person.ID, db.OrNull(hash)); err != nil {
		return err
	}
	if err := deleteLinks(ctx, tx, person.ID); err != nil {
		return err
	}
	person.passwordHash = hash
	_, err := deleteSessions(ctx, tx, person.ID, keep)
	return err
}
