package people

import (
	"context"
	"errors"
	"net/url"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// Where the links lead to, behind the public URL.
const (
	SetUpPath      = "/dashboard/setup"
	PasswordPath   = "/dashboard/password"
	InvitationPath = "/dashboard/invitation"
)

const (
	kindSetUp    = "setup"
	kindPassword = "password"

	// ResetLimit is how long a link to a new password works.
	ResetLimit = time.Hour
	// WelcomeLimit is how long a link to a first password works: as long as an invitation.
	WelcomeLimit = invitationLimit
	// resetPause keeps others from filling somebody's mailbox.
	resetPause = 5 * time.Minute
)

// Link works once. Its token is shown or mailed, and not kept.
type Link struct {
	Path        string
	Token       string
	Person      *Person // whose password it is for; nil for the set-up
	WorkspaceID string  // of the set-up, or one of the person's, for the mail
	ExpiresAt   *time.Time
}

// URL is the link's address, for a public URL without a slash at the end.
func (l *Link) URL(publicURL string) string {
	return publicURL + l.Path + "?token=" + url.QueryEscape(l.Token)
}

func errDeadLink() error {
	return fault.New(fault.NotFound, "this link was used already or is too old; ask for a new one")
}

func (p *People) storeLink(ctx context.Context, tx *db.Tx, kind string, l *Link) error {
	var userID any
	if l.Person != nil {
		userID = l.Person.ID
	}
	l.Token = newToken()
	_, err := tx.Exec(ctx, "INSERT INTO one_time_links (token_hash, kind, user_id, workspace_id, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)",
		hashToken(l.Token), kind, userID, db.OrNull(l.WorkspaceID), p.now().UnixMicro(), db.Micros(l.ExpiresAt))
	return err
}

// endLinks kills the open links of a person.
func endLinks(ctx context.Context, tx *db.Tx, userID string) error {
	_, err := tx.Exec(ctx, "DELETE FROM one_time_links WHERE user_id = $1", userID)
	return err
}

// NewSetUpLink makes the link by which the first owner comes in. It works until
// it is used; one that was made before is dead. With an owner there is nothing
// to set up.
func (p *People) NewSetUpLink(ctx context.Context, tx *db.Tx, workspaceID string) (*Link, error) {
	if err := requireNoOwner(ctx, tx); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM one_time_links WHERE kind = $1", kindSetUp); err != nil {
		return nil, err
	}
	l := &Link{Path: SetUpPath, WorkspaceID: workspaceID}
	if err := p.storeLink(ctx, tx, kindSetUp, l); err != nil {
		return nil, err
	}
	return l, audit.LogAction(ctx, tx, audit.Operator, audit.Action{WorkspaceID: workspaceID, Action: "setup_link.created", Target: workspaceID}, nil, p.now())
}

func requireNoOwner(ctx context.Context, q db.Querier) error {
	var owners int64
	err := q.QueryRow(ctx, "SELECT count(*) FROM members WHERE role = $1", string(accounts.Owner)).Scan(&owners)
	if err == nil && owners > 0 {
		err = fault.New(fault.InvalidState, "there is an owner already; sign in, or see: turnpike users reset-password --help")
	}
	return err
}

// SignalSetUp tells nodes that the first owner has come in.
const SignalSetUp = "set_up"

// Claimed reports whether an owner can sign in, so that nobody needs what the
// first run has made.
func (p *People) Claimed(ctx context.Context, q db.Querier) (bool, error) {
	var owners int64
	err := q.QueryRow(ctx, `SELECT count(*) FROM members m JOIN users u ON u.id = m.user_id WHERE m.role = $1 AND (u.password_hash IS NOT NULL
		OR EXISTS (SELECT 1 FROM passkeys k WHERE k.user_id = u.id) OR EXISTS (SELECT 1 FROM identities i WHERE i.user_id = u.id))`,
		string(accounts.Owner)).Scan(&owners)
	return owners > 0, err
}

