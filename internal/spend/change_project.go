package spend

import (
	"context"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
)

// ChangeProject stores a changed project with its entry in the admin log, and
// reclaims the leases under its old budget. Test projects have no budget, and may
// have the ID of a live one.
func ChangeProject(ctx context.Context, tx *db.Tx, by audit.Actor, p *accounts.Project, action string, now time.Time) error {
	if err := accounts.SaveProject(ctx, tx, p); err != nil {
		return err
	}
	if p.Environment == accounts.Live {
		ReclaimLeases(tx, Account{Project, ProjectID(p.WorkspaceID, p.ID)}, PeriodOf(now))
	}
	return p.LogAction(ctx, tx, by, action, now)
}
