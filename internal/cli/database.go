package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

// requireDatabase keeps a command from creating an empty database when it is
// run in the wrong directory.
func requireDatabase(cfg config.Config) error {
	if cfg.DatabaseURL != "" {
		return nil
	}
	_, err := os.Stat(filepath.Join(cfg.Data, "turnpike.db"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no database in %s; pass the server's data directory with --data or TURNPIKE_DATA, or create a database: turnpike serve", cfg.Data)
	}
	return err
}

func newConfig(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Print the settings and their sources, with secrets masked"}
	e.configFlags(cmd)
	e.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := e.loadConfig(cmd); err != nil {
			return err
		}
		write := e.loaded.Print
		if e.asJSON {
			write = e.loaded.PrintJSON
		}
		if err := write(e.out); err != nil {
			return err
		}
		return e.loaded.Validate() // after printing, which helps to find the mistake
	}
	return cmd
}

func newMigrate(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Update the database schema",
		Long: `Updates the database schema and prints the applied migrations. The server does the
same at startup. Use this command to do it before.

With --check, it only prints what an update would do.`,
	}
	check := cmd.Flags().Bool("check", false, "print the pending migrations and change nothing")
	return e.withConfig(cmd, func(cmd *cobra.Command, _ []string) error {
		if *check {
			return e.checkMigrations(cmd.Context())
		}
		s, err := app.OpenStore(cmd.Context(), e.loaded.Config)
		if err != nil {
			return err
		}
		defer s.Close()
		return e.printMigrations(s.DB, s.Applied)
	})
}

// checkMigrations prints what an update would do. It doesn't need the master key.
func (e *env) checkMigrations(ctx context.Context) error {
	if err := requireDatabase(e.loaded.Config); err != nil {
		return err
	}
	d, err := app.OpenDatabase(ctx, e.loaded.Config)
	if err != nil {
		return err
	}
	defer d.Close()
	have, want, err := d.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	if have > want {
		return app.CheckSchema(ctx, d)
	}
	running := int64(0)
	if have > 0 {
		if running, err = nodes.Count(ctx, d, d.Now()); err != nil {
			return err
		}
	}
	if d.Engine() == "sqlite" {
		running = min(running, 1) // others are left from a crash or a backup
	}
	pending := migrationNames(db.Migrations()[have:])
	text := "There is nothing to migrate.\n"
	if len(pending) > 0 {
		text = "Would apply " + strings.Join(pending, ", ") + ".\nMigrations can't be undone. Back up the database first.\n"
	}
	return e.report(map[string]any{"engine": d.Engine(), "version": have, "target": want, "pending": pending, "nodes": running},
		"The %s schema in %s is at version %d, and this program needs version %d. Running nodes: %d.\n%s", d.Engine(), e.databaseLocation(), have, want, running, text)
}

func migrationNames(list []db.Migration) []string {
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = fmt.Sprintf("%04d_%s", m.Version, m.Name)
	}
	return names
}

// databaseLocation returns where the database is, without credentials.
func (e *env) databaseLocation() string {
	if e.loaded.DatabaseURL != "" {
		return db.RedactedAddress(string(e.loaded.DatabaseURL))
	}
	return e.loaded.Data
}

func (e *env) printMigrations(d *db.DB, applied []db.Migration) error {
	names, text := migrationNames(applied), ""
	for _, name := range names {
		text += "Applied " + name + ".\n"
	}
	schema := len(db.Migrations())
	return e.report(map[string]any{"engine": d.Engine(), "applied": names, "version": schema},
		"%sThe %s schema in %s is at version %d.\n", text, d.Engine(), e.databaseLocation(), schema)
}

func newVersion(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs}
	e.jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		platform := runtime.GOOS + "/" + runtime.GOARCH
		return e.report(map[string]string{"version": version, "go": runtime.Version(), "platform": platform},
			"turnpike %s (%s, %s)\n", version, runtime.Version(), platform)
	}
	return cmd
}
