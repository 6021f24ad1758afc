package people

import (
	"context"
	"slices"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// Caller manages members: a person with their current role, or the operator,
// who may do everything. The zero Caller may do nothing.
type Caller struct {
	userID   string
	operator bool
	actor    audit.Actor
}

// Operator returns the caller of command-line tools.
func Operator() Caller { return Caller{operator: true, actor: audit.Operator} }

// Caller returns the session's person as a caller.
func (s *Session) Caller(from Browser) Caller {
	return Caller{userID: s.UserID, actor: from.actor(s.UserID)}
}

// Membership is a person's membership in a workspace.
type Membership struct {
	WorkspaceID string
	Role        accounts.Role
	Content     bool // an owner lets the member read the content of requests
}

const membershipColumns = "workspace_id, role, content_access"

var scanMembership = db.Scanner(func(m *Membership) []any { return []any{&m.WorkspaceID, &m.Role, &m.Content} })

// Memberships returns a person's memberships by workspace ID.
func Memberships(ctx context.Context, q db.Querier, userID string) ([]*Membership, error) {
	return db.List(ctx, q, scanMembership, "SELECT "+membershipColumns+" FROM members WHERE user_id = $1 ORDER BY workspace_id", userID)
}

// MembershipIn returns a person's membership in a workspace. The error doesn't reveal whether the workspace exists.
func MembershipIn(ctx context.Context, q db.Querier, userID, workspaceID string) (*Membership, error) {
	m, err := scanMembership(q.QueryRow(ctx, "SELECT "+membershipColumns+" FROM members WHERE workspace_id = $1 AND user_id = $2", workspaceID, userID))
	return m, orNoSuch(err, "workspace", workspaceID)
}

// AllowContent lets a member read the content of requests, or no longer. Only owners decide about that.
func (p *People) AllowContent(ctx context.Context, tx *db.Tx, by Caller, m Member, allowed bool) error {
	if _, err := p.lockMember(ctx, tx, by, m.WorkspaceID, m.UserID); err != nil {
		return err
	}
	role, err := roleOf(ctx, tx, by, m.WorkspaceID)
	if err != nil {
		return err
	}
	if role != accounts.Owner {
		return fault.New(fault.InsufficientScope, "Only owners can let members read the content of requests.")
	}
	n, err := tx.Exec(ctx, "UPDATE members SET content_access = $3 WHERE workspace_id = $1 AND user_id = $2 AND content_access <> $3", m.WorkspaceID, m.UserID, allowed)
	if err != nil || n == 0 {
		return err
	}
	return by.actor.Log(ctx, tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: m.WorkspaceID}, Action: "member.content_access_changed", Target: m.UserID},
		map[string]any{"content_access": allowed}, p.now())
}

// RoleIn returns a person's role in a workspace. The error doesn't reveal whether the workspace exists.
func RoleIn(ctx context.Context, q db.Querier, userID, workspaceID string) (accounts.Role, error) {
	m, err := MembershipIn(ctx, q, userID, workspaceID)
	if err != nil {
		return "", err
	}
	return m.Role, nil
}

func roleOf(ctx context.Context, tx *db.Tx, by Caller, workspaceID string) (accounts.Role, error) {
	if by.operator {
		return accounts.Owner, nil
	}
	return RoleIn(ctx, tx, by.userID, workspaceID)
}

// roleChange is a change of a member's role. An empty role means no member.
type roleChange struct {
	workspaceID string
	from, to    accounts.Role
}

func checkRoleChange(ctx context.Context, tx *db.Tx, by Caller, c roleChange) error {
	role, err := roleOf(ctx, tx, by, c.workspaceID)
	if err != nil {
		return err
	}
	if access.MayChangeRole(role, c.from, c.to) {
		return nil
	}
	if access.ManagesMembers(role) && (c.from == accounts.Owner || c.to == accounts.Owner) {
		return fault.New(fault.InsufficientScope, "Only owners can add, change or remove owners.")
	}
	return fault.New(fault.InsufficientScope, "Only owners and admins can manage members.")
}

// Member identifies a member of a workspace.
type Member struct{ WorkspaceID, UserID string }

