package people

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
)

const (
	idleTimeout          = 12 * time.Hour
	sessionLifetime      = 14 * 24 * time.Hour
	confirmationLifetime = 30 * time.Minute
	// seenInterval is how often seen_at is updated.
	seenInterval = time.Minute
)

// Method is how a person authenticated.
type Method string

// The methods.
const (
	ByPassword     Method = "password"
	ByTOTP         Method = "totp"
	ByRecoveryCode Method = "recovery_code"
	ByPasskey      Method = "passkey"
	ByOIDC         Method = "oidc"
	ByLink         Method = "link" // an invitation or the setup link
)

// Session is a browser in which a person is signed in.
type Session struct {
	ID          string
	UserID      string
	Method      Method
	IP          string
	UserAgent   string
	CreatedAt   time.Time
	SeenAt      time.Time // to the minute
	ConfirmedAt time.Time // when the person last authenticated
	// SecondFactorAt is when the person last used a second factor in this session; nil for never.
	SecondFactorAt *time.Time
	Person         *Person // not set in lists

	tokenHash string
}

// ErrConfirmationRequired is returned for actions that need a recent authentication. Ask for the password,
// a code or a passkey, and call Confirm.
var ErrConfirmationRequired = fault.New(fault.InsufficientScope, "Confirm that it is you, then retry.")

// RequireConfirmed returns ErrConfirmationRequired unless the person authenticated in the last 30
// minutes.
func (p *People) RequireConfirmed(s *Session) error {
	if p.now().Sub(s.ConfirmedAt) > confirmationLifetime {
		return ErrConfirmationRequired
	}
	return nil
}

// UserOfSession returns whose session a token is or was, or an empty string if it is unknown.
func (p *People) UserOfSession(ctx context.Context, q db.Querier, token string) (string, error) {
	id, err := db.Value[string](q.QueryRow(ctx, "SELECT user_id FROM sessions WHERE token_hash = $1", hashToken(token)))
	if errors.Is(err, db.ErrNotFound) {
		return "", nil
	}
	return id, err
}

// errNoSession is the same for unknown, expired and revoked sessions.
func errNoSession() error { return fault.New(fault.Authentication, "You are not signed in.") }

const sessionColumns = "s.id, s.user_id, s.method, s.ip, s.user_agent, s.created_at, s.seen_at, s.confirmed_at, s.second_factor_at, s.token_hash"

func scanSession(r db.Row, more ...any) (*Session, error) {
	s := new(Session)
	return s, db.Scan(r, append([]any{&s.ID, &s.UserID, &s.Method, &s.IP, &s.UserAgent, &s.CreatedAt, &s.SeenAt, &s.ConfirmedAt, &s.SecondFactorAt, &s.tokenHash}, more...)...)
}

// activeSessions selects sessions that have not expired. sessionCutoffs returns its parameters.
const activeSessions = "s.seen_at > $2 AND s.created_at > $3"

func sessionCutoffs(now time.Time) (seen, created int64) {
	return now.Add(-idleTimeout).UnixMicro(), now.Add(-sessionLifetime).UnixMicro()
}

// LookUpSession returns the session of a token with its person. It doesn't extend the session, because
// pages that refresh themselves call it.
func (p *People) LookUpSession(ctx context.Context, q db.Querier, token string) (*Session, error) {
	seen, created := sessionCutoffs(p.now())
	person := new(Person)
	s, err := scanSession(q.QueryRow(ctx, "SELECT "+sessionColumns+", "+personColumns+
		" FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.token_hash = $1 AND "+activeSessions, hashToken(token), seen, created), person.fields()...)
	if err != nil {
		return nil, ifNotFound(err, errNoSession())
	}
	s.Person = person
	return s, nil
}

// Authenticate is LookUpSession for requests of a person: it extends the session, at most once a minute.
func (p *People) Authenticate(ctx context.Context, token string, from Browser) (*Session, error) {
	s, err := p.LookUpSession(ctx, p.db, token)
	if err != nil {
		return nil, err
	}
	now := p.now()
	if now.Sub(s.SeenAt) < seenInterval {
		return s, nil
	}
	s.SeenAt, s.IP, s.UserAgent = now, from.IP, from.device()
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE sessions SET seen_at = $2, ip = $3, user_agent = $4 WHERE id = $1 AND seen_at < $2",
			s.ID, now.UnixMicro(), s.IP, s.UserAgent)
		return err
	})
	return s, err
}

// Sessions returns a person's active sessions, newest first.
func (p *People) Sessions(ctx context.Context, q db.Querier, userID string) ([]*Session, error) {
	seen, created := sessionCutoffs(p.now())
	rows, err := q.Query(ctx, "SELECT "+sessionColumns+" FROM sessions s WHERE s.user_id = $1 AND "+activeSessions+" ORDER BY s.id DESC", userID, seen, created)
	return db.All(rows, err, func(r db.Row) (*Session, error) { return scanSession(r) })
}

// Revoke ends one of the person's sessions. With the session's own ID it signs out.
func (p *People) Revoke(ctx context.Context, tx *db.Tx, s *Session, id string, from Browser) error {
	n, err := tx.Exec(ctx, "DELETE FROM sessions WHERE id = $1 AND user_id = $2", id, s.UserID)
	if err != nil {
		return err
	}
	if n == 0 {
		return fault.NoSuch("session", id)
	}
	action := "session.revoked"
	if id == s.ID {
		action = "person.signed_out"
	}
	return p.log(ctx, tx, from.actor(s.UserID), personAction{s.UserID, action, map[string]any{"session": id}})
}

