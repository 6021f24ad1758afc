// Package people authenticates people: passwords, second factors, passkeys, OpenID Connect, sessions,
// invitations and one-time links.
//
// Package accounts creates users and members; this package keeps their credentials and changes their
// role. A session belongs to a person, who may be a member of several workspaces: each request chooses one.
package people

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/mail"
	"strings"
	"time"
	"unicode/utf8"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// The prefixes of IDs.
const (
	SessionID    = "sess_"
	PasskeyID    = "pk_"
	InvitationID = "inv_"
)

// Options configures People.
type Options struct {
	Now  func() time.Time // nil for time.Now
	Cost Cost             // of password hashes; zero for DefaultCost
}

// People is the service. Methods without a transaction create their own: they hash passwords, which must
// not block other writers, or count failures, which must survive a rollback.
type People struct {
	db        *db.DB
	ring      *keyring.Ring
	now       func() time.Time
	passwords *hasher
}

// New returns the service.
func New(d *db.DB, ring *keyring.Ring, o Options) *People {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Cost == (Cost{}) {
		o.Cost = DefaultCost
	}
	return &People{db: d, ring: ring, now: o.Now, passwords: newHasher(o.Cost)}
}

// Person is someone with an account.
type Person struct {
	ID        string
	Email     string
	Name      string
	CreatedAt time.Time

	passwordHash string
}

const personColumns = "u.id, u.email, u.name, u.password_hash, u.created_at"

func (p *Person) fields() []any {
	return []any{&p.ID, &p.Email, &p.Name, &p.passwordHash, &p.CreatedAt}
}

// HasPassword reports whether the person can sign in with a password.
func (p *Person) HasPassword() bool { return p.passwordHash != "" }

func scanPerson(r db.Row) (*Person, error) {
	p := new(Person)
	return p, db.Scan(r, p.fields()...)
}

// Get returns a person by ID.
func (p *People) Get(ctx context.Context, q db.Querier, id string) (*Person, error) {
	person, err := scanPerson(q.QueryRow(ctx, "SELECT "+personColumns+" FROM users u WHERE u.id = $1", id))
	return person, orNoSuch(err, "person", id)
}

// Names returns the names of people by ID, or their email address if they have none.
func (p *People) Names(ctx context.Context, q db.Querier, ids []string) (map[string]string, error) {
	out := make(map[string]string, len(ids))
	err := db.ByIDs(ctx, q, db.InQuery{SQL: "SELECT id, name, email FROM users WHERE id IN"}, ids, func(r db.Row) error {
		var id, name, email string
		err := r.Scan(&id, &name, &email)
		out[id] = cmp.Or(name, email)
		return err
	})
	return out, err
}

// Find returns a person by email address. Only operators may learn who has an account.
func (p *People) Find(ctx context.Context, q db.Querier, email string) (*Person, error) {
	person, err := p.byEmail(ctx, q, accounts.NormalizeEmail(email))
	if err == nil && person == nil {
		return nil, fault.Param(fault.NotFound, "email", "No user has the email address %q. To list users, run: turnpike users list", email)
	}
	return person, err
}

// byEmail returns nil for an unknown address.
func (p *People) byEmail(ctx context.Context, q db.Querier, email string) (*Person, error) {
	person, err := scanPerson(q.QueryRow(ctx, "SELECT "+personColumns+" FROM users u WHERE u.email = $1", email))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	return person, err
}

// lock locks the person until the transaction ends. Every change of credentials starts with it.
func (p *People) lock(ctx context.Context, tx *db.Tx, id string) (*Person, error) {
	person, err := scanPerson(tx.QueryRow(ctx, "SELECT "+personColumns+" FROM users u WHERE u.id = $1"+tx.Lock("u"), id))
	return person, orNoSuch(err, "person", id)
}

// ifNotFound replaces db.ErrNotFound, by an error for the client or nil.
func ifNotFound(err, instead error) error {
	if errors.Is(err, db.ErrNotFound) {
		return instead
	}
	return err
}

func orNoSuch(err error, kind, id string) error { return ifNotFound(err, fault.NoSuch(kind, id)) }

func count(ctx context.Context, q db.Querier, query string, args ...any) (n int64, err error) {
	err = q.QueryRow(ctx, query, args...).Scan(&n)
	return n, err
}

