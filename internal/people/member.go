package people

import (
	"context"
	"errors"
	"slices"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// Caller is who manages members: a person, with the role that they have when
// it is done, or the operator, who may do everything. The zero Caller may nothing.
type Caller struct {
	userID   string
	operator bool
	actor    audit.Actor
}

// Operator is whoever runs commands on the database.
func Operator() Caller { return Caller{operator: true, actor: audit.Operator} }

// Caller is the session's person.
func (s *Session) Caller(from Browser) Caller {
	return Caller{userID: s.UserID, actor: from.actor(s.UserID)}
}

// Membership is a person's place in a workspace.
type Membership struct {
	WorkspaceID string
	Role        accounts.Role
	Since       time.Time
}

// Memberships lists the workspaces of a person, by id.
func Memberships(ctx context.Context, q db.Querier, userID string) ([]Membership, error) {
	rows, err := q.Query(ctx, "SELECT workspace_id, role, created_at FROM members WHERE user_id = $1 ORDER BY workspace_id", userID)
	return db.All(rows, err, func(r db.Row) (m Membership, err error) {
		var role string
		var since int64
		err = r.Scan(&m.WorkspaceID, &role, &since)
		m.Role, m.Since = accounts.Role(role), time.UnixMicro(since)
		return m, err
	})
}

// RoleIn is a person's role in a workspace. Who is no member does not learn that
// the workspace exists.
func RoleIn(ctx context.Context, q db.Querier, userID, workspaceID string) (accounts.Role, error) {
	var role string
	err := q.QueryRow(ctx, "SELECT role FROM members WHERE workspace_id = $1 AND user_id = $2", workspaceID, userID).Scan(&role)
	if errors.Is(err, db.ErrNotFound) {
		return "", fault.NoSuch("workspace", workspaceID)
	}
	return accounts.Role(role), err
}

// roleOf is the role that counts for a caller.
func roleOf(ctx context.Context, tx *db.Tx, by Caller, workspaceID string) (accounts.Role, error) {
	if by.operator {
		return accounts.Owner, nil
	}
	return RoleIn(ctx, tx, by.userID, workspaceID)
}

func errNotYours(to accounts.Role) error {
	if to == accounts.Owner {
		return fault.New(fault.InsufficientScope, "only an owner makes, changes or removes owners")
	}
	return fault.New(fault.InsufficientScope, "only owners and admins manage members")
}

// mayChange checks the caller's right to turn a member from one role into
// another; an empty role is no member.
func mayChange(ctx context.Context, tx *db.Tx, by Caller, workspaceID string, from, to accounts.Role) error {
	role, err := roleOf(ctx, tx, by, workspaceID)
	if err != nil {
		return err
	}
	if access.MayChangeRole(role, from, to) {
		return nil
	}
	if from == accounts.Owner && access.ManagesMembers(role) {
		return errNotYours(accounts.Owner)
	}
	if access.ManagesMembers(role) {
		return errNotYours(to)
	}
	return errNotYours("")
}

// ChangeRole gives a member another role. Their sessions end, so that no
// browser goes on under rights that it did not begin with.
func (p *People) ChangeRole(ctx context.Context, tx *db.Tx, by Caller, workspaceID, userID string, to accounts.Role) error {
	from, err := p.lockMember(ctx, tx, by, workspaceID, userID)
	if err != nil || from == to {
		return err
	}
	if !slices.Contains(accounts.Roles, to) {
		return fault.Invalid("role", "role must be one of owner, admin, developer, viewer, not %q", to)
	}
	if err := mayChange(ctx, tx, by, workspaceID, from, to); err != nil {
		return err
	}
	if err := keepAnOwner(ctx, tx, workspaceID, from); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE members SET role = $3 WHERE workspace_id = $1 AND user_id = $2", workspaceID, userID, string(to)); err != nil {
		return err
	}
	if err := p.withdraw(ctx, tx, workspaceID, userID); err != nil {
		return err
	}
	return audit.LogAction(ctx, tx, by.actor, audit.Action{WorkspaceID: workspaceID, Action: "member.role_changed", Target: userID},
		map[string]any{"from": from, "to": to}, p.now())
}

// RemoveMember takes a person out of a workspace. Everybody may leave by
// themselves, but for the last owner. All sessions of the person end, also those
// in which another workspace was looked at.
func (p *People) RemoveMember(ctx context.Context, tx *db.Tx, by Caller, workspaceID, userID string) error {
	role, err := p.lockMember(ctx, tx, by, workspaceID, userID)
	if err != nil {
		return err
	}
	if by.operator || by.userID != userID {
		if err := mayChange(ctx, tx, by, workspaceID, role, ""); err != nil {
			return err
		}
	}
	if err := keepAnOwner(ctx, tx, workspaceID, role); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM members WHERE workspace_id = $1 AND user_id = $2", workspaceID, userID); err != nil {
		return err
	}
	if err := p.withdraw(ctx, tx, workspaceID, userID); err != nil {
		return err
	}
	return audit.LogAction(ctx, tx, by.actor, audit.Action{WorkspaceID: workspaceID, Action: "member.removed", Target: userID},
		map[string]any{"role": role}, p.now())
}

// lockMember holds the workspace, so that two changes at once do not each leave
// the other's owner as the last, and returns the member's role.
func (p *People) lockMember(ctx context.Context, tx *db.Tx, by Caller, workspaceID, userID string) (accounts.Role, error) {
	if _, err := accounts.GetWorkspaceLocked(ctx, tx, workspaceID); err != nil {
		if errors.Is(err, db.ErrNotFound) {
			return "", fault.NoSuch("workspace", workspaceID)
		}
		return "", err
	}
	if _, err := roleOf(ctx, tx, by, workspaceID); err != nil {
		return "", err
	}
	if _, err := p.lock(ctx, tx, userID); fault.Is(err, fault.NotFound) {
		return "", fault.NoSuch("member", userID)
	} else if err != nil {
		return "", err
	}
	role, err := RoleIn(ctx, tx, userID, workspaceID)
	if fault.Is(err, fault.NotFound) {
		return "", fault.NoSuch("member", userID)
	}
	return role, err
}

// keepAnOwner refuses what would leave a workspace to nobody.
func keepAnOwner(ctx context.Context, tx *db.Tx, workspaceID string, losing accounts.Role) error {
	if losing != accounts.Owner {
		return nil
	}
	var owners int64
	err := tx.QueryRow(ctx, "SELECT count(*) FROM members WHERE workspace_id = $1 AND role = $2", workspaceID, string(accounts.Owner)).Scan(&owners)
	if err == nil && owners < 2 {
		err = fault.New(fault.InvalidState, "this is the workspace's last owner; make somebody else an owner first")
	}
	return err
}

// withdraw ends what a person began under the rights they had: sessions, and
// invitations that nobody has accepted yet.
func (p *People) withdraw(ctx context.Context, tx *db.Tx, workspaceID, userID string) error {
	if _, err := endSessions(ctx, tx, userID, ""); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE invitations SET revoked_at = $3
		WHERE workspace_id = $1 AND invited_by = $2 AND accepted_at IS NULL AND revoked_at IS NULL`, workspaceID, userID, p.now().UnixMicro())
	return err
}
