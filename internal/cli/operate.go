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

// needDatabase refuses to make a database where none is: in another folder than
// the server's a command would answer for an empty one, and leave it behind.
func needDatabase(cfg config.Config) error {
	if cfg.DatabaseURL != "" {
		return nil
	}
	_, err := os.Stat(filepath.Join(cfg.Data, "turnpike.db"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no database in %s; name the server's folder with --data or TURNPIKE_DATA, or make one: turnpike serve", cfg.Data)
	}
	return err
}

func newConfig(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Print the settings in force, with secrets masked, and where each came from"}
	e.configured(cmd)
	e.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := e.read(cmd); err != nil {
			return err
		}
		write := e.loaded.Print
		if e.asJSON {
			write = e.loaded.PrintJSON
		}
		if err := write(e.out); err != nil {
			return err
		}
		return e.loaded.Validate() // printed first: it helps to see what is wrong
	}
	return cmd
}

func newMigrate(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to date",
		Long: `Brings the database's schema up to date and says what it did. The server does the
same at its start; this is for those who want it to happen before.`,
	}
	return e.founder(cmd, func(_ context.Context, s *app.Store, _ []string) error { return e.printMigrations(s.DB, s.Applied) })
}

func (e *env) printMigrations(d *db.DB, applied []db.Migration) error {
	if e.asJSON {
		names := make([]string, len(applied))
		for i, m := range applied {
			names[i] = fmt.Sprintf("%04d_%s", m.Version, m.Name)
		}
		return e.printJSON(map[string]any{"engine": d.Engine(), "applied": names, "version": len(db.Migrations())})
	}
	for _, m := range applied {
		fmt.Fprintf(e.out, "applied %04d_%s\n", m.Version, m.Name)
	}
	where := e.loaded.Data
	if e.loaded.DatabaseURL != "" {
		where = db.Whereabouts(string(e.loaded.DatabaseURL))
	}
	fmt.Fprintf(e.out, "The %s schema is at version %d, in %s.\n", d.Engine(), len(db.Migrations()), where)
	return nil
}

func newVersion(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs}
	e.jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if e.asJSON {
			return e.printJSON(map[string]string{"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
		}
		fmt.Fprintf(e.out, "turnpike %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return nil
	}
	return cmd
}
