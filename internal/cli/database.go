package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db"
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
same at startup. Use this command to do it before.`,
	}
	return e.withStore(cmd, app.OpenStore, func(_ context.Context, s *app.Store, _ []string) error { return e.printMigrations(s.DB, s.Applied) })
}

func (e *env) printMigrations(d *db.DB, applied []db.Migration) error {
	names, text := make([]string, len(applied)), ""
	for i, m := range applied {
		names[i] = fmt.Sprintf("%04d_%s", m.Version, m.Name)
		text += "Applied " + names[i] + ".\n"
	}
	where := e.loaded.Data
	if e.loaded.DatabaseURL != "" {
		where = db.RedactedAddress(string(e.loaded.DatabaseURL))
	}
	schema := len(db.Migrations())
	return e.report(map[string]any{"engine": d.Engine(), "applied": names, "version": schema},
		"%sThe %s schema in %s is at version %d.\n", text, d.Engine(), where, schema)
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
