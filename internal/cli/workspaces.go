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
	"turnpike/internal/fault"
)

func newWorkspaces(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "workspaces", Short: "Create, list and update workspaces", RunE: unknownCommand}
	cmd.AddCommand(e.workspacesCreate(), e.workspacesList(), e.workspacesUpdate(), e.workspacesUnbilled())
	return cmd
}

// workspaceFlags adds the flags for the settings of a workspace and returns a
// function that applies those that were given.
func workspaceFlags(cmd *cobra.Command) (apply func(w *accounts.Workspace) error) {
	f := cmd.Flags()
	strict := f.Bool("strict-projects", false, "reject unknown projects instead of creating them")
	grace := f.Duration("rotation-grace", accounts.DefaultRotationGrace, "how long an old key value works after a rotation, up to 168h")
	budget := f.String("default-project-budget", "", "monthly budget in credits of projects that are created automatically, or none")
	return func(w *accounts.Workspace) error {
		if f.Changed("strict-projects") {
			w.StrictProjects = *strict
		}
		if f.Changed("rotation-grace") {
			w.RotationGrace = *grace
		}
		switch *budget {
		case "":
		case noBudget:
			w.DefaultProjectBudget = nil
		default:
			amount, err := credits.Parse(*budget)
			if err != nil {
				return fmt.Errorf("--default-project-budget: %w", err)
			}
			w.DefaultProjectBudget = &amount
		}
		return nil
	}
}

func (e *env) workspacesCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create NAME", Short: "Create a workspace", Args: cobra.ExactArgs(1)}
	apply := workspaceFlags(cmd)
	return e.withStore(cmd, app.OpenStore, func(ctx context.Context, s *app.Store, args []string) error {
		w := &accounts.Workspace{Name: args[0], RotationGrace: accounts.DefaultRotationGrace}
		if err := apply(w); err != nil {
			return err
		}
		if err := app.CheckUnmoved(ctx, e.loaded.Config, s.DB); err != nil {
			return err
		}
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			if err := accounts.CreateWorkspace(ctx, tx, w, time.Now()); err != nil {
				return err
			}
			return w.LogCreated(ctx, tx, audit.Operator)
		})
		if err != nil {
			return err
		}
		return e.printWorkspaces(w)
	})
}

func (e *env) workspacesUpdate() *cobra.Command {
	cmd := &cobra.Command{Use: "update WORKSPACE", Short: "Change the settings of a workspace", Args: cobra.ExactArgs(1)}
	apply := workspaceFlags(cmd)
	leaks := cmd.Flags().String("leak-policy", "", "what to do about keys in the workspace's own prompts and metadata: off, report or revoke")
	tools := cmd.Flags().String("test-tools", "", "whether test runs call HTTP and MCP tools: simulated, real, or default for the server's agents.test_tools_default")
	retention := cmd.Flags().String("response-retention", "", "how long responses are stored: off, or from 1h to 720h")
	secondFactor := cmd.Flags().Bool("require-second-factor", false, "require a second factor to open the workspace in the dashboard")
	percentages := cmd.Flags().StringSlice("alert-thresholds", nil, "percentages of budgets that alert people; empty for 50, 80 and 95")
	setUsers := endUserFlags(cmd)
	change := func(w *accounts.Workspace) error {
		if cmd.Flags().Changed("alert-thresholds") {
			var err error
			if w.AlertThresholds, err = parseThresholds("alert-thresholds", *percentages); err != nil {
				return err
			}
		}
		switch *tools {
		case "":
		case serverDefault:
			w.TestTools = ""
		default:
			w.TestTools = accounts.ToolMode(*tools)
		}
		if *leaks != "" {
			w.LeakPolicy = accounts.LeakPolicy(*leaks)
		}
		if cmd.Flags().Changed("require-second-factor") {
			w.RequireSecondFactor = *secondFactor
		}
		return cmp.Or(apply(w), setUsers(&w.Users), setResponseRetention(w, *retention))
	}
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, args []string) error {
		var w *accounts.Workspace
		err := s.DB.Write(ctx, func(tx *db.Tx) (err error) {
			if w, err = accounts.FindWorkspace(ctx, tx, args[0]); err == nil {
				w, err = accounts.ChangeWorkspace(ctx, tx, w.ID, accounts.Change[accounts.Workspace]{By: audit.Operator, At: time.Now(), Apply: change})
			}
			return err
		})
		if err != nil {
			return err
		}
		return e.printWorkspaces(w)
	})
}