// inTx runs fn in a transaction and returns its result, or the zero value if the transaction fails.
func inTx[T any](ctx context.Context, d *db.DB, fn func(tx *db.Tx) (T, error)) (T, error) {
	var out, zero T
	err := d.Write(ctx, func(tx *db.Tx) (err error) {
		out, err = fn(tx)
		return err
	})
	if err != nil {
		return zero, err
	}
	return out, nil
}

// withLocked is inTx with a locked person.
func withLocked[T any](ctx context.Context, p *People, userID string, fn func(tx *db.Tx, person *Person) (T, error)) (T, error) {
	return inTx(ctx, p.db, func(tx *db.Tx) (out T, err error) {
		person, err := p.lock(ctx, tx, userID)
		if err != nil {
			return out, err
		}
		return fn(tx, person)
	})
}

// SetName changes a person's name.
func (p *People) SetName(ctx context.Context, tx *db.Tx, s *Session, name string, from Browser) error {
	if err := accounts.CheckName("name", name); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE users SET name = $2 WHERE id = $1", s.UserID, name); err != nil {
		return err
	}
	return p.log(ctx, tx, from.actor(s.UserID), personAction{s.UserID, "person.renamed", map[string]any{"name": name}})
}

// OtherCredentials counts credentials other than the password.
type OtherCredentials struct {
	Passkeys   int64
	Identities int64 // linked accounts at a provider
}

// OtherCredentials returns a person's counts.
func (p *People) OtherCredentials(ctx context.Context, q db.Querier, userID string) (w OtherCredentials, err error) {
	err = q.QueryRow(ctx, "SELECT (SELECT count(*) FROM passkeys WHERE user_id = $1), (SELECT count(*) FROM identities WHERE user_id = $1)",
		userID).Scan(&w.Passkeys, &w.Identities)
	return w, err
}

// CanSignIn reports whether the person has any credentials.
func (p *People) CanSignIn(ctx context.Context, q db.Querier, person *Person) (bool, error) {
	if person.HasPassword() {
		return true, nil
	}
	ways, err := p.OtherCredentials(ctx, q, person.ID)
	return ways != (OtherCredentials{}), err
}

// isMemberElsewhere reports whether the person is a member of a workspace other than the one they were
// just added to. Such an account must keep its credentials; one without workspaces can be reset.
func (p *People) isMemberElsewhere(ctx context.Context, q db.Querier, person *Person, added string) (bool, error) {
	others, err := count(ctx, q, "SELECT count(*) FROM members WHERE user_id = $1 AND workspace_id <> $2", person.ID, added)
	return others > 0, err
}

// Browser is where a request comes from.
type Browser struct {
	IP        string
	UserAgent string
	RequestID string
	Device    string // the device token of this browser, if any
}

const maxUserAgent = 300

// device returns the user agent, shortened and printable.
func (b Browser) device() string {
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return -1
		}
		return r
	}, b.UserAgent)
	return keyring.Mask(strings.ToValidUTF8(s[:min(len(s), maxUserAgent)], ""))
}

func (b Browser) actor(userID string) audit.Actor {
	return audit.Actor{Name: userID, IP: b.IP, RequestID: b.RequestID}
}

// personAction is an action by or on a person for the admin log.
type personAction struct {
	userID string
	name   string
	detail map[string]any
}

// log writes an action to the admin log of each of the person's workspaces.
func (p *People) log(ctx context.Context, tx *db.Tx, by audit.Actor, a personAction) error {
	memberships, err := Memberships(ctx, tx, a.userID)
	if err != nil {
		return err
	}
	for _, m := range memberships {
		err := by.Log(ctx, tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: m.WorkspaceID}, Action: a.name, Target: a.userID}, a.detail, p.now())
		if err != nil {
			return err
		}
	}
	return nil
}

func checkEmail(email string) error {
	address, err := mail.ParseAddress(email)
	if err != nil || address.Address != email || len(email) > 254 {
		return fault.Invalid("email", "%q is not an email address.", email)
	}
	return nil
}

// newToken returns 256 random bits for a step of a sign-in or for the mark of a browser, which are worthless alone.
// Credentials are secrets of package keyring.
func newToken() string {
	var raw [32]byte
	rand.Read(raw[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
