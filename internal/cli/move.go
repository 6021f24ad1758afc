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
	var undo bool
	cmd := &cobra.Command{
		Use:   "move",
		Short: "Move everything from the embedded database to PostgreSQL",
		Long: `Moves everything from the embedded database in the data folder to an empty
PostgreSQL database, in one transaction. Stop the server first, and run this
with the settings that it will have from then on: the database's address, and as
TURNPIKE_MASTER_KEY what is in master.key of the data folder.

The embedded database stays as it was, brought up to this version's schema, but
nothing works on it any more. --undo lets it be used again, as it was when it was
moved.

Files are not moved: those in the data folder are found there as before.`,
		Example: `  export TURNPIKE_DATABASE_URL=postgres://turnpike@db/turnpike
  export TURNPIKE_MASTER_KEY_FILE=/var/lib/turnpike/master.key
  turnpike move --data /var/lib/turnpike
  turnpike serve --data /var/lib/turnpike`,
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let the embedded database be used again")
	e.jsonFlag(cmd)
	e.configured(cmd)
	hideServing(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := e.load(cmd); err != nil {
			return err
		}
		embedded := e.loaded.Config
		embedded.DatabaseURL = ""
		if err := needDatabase(embedded); err != nil {
			return err
		}
		if undo {
			return e.moveBack(cmd.Context(), embedded)
		}
		if e.loaded.DatabaseURL == "" {
			return usageError{cmd.CommandPath(), errors.New("say where to: set TURNPIKE_DATABASE_URL, or --database-url postgres://…")}
		}
		return e.move(cmd.Context())
	}
	return cmd
}

func (e *env) move(ctx context.Context) error {
	begun := time.Now()
	var bar *progress
	moved, err := app.Move(ctx, e.loaded.Config, func(done, total int64) {
		if bar == nil {
			bar = newProgress(e.err, "moving rows", total)
		}
		bar.Set(done)
	})
	if bar != nil {
		bar.Done()
	}
	if err != nil {
		return err
	}
	took := time.Since(begun)
	if e.asJSON {
		return e.printJSON(map[string]any{"to": moved.To, "tables": moved.Tables, "rows": moved.Rows, "seconds": took.Seconds()})
	}
	fmt.Fprintf(e.out, `Moved %s rows of %d tables to PostgreSQL at %s in %s.

Start the server with the settings that this ran with. The embedded database in
%s is as it was; delete turnpike.db, turnpike.db-wal and turnpike.db-shm there
when you are sure that you do not want it back.
`, grouped(moved.Rows), moved.Tables, moved.To, span(took), e.loaded.Data)
	if e.loaded.Files.URL == "" {
		fmt.Fprintf(e.out, `
Files stay in %s. Nodes on other machines cannot read
them: before there is a second one, copy them into a bucket and set files.url.
`, filepath.Join(e.loaded.Data, "files"))
	}
	return nil
}

func (e *env) moveBack(ctx context.Context, embedded config.Config) error {
	from, moved, err := app.MoveBack(ctx, embedded)
	if err != nil {
		return err
	}
	if e.asJSON {
		return e.printJSON(map[string]any{"data": embedded.Data, "moved": moved, "to": from})
	}
	if !moved {
		fmt.Fprintf(e.out, "The database in %s had not been moved.\n", embedded.Data)
		return nil
	}
	fmt.Fprintf(e.out, "The database in %s can be used again. What has happened at %s since is not in it.\n", embedded.Data, from)
	return nil
}
