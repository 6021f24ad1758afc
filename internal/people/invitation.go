package people

import (
	"cmp"
	"context"
	"slices"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
)

const (
	invitationLimit = 7 * 24 * time.Hour
	// maxOpen and maxPerDay limit the emails of a workspace.
	maxOpen   = 100
	maxPerDay = 100
	// emailPause limits the emails to one address.
	emailPause = 5 * time.Minute
)

// Invitation invites someone to a workspace.
type Invitation struct {
	ID          string
	WorkspaceID string
	Email       string
	Role        accounts.Role
	InvitedBy   string // a person's ID, or "operator"
	CreatedAt   time.Time
	ExpiresAt   time.Time
	AcceptedAt  *time.Time
	RevokedAt   *time.Time
}

// Status returns open, accepted, revoked or expired.
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
	i := new(Invitation)
	return i, db.Scan(r, &i.ID, &i.WorkspaceID, &i.Email, &i.Role, &i.InvitedBy, &i.CreatedAt, &i.ExpiresAt, &i.AcceptedAt, &i.RevokedAt)
}

func lockInvitation(ctx context.Context, tx *db.Tx, workspaceID, id string) (*Invitation, error) {
	i, err := scanInvitation(tx.QueryRow(ctx, "SELECT "+invitationColumns+" FROM invitations WHERE id = $1 AND workspace_id = $2"+tx.Lock("invitations"), id, workspaceID))
	return i, orNoSuch(err, "invitation", id)
}

// openInvitation selects open invitations. $1 is now.
const openInvitation = "accepted_at IS NULL AND revoked_at IS NULL AND expires_at > $1"

