package spend

import (
	"context"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
)

// ChangeProject stores a project that somebody has changed, with the admin log.
// Leases that nodes took under its old budget are called back. Test calls cost
// nothing, and a test project may have a live one's id.
func ChangeProject(ctx context.Context, tx *db.Tx, by audit.Actor, p *accounts.Project, action string, now time.Time) error {
	if err := accounts.SaveProject(ctx, tx, p); err != nil {
		return err
	}
	if p.Environment == accounts.Live {
		Recall(tx, Account{Project, ProjectID(p.WorkspaceID, p.ID)}, PeriodOf(now))
	}
	return accounts.LogProject(ctx, tx, by, p, action, now)
}
