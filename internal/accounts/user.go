package accounts

import (
	"context"
	"errors"
	"net/mail"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// Role is a member's role in a workspace.
type Role string

// The roles, from the most to the least powerful.
const (
	Owner     Role = "owner"
	Admin     Role = "admin"
	Developer Role = "developer"
	Viewer    Role = "viewer"
)

// Roles lists every role.
var Roles = []Role{Owner, Admin, Developer, Viewer}

// User is a member of a workspace.
type User struct {
	ID          string
	Email       string
	Name        string
	WorkspaceID string
	Role        Role
	CreatedAt   time.Time
}

// CreateUser adds a member to the workspace. A person with the same email address keeps their ID.
func CreateUser(ctx context.Context, tx *db.Tx, u *User, now time.Time) error {
	address, err := mail.ParseAddress(u.Email)
	if err != nil || address.Address != u.Email {
		return fault.Invalid("email", "%q is not an email address.", u.Email)
	}
	u.Email = NormalizeEmail(u.Email)
	if !slices.Contains(Roles, u.Role) {
		return fault.Invalid("role", "role must be one of owner, admin, developer, viewer, not %q.", u.Role)
	}
	if u.Name != "" {
		if err := CheckName("name", u.Name); err != nil {
			return err
		}
	}
	u.CreatedAt = now
	err = tx.QueryRow(ctx, "SELECT id, name FROM users WHERE email = $1", u.Email).Scan(&u.ID, &u.Name)
	if errors.Is(err, db.ErrNotFound) {
		u.ID = ids.New(ids.User)
		_, err = tx.Exec(ctx, "INSERT INTO users (id, email, name, created_at) VALUES ($1, $2, $3, $4)",
			u.ID, u.Email, u.Name, now.UnixMicro())
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO members (workspace_id, user_id, role, created_at) VALUES ($1, $2, $3, $4)",
		u.WorkspaceID, u.ID, string(u.Role), now.UnixMicro())
	if errors.Is(err, db.ErrExists) {
		return fault.Param(fault.Conflict, "email", "%s is already a member of this workspace.", u.Email)
	}
	return err
}

// NormalizeEmail returns an address in the form in which addresses are stored and compared: with
// ASCII letters in lower case. Other letters stay, because folding them would make distinct
// addresses equal: U+212A, the Kelvin sign, becomes k.
func NormalizeEmail(email string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, strings.TrimSpace(email))
}

// WorkspacesOf returns a user's workspaces, oldest first.
func WorkspacesOf(ctx context.Context, q db.Querier, userID string) ([]*Workspace, error) {
	return db.List(ctx, q, scanWorkspace, "SELECT "+workspaceColumns+` FROM workspaces
		WHERE id IN (SELECT workspace_id FROM members WHERE user_id = $1) ORDER BY id`, userID)
}

var scanUser = db.Scanner(func(u *User) []any {
	return []any{&u.ID, &u.Email, &u.Name, &u.WorkspaceID, &u.Role, &u.CreatedAt}
})

// ListUsers returns the members of a workspace, oldest first.
func ListUsers(ctx context.Context, q db.Querier, workspaceID string) ([]*User, error) {
	return db.List(ctx, q, scanUser, `SELECT u.id, u.email, u.name, m.workspace_id, m.role, m.created_at
		FROM members m JOIN users u ON u.id = m.user_id WHERE m.workspace_id = $1 ORDER BY u.id`, workspaceID)
}