// ChangeRole changes a member's role and ends their sessions, so that no session keeps the old rights. It also ends
// access to the content of requests.
func (p *People) ChangeRole(ctx context.Context, tx *db.Tx, by Caller, m Member, to accounts.Role) error {
	workspaceID, userID := m.WorkspaceID, m.UserID
	from, err := p.lockMember(ctx, tx, by, workspaceID, userID)
	if err != nil || from == to {
		return err
	}
	if !slices.Contains(accounts.Roles, to) {
		return fault.Invalid("role", "role must be one of owner, admin, developer, viewer, not %q.", to)
	}
	if err := checkRoleChange(ctx, tx, by, roleChange{workspaceID, from, to}); err != nil {
		return err
	}
	if err := requireAnotherOwner(ctx, tx, workspaceID, from); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE members SET role = $3, content_access = FALSE WHERE workspace_id = $1 AND user_id = $2", workspaceID, userID, string(to)); err != nil {
		return err
	}
	if err := p.revokeGrants(ctx, tx, workspaceID, userID); err != nil {
		return err
	}
	return by.actor.Log(ctx, tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: workspaceID}, Action: "member.role_changed", Target: userID},
		map[string]any{"from": from, "to": to}, p.now())
}

// RemoveMember removes a person from a workspace and ends all their sessions. Anyone may leave, except
// for the last owner.
func (p *People) RemoveMember(ctx context.Context, tx *db.Tx, by Caller, workspaceID, userID string) error {
	role, err := p.lockMember(ctx, tx, by, workspaceID, userID)
	if err != nil {
		return err
	}
	if by.operator || by.userID != userID {
		if err := checkRoleChange(ctx, tx, by, roleChange{workspaceID, role, ""}); err != nil {
			return err
		}
	}
	if err := requireAnotherOwner(ctx, tx, workspaceID, role); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM members WHERE workspace_id = $1 AND user_id = $2", workspaceID, userID); err != nil {
		return err
	}
	if err := p.revokeGrants(ctx, tx, workspaceID, userID); err != nil {
		return err
	}
	return by.actor.Log(ctx, tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: workspaceID}, Action: "member.removed", Target: userID},
		map[string]any{"role": role}, p.now())
}

// lockMember locks the workspace, so that concurrent changes can't remove the last owner, and returns the
// member's role.
func (p *People) lockMember(ctx context.Context, tx *db.Tx, by Caller, workspaceID, userID string) (accounts.Role, error) {
	if _, err := accounts.GetWorkspaceLocked(ctx, tx, workspaceID); err != nil {
		return "", orNoSuch(err, "workspace", workspaceID)
	}
	if _, err := roleOf(ctx, tx, by, workspaceID); err != nil {
		return "", err
	}
	_, err := p.lock(ctx, tx, userID)
	var role accounts.Role
	if err == nil {
		role, err = RoleIn(ctx, tx, userID, workspaceID)
	}
	if fault.Is(err, fault.NotFound) {
		return "", fault.NoSuch("member", userID)
	}
	return role, err
}

// requireAnotherOwner rejects removing the last owner.
func requireAnotherOwner(ctx context.Context, tx *db.Tx, workspaceID string, losing accounts.Role) error {
	if losing != accounts.Owner {
		return nil
	}
	owners, err := count(ctx, tx, "SELECT count(*) FROM members WHERE workspace_id = $1 AND role = $2", workspaceID, string(accounts.Owner))
	if err == nil && owners < 2 {
		err = fault.New(fault.InvalidState, "This is the last owner of the workspace. Make someone else an owner first.")
	}
	return err
}

// revokeGrants ends a person's sessions, revokes the keys of their playground, and revokes the open
// invitations that they created.
func (p *People) revokeGrants(ctx context.Context, tx *db.Tx, workspaceID, userID string) error {
	if _, err := deleteSessions(ctx, tx, userID, ""); err != nil {
		return err
	}
	if err := access.RevokePlaygroundKeys(ctx, tx, workspaceID, userID, p.now()); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE invitations SET revoked_at = $3
		WHERE workspace_id = $1 AND invited_by = $2 AND accepted_at IS NULL AND revoked_at IS NULL`, workspaceID, userID, p.now().UnixMicro())
	return err
}