// RevokeOthers ends all other sessions of the person.
func (p *People) RevokeOthers(ctx context.Context, tx *db.Tx, s *Session, from Browser) error {
	n, err := deleteSessions(ctx, tx, s.UserID, s.ID)
	if err != nil {
		return err
	}
	return p.log(ctx, tx, from.actor(s.UserID), personAction{s.UserID, "session.others_revoked", map[string]any{"sessions": n}})
}

// deleteSessions ends a person's sessions and pending sign-ins, except for the session to keep, if any.
func deleteSessions(ctx context.Context, tx *db.Tx, userID, keep string) (int64, error) {
	if _, err := tx.Exec(ctx, "DELETE FROM half_logins WHERE user_id = $1", userID); err != nil {
		return 0, err
	}
	return tx.Exec(ctx, "DELETE FROM sessions WHERE user_id = $1 AND id <> $2", userID, keep)
}

// lockSessionPerson locks the person of a session and checks that the session still exists.
func (p *People) lockSessionPerson(ctx context.Context, tx *db.Tx, s *Session) (*Person, error) {
	person, err := p.lock(ctx, tx, s.UserID)
	if err != nil {
		return nil, err
	}
	var id string
	err = tx.QueryRow(ctx, "SELECT id FROM sessions WHERE id = $1", s.ID).Scan(&id)
	return person, ifNotFound(err, errNoSession())
}

// lockConfirmed is lockSessionPerson for actions that need a recent authentication.
func (p *People) lockConfirmed(ctx context.Context, tx *db.Tx, s *Session) (*Person, error) {
	if err := p.RequireConfirmed(s); err != nil {
		return nil, err
	}
	return p.lockSessionPerson(ctx, tx, s)
}

// startSession creates a session with a new token. The person must be locked.
func (p *People) startSession(ctx context.Context, tx *db.Tx, person *Person, in signInParams) (*Session, string, error) {
	now := time.UnixMicro(p.now().UnixMicro()) // the precision of the database
	token := keyring.NewSecret(keyring.SessionToken)
	s := &Session{ID: ids.New(SessionID), UserID: person.ID, Method: in.method, IP: in.from.IP, UserAgent: in.from.device(),
		CreatedAt: now, SeenAt: now, ConfirmedAt: time.UnixMicro(in.provenAt.UnixMicro()), Person: person, tokenHash: hashToken(token)}
	if in.secondFactor || in.method.isSecondFactor() {
		s.SecondFactorAt = &now
	}
	_, err := tx.Exec(ctx, `INSERT INTO sessions (id, token_hash, user_id, method, ip, user_agent, created_at, seen_at, confirmed_at, second_factor_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9)`, s.ID, s.tokenHash, s.UserID, string(in.method), s.IP, s.UserAgent,
		now.UnixMicro(), s.ConfirmedAt.UnixMicro(), db.Micros(s.SecondFactorAt))
	if err != nil {
		return nil, "", err
	}
	return s, token, p.log(ctx, tx, in.from.actor(person.ID), personAction{person.ID, "person.signed_in", map[string]any{"method": in.method, "session": s.ID}})
}

// renewToken replaces a session's token when its person authenticates again or gains rights, so that
// a token stolen before is useless.
func (p *People) renewToken(ctx context.Context, tx *db.Tx, s *Session, confirmed time.Time) (token string, err error) {
	token = keyring.NewSecret(keyring.SessionToken)
	n, err := tx.Exec(ctx, "UPDATE sessions SET token_hash = $3, confirmed_at = $4 WHERE id = $1 AND token_hash = $2",
		s.ID, s.tokenHash, hashToken(token), confirmed.UnixMicro())
	if err != nil {
		return "", err
	}
	if n == 0 {
		return "", errNoSession() // it was revoked, or its token was renewed
	}
	confirmed = time.UnixMicro(confirmed.UnixMicro())
	tx.OnCommit(func() { s.tokenHash, s.ConfirmedAt = hashToken(token), confirmed })
	return token, nil
}

// ErrSecondFactorRequired is returned if a workspace requires a second factor and the session has none.
var ErrSecondFactorRequired = fault.New(fault.InsufficientScope, "This workspace requires a second factor. Use one, or set one up.")

// isSecondFactor reports whether a sign-in by the method includes a second factor. A passkey verifies the
// person by biometrics or a PIN.
func (m Method) isSecondFactor() bool {
	return m == ByTOTP || m == ByRecoveryCode || m == ByPasskey
}

// recordSecondFactor records that the session's person just used a second factor.
func (p *People) recordSecondFactor(ctx context.Context, tx *db.Tx, s *Session) error {
	now := time.UnixMicro(p.now().UnixMicro()) // the precision of the database
	_, err := tx.Exec(ctx, "UPDATE sessions SET second_factor_at = $2 WHERE id = $1", s.ID, now.UnixMicro())
	tx.OnCommit(func() { s.SecondFactorAt = &now })
	return err
}

// clearSecondFactor resets the sessions of a person who has no second factor left.
func clearSecondFactor(ctx context.Context, tx *db.Tx, userID string) error {
	_, err := tx.Exec(ctx, `UPDATE sessions SET second_factor_at = NULL WHERE user_id = $1
		AND NOT EXISTS (SELECT 1 FROM totp WHERE user_id = $1 AND enabled_at IS NOT NULL)
		AND NOT EXISTS (SELECT 1 FROM passkeys WHERE user_id = $1)`, userID)
	return err
}
