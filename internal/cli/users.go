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
	cmd := &cobra.Command{Use: "users", Short: "Create and list the people of a workspace, and let them in again", RunE: noSuchCommand}
	cmd.AddCommand(e.usersCreate(), e.usersList(), e.usersResetPassword())
	return cmd
}

func (e *env) usersCreate() *cobra.Command {
	var workspace, email, name, role string
	cmd := &cobra.Command{
		Use:   "create --email E --role owner|admin|developer|viewer",
		Short: "Add a person to a workspace",
		Long: `Adds a person to a workspace. Somebody new gets a password by a link, which is
printed, works once, and for a week. Hand it over as you would a password.
Somebody who is a member of another workspace signs in as before, and gets no
link: make sure that the account is theirs, or have them invited under
Team.`,
	}
	f := cmd.Flags()
	f.StringVar(&email, "email", "", "e-mail address (required)")
	f.StringVar(&role, "role", string(accounts.Developer), "owner, admin, developer or viewer")
	f.StringVar(&name, "name", "", "the person's name")
	f.StringVar(&workspace, "workspace", "", "workspace, by id or name (default: the only one)")
	return e.operator(cmd, func(ctx context.Context, s *app.Store, _ []string) error {
		if email == "" {
			return usageError{cmd.CommandPath(), errors.New("say who it is: --email ada@example.com")}
		}
		u := &accounts.User{Email: email, Name: name, Role: accounts.Role(role)}
		p := people.New(s.DB, s.Ring, people.Options{})
		var c created
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			w, err := accounts.FindWorkspace(ctx, tx, workspace)
			if err != nil {
				return err
			}
			u.WorkspaceID = w.ID
			if err := accounts.CreateUser(ctx, tx, u, time.Now()); err != nil {
				return err
			}
			err = audit.LogAction(ctx, tx, audit.Operator, audit.Action{WorkspaceID: w.ID, Action: "member.added", Target: u.ID},
				map[string]any{"email": u.Email, "role": u.Role}, time.Now())
			if err != nil {
				return err
			}
			c, err = letIn(ctx, tx, p, u)
			return err
		})
		if err != nil {
			return err
		}
		return e.printCreated(u, c)
	})
}

// created is what there is to say about a person who was added.
type created struct {
	link     *people.Link // to a first password; nil when others rely on the account
	canEnter bool         // they have a way to sign in already
	others   int          // workspaces that they were a member of
}

// letIn gives a link to a person who was just added, unless others rely on their
// account. One that was a member of nothing begins anew.
func letIn(ctx context.Context, tx *db.Tx, p *people.People, u *accounts.User) (c created, err error) {
	anew, err := p.BeginAnew(ctx, tx, u.ID, u.WorkspaceID)
	if err != nil {
		return c, err
	}
	if anew {
		c.link, err = p.NewPasswordLink(ctx, tx, u.ID, people.WelcomeLimit)
		return c, err
	}
	person, err := p.Get(ctx, tx, u.ID)
	if err != nil {
		return c, err
	}
	if c.canEnter, err = p.CanSignIn(ctx, tx, person); err != nil {
		return c, err
	}
	memberships, err := people.Memberships(ctx, tx, u.ID)
	c.others = len(memberships) - 1
	return c, err
}

func (e *env) usersResetPassword() *cobra.Command {
	var email string
	var secondFactor bool
	cmd := &cobra.Command{
		Use:   "reset-password --email E",
		Short: "Print a link by which a person chooses a new password",
		Long: `Prints a link by which a person chooses a new password. It works once, and for an
hour. Hand it over as you would a password. The old password works until then;
when the link is used, all sessions of the person end, and their passkeys and
the link to an account at the sign-in provider are removed. An authenticator app
stays, and is asked for.`,
	}
	cmd.Flags().StringVar(&email, "email", "", "e-mail address (required)")
	cmd.Flags().BoolVar(&secondFactor, "remove-second-factor", false, "also remove the authenticator app, for a person who has lost it and the recovery codes, or whose app is somebody else's")
	return e.operator(cmd, func(ctx context.Context, s *app.Store, _ []string) error {
		if email == "" {
			return usageError{cmd.CommandPath(), errors.New("say who it is: --email ada@example.com")}
		}
		p := people.New(s.DB, s.Ring, people.Options{})
		var link *people.Link
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			person, err := p.Find(ctx, tx, email)
			if err != nil {
				return err
			}
			if secondFactor {
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
		if e.asJSON {
			return e.printJSON(map[string]any{"object": "password_link", "user": link.Person.ID, "email": link.Person.Email,
				"link": e.linkURL(link), "expires_at": link.ExpiresAt.Unix()})
		}
		e.printLink(link)
		return nil
	})
}

func (e *env) linkURL(l *people.Link) string { return l.URL(e.loaded.BaseURL(e.loaded.Listen)) }

func (e *env) printLink(l *people.Link) {
	fmt.Fprintf(e.out, "%s chooses a password here, once, until %s:\n\n  %s\n",
		l.Person.Email, l.ExpiresAt.UTC().Format("2 January 2006, 15:04 UTC"), e.linkURL(l))
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
	Link      string        `json:"link,omitempty"` // to a first password

	Existing *existingAccount `json:"existing_account,omitempty"`
}

// existingAccount says that a person who was added had an account already.
type existingAccount struct {
	OtherWorkspaces int  `json:"other_workspaces"`
	CanSignIn       bool `json:"can_sign_in"`
}

func newUserObject(u *accounts.User) userObject {
	return userObject{ID: u.ID, Object: "user", Email: u.Email, Name: u.Name, Workspace: u.WorkspaceID, Role: u.Role, CreatedAt: u.CreatedAt.Unix()}
}

func (e *env) printCreated(u *accounts.User, c created) error {
	if e.asJSON {
		o := newUserObject(u)
		if c.link != nil {
			o.Link = e.linkURL(c.link)
		} else {
			o.Existing = &existingAccount{OtherWorkspaces: c.others, CanSignIn: c.canEnter}
		}
		return e.printJSON([]userObject{o})
	}
	if err := e.printUsers([]*accounts.User{u}); err != nil {
		return err
	}
	fmt.Fprintln(e.out)
	if c.link != nil {
		e.printLink(c.link)
		return nil
	}
	fmt.Fprintf(e.out, "%s has an account here already, is a member of %s, and signs in as before.\nNo link was made. If the account may not be theirs, remove them again under Team, and invite them there.\n",
		u.Email, otherWorkspaces(c.others))
	if !c.canEnter {
		fmt.Fprintf(e.out, "They have not chosen a password yet; for a new link: turnpike users reset-password --email %s\n", u.Email)
	}
	return nil
}

func otherWorkspaces(n int) string {
	if n == 1 {
		return "1 other workspace"
	}
	return fmt.Sprintf("%d other workspaces", n)
}

func (e *env) printUsers(users []*accounts.User) error {
	objects := make([]userObject, len(users))
	rows := make([][]any, len(users))
	for i, u := range users {
		objects[i] = newUserObject(u)
		rows[i] = []any{u.ID, u.Email, u.Role, u.Name}
	}
	if e.asJSON {
		return e.printJSON(objects)
	}
	return e.table("ID\tE-MAIL\tROLE\tNAME", rows)
}
