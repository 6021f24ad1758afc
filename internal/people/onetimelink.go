package people

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"regexp"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// The paths of links.
const (
	setupPath      = "/dashboard/setup"
	passwordPath   = "/dashboard/password"
	InvitationPath = "/dashboard/invitation"
)

const (
	kindSetup    = "setup"
	kindPassword = "password"

	// ResetLimit is how long a link to a new password works.
	ResetLimit = time.Hour
	// WelcomeLimit is how long a link to a first password works.
	WelcomeLimit = invitationLimit
	// resetPause limits the emails that strangers can trigger.
	resetPause = 5 * time.Minute
)

// Link is a one-time link. Only the hash of its token is stored.
type Link struct {
	Path        string
	Token       string
	Person      *Person // whose password it is for; nil for the setup link
	WorkspaceID string  // to set up, or one of the person's, for the email
	ExpiresAt   *time.Time
}

// loopback are addresses of this machine, at which browsers have no passkeys. They have some at localhost.
var loopback = regexp.MustCompile(`^http://(127\.0\.0\.1|\[::1\])(:|$)`)

// BrowserURL returns the public URL with the host name that people use on this machine. All links have the same one,
// because sessions and passkeys belong to it.
func BrowserURL(publicURL string) string {
	return loopback.ReplaceAllString(publicURL, "http://localhost$2")
}

// URL returns the link's address. The public URL has no trailing slash.
func (l *Link) URL(publicURL string) string {
	return BrowserURL(publicURL) + l.Path + "?token=" + url.QueryEscape(l.Token)
}

func errInvalidLink() error {
	return fault.New(fault.NotFound, "This link was already used or has expired. Request a new one.")
}

func (p *People) storeLink(ctx context.Context, tx *db.Tx, kind string, l *Link) error {
	var userID any
	if l.Person != nil {
		userID = l.Person.ID
	}
	l.Token = cmp.Or(l.Token, keyring.NewSecret(keyring.LinkToken))
	_, err := tx.Exec(ctx, "INSERT INTO one_time_links (token_hash, kind, user_id, workspace_id, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)",
		hashToken(l.Token), kind, userID, db.OrNull(l.WorkspaceID), p.now().UnixMicro(), db.Micros(l.ExpiresAt))
	return err
}

func deleteLinks(ctx context.Context, tx *db.Tx, userID string) error {
	_, err := tx.Exec(ctx, "DELETE FROM one_time_links WHERE user_id = $1", userID)
	return err
}

// NewSetupLink creates the link for the first owner and deletes earlier ones. It doesn't expire. An empty
// token creates a random one. It fails if there is an owner.
func (p *People) NewSetupLink(ctx context.Context, tx *db.Tx, workspaceID, token string) (*Link, error) {
	if err := requireNoOwner(ctx, tx); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM one_time_links WHERE kind = $1", kindSetup); err != nil {
		return nil, err
	}
	l := &Link{Path: setupPath, WorkspaceID: workspaceID, Token: token}
	if err := p.storeLink(ctx, tx, kindSetup, l); err != nil {
		return nil, err
	}
	return l, audit.Operator.Log(ctx, tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: workspaceID}, Action: "setup_link.created", Target: workspaceID}, nil, p.now())
}

func requireNoOwner(ctx context.Context, q db.Querier) error {
	owners, err := count(ctx, q, "SELECT count(*) FROM members WHERE role = $1", string(accounts.Owner))
	if err == nil && owners > 0 {
		err = fault.New(fault.InvalidState, "There is already an owner. Sign in, or run: turnpike users reset-password --help")
	}
	return err
}

// SignalSetup notifies nodes that the first owner signed up.
const SignalSetup = "set_up"

// IsSetUp reports whether an owner can sign in.
func (p *People) IsSetUp(ctx context.Context, q db.Querier) (bool, error) {
	owners, err := count(ctx, q, `SELECT count(*) FROM members m JOIN users u ON u.id = m.user_id WHERE m.role = $1 AND (u.password_hash IS NOT NULL
		OR EXISTS (SELECT 1 FROM passkeys k WHERE k.user_id = u.id) OR EXISTS (SELECT 1 FROM identities i WHERE i.user_id = u.id))`,
		string(accounts.Owner))
	return owners > 0, err
}

