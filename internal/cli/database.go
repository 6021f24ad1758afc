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

With --check, it only prints what an update would do: the migrations, and whether
nodes of the version before can keep running and restart.`,
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
		return e.printMigrations(cmd.Context(), s.DB, s.Applied)
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
		if err := db.CheckProgram(ctx, d); err != nil {
			return err
		}
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
	pending := db.Migrations()[min(have, want):]
	effect := describeUpgrade(have, pending)
	if effect.OldestProgram > 0 && db.CanRestart(have) {
		if effect.Outdated, err = nodes.Outdated(ctx, d, effect.OldestProgram, d.Now()); err != nil {
			return err
		}
	}
	return e.report(map[string]any{"engine": d.Engine(), "version": have, "target": want, "pending": migrationNames(pending), "nodes": running, "old_nodes": effect},
		"The %s schema in %s is at version %d, and this program has version %d. Running nodes: %d.\n%s", d.Engine(), e.databaseLocation(), have, want, running,
		describePending(have, want, pending, effect))
}

// upgradeEffect is what an upgrade means for nodes of the version before it.
type upgradeEffect struct {
	KeepRunning bool `json:"keep_running"`
	CanRestart  bool `json:"can_restart"`
	// OldestProgram is the lowest schema version of a program that works afterward,
	// or 0 if all do.
	OldestProgram int      `json:"oldest_program"`
	Outdated      []string `json:"outdated"` // running nodes that must be upgraded before
}

// describeUpgrade returns the effect of migrations on nodes at the schema version.
func describeUpgrade(have int, pending []db.Migration) upgradeEffect {
	effect := upgradeEffect{Outdated: []string{}}
	for _, m := range pending {
		effect.OldestProgram = max(effect.OldestProgram, m.OldestProgram)
	}
	effect.KeepRunning = have >= effect.OldestProgram
	effect.CanRestart = effect.KeepRunning && (len(pending) == 0 || db.CanRestart(have))
	return effect
}

func describePending(have, want int, pending []db.Migration, effect upgradeEffect) string {
	switch {
	case have > want:
		return "A newer program has migrated the database. This program works with it.\n"
	case len(pending) == 0:
		return "There is nothing to migrate.\n"
	}
	var names []string
	for i, name := range migrationNames(pending) {
		if pending[i].OldestProgram > 0 {
			name += " (contract)"
		}
		names = append(names, name)
	}
	text := "Would apply " + strings.Join(names, ", ") + ".\n"
	switch {
	case have == 0:
		return text
	case !effect.KeepRunning:
		text += fmt.Sprintf("This removes what programs with a schema version below %d use. Upgrade all nodes to a version with schema version %d or later first, or stop them.\n",
			effect.OldestProgram, effect.OldestProgram)
	case !effect.CanRestart:
		text += "Nodes of the version before keep running, but can't restart. Upgrade one node after the other, without a long pause.\n"
	default:
		text += "Nodes of the version before keep running and can restart. Upgrade one node after the other.\n"
	}
	if len(effect.Outdated) > 0 {
		text += "Nodes that are too old for this upgrade: " + strings.Join(effect.Outdated, ", ") + ".\n"
	}
	return text + "Migrations can't be undone. Back up the database first.\n"
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

func (e *env) printMigrations(ctx context.Context, d *db.DB, applied []db.Migration) error {
	names, text := migrationNames(applied), ""
	for _, name := range names {
		text += "Applied " + name + ".\n"
	}
	schema, _, err := d.SchemaVersion(ctx)
	if err != nil {
		return err
	}
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
