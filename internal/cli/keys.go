package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/visibility"
)

var operator = access.Caller{Actor: audit.Operator}

func newKeys(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Create, list, rotate and revoke API keys", RunE: noSuchCommand}
	cmd.AddCommand(e.keysCreate(), e.keysList(), e.keysRotate(), e.keysRevoke())
	return cmd
}

func (e *env) keysCreate() *cobra.Command {
	var environment, workspace, name, budget, project string
	var scopes, ips []string
	var rate int64
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "create --env live|test",
		Short: "Create a key and print its value, once",
		Example: `  turnpike keys create --env test
  turnpike keys create --env live --name "image worker" --scopes images:create --budget 5000`,
	}
	f := cmd.Flags()
	f.StringVar(&environment, "env", "", "environment: live or test (required)")
	f.StringVar(&workspace, "workspace", "", "workspace, by id or name (default: the only one)")
	f.StringVar(&name, "name", "command line", "what the key is for")
	f.StringSliceVar(&scopes, "scopes", []string{"*"}, "scopes, comma-separated")
	f.StringVar(&budget, "budget", "", "monthly budget in credits")
	f.StringVar(&project, "project", "", "pin the key to this project")
	f.StringSliceVar(&ips, "allowed-ips", nil, "addresses or CIDR ranges it may be used from")
	f.Int64Var(&rate, "rate-limit", 0, "requests per minute (default: the server's)")
	f.DurationVar(&expires, "expires-in", 0, "lifetime, such as 720h (default: for ever)")
	return e.operator(cmd, func(ctx context.Context, s *app.Store, _ []string) error {
		if environment == "" {
			return usageError{cmd.CommandPath(), fault.Missing("env", "say which environment the key is for: --env live or --env test")}
		}
		parsed, err := accounts.ParseEnvironment(environment)
		if err != nil {
			return err
		}
		k := &access.Key{Environment: parsed, Name: name, Scopes: scopes}
		if budget != "" {
			amount, err := credits.Parse(budget)
			if err != nil {
				return fmt.Errorf("--budget: %w", err)
			}
			k.MonthlyBudget = &amount
		}
		if k.AllowedIPs, err = access.ParseAllowedIPs(ips); err != nil {
			return err
		}
		if rate != 0 {
			k.RateLimit = &rate
		}
		if expires != 0 {
			t := time.Now().Add(expires)
			k.ExpiresAt = &t
		}
		keys := access.NewKeys(s.Ring, time.Now)
		var value string
		err = s.DB.Write(ctx, func(tx *db.Tx) error {
			w, err := accounts.FindWorkspace(ctx, tx, workspace)
			if err != nil {
				return err
			}
			k.WorkspaceID = w.ID
			if project != "" {
				if err := keys.PinToProject(ctx, tx, operator, k, project); err != nil {
					return err
				}
			}
			value, err = keys.Create(ctx, tx, operator, k)
			return err
		})
		if err != nil {
			return err
		}
		return e.printNewSecret(k, value)
	})
}

// printNewSecret shows a key with its value. The value alone goes to standard
// output when that is not a terminal's, so that scripts can take it.
func (e *env) printNewSecret(k *access.Key, value string) error {
	if e.asJSON {
		o := api.NewKeyObject(k, time.Now())
		o.Value = value
		return e.printJSON(o)
	}
	fmt.Fprintf(e.out, "%s\n", value)
	fmt.Fprintf(e.err, "Key %s (%s, scopes %s). The value above is shown this once.\n", k.ID, k.Environment, strings.Join(k.Scopes, ", "))
	return nil
}

func (e *env) keysList() *cobra.Command {
	var workspace, environment string
	cmd := &cobra.Command{Use: "list", Short: "List keys"}
	cmd.Flags().StringVar(&workspace, "workspace", "", "workspace, by id or name (default: the only one)")
	cmd.Flags().StringVar(&environment, "env", "", "only this environment: live or test")
	return e.operator(cmd, func(ctx context.Context, s *app.Store, _ []string) error {
		w, err := accounts.FindWorkspace(ctx, s.DB, workspace)
		if err != nil {
			return err
		}
		environments := []accounts.Environment{accounts.Live, accounts.Test}
		if environment != "" {
			one, err := accounts.ParseEnvironment(environment)
			if err != nil {
				return err
			}
			environments = []accounts.Environment{one}
		}
		objects := []*api.KeyObject{}
		for _, env := range environments {
			keys, err := allKeys(ctx, s, w.ID, env)
			if err != nil {
				return err
			}
			shown, err := api.KeyObjects(ctx, s.DB, time.Now(), keys...)
			if err != nil {
				return err
			}
			objects = append(objects, shown...)
		}
		if e.asJSON {
			return e.printJSON(objects)
		}
		rows := make([][]any, len(objects))
		for i, o := range objects {
			rows[i] = []any{o.ID, o.Prefix + "…" + o.LastFour, o.Status, o.Name, strings.Join(o.Scopes, ","), ago(o.LastUsedAt)}
		}
		return e.table("ID\tKEY\tSTATUS\tNAME\tSCOPES\tLAST USED", rows)
	})
}