// NeedsSetup reports whether there is no owner yet.
func (p *People) NeedsSetup(ctx context.Context, q db.Querier) (bool, error) {
	err := requireNoOwner(ctx, q)
	if fault.Is(err, fault.InvalidState) {
		return false, nil
	}
	return err == nil, err
}

// CheckSetupLink returns an error if a setup link is invalid.
func (p *People) CheckSetupLink(ctx context.Context, q db.Querier, token string) error {
	var kind string
	err := q.QueryRow(ctx, "SELECT kind FROM one_time_links WHERE token_hash = $1 AND kind = $2", hashToken(token), kindSetup).Scan(&kind)
	return ifNotFound(err, errInvalidLink())
}

// NewAccount is what a new person enters.
type NewAccount struct {
	Email    string // for the setup; invitations already have it
	Name     string
	Password string
}

// Setup uses the setup link: it creates the first owner and signs them in.
func (p *People) Setup(ctx context.Context, token string, n NewAccount, from Browser) (*SignIn, error) {
	n.Email = accounts.NormalizeEmail(n.Email)
	if err := errors.Join(checkEmail(n.Email), accounts.CheckName("name", n.Name), checkPassword(n.Password, n.Email)); err != nil {
		return nil, err
	}
	if err := p.CheckSetupLink(ctx, p.db, token); err != nil {
		return nil, err // before the expensive hash
	}
	hash, err := p.passwords.hash(ctx, n.Password)
	if err != nil {
		return nil, err
	}
	return inTx(ctx, p.db, func(tx *db.Tx) (*SignIn, error) {
		var workspaceID string
		err := tx.QueryRow(ctx, "DELETE FROM one_time_links WHERE token_hash = $1 AND kind = $2 RETURNING workspace_id", hashToken(token), kindSetup).Scan(&workspaceID)
		if err != nil {
			return nil, ifNotFound(err, errInvalidLink())
		}
		if err := requireNoOwner(ctx, tx); err != nil {
			return nil, err
		}
		person, err := p.createMember(ctx, tx, &accounts.User{Email: n.Email, Name: n.Name, WorkspaceID: workspaceID, Role: accounts.Owner}, hash)
		if err != nil {
			return nil, err
		}
		err = from.actor(person.ID).Log(ctx, tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: workspaceID}, Action: "member.added", Target: person.ID},
			map[string]any{"email": person.Email, "role": accounts.Owner, "by": "setup_link"}, p.now())
		if err != nil {
			return nil, err
		}
		tx.Signal(SignalSetup, person.ID)
		return p.completeSignIn(ctx, tx, person, signInParams{method: ByLink, provenAt: p.now(), from: from})
	})
}

// createMember creates a member with a password. A member of another workspace must sign in instead: a
// link must not change their password. An account without workspaces is reset.
func (p *People) createMember(ctx context.Context, tx *db.Tx, u *accounts.User, hash string) (*Person, error) {
	name := u.Name
	if err := accounts.CreateUser(ctx, tx, u, p.now()); err != nil {
		return nil, err
	}
	person, err := p.lock(ctx, tx, u.ID)
	if err != nil {
		return nil, err
	}
	reset, err := p.ResetAccount(ctx, tx, person.ID, u.WorkspaceID)
	if err != nil {
		return nil, err
	}
	if !reset {
		return nil, errSignInFirst(person.Email)
	}
	if _, err := tx.Exec(ctx, "UPDATE users SET name = $2 WHERE id = $1", person.ID, name); err != nil {
		return nil, err
	}
	person.Name = name
	return person, p.setPassword(ctx, tx, person, hash, "")
}

func errSignInFirst(email string) error {
	return fault.Param(fault.InvalidState, "email", "%s already has an account. Sign in first, then open the link again.", email)
}
