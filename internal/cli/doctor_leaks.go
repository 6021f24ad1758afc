package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/leaks/scan"
)

// checkLeaks checks the scans for leaked secrets, and recommends to revoke keys in request bodies.
func checkLeaks(ctx context.Context, l config.Loaded, d *db.DB) []finding {
	lenient, err := accounts.CountWithoutRevocation(ctx, d)
	state := "keys in request bodies are revoked"
	if lenient > 0 {
		state = fmt.Sprintf("keys in request bodies keep working in %s; run turnpike workspaces update WORKSPACE --leak-policy revoke",
			counted(lenient, "workspace", "workspaces"))
	}
	out := []finding{newFinding("leaked keys", err, state)}
	targets := app.LeakScans(l.Config)
	if err := scan.CheckGit(targets); err != nil {
		return append(out, newFinding("leak scans", err, ""))
	}
	for _, t := range targets {
		out = append(out, newFinding("leak scans", scanFailure(ctx, d, t), t.Name()+" is scanned"))
	}
	return out
}

// scanFailure returns why a target isn't scanned.
func scanFailure(ctx context.Context, d *db.DB, t scan.Target) error {
	state, err := scan.ReadState(ctx, d, t)
	_, tokenErr := t.Token()
	if err := cmp.Or(err, tokenErr); err != nil {
		return err
	}
	if state.Failure != "" {
		return fmt.Errorf("the scan of %s failed at %s: %s", t.Name(), state.FailedAt.Format(time.RFC3339), state.Failure)
	}
	return nil
}
