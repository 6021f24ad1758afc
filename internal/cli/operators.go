package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/access"
	"turnpike/internal/app"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/operators"
	"turnpike/internal/people"
)

func newOperators(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "operators", Short: "Choose who manages the server in the dashboard", RunE: unknownCommand,
		Long: `Operators manage the providers, routes and prices of the whole server in the
dashboard. Only this command makes someone an operator. No role in a workspace does.`}
	cmd.AddCommand(e.operatorsGrant(), e.operatorsRevoke(), e.operatorsList())
	return cmd
}

func (e *env) operatorsGrant() *cobra.Command {
	cmd := &cobra.Command{Use: "grant EMAIL", Short: "Make a user an operator", Args: cobra.ExactArgs(1)}
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, args []string) error {
		var person *people.Person
		err := s.DB.Write(ctx, func(tx *db.Tx) (err error) {
			if person, err = people.New(s.DB, s.Ring, people.Options{}).Find(ctx, tx, args[0]); err != nil {
				return err
			}
			return operators.Grant(ctx, tx, person.ID, time.Now())
		})
		if err != nil {
			return err
		}
		return e.report(map[string]any{"object": "operator", "user": person.ID, "email": person.Email}, "%s is an operator.\n", person.Email)
	})
}

func (e *env) operatorsRevoke() *cobra.Command {
	cmd := &cobra.Command{Use: "revoke EMAIL", Short: "Take a user's rights as operator away", Args: cobra.ExactArgs(1)}
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, args []string) error {
		var person *people.Person
		err := s.DB.Write(ctx, func(tx *db.Tx) (err error) {
			if person, err = people.New(s.DB, s.Ring, people.Options{}).Find(ctx, tx, args[0]); err != nil {
				return err
			}
			was, err := operators.Revoke(ctx, tx, person.ID, time.Now())
			if err == nil && !was {
				err = fault.Param(fault.NotFound, "email", "%s is not an operator.", person.Email)
			}
			return err
		})
		if err != nil {
			return err
		}
		return e.report(map[string]any{"object": "operator", "user": person.ID, "email": person.Email, "deleted": true}, "%s is no longer an operator.\n", person.Email)
	})
}

func (e *env) operatorsList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List operators"}
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		list, err := operators.List(ctx, s.DB)
		if err != nil {
			return err
		}
		objects := []map[string]any{}
		for _, o := range list {
			objects = append(objects, map[string]any{"object": "operator", "user": o.UserID, "email": o.Email, "granted_at": o.GrantedAt.Unix()})
		}
		return printObjects(e, objects, "USER\tEMAIL\tGRANTED", "{{.user}}\t{{.email}}\t{{ago .granted_at}}")
	})
}

func newAdminKeys(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "admin-keys", Short: "Create, list and revoke keys of the admin API", RunE: unknownCommand,
		Long: `Keys of the admin API (tp_admin_…) manage the server's providers, routes and prices
under /admin. They belong to no workspace, and only this command creates them.`}
	cmd.AddCommand(e.adminKeysCreate(), e.adminKeysList(), e.adminKeysRevoke())
	return cmd
}

func (e *env) adminKeysCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create", Short: "Create an admin key and print its value once",
		Example: `  turnpike admin-keys create --name terraform --scopes providers:write,prices:read --allowed-ips 192.0.2.0/24
  turnpike admin-keys create --name emergency --expires-in 0`}
	name := cmd.Flags().String("name", "command line", "name of the key")
	expires := cmd.Flags().Duration("expires-in", adminKeyLifetime, "lifetime, such as 720h; 0 for no expiry")
	scopes := cmd.Flags().StringSlice("scopes", []string{string(operators.AllScopes)}, "what the key may do: workspaces, members, providers, prices or *, each with :read or :write, or * for everything")
	ips := cmd.Flags().StringSlice("allowed-ips", nil, "IP addresses or CIDR ranges that may use the key (default: all)")
	rate := cmd.Flags().Int64("rate-limit", operators.DefaultRateLimit, "requests per minute")
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		c := &operators.Credential{Name: *name, RateLimit: *rate}
		for _, s := range *scopes {
			c.Scopes = append(c.Scopes, operators.Scope(strings.TrimSpace(s)))
		}
		var err error
		if c.AllowedIPs, err = access.ParseAllowedIPs(*ips); err != nil {
			return wrongUsage(cmd, err)
		}
		if *rate < 1 || len(c.Scopes) == 0 {
			return wrongUsage(cmd, errors.New("--rate-limit must be positive, and --scopes not empty"))
		}
		if *expires < 0 {
			return wrongUsage(cmd, errors.New("--expires-in must not be negative"))
		}
		if *expires > 0 {
			t := time.Now().Add(*expires)
			c.ExpiresAt = &t
		}
		var value string
		err = s.DB.Write(ctx, func(tx *db.Tx) (err error) {
			value, err = adminKeys(s).Create(ctx, tx, c)
			return err
		})
		if err != nil {
			return err
		}
		if e.asJSON {
			o := adminKeyObject(c)
			o["value"] = value
			return e.printJSON(o)
		}
		fmt.Fprintf(e.out, "%s\n", value)
		fmt.Fprintf(e.err, "Admin key %s. The value above won't be shown again.\n", c.ID)
		return nil
	})
}

// adminKeyLifetime is the default lifetime of an admin key.
const adminKeyLifetime = 365 * 24 * time.Hour

func adminKeys(s *app.Store) operators.Credentials {
	return operators.Credentials{Ring: s.Ring, Now: time.Now}
}

func adminKeyObject(c *operators.Credential) map[string]any {
	o := map[string]any{"object": "admin_key", "id": c.ID, "name": c.Name, "last_four": c.LastFour, "created_at": c.CreatedAt.Unix(), "expires_at": nil, "last_used_at": nil,
		"scopes": c.Scopes, "allowed_ips": c.AllowedIPs, "rate_limit": c.RateLimit}
	for name, t := range map[string]*time.Time{"expires_at": c.ExpiresAt, "last_used_at": c.LastUsedAt} {
		if t != nil {
			o[name] = t.Unix()
		}
	}
	return o
}

func (e *env) adminKeysList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List admin keys"}
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		list, err := adminKeys(s).List(ctx, s.DB)
		if err != nil {
			return err
		}
		objects := []map[string]any{}
		for _, c := range list {
			objects = append(objects, adminKeyObject(c))
		}
		return printObjects(e, objects, "ID\tKEY\tNAME\tSCOPES\tLAST USED", "{{.id}}\ttp_admin_…{{.last_four}}\t{{.name}}\t{{range $i, $s := .scopes}}{{if $i}},{{end}}{{$s}}{{end}}\t{{ago .last_used_at}}")
	})
}

func (e *env) adminKeysRevoke() *cobra.Command {
	cmd := &cobra.Command{Use: "revoke KEY_ID", Short: "Revoke an admin key", Args: cobra.ExactArgs(1)}
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, args []string) error {
		if !ids.Valid(ids.AdminCredential, args[0]) {
			return wrongUsage(cmd, fmt.Errorf("%q is not the ID of an admin key, which starts with %s; to see IDs, run: turnpike admin-keys list", args[0], ids.AdminCredential))
		}
		if err := s.DB.Write(ctx, func(tx *db.Tx) error { return adminKeys(s).Revoke(ctx, tx, args[0]) }); err != nil {
			return err
		}
		return e.report(map[string]any{"object": "admin_key", "id": args[0], "deleted": true}, "Revoked %s.\n", args[0])
	})
}