// endUserFlags adds the flags of the settings of end users, and returns what applies them.
func endUserFlags(cmd *cobra.Command) func(*accounts.UserSettings) error {
	f := cmd.Flags()
	fromRequests := f.Bool("users-from-requests", false, "whether the user field of requests names an end user")
	budget := f.String("user-budget", "", "default budget of end users in credits, or none")
	window := f.String("user-window", "", "window of that budget: day, week, month or lifetime")
	rate := f.Int64("user-requests-per-minute", 0, "default rate limit of end users, or 0 for none")
	percentages := f.StringSlice("user-alert-thresholds", nil, "percentages of end users' budgets that alert people by email; empty for events only, at the workspace's")
	return func(set *accounts.UserSettings) error {
		if f.Changed("users-from-requests") {
			set.FromRequests = *fromRequests
		}
		switch *budget {
		case "":
		case noBudget:
			set.Default.Budget = nil
		default:
			amount, err := credits.Parse(*budget)
			if err != nil {
				return fmt.Errorf("--user-budget: %w", err)
			}
			set.Default.Budget = &amount
		}
		if *window != "" {
			set.Default.Window = accounts.Window(*window)
		}
		if f.Changed("user-requests-per-minute") {
			if set.Default.RequestsPerMinute = rate; *rate == 0 {
				set.Default.RequestsPerMinute = nil
			}
		}
		if f.Changed("user-alert-thresholds") {
			var err error
			if set.AlertThresholds, err = parseThresholds("user-alert-thresholds", *percentages); err != nil {
				return err
			}
		}
		return nil
	}
}

const noBudget = "none"

// setResponseRetention changes how long responses are stored. An empty text changes nothing.
func setResponseRetention(w *accounts.Workspace, text string) (err error) {
	switch text {
	case "":
	case retentionOff:
		w.ResponseRetention = 0
	default:
		if w.ResponseRetention, err = time.ParseDuration(text); err != nil {
			return fault.Invalid("response_retention", "--response-retention must be off, or a duration such as 168h.")
		}
	}
	return nil
}

const retentionOff = "off"

// serverDefault stands for a setting that the workspace leaves to the server.
const serverDefault = "default"

func (e *env) workspacesList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List workspaces"}
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		all, err := accounts.ListWorkspaces(ctx, s.DB)
		if err != nil {
			return err
		}
		return e.printWorkspaces(all...)
	})
}

type workspaceObject struct {
	ID                   string              `json:"id"`
	Object               string              `json:"object"`
	Name                 string              `json:"name"`
	StrictProjects       bool                `json:"strict_projects"`
	DefaultProjectBudget *credits.Micro      `json:"default_project_budget"`
	RotationGraceSeconds int64               `json:"rotation_grace_seconds"`
	CreatedAt            int64               `json:"created_at"`
	LeakPolicy           accounts.LeakPolicy `json:"leak_policy"`
	TestTools            *accounts.ToolMode  `json:"test_tools"` // null for the server's default
	RequireSecondFactor  bool                `json:"require_second_factor"`

	ResponseRetentionSeconds int64 `json:"response_retention_seconds"` // 0 if storing is turned off
}

func newWorkspaceObject(w *accounts.Workspace) workspaceObject {
	o := workspaceObject{w.ID, "workspace", w.Name, w.StrictProjects, w.DefaultProjectBudget, int64(w.RotationGrace / time.Second), w.CreatedAt.Unix(), w.LeakPolicy, nil, w.RequireSecondFactor, int64(w.ResponseRetention / time.Second)}
	if w.TestTools != "" {
		o.TestTools = &w.TestTools
	}
	return o
}

func (e *env) printWorkspaces(all ...*accounts.Workspace) error {
	objects := make([]workspaceObject, len(all))
	for i, w := range all {
		objects[i] = newWorkspaceObject(w)
	}
	return printObjects(e, objects, "ID\tNAME\tSTRICT PROJECTS\tPROJECT BUDGET\tROTATION GRACE\tLEAK POLICY\tTEST TOOLS\tSECOND FACTOR REQUIRED\tRESPONSES STORED",
		`{{.id}}	{{.name}}	{{.strict_projects}}	{{default "none" .default_project_budget}}	{{seconds .rotation_grace_seconds}}	{{.leak_policy}}	{{default "default" .test_tools}}	{{.require_second_factor}}	{{if .response_retention_seconds}}{{seconds .response_retention_seconds}}{{else}}off{{end}}`)
}
