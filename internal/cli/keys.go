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
	"turnpike/internal/db"
	"turnpike/internal/visibility"
)

var operator = access.Caller{Actor: audit.Operator}

func newKeys(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Create, list, change, rotate and revoke API keys", RunE: unknownCommand}
	cmd.AddCommand(e.keysCreate(), e.keysList(), e.keysUpdate(), e.keysRotate(), e.keysRevoke())
	return cmd
}

func (e *env) keysCreate() *cobra.Command {
	var environment, name, budget, project string
	var scopes, ips []string
	var rate int64
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "create --env live|test",
		Short: "Create a key and print its value once",
		Example: `  turnpike keys create --env test
  turnpike keys create --env live --name "image worker" --scopes images:create --budget 5000`,
	}
	f := cmd.Flags()
	f.StringVar(&environment, "env", "", "environment: live or test (required)")
	workspace := workspaceFlag(cmd)
	f.StringVar(&name, "name", "command line", "name of the key")
	f.StringSliceVar(&scopes, "scopes", []string{"*"}, "scopes, comma-separated")
	f.StringVar(&budget, "budget", "", "monthly budget in credits")
	f.StringVar(&project, "project", "", "pin the key to this project")
	f.StringSliceVar(&ips, "allowed-ips", nil, "IP addresses or CIDR ranges that may use the key")
	f.Int64Var(&rate, "rate-limit", 0, "requests per minute (default: the server's)")
	f.DurationVar(&expires, "expires-in", 0, "lifetime, such as 720h (default: forever)")
	controls := addKeyControls(cmd)
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		if environment == "" {
			return wrongUsage(cmd, errors.New("missing environment: pass --env live or --env test"))
		}
		parsed, err := accounts.ParseEnvironment(environment)
		if err != nil {
			return err
		}
		k := &access.Key{Tenant: accounts.Tenant{Environment: parsed}, Name: name, Scopes: scopes}
		if k.MonthlyBudget, err = parseBudget(budget); err != nil {
			return err
		}
		if err := controls.load(ctx, e, s); err != nil {
			return err
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
			w, err := accounts.FindWorkspace(ctx, tx, *workspace)
			if err != nil {
				return err
			}
			k.WorkspaceID = w.ID
			if project != "" {
				if err := keys.PinToProject(ctx, tx, operator, k, project); err != nil {
					return err
				}
			}
			if err := controls.apply(ctx, tx, e, k); err != nil {
				return err
			}
			value, err = keys.Create(ctx, tx, operator, k)
			return err
		})
		if err != nil {
			return err
		}
		return e.printNewKey(k, value)
	})
}

// printNewKey prints a key and its value. Only the value goes to standard
// output, for scripts.
func (e *env) printNewKey(k *access.Key, value string) error {
	if e.asJSON {
		o := api.NewKeyObject(k, time.Now())
		o.Value = value
		return e.printJSON(o)
	}
	fmt.Fprintf(e.out, "%s\n", value)
	fmt.Fprintf(e.err, "Key %s (%s, scopes %s). The value above won't be shown again.\n", k.ID, k.Environment, strings.Join(k.Scopes, ", "))
	return nil
}

// maxKeys is more than any workspace has.
const maxKeys = 1_000_000

func (e *env) keysList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List keys"}
	workspace := workspaceFlag(cmd)
	environment := cmd.Flags().String("env", "", "only this environment: live or test")
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		w, err := accounts.FindWorkspace(ctx, s.DB, *workspace)
		if err != nil {
			return err
		}
		environments := []accounts.Environment{accounts.Live, accounts.Test}
		if *environment != "" {
			one, err := accounts.ParseEnvironment(*environment)
			if err != nil {
				return err
			}
			environments = []accounts.Environment{one}
		}
		objects := []*api.KeyObject{}
		for _, env := range environments {
			all := db.Page{Limit: maxKeys, Asc: true}
			keys, _, err := access.NewKeys(s.Ring, time.Now).List(ctx, s.DB, visibility.Filter{Tenant: w.In(env)}, all)
			if err != nil {
				return err
			}
			shown, err := api.KeyObjects(ctx, s.DB, time.Now(), keys...)
			if err != nil {
				return err
			}
			objects = append(objects, shown...)
		}
		return printObjects(e, objects, "ID\tKEY\tSTATUS\tNAME\tSCOPES\tLAST USED",
			"{{.id}}\t{{.prefix}}…{{.last_four}}\t{{status .status}}\t{{.name}}\t{{several .scopes}}\t{{ago .last_used_at}}")
	})
}

func (e *env) keysRotate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate KEY_ID",
		Short: "Replace the secret of a key and print it once",
		Long: `Replaces the secret of a key and prints the new value once. The old value works
until the grace period ends.`,
		Args: cobra.ExactArgs(1),
	}
	grace := cmd.Flags().Duration("grace", 0, "how long the old value still works, up to 168h (default: the workspace's setting)")
	force := cmd.Flags().Bool("force", false, "rotate although the grace period of an earlier rotation has not ended")
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, args []string) error {
		if *grace < 0 || *grace > accounts.MaxRotationGrace {
			return wrongUsage(cmd, errors.New("--grace must be from 0s to 168h"))
		}
		keys := access.NewKeys(s.Ring, time.Now)
		var k *access.Key
		var value string
		err := s.DB.Write(ctx, func(tx *db.Tx) (err error) {
			if k, err = keys.FindLocked(ctx, tx, args[0]); err != nil {
				return err
			}
			if k.Previous != nil && !*force {
				return errors.New("the key was rotated recently and its old value still works; wait until the grace period ends, or end it with --force")
			}
			r := access.Rotation{Grace: *grace, Force: *force}
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
		return e.printNewKey(k, value)
	})
}

func (e *env) keysRevoke() *cobra.Command {
	cmd := &cobra.Command{Use: "revoke KEY_ID", Short: "Revoke a key and its scoped tokens", Args: cobra.ExactArgs(1)}
	descendants := cmd.Flags().Bool("descendants", false, "also revoke every key that it created, directly or through other keys")
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, args []string) error {
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
