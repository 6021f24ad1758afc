package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/people"
)

func newUsers(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "users", Short: "Create and list users, and reset passwords", RunE: unknownCommand}
	cmd.AddCommand(e.usersCreate(), e.usersList(), e.usersResetPassword())
	return cmd
}

var errNoEmail = errors.New("missing email address: pass --email ada@example.com")

func (e *env) usersCreate() *cobra.Command {
	var email, name, role string
	cmd := &cobra.Command{
		Use:   "create --email E --role owner|admin|developer|viewer",
		Short: "Add a user to a workspace",
		Long: `Adds a user to a workspace. For a new user it prints a link to choose a password.
The link works once, for a week. Treat it like a password.

A member of another workspace gets no link and signs in as before. Make sure that
the account belongs to the right person, or send an invitation under Team.`,
	}
	f := cmd.Flags()
	f.StringVar(&email, "email", "", "email address (required)")
	f.StringVar(&role, "role", string(accounts.Developer), "owner, admin, developer or viewer")
	f.StringVar(&name, "name", "", "name")
	workspace := workspaceFlag(cmd)
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		if email == "" {
			return wrongUsage(cmd, errNoEmail)
		}
		u := &accounts.User{Email: email, Name: name, Role: accounts.Role(role)}
		p := people.New(s.DB, s.Ring, people.Options{})
		var link *people.Link
		var existing *existingAccount
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			w, err := accounts.FindWorkspace(ctx, tx, *workspace)
			if err != nil {
				return err
			}
			u.WorkspaceID = w.ID
			if err := accounts.CreateUser(ctx, tx, u, time.Now()); err != nil {
				return err
			}
			err = audit.Operator.Log(ctx, tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: w.ID}, Action: "member.added", Target: u.ID},
				map[string]any{"email": u.Email, "role": u.Role}, time.Now())
			if err != nil {
				return err
			}
			link, existing, err = passwordLink(ctx, tx, p, u)
			return err
		})
		if err != nil {
			return err
		}
		return e.printCreatedUser(u, link, existing)
	})
}

// passwordLink creates a link for a user who was just added. A member of other
// workspaces has an account that others rely on, and gets none.
func passwordLink(ctx context.Context, tx *db.Tx, p *people.People, u *accounts.User) (*people.Link, *existingAccount, error) {
	reset, err := p.ResetAccount(ctx, tx, u.ID, u.WorkspaceID)
	if err != nil {
		return nil, nil, err
	}
	if reset {
		link, err := p.NewPasswordLink(ctx, tx, u.ID, people.WelcomeLimit)
		return link, nil, err
	}
	person, err := p.Get(ctx, tx, u.ID)
	if err != nil {
		return nil, nil, err
	}
	canSignIn, err := p.CanSignIn(ctx, tx, person)
	if err != nil {
		return nil, nil, err
	}
	memberships, err := people.Memberships(ctx, tx, u.ID)
	return nil, &existingAccount{OtherWorkspaces: len(memberships) - 1, CanSignIn: canSignIn}, err
}

func (e *env) usersResetPassword() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset-password --email E",
		Short: "Print a link to choose a new password",
		Long: `Prints a link to choose a new password. The link works once, for an hour. Treat it
like a password. The old password works until then. Using the link ends all
sessions of the user, and removes their passkeys and the link to an account at the
sign-in provider. An authenticator app stays and is still required.`,
	}
	email := cmd.Flags().String("email", "", "email address (required)")
	secondFactor := cmd.Flags().Bool("remove-second-factor", false, "also remove the authenticator app, if the user lost it and the recovery codes")
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		if *email == "" {
			return wrongUsage(cmd, errNoEmail)
		}
		p := people.New(s.DB, s.Ring, people.Options{})
		var link *people.Link
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			person, err := p.Find(ctx, tx, *email)
			if err != nil {
				return err
			}
			if *secondFactor {
				if err := p.RemoveSecondFactor(ctx, tx, person.ID); err != nil {
					return err
				}
			}
			link, err = p.NewPasswordLink(ctx, tx, person.ID, people.ResetLimit)
			return err
		})
		if err != nil {
			return err
		}
		return e.report(map[string]any{"object": "password_link", "user": link.Person.ID, "email": link.Person.Email,
			"link": e.linkURL(link), "expires_at": link.ExpiresAt.Unix()}, "%s", e.linkText(link))
	})
}

func (e *env) linkURL(l *people.Link) string { return l.URL(e.loaded.BaseURL(e.loaded.Listen)) }

func (e *env) linkText(l *people.Link) string {
	return fmt.Sprintf("Link for %s to choose a password, once, until %s:\n\n  %s\n",
		l.Person.Email, l.ExpiresAt.UTC().Format("2 January 2006, 15:04 UTC"), e.linkURL(l))
}

func (e *env) usersList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the users of a workspace"}
	workspace := workspaceFlag(cmd)
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		w, err := accounts.FindWorkspace(ctx, s.DB, *workspace)
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
	ID        string           `json:"id"`
	Object    string           `json:"object"`
	Email     string           `json:"email"`
	Name      string           `json:"name"`
	Workspace string           `json:"workspace"`
	Role      accounts.Role    `json:"role"`
	CreatedAt int64            `json:"created_at"`
	Link      string           `json:"link,omitempty"` // to choose a first password
	Existing  *existingAccount `json:"existing_account,omitempty"`
}

type existingAccount struct {
	OtherWorkspaces int  `json:"other_workspaces"`
	CanSignIn       bool `json:"can_sign_in"`
}

func newUserObject(u *accounts.User) userObject {
	return userObject{ID: u.ID, Object: "user", Email: u.Email, Name: u.Name, Workspace: u.WorkspaceID, Role: u.Role, CreatedAt: u.CreatedAt.Unix()}
}

func (e *env) printCreatedUser(u *accounts.User, link *people.Link, existing *existingAccount) error {
	if e.asJSON {
		o := newUserObject(u)
		o.Existing = existing
		if link != nil {
			o.Link = e.linkURL(link)
		}
		return e.printJSON([]userObject{o})
	}
	if err := e.printUsers([]*accounts.User{u}); err != nil {
		return err
	}
	fmt.Fprintln(e.out)
	if link != nil {
		_, err := fmt.Fprint(e.out, e.linkText(link))
		return err
	}
	fmt.Fprintf(e.out, "%s already has an account, is a member of %s, and signs in as before.\nIf the account may belong to someone else, remove the user under Team and send an invitation there.\n",
		u.Email, counted(int64(existing.OtherWorkspaces), "other workspace", "other workspaces"))
	if !existing.CanSignIn {
		fmt.Fprintf(e.out, "The user has not chosen a password yet. For a new link: turnpike users reset-password --email %s\n", u.Email)
	}
	return nil
}

func (e *env) printUsers(users []*accounts.User) error {
	objects := make([]userObject, len(users))
	for i, u := range users {
		objects[i] = newUserObject(u)
	}
	return printObjects(e, objects, "ID\tEMAIL\tROLE\tNAME", "{{.id}}\t{{.email}}\t{{.role}}\t{{.name}}")
}
