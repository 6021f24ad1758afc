package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
)

func newWorkspaces(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "workspaces", Short: "Create, list and change workspaces", RunE: noSuchCommand}
	cmd.AddCommand(e.workspacesCreate(), e.workspacesList(), e.workspacesUpdate())
	return cmd
}

// workspaceFlags are the settings of a workspace.
type workspaceFlags struct {
	strict bool
	grace  time.Duration
	budget string
	leaks  string
	tools  string

	requireSecondFactor bool
}

func (w *workspaceFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&w.strict, "strict-projects", false, "refuse unknown projects instead of creating them")
	f.DurationVar(&w.grace, "rotation-grace", accounts.DefaultRotationGrace, "how long an old secret works after a rotation, up to 168h")
	f.StringVar(&w.budget, "default-project-budget", "", "monthly budget in credits of projects created at first use, or none")
}

// apply sets what was given on the command line.
func (w *workspaceFlags) apply(cmd *cobra.Command, ws *accounts.Workspace) error {
	f := cmd.Flags()
	if f.Changed("strict-projects") {
		ws.StrictProjects = w.strict
	}
	if f.Changed("rotation-grace") {
		ws.RotationGrace = w.grace
	}
	if w.budget == "none" {
		ws.DefaultProjectBudget = nil
	} else if w.budget != "" {
		amount, err := credits.Parse(w.budget)
		if err != nil {
			return fmt.Errorf("--default-project-budget: %w", err)
		}
		ws.DefaultProjectBudget = &amount
	}
	return nil
}

func (e *env) workspacesCreate() *cobra.Command {
	var flags workspaceFlags
	cmd := &cobra.Command{Use: "create NAME", Short: "Create a workspace", Args: cobra.ExactArgs(1)}
	flags.add(cmd)
	return e.founder(cmd, func(ctx context.Context, s *app.Store, args []string) error {
		w := &accounts.Workspace{Name: args[0], RotationGrace: accounts.DefaultRotationGrace}
		if err := flags.apply(cmd, w); err != nil {
			return err
		}
		if err := app.CheckForgotten(ctx, e.loaded.Config, s.DB); err != nil {
			return err
		}
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			if err := accounts.CreateWorkspace(ctx, tx, w, time.Now()); err != nil {
				return err
			}
			return logWorkspace(ctx, tx, w, "workspace.created")
		})
		if err != nil {
			return err
		}
		return e.printWorkspaces([]*accounts.Workspace{w})
	})
}

func (e *env) workspacesUpdate() *cobra.Command {
	var flags workspaceFlags
	cmd := &cobra.Command{Use: "update WORKSPACE", Short: "Change a workspace's settings", Args: cobra.ExactArgs(1)}
	flags.add(cmd)
	cmd.Flags().StringVar(&flags.leaks, "leak-policy", "", "what becomes of keys in the workspace's own prompts and metadata: off, report or revoke")
	cmd.Flags().StringVar(&flags.tools, "test-tools", "", "whether test runs call HTTP and MCP tools: simulated, real, or default for the server's agents.test_tools_default")
	cmd.Flags().BoolVar(&flags.requireSecondFactor, "require-second-factor", false, "require a second factor of members who open the workspace in the dashboard")
	return e.operator(cmd, func(ctx context.Context, s *app.Store, args []string) error {
		var w *accounts.Workspace
		err := s.DB.Write(ctx, func(tx *db.Tx) (err error) {
			if w, err = accounts.FindWorkspace(ctx, tx, args[0]); err != nil {
				return err
			}
			if err := flags.apply(cmd, w); err != nil {
				return err
			}
			switch flags.tools {
			case "":
			case serverDefault:
				w.TestTools = ""
			default:
				w.TestTools = accounts.ToolMode(flags.tools)
			}
			if err := accounts.UpdateWorkspace(ctx, tx, w); err != nil {
				return err
			}
			if flags.leaks != "" {
				w.LeakPolicy = accounts.LeakPolicy(flags.leaks)
				if err := accounts.SetLeakPolicy(ctx, tx, w.ID, w.LeakPolicy); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("require-second-factor") {
				w.RequireSecondFactor = flags.requireSecondFactor
				if err := accounts.SetRequireSecondFactor(ctx, tx, w.ID, w.RequireSecondFactor); err != nil {
					return err
				}
			}
			return logWorkspace(ctx, tx, w, "workspace.updated")
		})
		if err != nil {
			return err
		}
		return e.printWorkspaces([]*accounts.Workspace{w})
	})
}

// serverDefault is the word for a setting that the workspace leaves to the server.
const serverDefault = "default"

// testTools is the workspace's setting as people read it.
func testTools(w *accounts.Workspace) accounts.ToolMode { return cmp.Or(w.TestTools, serverDefault) }

func logWorkspace(ctx context.Context, tx *db.Tx, w *accounts.Workspace, action string) error {
	return audit.LogAction(ctx, tx, audit.Operator, audit.Action{WorkspaceID: w.ID, Action: action, Target: w.ID},
		map[string]any{"name": w.Name, "strict_projects": w.StrictProjects, "default_project_budget": w.DefaultProjectBudget,
			"rotation_grace_seconds": int64(w.RotationGrace / time.Second), "leak_policy": w.LeakPolicy, "test_tools": testTools(w),
			"require_second_factor": w.RequireSecondFactor}, time.Now())
}

func (e *env) workspacesList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List workspaces"}
	return e.operator(cmd, func(ctx context.Context, s *app.Store, _ []string) error {
		all, err := accounts.ListWorkspaces(ctx, s.DB)
		if err != nil {
			return err
		}
		return e.printWorkspaces(all)
	})
}

type workspaceObject struct {
	ID                   string         `json:"id"`
	Object               string         `json:"object"`
	Name                 string         `json:"name"`
	StrictProjects       bool           `json:"strict_projects"`
	DefaultProjectBudget *credits.Micro `json:"default_project_budget"`
	RotationGraceSeconds int64          `json:"rotation_grace_seconds"`
	CreatedAt            int64          `json:"created_at"`

	LeakPolicy          accounts.LeakPolicy `json:"leak_policy"`
	TestTools           *accounts.ToolMode  `json:"test_tools"` // null for the server's default
	RequireSecondFactor bool                `json:"require_second_factor"`
}

func (e *env) printWorkspaces(all []*accounts.Workspace) error {
	objects := make([]workspaceObject, len(all))
	rows := make([][]any, len(all))
	for i, w := range all {
		objects[i] = workspaceObject{w.ID, "workspace", w.Name, w.StrictProjects, w.DefaultProjectBudget, int64(w.RotationGrace / time.Second), w.CreatedAt.Unix(), w.LeakPolicy, nil, w.RequireSecondFactor}
		if w.TestTools != "" {
			objects[i].TestTools = &w.TestTools
		}
		budget := "none"
		if w.DefaultProjectBudget != nil {
			budget = w.DefaultProjectBudget.String()
		}
		rows[i] = []any{w.ID, w.Name, w.StrictProjects, budget, w.RotationGrace, w.LeakPolicy, testTools(w), w.RequireSecondFactor}
	}
	if e.asJSON {
		return e.printJSON(objects)
	}
	return e.table("ID\tNAME\tSTRICT PROJECTS\tPROJECT BUDGET\tROTATION GRACE\tLEAK POLICY\tTEST TOOLS\tSECOND FACTOR REQUIRED", rows)
}
