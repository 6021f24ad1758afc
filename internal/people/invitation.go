package people

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

const (
	invitationLimit = 7 * 24 * time.Hour
	// maxOpen and maxPerDay bound the mails that one workspace can have us send.
	maxOpen   = 100
	maxPerDay = 100
	// mailPause keeps a workspace from filling somebody's mailbox.
	mailPause = 5 * time.Minute
)

// Invitation asks somebody into a workspace.
type Invitation struct {
	ID          string
	WorkspaceID string
	Email       string
	Role        accounts.Role
	InvitedBy   string // a person's id, or "operator"
	CreatedAt   time.Time
	ExpiresAt   time.Time
	AcceptedAt  *time.Time
	RevokedAt   *time.Time
}

// Status is open, accepted, revoked or expired.
func (i *Invitation) Status(now time.Time) string {
	switch {
	case i.AcceptedAt != nil:
		return "accepted"
	case i.RevokedAt != nil:
		return "revoked"
	case !now.Before(i.ExpiresAt):
		return "expired"
	}
	return "open"
}

const invitationColumns = "id, workspace_id, email, role, invited_by, created_at, expires_at, accepted_at, revoked_at"

func scanInvitation(r db.Row) (*Invitation, error) {
	var i Invitation
	var role string
	var created, expires int64
	var accepted, revoked *int64
	err := r.Scan(&i.ID, &i.WorkspaceID, &i.Email, &role, &i.InvitedBy, &created, &expires, &accepted, &revoked)
	i.Role = accounts.Role(role)
	i.CreatedAt, i.ExpiresAt = time.UnixMicro(created), time.UnixMicro(expires)
	i.AcceptedAt, i.RevokedAt = db.Time(accepted), db.Time(revoked)
	return &i, err
}

// open are the invitations that can be accepted at $1.
const open = "accepted_at IS NULL AND revoked_at IS NULL AND expires_at > $1"

