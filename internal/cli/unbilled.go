package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/spend"
)

func (e *env) workspacesUnbilled() *cobra.Command {
	cmd := &cobra.Command{Use: "unbilled WORKSPACE", Short: "Show or reset the limit of unbilled credits", Args: cobra.ExactArgs(1),
		Long: "Show what a workspace has used this month beyond what it was charged, and its limit. If the limit is exceeded, " +
			"Turnpike refuses the workspace's live requests until you reset it or the month ends."}
	reset := cmd.Flags().Bool("reset", false, "count from zero again, and serve requests again")
	percent := cmd.Flags().Int64("limit-percent", 0, "limit in percent of the monthly credits, or without those of the credits charged this month")
	return e.withStore(cmd, openExisting, func(ctx context.Context, s *app.Store, args []string) error {
		c := spend.UnbilledChange{By: audit.Operator, Reset: *reset, At: time.Now()}
		if cmd.Flags().Changed("limit-percent") {
			c.Percent = percent
		}
		var state *spend.UnbilledState
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			w, err := accounts.FindWorkspace(ctx, tx, args[0])
			if err != nil {
				return err
			}
			state, err = spend.ChangeUnbilled(ctx, tx, w.ID, c)
			return err
		})
		if err != nil {
			return err
		}
		return printObjects(e, []*spend.UnbilledState{state}, "UNBILLED\tLIMIT\tLIMIT PERCENT\tSTOPPED", `{{.unbilled}}	{{.limit}}	{{.unbilled_limit_percent}}	{{if .stopped}}yes{{else}}no{{end}}`)
	})
}