func allKeys(ctx context.Context, s *app.Store, workspaceID string, env accounts.Environment) ([]*access.Key, error) {
	var all []*access.Key
	keys := access.NewKeys(s.Ring, time.Now)
	page := db.Page{Limit: 500, Asc: true}
	for {
		list, more, err := keys.List(ctx, s.DB, visibility.Filter{WorkspaceID: workspaceID, Environment: string(env)}, page)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
		if !more {
			return all, nil
		}
		page.After = list[len(list)-1].ID
	}
}

func ago(unix *int64) string {
	if unix == nil {
		return "never"
	}
	return time.Since(time.Unix(*unix, 0)).Round(time.Second).String() + " ago"
}

func (e *env) keysRotate() *cobra.Command {
	var grace time.Duration
	var force bool
	cmd := &cobra.Command{
		Use:   "rotate KEY_ID",
		Short: "Give a key a new secret and print it, once; the old one works until its grace ends",
		Args:  cobra.ExactArgs(1),
	}
	cmd.Flags().DurationVar(&grace, "grace", 0, "how long the old secret still works, up to 168h (default: the workspace's setting)")
	cmd.Flags().BoolVar(&force, "force", false, "rotate although an earlier rotation's grace has not ended")
	return e.operator(cmd, func(ctx context.Context, s *app.Store, args []string) error {
		if grace < 0 || grace > accounts.MaxRotationGrace {
			return usageError{cmd.CommandPath(), errors.New("--grace must be from 0s to 168h")}
		}
		keys := access.NewKeys(s.Ring, time.Now)
		var k *access.Key
		var value string
		err := s.DB.Write(ctx, func(tx *db.Tx) (err error) {
			if k, err = keys.FindLocked(ctx, tx, args[0]); err != nil {
				return err
			}
			if k.Previous != nil && !force {
				return errors.New("the key was rotated a moment ago and its old secret still works; wait until its grace ends, or end it now with --force")
			}
			r := access.Rotation{Grace: grace, Force: force}
			if !cmd.Flags().Changed("grace") {
				w, err := accounts.GetWorkspace(ctx, tx, k.WorkspaceID)
				if err != nil {
					return err
				}
				r.Grace = w.RotationGrace
			}
			if value, err = keys.Rotate(ctx, tx, operator, k, r); err != nil {
				return err
			}
			k, err = keys.FindLocked(ctx, tx, args[0])
			return err
		})
		if err != nil {
			return err
		}
		return e.printNewSecret(k, value)
	})
}

func (e *env) keysRevoke() *cobra.Command {
	cmd := &cobra.Command{Use: "revoke KEY_ID", Short: "Revoke a key and its scoped tokens", Args: cobra.ExactArgs(1)}
	descendants := cmd.Flags().Bool("descendants", false, "also revoke every key that it created, directly or through other keys")
	return e.operator(cmd, func(ctx context.Context, s *app.Store, args []string) error {
		keys := access.NewKeys(s.Ring, time.Now)
		var k *access.Key
		var others []*access.Key
		err := s.DB.Write(ctx, func(tx *db.Tx) (err error) {
			if k, err = keys.FindLocked(ctx, tx, args[0]); err != nil {
				return err
			}
			if *descendants {
				others, err = keys.RevokeWithDescendants(ctx, tx, operator, k)
				return err
			}
			return keys.Revoke(ctx, tx, operator, k)
		})
		if err != nil {
			return err
		}
		if e.asJSON {
			shown, err := api.KeyObjects(ctx, s.DB, time.Now(), k)
			if err != nil {
				return err
			}
			return e.printJSON(shown[0])
		}
		for _, revoked := range append([]*access.Key{k}, others...) {
			fmt.Fprintf(e.out, "Revoked %s (%s).\n", revoked.ID, revoked.Hint())
		}
		return nil
	})
}
