package people

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

const (
	idleLimit     = 12 * time.Hour
	absoluteLimit = 14 * 24 * time.Hour
	confirmLimit  = 10 * time.Minute
	// seenEvery is how often being there is written down.
	seenEvery = time.Minute
)

// Method is how a person proved who they are.
type Method string

// The methods.
const (
	ByPassword     Method = "password"
	ByTOTP         Method = "totp"
	ByRecoveryCode Method = "recovery_code"
	ByPasskey      Method = "passkey"
	ByOIDC         Method = "oidc"
	ByLink         Method = "link" // an invitation or the set-up, just accepted
)

// Session is one browser in which a person is signed in.
type Session struct {
	ID          string
	UserID      string
	Method      Method
	IP          string
	UserAgent   string
	CreatedAt   time.Time
	SeenAt      time.Time // to the minute
	ConfirmedAt time.Time // when the person last proved who they are
	// SecondFactorAt is when the person last proved a second factor in this
	// session; nil for never.
	SecondFactorAt *time.Time
	Person         *Person // set by Recognise, Authenticate and SignIn, not in lists

	tokenHash string
}

// ExpiresAt is when the session ends if nobody comes back.
func (s *Session) ExpiresAt() time.Time {
	idle, absolute := s.SeenAt.Add(idleLimit), s.CreatedAt.Add(absoluteLimit)
	if idle.Before(absolute) {
		return idle
	}
	return absolute
}

// ErrConfirm is the answer to what only a person who has just proved who they
// are may do. Ask for the password, a code or a passkey, and call Confirm.
var ErrConfirm = fault.New(fault.InsufficientScope, "confirm that it is you, then do this again")

// RequireConfirmed returns ErrConfirm unless the person proved who they are in
// the last ten minutes.
func (p *People) RequireConfirmed(s *Session) error {
	if p.now().Sub(s.ConfirmedAt) > confirmLimit {
		return ErrConfirm
	}
	return nil
}

// errNoSession does not say why: unknown, ended and revoked look the same.
func errNoSession() error { return fault.New(fault.Authentication, "you are not signed in") }

const sessionColumns = "s.id, s.user_id, s.method, s.ip, s.user_agent, s.created_at, s.seen_at, s.confirmed_at, s.second_factor_at, s.token_hash"

func scanSession(r db.Row, more ...any) (*Session, error) {
	var s Session
	var method string
	var created, seen, confirmed int64
	var secondFactor *int64
	dest := append([]any{&s.ID, &s.UserID, &method, &s.IP, &s.UserAgent, &created, &seen, &confirmed, &secondFactor, &s.tokenHash}, more...)
	err := r.Scan(dest...)
	s.Method, s.SecondFactorAt = Method(method), db.Time(secondFactor)
	s.CreatedAt, s.SeenAt, s.ConfirmedAt = time.UnixMicro(created), time.UnixMicro(seen), time.UnixMicro(confirmed)
	return &s, err
}

// alive are the sessions that have not ended; earliest gives its two parameters.
const alive = "s.seen_at > $2 AND s.created_at > $3"

func earliest(now time.Time) (seen, created int64) {
	return now.Add(-idleLimit).UnixMicro(), now.Add(-absoluteLimit).UnixMicro()
}

// Recognise returns the session of a token, with its person, and does not note
// that the person was there: it is for pages that ask by themselves.
func (p *People) Recognise(ctx context.Context, token string) (*Session, error) {
	return p.recognise(ctx, p.db, token)
}

func (p *People) recognise(ctx context.Context, q db.Querier, token string) (*Session, error) {
	seen, created := earliest(p.now())
	var person Person
	dest, done := person.into()
	s, err := scanSession(q.QueryRow(ctx, "SELECT "+sessionColumns+", "+personColumns+
		" FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.token_hash = $1 AND "+alive, hashToken(token), seen, created), dest...)
	if errors.Is(err, db.ErrNotFound) {
		return nil, errNoSession()
	}
	if err != nil {
		return nil, err
	}
	done()
	s.Person = &person
	return s, nil
}