// Invite creates an invitation from its workspace, email and role, and returns the link, to be sent in the
// same transaction. It replaces an open invitation to the same address.
func (p *People) Invite(ctx context.Context, tx *db.Tx, by Caller, i *Invitation) (*Link, error) {
	i.Email = accounts.NormalizeEmail(i.Email)
	if err := checkEmail(i.Email); err != nil {
		return nil, err
	}
	if !slices.Contains(accounts.Roles, i.Role) {
		return nil, fault.Invalid("role", "role must be one of owner, admin, developer, viewer, not %q.", i.Role)
	}
	// Locked, so that concurrent requests can't exceed the limit.
	if _, err := accounts.GetWorkspaceLocked(ctx, tx, i.WorkspaceID); err != nil {
		return nil, orNoSuch(err, "workspace", i.WorkspaceID)
	}
	if err := checkRoleChange(ctx, tx, by, roleChange{i.WorkspaceID, "", i.Role}); err != nil {
		return nil, err
	}
	if err := p.checkInvitable(ctx, tx, i); err != nil {
		return nil, err
	}
	now := p.now()
	i.ID, i.InvitedBy = ids.New(InvitationID), by.actor.Name
	i.CreatedAt, i.ExpiresAt = now, now.Add(invitationLimit)
	l := &Link{Path: InvitationPath, Token: keyring.NewSecret(keyring.LinkToken), WorkspaceID: i.WorkspaceID, ExpiresAt: &i.ExpiresAt}
	_, err := tx.Exec(ctx, `INSERT INTO invitations (id, token_hash, workspace_id, email, role, invited_by, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		i.ID, hashToken(l.Token), i.WorkspaceID, i.Email, string(i.Role), i.InvitedBy, now.UnixMicro(), i.ExpiresAt.UnixMicro())
	if err != nil {
		return nil, err
	}
	return l, p.logInvitation(ctx, tx, by.actor, i, "invitation.created")
}

// checkInvitable rejects members and too many invitations, and revokes the one that is replaced.
func (p *People) checkInvitable(ctx context.Context, tx *db.Tx, i *Invitation) error {
	member, err := p.isMember(ctx, tx, i)
	if err != nil {
		return err
	}
	if member {
		return fault.Param(fault.Conflict, "email", "%s is already a member of this workspace.", i.Email)
	}
	if err := p.checkDailyLimit(ctx, tx, i.WorkspaceID); err != nil {
		return err
	}
	now := p.now().UnixMicro()
	if _, err := tx.Exec(ctx, "UPDATE invitations SET revoked_at = $1 WHERE workspace_id = $2 AND email = $3 AND "+openInvitation, now, i.WorkspaceID, i.Email); err != nil {
		return err
	}
	open, err := count(ctx, tx, "SELECT count(*) FROM invitations WHERE "+openInvitation+" AND workspace_id = $2", now, i.WorkspaceID)
	if err == nil && open >= maxOpen {
		err = fault.New(fault.LimitReached, "There are already %d open invitations. Revoke some, or wait until they are accepted.", maxOpen)
	}
	return err
}

// checkDailyLimit limits all invitations of a day, open or not.
func (p *People) checkDailyLimit(ctx context.Context, tx *db.Tx, workspaceID string) error {
	const day = 24 * time.Hour
	var created int64
	var first time.Time
	err := db.Scan(tx.QueryRow(ctx, "SELECT count(*), min(created_at) FROM invitations WHERE workspace_id = $1 AND created_at > $2",
		workspaceID, p.now().Add(-day).UnixMicro()), &created, &first)
	if err != nil || created < maxPerDay {
		return err
	}
	return p.errNotBefore(first.Add(day), "%d invitations were created within a day, which is the limit", maxPerDay)
}

// CheckInvitationEmail rejects the email of a new invitation if the workspace sent one to the same address
// recently.
func (p *People) CheckInvitationEmail(ctx context.Context, tx *db.Tx, i *Invitation) error {
	var last time.Time
	err := db.Scan(tx.QueryRow(ctx, "SELECT max(created_at) FROM invitations WHERE email = $1 AND workspace_id = $2 AND id <> $3 AND created_at > $4",
		i.Email, i.WorkspaceID, i.ID, p.now().Add(-emailPause).UnixMicro()), &last)
	if err != nil || last.IsZero() {
		return err
	}
	return p.errNotBefore(last.Add(emailPause), "%s received an invitation recently", i.Email)
}

// errNotBefore says when to retry.
func (p *People) errNotBefore(at time.Time, why string, args ...any) error {
	f := fault.New(fault.LimitReached, why+". Retry after %s.", append(args, at.UTC().Format("2 January 15:04:05 UTC"))...)
	f.RetryAfter = at.Sub(p.now())
	return f
}

// isMember reports whether the invited address belongs to a member.
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
	return by.Log(ctx, tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: i.WorkspaceID}, Action: action, Target: i.ID},
		map[string]any{"email": i.Email, "role": i.Role}, p.now())
}

// Invitations returns a page of a workspace's invitations.
func (p *People) Invitations(ctx context.Context, q db.Querier, workspaceID string, page db.Page) (*db.Found[*Invitation], error) {
	s := db.Search{Table: "invitations", Columns: invitationColumns}
	s.Where.Add("workspace_id =", workspaceID)
	return db.Find(ctx, q, s, page, db.Record[*Invitation]{Scan: scanInvitation, ID: func(i *Invitation) string { return i.ID }})
}

// ResendInvitation replaces an open or expired invitation by a new one.
func (p *People) ResendInvitation(ctx context.Context, tx *db.Tx, by Caller, workspaceID, id string) (*Invitation, *Link, error) {
	old, err := lockInvitation(ctx, tx, workspaceID, id)
	if err != nil {
		return nil, nil, err
	}
	if status := old.Status(p.now()); status != "open" && status != "expired" {
		return nil, nil, fault.New(fault.InvalidState, "The invitation is %s and cannot be sent again.", status)
	}
	i := &Invitation{WorkspaceID: workspaceID, Email: old.Email, Role: old.Role}
	l, err := p.Invite(ctx, tx, by, i)
	return i, l, err
}

// RevokeInvitation revokes an open invitation. Only owners can revoke invitations of owners.
func (p *People) RevokeInvitation(ctx context.Context, tx *db.Tx, by Caller, workspaceID, id string) error {
	if _, err := roleOf(ctx, tx, by, workspaceID); err != nil {
		return err
	}
	i, err := lockInvitation(ctx, tx, workspaceID, id)
	if err != nil {
		return err
	}
	if err := checkRoleChange(ctx, tx, by, roleChange{workspaceID, i.Role, ""}); err != nil {
		return err
	}
	if status := i.Status(p.now()); status != "open" {
		return fault.New(fault.InvalidState, "The invitation is %s and cannot be revoked.", status)
	}
	if _, err := tx.Exec(ctx, "UPDATE invitations SET revoked_at = $2 WHERE id = $1", id, p.now().UnixMicro()); err != nil {
		return err
	}
	return p.logInvitation(ctx, tx, by.actor, i, "invitation.revoked")
}

// FindInvitation returns the open invitation of a token, and whether its person must sign in to accept it.
func (p *People) FindInvitation(ctx context.Context, q db.Querier, token string) (i *Invitation, mustSignIn bool, err error) {
	i, err = scanInvitation(q.QueryRow(ctx, "SELECT "+invitationColumns+" FROM invitations WHERE "+openInvitation+" AND token_hash = $2", p.now().UnixMicro(), hashToken(token)))
	if err != nil {
		return nil, false, ifNotFound(err, errInvalidLink())
	}
	person, err := p.byEmail(ctx, q, i.Email)
	if err != nil || person == nil {
		return i, false, err
	}
	mustSignIn, err = p.isMemberElsewhere(ctx, q, person, "")
	return i, mustSignIn, err
}

// AcceptInvitation creates a member and signs them in.
func (p *People) AcceptInvitation(ctx context.Context, token string, n NewAccount, from Browser) (*SignIn, error) {
	i, mustSignIn, err := p.FindInvitation(ctx, p.db, token)
	if err != nil {
		return nil, err
	}
	if mustSignIn {
		return nil, errSignInFirst(i.Email)
	}
	if err := cmp.Or(accounts.CheckName("name", n.Name), checkPassword(n.Password, i.Email)); err != nil {
		return nil, err
	}
	hash, err := p.passwords.hash(ctx, n.Password)
	if err != nil {
		return nil, err
	}
	return p.accept(ctx, i, n.Name, hash, from)
}

// accept checks the invitation again, because another request may have used it.
func (p *People) accept(ctx context.Context, i *Invitation, name, hash string, from Browser) (*SignIn, error) {
	return inTx(ctx, p.db, func(tx *db.Tx) (*SignIn, error) {
		if err := p.consumeInvitation(ctx, tx, i); err != nil {
			return nil, err
		}
		person, err := p.createMember(ctx, tx, &accounts.User{Email: i.Email, Name: name, WorkspaceID: i.WorkspaceID, Role: i.Role}, hash)
		if err != nil {
			return nil, err
		}
		if err := p.logInvitation(ctx, tx, from.actor(person.ID), i, "invitation.accepted"); err != nil {
			return nil, err
		}
		return p.continueSignIn(ctx, tx, person, signInParams{method: ByLink, provenAt: p.now(), from: from})
	})
}

// JoinWorkspace accepts an invitation of the signed-in person and returns the session's new token.
func (p *People) JoinWorkspace(ctx context.Context, s *Session, token string, from Browser) (renewed string, err error) {
	i, _, err := p.FindInvitation(ctx, p.db, token)
	if err != nil {
		return "", err
	}
	return withLocked(ctx, p, s.UserID, func(tx *db.Tx, person *Person) (string, error) {
		if person.Email != i.Email {
			return "", fault.Param(fault.InvalidState, "email", "The invitation is for %s, and you are signed in as %s.", i.Email, person.Email)
		}
		if err := p.consumeInvitation(ctx, tx, i); err != nil {
			return "", err
		}
		u := &accounts.User{Email: i.Email, WorkspaceID: i.WorkspaceID, Role: i.Role}
		if err := accounts.CreateUser(ctx, tx, u, p.now()); err != nil {
			return "", err
		}
		if err := p.logInvitation(ctx, tx, from.actor(person.ID), i, "invitation.accepted"); err != nil {
			return "", err
		}
		return p.renewToken(ctx, tx, s, s.ConfirmedAt)
	})
}

// consumeInvitation succeeds only once.
func (p *People) consumeInvitation(ctx context.Context, tx *db.Tx, i *Invitation) error {
	n, err := tx.Exec(ctx, "UPDATE invitations SET accepted_at = $1 WHERE id = $2 AND "+openInvitation, p.now().UnixMicro(), i.ID)
	if err == nil && n == 0 {
		err = errInvalidLink()
	}
	return err
}
