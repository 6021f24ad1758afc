package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/db"
)

func newUsers(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "users", Short: "Create and list the people of a workspace", RunE: noSuchCommand}
	cmd.AddCommand(e.usersCreate(), e.usersList())
	return cmd
}

func (e *env) usersCreate() *cobra.Command {
	var workspace, email, name, role string
	cmd := &cobra.Command{Use: "create --email E --role owner|admin|developer|viewer", Short: "Add a person to a workspace"}
	f := cmd.Flags()
	f.StringVar(&email, "email", "", "e-mail address (required)")
	f.StringVar(&role, "role", string(accounts.Developer), "owner, admin, developer or viewer")
	f.StringVar(&name, "name", "", "the person's name")
	f.StringVar(&workspace, "workspace", "", "workspace, by id or name (default: the only one)")
	return e.operator(cmd, func(ctx context.Context, s *app.Store, _ []string) error {
		u := &accounts.User{Email: email, Name: name, Role: accounts.Role(role)}
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			w, err := accounts.FindWorkspace(ctx, tx, workspace)
			if err != nil {
				return err
			}
			u.WorkspaceID = w.ID
			if err := accounts.CreateUser(ctx, tx, u, time.Now()); err != nil {
				return err
			}
			return audit.LogAction(ctx, tx, audit.Operator, audit.Action{WorkspaceID: w.ID, Action: "member.added", Target: u.ID},
				map[string]any{"email": u.Email, "role": u.Role}, time.Now())
		})
		if err != nil {
			return err
		}
		return e.printUsers([]*accounts.User{u})
	})
}

func (e *env) usersList() *cobra.Command {
	var workspace string
	cmd := &cobra.Command{Use: "list", Short: "List the people of a workspace"}
	cmd.Flags().StringVar(&workspace, "workspace", "", "workspace, by id or name (default: the only one)")
	return e.operator(cmd, func(ctx context.Context, s *app.Store, _ []string) error {
		w, err := accounts.FindWorkspace(ctx, s.DB, workspace)
		if err != nil {
			return err
		}
		users, err := accounts.ListUsers(ctx, s.DB, w.ID)
		if err != nil {
			return err
		}
		return e.printUsers(users)
	})
}

type userObject struct {
	ID        string        `json:"id"`
	Object    string        `json:"object"`
	Email     string        `json:"email"`
	Name      string        `json:"name"`
	Workspace string        `json:"workspace"`
	Role      accounts.Role `json:"role"`
	CreatedAt int64         `json:"created_at"`
}

func (e *env) printUsers(users []*accounts.User) error {
	objects := make([]userObject, len(users))
	rows := make([][]any, len(users))
	for i, u := range users {
		objects[i] = userObject{u.ID, "user", u.Email, u.Name, u.WorkspaceID, u.Role, u.CreatedAt.Unix()}
		rows[i] = []any{u.ID, u.Email, u.Role, u.Name}
	}
	if e.asJSON {
		return e.printJSON(objects)
	}
	return e.table("ID\tE-MAIL\tROLE\tNAME", rows)
}
