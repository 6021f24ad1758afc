package spend

import (
	"context"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
)

// ProjectChange describes a change to a project for the admin log.
type ProjectChange struct {
	By     audit.Actor
	Action string
	At     time.Time
}

// ChangeProject stores a changed project with its admin log entry, and reclaims
// the leases under its old budget. Test projects have no budget, and can share
// their ID with a live one.
func ChangeProject(ctx context.Context, tx *db.Tx, p *accounts.Project, c ProjectChange) error {
	if err := accounts.SaveProject(ctx, tx, p); err != nil {
		return err
	}
	if p.Environment == accounts.Live {
		ReclaimLeases(tx, Account{Project, ProjectID(p.WorkspaceID, p.ID)}, PeriodOf(c.At))
	}
	return p.LogAction(ctx, tx, c.By, c.Action, c.At)
}
