package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/app"
	"turnpike/internal/config"
)

func newMove(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move",
		Short: "Move all data from SQLite to PostgreSQL",
		Long: `Moves all data from the embedded database in the data directory to an empty
PostgreSQL database, in one transaction. Stop the server first. Run this command
with the settings that the server will have: the URL of the database, and as
TURNPIKE_MASTER_KEY the content of master.key in the data directory.

The embedded database keeps its data, updated to the schema of this version, but
can no longer be used. --undo makes it usable again, as it was when it was moved.

Files are not moved. The server still finds those in the data directory.`,
		Example: `  export TURNPIKE_DATABASE_URL=postgres://turnpike@db/turnpike
  export TURNPIKE_MASTER_KEY_FILE=/var/lib/turnpike/master.key
  turnpike move --data /var/lib/turnpike
  turnpike serve --data /var/lib/turnpike`,
	}
	undo := cmd.Flags().Bool("undo", false, "make the embedded database usable again")
	return e.withConfig(cmd, func(cmd *cobra.Command, _ []string) error {
		embedded := e.loaded.Config
		embedded.DatabaseURL = ""
		if err := requireDatabase(embedded); err != nil {
			return err
		}
		if *undo {
			return e.moveBack(cmd.Context(), embedded)
		}
		if e.loaded.DatabaseURL == "" {
			return wrongUsage(cmd, errors.New("missing database: set TURNPIKE_DATABASE_URL, or --database-url postgres://…"))
		}
		return e.move(cmd.Context())
	})
}

func (e *env) move(ctx context.Context) error {
	start := time.Now()
	var bar *progress
	moved, err := app.Move(ctx, e.loaded.Config, func(done, total int64) {
		if bar == nil {
			bar = newProgress(e.err, "Moving rows", total)
		}
		bar.Set(done)
	})
	if bar != nil {
		bar.Done()
	}
	if err != nil {
		return err
	}
	took := time.Since(start)
	if e.asJSON {
		return e.printJSON(map[string]any{"to": moved.To, "tables": moved.Tables, "rows": moved.Rows, "seconds": took.Seconds()})
	}
	fmt.Fprintf(e.out, `Moved %s rows of %d tables to PostgreSQL at %s in %s.

Start the server with the same settings. The embedded database in %s is
unchanged. When you no longer need it, delete turnpike.db, turnpike.db-wal and
turnpike.db-shm there.
`, grouped(moved.Rows), moved.Tables, moved.To, formatDuration(took), e.loaded.Data)
	if e.loaded.Files.URL == "" {
		fmt.Fprintf(e.out, `
Files stay in %s. Nodes on other machines can't read
them: before you add a second node, copy them to a bucket and set files.url.
`, filepath.Join(e.loaded.Data, "files"))
	}
	return nil
}

func (e *env) moveBack(ctx context.Context, embedded config.Config) error {
	from, moved, err := app.MoveBack(ctx, embedded)
	if err != nil {
		return err
	}
	result := map[string]any{"data": embedded.Data, "moved": moved, "to": from}
	if !moved {
		return e.report(result, "The database in %s was not moved.\n", embedded.Data)
	}
	return e.report(result, "The database in %s can be used again. It has no changes that were made at %s since.\n", embedded.Data, from)
}