// Unclaimed reports whether there is no owner yet, so that only the set-up link
// leads in.
func (p *People) Unclaimed(ctx context.Context, q db.Querier) (bool, error) {
	err := requireNoOwner(ctx, q)
	if fault.Is(err, fault.InvalidState) {
		return false, nil
	}
	return err == nil, err
}

// CheckSetUpLink tells whether a set-up link still works.
func (p *People) CheckSetUpLink(ctx context.Context, q db.Querier, token string) error {
	var kind string
	err := q.QueryRow(ctx, "SELECT kind FROM one_time_links WHERE token_hash = $1 AND kind = $2", hashToken(token), kindSetUp).Scan(&kind)
	if errors.Is(err, db.ErrNotFound) {
		return errDeadLink()
	}
	return err
}

// Newcomer is what somebody says of themselves who comes in by a link.
type Newcomer struct {
	Email    string // for the set-up; an invitation knows it
	Name     string
	Password string
}

// SetUp uses the set-up link: it makes the first owner and signs them in.
func (p *People) SetUp(ctx context.Context, token string, n Newcomer, from Browser) (*SignIn, error) {
	n.Email = normal(n.Email)
	if err := errors.Join(checkEmail(n.Email), accounts.CheckName("name", n.Name), CheckPassword(n.Password, n.Email)); err != nil {
		return nil, firstFault(err)
	}
	if err := p.CheckSetUpLink(ctx, p.db, token); err != nil {
		return nil, err // before the hash, which whoever has no link must not cause
	}
	hash, err := p.passwords.hash(ctx, n.Password)
	if err != nil {
		return nil, err
	}
	var out *SignIn
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		var workspaceID string
		err := tx.QueryRow(ctx, "DELETE FROM one_time_links WHERE token_hash = $1 AND kind = $2 RETURNING workspace_id", hashToken(token), kindSetUp).Scan(&workspaceID)
		if errors.Is(err, db.ErrNotFound) {
			return errDeadLink()
		}
		if err != nil {
			return err
		}
		if err := requireNoOwner(ctx, tx); err != nil {
			return err
		}
		person, err := p.welcome(ctx, tx, &accounts.User{Email: n.Email, Name: n.Name, WorkspaceID: workspaceID, Role: accounts.Owner}, hash)
		if err != nil {
			return err
		}
		err = audit.LogAction(ctx, tx, from.actor(person.ID), audit.Action{WorkspaceID: workspaceID, Action: "member.added", Target: person.ID},
			map[string]any{"email": person.Email, "role": accounts.Owner, "by": "setup_link"}, p.now())
		if err != nil {
			return err
		}
		tx.Signal(SignalSetUp, person.ID)
		out, err = p.admit(ctx, tx, person, entry{method: ByLink, proven: p.now(), from: from})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// welcome makes a member with a password. Somebody who has an account already
// must sign in with it: a link is no reason to change their password. One that
// was a member of nothing begins anew.
func (p *People) welcome(ctx context.Context, tx *db.Tx, u *accounts.User, hash string) (*Person, error) {
	name := u.Name
	if err := accounts.CreateUser(ctx, tx, u, p.now()); err != nil {
		return nil, err
	}
	person, err := p.lock(ctx, tx, u.ID)
	if err != nil {
		return nil, err
	}
	anew, err := p.BeginAnew(ctx, tx, person.ID, u.WorkspaceID)
	if err != nil {
		return nil, err
	}
	if !anew {
		return nil, errSignInFirst(person.Email)
	}
	if _, err := tx.Exec(ctx, "UPDATE users SET name = $2 WHERE id = $1", person.ID, name); err != nil {
		return nil, err
	}
	person.Name = name
	return person, p.setPassword(ctx, tx, person, hash, "")
}

func errSignInFirst(email string) error {
	return fault.Param(fault.InvalidState, "email", "%s has an account here already; sign in with it first, then open the link again", email)
}

// firstFault is the first of joined errors: a form shows one at a time.
func firstFault(err error) error {
	if f, ok := fault.As(err); ok {
		return f
	}
	return err
}
