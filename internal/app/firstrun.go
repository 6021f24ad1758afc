package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// FirstRun is what the first start on an empty database made. TestKey and SetUp
// are shown once.
type FirstRun struct {
	TestKey string
	SetUp   *people.Link // by which the first owner comes in
}

// firstRunScopes are what trying Turnpike out takes. The key lies in a file or a
// terminal, so it manages neither keys nor credits and reads no log.
func firstRunScopes() []string {
	var out []string
	for _, s := range []access.Scope{access.ModelsRead, access.ChatCompletionsCreate, access.ResponsesCreate, access.EmbeddingsCreate,
		access.ImagesCreate, access.ImagesRead, access.VideosCreate, access.VideosRead, access.VoiceCreate, access.VoiceRead,
		access.AgentRunsCreate, access.AgentRunsRead, access.AgentRunsApprove, access.WebhooksRead, access.WebhooksWrite,
		access.EventsRead, access.EventsReplay, access.ScopedTokensCreate} {
		out = append(out, string(s))
	}
	return out
}

// SaveFirstRun writes how to begin to a file that only the owner can read, and
// returns its path. It is deleted when the first owner has come in.
func (a site) SaveFirstRun(text string) (path string, err error) {
	path = filepath.Join(a.cfg.Data, firstRunFile)
	if err := makeDataFolder(a.cfg.Data); err != nil {
		return "", fmt.Errorf("write %s: %w", firstRunFile, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", firstRunFile, err)
	}
	return path, nil
}

// deleteFirstRun deletes the file. It is called whenever an owner may have come
// in, here or on another node.
func (a site) deleteFirstRun() {
	err := os.Remove(filepath.Join(a.cfg.Data, firstRunFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		slog.Warn("failed to delete "+firstRunFile+", which holds a key; delete it yourself", "error", err)
	}
}

// deleteClaimedFirstRun deletes the file if an owner can sign in: the signal may
// have been lost, and an older version left the file.
func (a *instance) deleteClaimedFirstRun(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(a.cfg.Data, firstRunFile)); err != nil {
		return nil //nolint:nilerr // nearly always there is none
	}
	claimed, err := a.people.Claimed(ctx, a.store.DB)
	if err == nil && claimed {
		a.deleteFirstRun()
	}
	return err
}

// firstRun makes a workspace, a test key and the set-up link when there is no workspace yet.
// Nodes that start at once agree through the workspace's unique name.
func firstRun(ctx context.Context, s *Store, folk *people.People, now func() time.Time) (*FirstRun, error) {
	var made *FirstRun
	err := s.DB.Write(ctx, func(tx *db.Tx) error {
		made = nil
		all, err := accounts.ListWorkspaces(ctx, tx)
		if err != nil || len(all) > 0 {
			return err
		}
		w := &accounts.Workspace{Name: accounts.DefaultWorkspace, RotationGrace: accounts.DefaultRotationGrace}
		if err := accounts.CreateWorkspace(ctx, tx, w, now()); err != nil {
			return err
		}
		value, err := access.NewKeys(s.Ring, now).Create(ctx, tx, access.Caller{Actor: audit.Operator},
			&access.Key{WorkspaceID: w.ID, Environment: accounts.Test, Name: "first run", Scopes: firstRunScopes()})
		if err != nil {
			return err
		}
		link, err := folk.NewSetUpLink(ctx, tx, w.ID)
		made = &FirstRun{TestKey: value, SetUp: link}
		return err
	})
	if fault.Is(err, fault.Conflict) {
		return nil, nil // another node was faster
	}
	return made, err
}
