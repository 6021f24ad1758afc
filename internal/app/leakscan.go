package app

import (
	"context"
	"path/filepath"

	"turnpike/internal/config"
	"turnpike/internal/leaks/scan"
)

// scansDirectory has the copies of the scanned repositories.
const scansDirectory = "scans"

// LeakScans returns what the server scans for leaked secrets.
func LeakScans(c config.Config) []scan.Target {
	targets := make([]scan.Target, 0, len(c.Leaks.Scan))
	for _, s := range c.Leaks.Scan {
		targets = append(targets, scan.Target{Git: s.Git, Log: s.Log, Every: s.Every, Username: s.Username, Token: s.Token})
	}
	return targets
}

func (i *instance) runLeakScans(ctx context.Context) {
	s := &scan.Scheduler{DB: i.store.DB, Node: i.node.ID, Dir: filepath.Join(i.cfg.Data, scansDirectory), Now: i.now, Revoke: i.leaks.Revoke,
		Targets: func() []scan.Target { return LeakScans(i.reloading.config()) }}
	s.Run(ctx)
}
