// Package people holds how people prove who they are: passwords, second
// factors, passkeys, sessions, invitations and links that work once.
//
// People and members are made by accounts; this package keeps their password
// and changes their role. A person may be a member of several workspaces: a
// session is the person's, the workspace is chosen with each request.
package people

import (
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

// The prefixes of this package's ids.
const (
	SessionID    = "sess_"
	PasskeyID    = "pk_"
	InvitationID = "inv_"
)

// Options configures People.
type Options struct {
	Now  func() time.Time // nil means the time of day
	Cost Cost             // of a password's hash; zero means DefaultCost
}

// People is the service. Its methods without a transaction make their own: they
// hash passwords, which must not keep others from writing, or count failures,
// which must stay when the rest is undone.
type People struct {
	db        *db.DB
	ring      *keyring.Ring
	now       func() time.Time
	passwords *hasher
}

// New makes People.
func New(d *db.DB, ring *keyring.Ring, o Options) *People {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Cost == (Cost{}) {
		o.Cost = DefaultCost
	}
	return &People{db: d, ring: ring, now: o.Now, passwords: newHasher(o.Cost)}
}

// Person is somebody who can sign in, or soon will.
type Person struct {
	ID          string
	Email       string
	Name        string
	HasPassword bool
	CreatedAt   time.Time

	passwordHash string
}

const personColumns = "u.id, u.email, u.name, u.password_hash, u.created_at"

// into is where personColumns are scanned to; done fills what needs more than a copy.
func (p *Person) into() (dest []any, done func()) {
	var hash *string
	var created int64
	return []any{&p.ID, &p.Email, &p.Name, &hash, &created}, func() {
		p.passwordHash, p.HasPassword = db.Text(hash), hash != nil
		p.CreatedAt = time.UnixMicro(created)
	}
}

func scanPerson(r db.Row) (*Person, error) {
	var p Person
	dest, done := p.into()
	if err := r.Scan(dest...); err != nil {
		return nil, err
	}
	done()
	return &p, nil
}

// Get returns the person with the id.
func (p *People) Get(ctx context.Context, q db.Querier, id string) (*Person, error) {
	person, err := scanPerson(q.QueryRow(ctx, "SELECT "+personColumns+" FROM users u WHERE u.id = $1", id))
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("person", id)
	}
	return person, err
}

// Find returns the person with the e-mail address. It is for operators: who
// there is must not be told to others.
func (p *People) Find(ctx context.Context, q db.Querier, email string) (*Person, error) {
	person, err := p.byEmail(ctx, q, normal(email))
	if err == nil && person == nil {
		return nil, fault.Param(fault.NotFound, "email", "nobody has the e-mail address %q; see: turnpike users list", email)
	}
	return person, err
}

// byEmail returns nil for an address that nobody has.
func (p *People) byEmail(ctx context.Context, q db.Querier, email string) (*Person, error) {
	person, err := scanPerson(q.QueryRow(ctx, "SELECT "+personColumns+" FROM users u WHERE u.email = $1", email))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	return person, err
}

// lock holds the person until the transaction ends. Whatever changes how a
// person signs in begins with it.
func (p *People) lock(ctx context.Context, tx *db.Tx, id string) (*Person, error) {
	person, err := scanPerson(tx.QueryRow(ctx, "SELECT "+personColumns+" FROM users u WHERE u.id = $1"+tx.Lock("u"), id))
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("person", id)
	}
	return person, err
}

// SetName changes how a person is called.
func (p *People) SetName(ctx context.Context, tx *db.Tx, s *Session, name string, from Browser) error {
	if err := accounts.CheckName("name", name); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE users SET name = $2 WHERE id = $1", s.UserID, name); err != nil {
		return err
	}
	return p.log(ctx, tx, from.actor(s.UserID), s.UserID, "person.renamed", map[string]any{"name": name})
}

// OtherWays counts the ways to sign in that need no password.
type OtherWays struct {
	Passkeys   int64
	Identities int64 // accounts at a provider that are linked
}

// OtherWays are those of a person.
func (p *People) OtherWays(ctx context.Context, q db.Querier, userID string) (w OtherWays, err error) {
	err = q.QueryRow(ctx, "SELECT (SELECT count(*) FROM passkeys WHERE user_id = $1), (SELECT count(*) FROM identities WHERE user_id = $1)",
		userID).Scan(&w.Passkeys, &w.Identities)
	return w, err
}

// CanSignIn reports whether the person has any way to sign in.
func (p *People) CanSignIn(ctx context.Context, q db.Querier, person *Person) (bool, error) {
	if person.HasPassword {
		return true, nil
	}
	ways, err := p.OtherWays(ctx, q, person.ID)
	return ways != (OtherWays{}), err
}

// hasAccount reports whether a link must not give the person a password: they
// belong to a workspace, or to another than the one they have just been added
// to, which relies on theirs, or has not handed it over yet. Nobody relies on an
// account that is a member of nothing.
func (p *People) hasAccount(ctx context.Context, q db.Querier, person *Person, added string) (bool, error) {
	var others int64
	err := q.QueryRow(ctx, "SELECT count(*) FROM members WHERE user_id = $1 AND workspace_id <> $2", person.ID, added).Scan(&others)
	return others > 0, err
}

// Browser is where a request comes from, as lists and the admin log show it.
type Browser struct {
	IP        string
	UserAgent string
	RequestID string
	Device    string // the token that SignIn gave to this browser, if any
}

const maxUserAgent = 300

// device is the user agent, bounded and printable.
func (b Browser) device() string {
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return -1
		}
		return r
	}, b.UserAgent)
	for len(s) > maxUserAgent {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return keyring.Mask(s)
}

func (b Browser) actor(userID string) audit.Actor {
	return audit.Actor{Name: userID, IP: b.IP, RequestID: b.RequestID}
}

// log records what a person did, or what was done to them, in each workspace
// they are a member of: each has a right to know.
func (p *People) log(ctx context.Context, tx *db.Tx, by audit.Actor, userID, action string, detail map[string]any) error {
	memberships, err := Memberships(ctx, tx, userID)
	if err != nil {
		return err
	}
	for _, m := range memberships {
		err := audit.LogAction(ctx, tx, by, audit.Action{WorkspaceID: m.WorkspaceID, Action: action, Target: userID}, detail, p.now())
		if err != nil {
			return err
		}
	}
	return nil
}

// normal is how email addresses are stored and compared.
func normal(email string) string { return accounts.NormalizeEmail(email) }

func checkEmail(email string) error {
	address, err := mail.ParseAddress(email)
	if err != nil || address.Address != email || len(email) > 254 {
		return fault.Invalid("email", "%q is not an e-mail address", email)
	}
	return nil
}

// newToken makes a bearer value of 256 random bits.
func newToken() string {
	var raw [32]byte
	rand.Read(raw[:]) // never fails: crypto/rand aborts the program instead
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