// Invite makes an invitation from its workspace, e-mail and role, and returns
// the link, to be mailed in the same transaction. It replaces an open one to the
// same address.
func (p *People) Invite(ctx context.Context, tx *db.Tx, by Caller, i *Invitation) (*Link, error) {
	i.Email = normal(i.Email)
	if err := checkEmail(i.Email); err != nil {
		return nil, err
	}
	if !slices.Contains(accounts.Roles, i.Role) {
		return nil, fault.Invalid("role", "role must be one of owner, admin, developer, viewer, not %q", i.Role)
	}
	// One at a time, so that the cap holds.
	if _, err := accounts.GetWorkspaceLocked(ctx, tx, i.WorkspaceID); errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("workspace", i.WorkspaceID)
	} else if err != nil {
		return nil, err
	}
	if err := mayChange(ctx, tx, by, i.WorkspaceID, "", i.Role); err != nil {
		return nil, err
	}
	if err := p.checkInvitable(ctx, tx, i); err != nil {
		return nil, err
	}
	now := p.now()
	i.ID, i.InvitedBy = ids.New(InvitationID), by.actor.Name
	i.CreatedAt, i.ExpiresAt = now, now.Add(invitationLimit)
	l := &Link{Path: InvitationPath, Token: newToken(), WorkspaceID: i.WorkspaceID, ExpiresAt: &i.ExpiresAt}
	_, err := tx.Exec(ctx, `INSERT INTO invitations (id, token_hash, workspace_id, email, role, invited_by, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		i.ID, hashToken(l.Token), i.WorkspaceID, i.Email, string(i.Role), i.InvitedBy, now.UnixMicro(), i.ExpiresAt.UnixMicro())
	if err != nil {
		return nil, err
	}
	return l, p.logInvitation(ctx, tx, by.actor, i, "invitation.created")
}

// checkInvitable refuses members and too many, and revokes what the new one replaces.
func (p *People) checkInvitable(ctx context.Context, tx *db.Tx, i *Invitation) error {
	member, err := p.isMember(ctx, tx, i)
	if err != nil {
		return err
	}
	if member {
		return fault.Param(fault.Conflict, "email", "%s is a member of this workspace already", i.Email)
	}
	if err := p.checkDay(ctx, tx, i.WorkspaceID); err != nil {
		return err
	}
	now := p.now().UnixMicro()
	if _, err := tx.Exec(ctx, "UPDATE invitations SET revoked_at = $1 WHERE workspace_id = $2 AND email = $3 AND "+open, now, i.WorkspaceID, i.Email); err != nil {
		return err
	}
	var waiting int64
	err = tx.QueryRow(ctx, "SELECT count(*) FROM invitations WHERE "+open+" AND workspace_id = $2", now, i.WorkspaceID).Scan(&waiting)
	if err == nil && waiting >= maxOpen {
		err = fault.New(fault.LimitReached, "%d invitations are open already; revoke some, or wait until they are accepted", maxOpen)
	}
	return err
}

// checkDay refuses more than a day's invitations, whatever became of them.
func (p *People) checkDay(ctx context.Context, tx *db.Tx, workspaceID string) error {
	const day = 24 * time.Hour
	var made int64
	var first *int64
	err := tx.QueryRow(ctx, "SELECT count(*), min(created_at) FROM invitations WHERE workspace_id = $1 AND created_at > $2",
		workspaceID, p.now().Add(-day).UnixMicro()).Scan(&made, &first)
	if err != nil || made < maxPerDay {
		return err
	}
	return p.errNotBefore(time.UnixMicro(*first).Add(day), "%d invitations were made in a day", maxPerDay)
}

// CheckInvitationMail refuses the mail of an invitation that was just made while
// the last one to the same address, from the same workspace, is too recent.
func (p *People) CheckInvitationMail(ctx context.Context, tx *db.Tx, i *Invitation) error {
	var last *int64
	err := tx.QueryRow(ctx, "SELECT max(created_at) FROM invitations WHERE email = $1 AND workspace_id = $2 AND id <> $3 AND created_at > $4",
		i.Email, i.WorkspaceID, i.ID, p.now().Add(-mailPause).UnixMicro()).Scan(&last)
	if err != nil || last == nil {
		return err
	}
	return p.errNotBefore(time.UnixMicro(*last).Add(mailPause), "%s was sent an invitation a moment ago", i.Email)
}

// errNotBefore says when it can be done again.
func (p *People) errNotBefore(at time.Time, why string, args ...any) error {
	wait := at.Sub(p.now())
	f := fault.New(fault.LimitReached, why+"; the next can be made in %s, at %s", append(args, roughly(wait), at.UTC().Format("15:04 UTC"))...)
	f.RetryAfter = wait
	return f
}

// roughly is a wait in whole minutes, or in seconds when it is short.
func roughly(wait time.Duration) string {
	if wait <= time.Minute {
		return fmt.Sprintf("%d seconds", int(wait.Seconds()+0.999))
	}
	minutes := int(wait.Minutes() + 0.999)
	if minutes < 120 {
		return fmt.Sprintf("%d minutes", minutes)
	}
	return fmt.Sprintf("%d hours", (minutes+59)/60)
}

// isMember tells whether the invited address is a member's already.
func (p *People) isMember(ctx context.Context, q db.Querier, i *Invitation) (bool, error) {
	person, err := p.byEmail(ctx, q, i.Email)
	if err != nil || person == nil {
		return false, err
	}
	_, err = RoleIn(ctx, q, person.ID, i.WorkspaceID)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil, err
}

func (p *People) logInvitation(ctx context.Context, tx *db.Tx, by audit.Actor, i *Invitation, action string) error {
	return audit.LogAction(ctx, tx, by, audit.Action{WorkspaceID: i.WorkspaceID, Action: action, Target: i.ID},
		map[string]any{"email": i.Email, "role": i.Role}, p.now())
}

// Invitations returns a page of a workspace's invitations, whatever became of
// them, and whether there are more.
func (p *People) Invitations(ctx context.Context, q db.Querier, workspaceID string, page db.Page) ([]*Invitation, bool, error) {
	query := "SELECT " + invitationColumns + " FROM invitations WHERE workspace_id = $1"
	args := []any{workspaceID, int64(page.Limit + 1)}
	if page.After != "" {
		query += " AND id " + page.Past() + " $3"
		args = append(args, page.After)
	}
	rows, err := q.Query(ctx, query+" ORDER BY id "+page.Order()+" LIMIT $2", args...)
	list, err := db.All(rows, err, scanInvitation)
	list, more := db.Cut(page, list)
	return list, more, err
}

// InviteAgain replaces an invitation that nobody has accepted by a new one to
// the same address, with a new link and a new end.
func (p *People) InviteAgain(ctx context.Context, tx *db.Tx, by Caller, workspaceID, id string) (*Invitation, *Link, error) {
	old, err := scanInvitation(tx.QueryRow(ctx, "SELECT "+invitationColumns+" FROM invitations WHERE id = $1 AND workspace_id = $2", id, workspaceID))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil, fault.NoSuch("invitation", id)
	}
	if err != nil {
		return nil, nil, err
	}
	if status := old.Status(p.now()); status != "open" && status != "expired" {
		return nil, nil, fault.New(fault.InvalidState, "the invitation is %s, so it cannot be sent again", status)
	}
	i := &Invitation{WorkspaceID: workspaceID, Email: old.Email, Role: old.Role}
	l, err := p.Invite(ctx, tx, by, i)
	return i, l, err
}

// RevokeInvitation ends an open invitation. Only an owner takes back the
// invitation of an owner.
func (p *People) RevokeInvitation(ctx context.Context, tx *db.Tx, by Caller, workspaceID, id string) error {
	if _, err := roleOf(ctx, tx, by, workspaceID); err != nil {
		return err
	}
	i, err := scanInvitation(tx.QueryRow(ctx, "SELECT "+invitationColumns+" FROM invitations WHERE id = $1 AND workspace_id = $2"+tx.Lock("invitations"), id, workspaceID))
	if errors.Is(err, db.ErrNotFound) {
		return fault.NoSuch("invitation", id)
	}
	if err != nil {
		return err
	}
	if err := mayChange(ctx, tx, by, workspaceID, i.Role, ""); err != nil {
		return err
	}
	if status := i.Status(p.now()); status != "open" {
		return fault.New(fault.InvalidState, "the invitation is %s, so it cannot be revoked", status)
	}
	if _, err := tx.Exec(ctx, "UPDATE invitations SET revoked_at = $2 WHERE id = $1", id, p.now().UnixMicro()); err != nil {
		return err
	}
	return p.logInvitation(ctx, tx, by.actor, i, "invitation.revoked")
}

// FindInvitation returns the open invitation of a token, and whether its person
// has an account already: then they must sign in to accept it.
func (p *People) FindInvitation(ctx context.Context, q db.Querier, token string) (i *Invitation, hasAccount bool, err error) {
	i, err = scanInvitation(q.QueryRow(ctx, "SELECT "+invitationColumns+" FROM invitations WHERE "+open+" AND token_hash = $2", p.now().UnixMicro(), hashToken(token)))
	if errors.Is(err, db.ErrNotFound) {
		return nil, false, errDeadLink()
	}
	if err != nil {
		return nil, false, err
	}
	person, err := p.byEmail(ctx, q, i.Email)
	if err != nil || person == nil {
		return i, false, err
	}
	hasAccount, err = p.hasAccount(ctx, q, person, "")
	return i, hasAccount, err
}

// AcceptInvitation makes somebody new a member and signs them in.
func (p *People) AcceptInvitation(ctx context.Context, token string, n Newcomer, from Browser) (*SignIn, error) {
	i, hasAccount, err := p.FindInvitation(ctx, p.db, token)
	if err != nil {
		return nil, err
	}
	if hasAccount {
		return nil, errSignInFirst(i.Email)
	}
	if err := errors.Join(accounts.CheckName("name", n.Name), CheckPassword(n.Password, i.Email)); err != nil {
		return nil, firstFault(err)
	}
	hash, err := p.passwords.hash(ctx, n.Password)
	if err != nil {
		return nil, err
	}
	return p.accept(ctx, i, n.Name, hash, from)
}

// accept checks again what was found: meanwhile another request may have
// accepted it, or the person may have got a password.
func (p *People) accept(ctx context.Context, i *Invitation, name, hash string, from Browser) (*SignIn, error) {
	var out *SignIn
	err := p.db.Write(ctx, func(tx *db.Tx) error {
		if err := p.useInvitation(ctx, tx, i); err != nil {
			return err
		}
		person, err := p.welcome(ctx, tx, &accounts.User{Email: i.Email, Name: name, WorkspaceID: i.WorkspaceID, Role: i.Role}, hash)
		if err != nil {
			return err
		}
		if err := p.logInvitation(ctx, tx, from.actor(person.ID), i, "invitation.accepted"); err != nil {
			return err
		}
		out, err = p.enter(ctx, tx, person, entry{method: ByLink, proven: p.now(), from: from})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// JoinByInvitation makes somebody a member who is signed in with the invited
// address, and returns the session's new token.
func (p *People) JoinByInvitation(ctx context.Context, s *Session, token string, from Browser) (renewed string, err error) {
	i, _, err := p.FindInvitation(ctx, p.db, token)
	if err != nil {
		return "", err
	}
	err = p.db.Write(ctx, func(tx *db.Tx) error {
		person, err := p.lock(ctx, tx, s.UserID)
		if err != nil {
			return err
		}
		if person.Email != i.Email {
			return fault.Param(fault.InvalidState, "email", "the invitation is for %s, and you are signed in as %s", i.Email, person.Email)
		}
		if err := p.useInvitation(ctx, tx, i); err != nil {
			return err
		}
		u := &accounts.User{Email: i.Email, WorkspaceID: i.WorkspaceID, Role: i.Role}
		if err := accounts.CreateUser(ctx, tx, u, p.now()); err != nil {
			return err
		}
		if err := p.logInvitation(ctx, tx, from.actor(person.ID), i, "invitation.accepted"); err != nil {
			return err
		}
		renewed, err = p.renewToken(ctx, tx, s, s.ConfirmedAt)
		return err
	})
	if err != nil {
		return "", err
	}
	return renewed, nil
}

// useInvitation lets one of those who try at once through.
func (p *People) useInvitation(ctx context.Context, tx *db.Tx, i *Invitation) error {
	n, err := tx.Exec(ctx, "UPDATE invitations SET accepted_at = $1 WHERE id = $2 AND "+open, p.now().UnixMicro(), i.ID)
	if err == nil && n == 0 {
		err = errDeadLink()
	}
	return err
}