// Authenticate is Recognise for what a person asks for: it notes that they were
// there, at most once a minute.
func (p *People) Authenticate(ctx context.Context, token string, from Browser) (*Session, error) {
	s, err := p.recognise(ctx, p.db, token)
	if err != nil {
		return nil, err
	}
	now := p.now()
	if now.Sub(s.SeenAt) < seenEvery {
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

// Sessions lists where a person is signed in, the newest sign-in first.
func (p *People) Sessions(ctx context.Context, q db.Querier, userID string) ([]*Session, error) {
	seen, created := earliest(p.now())
	rows, err := q.Query(ctx, "SELECT "+sessionColumns+" FROM sessions s WHERE s.user_id = $1 AND "+alive+" ORDER BY s.id DESC", userID, seen, created)
	return db.All(rows, err, func(r db.Row) (*Session, error) { return scanSession(r) })
}

// Revoke ends one of the person's sessions. With the session's own id it is
// signing out.
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
	return p.log(ctx, tx, from.actor(s.UserID), s.UserID, action, map[string]any{"session": id})
}

// RevokeOthers ends all of the person's sessions but this one.
func (p *People) RevokeOthers(ctx context.Context, tx *db.Tx, s *Session, from Browser) error {
	n, err := endSessions(ctx, tx, s.UserID, s.ID)
	if err != nil {
		return err
	}
	return p.log(ctx, tx, from.actor(s.UserID), s.UserID, "session.others_revoked", map[string]any{"sessions": n})
}

// endSessions ends a person's sessions, but for the one to keep, which may be
// empty, and what is on its way to become one.
func endSessions(ctx context.Context, tx *db.Tx, userID, keep string) (int64, error) {
	if _, err := tx.Exec(ctx, "DELETE FROM half_logins WHERE user_id = $1", userID); err != nil {
		return 0, err
	}
	return tx.Exec(ctx, "DELETE FROM sessions WHERE user_id = $1 AND id <> $2", userID, keep)
}

// lockHere is lock for the person of a session, which may have ended after it
// let the request in: whatever changes a person's factors begins with it.
func (p *People) lockHere(ctx context.Context, tx *db.Tx, s *Session) (*Person, error) {
	person, err := p.lock(ctx, tx, s.UserID)
	if err != nil {
		return nil, err
	}
	var id string
	err = tx.QueryRow(ctx, "SELECT id FROM sessions WHERE id = $1", s.ID).Scan(&id)
	if errors.Is(err, db.ErrNotFound) {
		return nil, errNoSession()
	}
	return person, err
}

// startSession makes a session with a token that nobody has seen before. The
// person must be locked.
func (p *People) startSession(ctx context.Context, tx *db.Tx, person *Person, e entry) (*Session, string, error) {
	now := time.UnixMicro(p.now().UnixMicro()) // as it will be read
	token := newToken()
	s := &Session{ID: ids.New(SessionID), UserID: person.ID, Method: e.method, IP: e.from.IP, UserAgent: e.from.device(),
		CreatedAt: now, SeenAt: now, ConfirmedAt: time.UnixMicro(e.proven.UnixMicro()), Person: person, tokenHash: hashToken(token)}
	if e.secondFactor || e.method.isSecondFactor() {
		s.SecondFactorAt = &now
	}
	_, err := tx.Exec(ctx, `INSERT INTO sessions (id, token_hash, user_id, method, ip, user_agent, created_at, seen_at, confirmed_at, second_factor_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9)`, s.ID, s.tokenHash, s.UserID, string(e.method), s.IP, s.UserAgent,
		now.UnixMicro(), s.ConfirmedAt.UnixMicro(), db.Micros(s.SecondFactorAt))
	if err != nil {
		return nil, "", err
	}
	return s, token, p.log(ctx, tx, e.from.actor(person.ID), person.ID, "person.signed_in", map[string]any{"method": e.method, "session": s.ID})
}

// renewToken gives a session another token, whenever its person proves again
// who they are or may do more than before: a token that was stolen until then
// is worth nothing after.
func (p *People) renewToken(ctx context.Context, tx *db.Tx, s *Session, confirmed time.Time) (token string, err error) {
	token = newToken()
	n, err := tx.Exec(ctx, "UPDATE sessions SET token_hash = $3, confirmed_at = $4 WHERE id = $1 AND token_hash = $2",
		s.ID, s.tokenHash, hashToken(token), confirmed.UnixMicro())
	if err != nil {
		return "", err
	}
	if n == 0 {
		return "", errNoSession() // it was ended meanwhile, or has another token
	}
	confirmed = time.UnixMicro(confirmed.UnixMicro())
	tx.OnCommit(func() { s.tokenHash, s.ConfirmedAt = hashToken(token), confirmed })
	return token, nil
}
