package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/db"
	"turnpike/internal/people"
)

func newSetupLink(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "setup-link",
		Short: "Print a link to create the owner account",
		Long: `Prints a link to create the first owner account in the dashboard. The link works
once, and earlier ones stop working. Treat it like a password. With setup_token,
the link has that token.

The server may run meanwhile. If there is already an owner, the command fails. Use
turnpike users then.`,
		Example: `  turnpike setup-link
  docker compose exec turnpike turnpike setup-link`,
	}
	workspace := workspaceFlag(cmd)
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, _ []string) error {
		if e.loaded.PublicURL == "" {
			return errors.New("listen has port 0, so the server's address is unknown; set public_url (TURNPIKE_PUBLIC_URL)")
		}
		var link *people.Link
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			w, err := accounts.FindWorkspace(ctx, tx, *workspace)
			if err != nil {
				return err
			}
			link, err = people.New(s.DB, s.Ring, people.Options{}).NewSetupLink(ctx, tx, w.ID, string(e.loaded.SetupToken))
			return err
		})
		if err != nil {
			return err
		}
		return e.report(map[string]any{"object": "setup_link", "link": e.linkURL(link)},
			"Open this link to create the owner account. It works once:\n\n  %s\n", e.linkURL(link))
	})
}
