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
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
	"turnpike/internal/web"
)

// FirstRun holds the key and the link that the first start on an empty database
// created. Both are shown once.
type FirstRun struct {
	TestKey string
	SetUp   *people.Link // for the first owner's account
}

// firstRunScopes returns the scopes for trying Turnpike. The key is printed and
// stored in a file, so it can't manage keys or credits or read logs.
func firstRunScopes() []string {
	return web.Map([]access.Scope{access.ModelsRead, access.ChatCompletionsCreate, access.ResponsesCreate, access.MessagesCreate, access.EmbeddingsCreate, access.ModerationsCreate, access.RerankCreate,
		access.ImagesCreate, access.ImagesRead, access.VideosCreate, access.VideosRead, access.VoiceCreate, access.VoiceRead, access.TranscriptionsCreate, access.FilesCreate, access.FilesRead, access.BatchesCreate, access.BatchesRead,
		access.AgentRunsCreate, access.AgentRunsRead, access.AgentRunsApprove, access.WebhooksRead, access.WebhooksWrite,
		access.EventsRead, access.EventsReplay, access.ScopedTokensCreate}, func(s access.Scope) string { return string(s) })
}

// SaveFirstRun writes the first steps to a file that only its owner can read, and
// returns its path. It is deleted when the first owner has an account.
func (a *site) SaveFirstRun(text string) (path string, err error) {
	path = filepath.Join(a.cfg.Data, firstRunFile)
	if err = createDataDirectory(a.cfg.Data); err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("write %s: %w", firstRunFile, err)
	}
	return path, nil
}

func (a *site) deleteFirstRun() {
	err := os.Remove(filepath.Join(a.cfg.Data, firstRunFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		slog.Warn("failed to delete "+firstRunFile+", which holds a key; delete it yourself", "error", err)
	}
}

// deleteClaimedFirstRun deletes the file if an owner can sign in. The signal may
// have been lost.
func (i *instance) deleteClaimedFirstRun(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(i.cfg.Data, firstRunFile)); err != nil {
		return nil //nolint:nilerr // usually the file doesn't exist
	}
	claimed, err := i.people.IsSetUp(ctx, i.store.DB)
	if err == nil && claimed {
		i.deleteFirstRun()
	}
	return err
}

// firstRun creates a workspace, a test key and the setup link if there is no
// workspace yet. Its unique name makes nodes that start concurrently agree.
func firstRun(ctx context.Context, s *Store, folk *people.People, token config.Secret, now func() time.Time) (*FirstRun, error) {
	var created *FirstRun
	err := s.DB.Write(ctx, func(tx *db.Tx) error {
		created = nil
		all, err := accounts.ListWorkspaces(ctx, tx)
		if err != nil || len(all) > 0 {
			return err
		}
		w := &accounts.Workspace{Name: accounts.DefaultWorkspace, RotationGrace: accounts.DefaultRotationGrace}
		if err := accounts.CreateWorkspace(ctx, tx, w, now()); err != nil {
			return err
		}
		value, err := access.NewKeys(s.Ring, now).Create(ctx, tx, access.Caller{Actor: audit.Operator},
			&access.Key{Tenant: w.In(accounts.Test), Name: "first run", Scopes: firstRunScopes()})
		if err != nil {
			return err
		}
		link, err := folk.NewSetupLink(ctx, tx, w.ID, string(token))
		created = &FirstRun{TestKey: value, SetUp: link}
		return err
	})
	if fault.Is(err, fault.Conflict) {
		return nil, nil // another node was faster
	}
	return created, err
}

// applySetupToken makes the configured token open the setup link, unless there is
// an owner. The first workspace is the one that the first owner gets.
func applySetupToken(ctx context.Context, s *Store, folk *people.People, token config.Secret) error {
	err := s.DB.Write(ctx, func(tx *db.Tx) error {
		needed, err := folk.NeedsSetup(ctx, tx)
		if err != nil || !needed || folk.CheckSetupLink(ctx, tx, string(token)) == nil {
			return err
		}
		all, err := accounts.ListWorkspaces(ctx, tx)
		if err != nil || len(all) == 0 {
			return err
		}
		_, err = folk.NewSetupLink(ctx, tx, all[0].ID, string(token))
		return err
	})
	if fault.Is(err, fault.Conflict) {
		return nil // another node was faster
	}
	return err
}
