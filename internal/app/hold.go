package app

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"turnpike/internal/backup"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// resumePoll is how often a held server checks whether it was resumed.
const resumePoll = 500 * time.Millisecond

// errHeld rejects API requests of a restored server.
var errHeld = &fault.Error{Code: fault.Overloaded, RetryAfter: 30 * time.Second,
	Message: "This server was restored from a backup and waits until its operator resumes it. Retry the request later."}

// hold keeps a restored server from working until an operator resumes it. A nil
// hold keeps nothing.
type hold struct {
	backup.Hold
	db      *db.DB
	resumed chan struct{}
}

func readHold(ctx context.Context, d *db.DB) (*hold, error) {
	state, err := backup.ReadHold(ctx, d)
	if err != nil || state == nil {
		return nil, err
	}
	slog.Warn("the server is held after a restore: API requests fail, and deliveries, jobs and runs wait; revoke what was revoked since the backup, then run: turnpike restore --resume",
		"backup", state.Backup, "backup_at", state.BackupAt, "restored_at", state.RestoredAt, "lost", state.Gap())
	return &hold{*state, d, make(chan struct{})}, nil
}

// watch ends the hold when the operator resumes the server.
func (h *hold) watch(ctx context.Context) {
	if h == nil {
		return
	}
	tick := time.NewTicker(resumePoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if state, err := backup.ReadHold(ctx, h.db); err == nil && state == nil {
			slog.Info("the restored server was resumed")
			close(h.resumed)
			return
		}
	}
}

// delay returns work that starts when the server is resumed.
func (h *hold) delay(run func(context.Context)) func(context.Context) {
	if h == nil {
		return run
	}
	return func(ctx context.Context) {
		select {
		case <-h.resumed:
			run(ctx)
		case <-ctx.Done():
		}
	}
}

// apiPaths are where requests with keys go, including the clients of Azure, Cohere and MCP.
var apiPaths = []string{"/v1/", "/v2/", "/openai/", "/mcp"}

// rejects reports whether a held server rejects requests to a path. The dashboard
// works, so that operators can revoke keys there.
func (h *hold) rejects(path string) bool {
	isAPI := slices.ContainsFunc(apiPaths, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
	if h == nil || path != "/readyz" && !isAPI {
		return false
	}
	select {
	case <-h.resumed:
		return false
	default:
		return true
	}
}
