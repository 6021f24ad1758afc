package app

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"turnpike/internal/files"
)

const (
	filesFolder = "files"
	// filesKey names what signs URLs. The ring makes a key of it that has
	// nothing to do with any bearer value: those begin with tp_.
	filesKey = "turnpike/files/v1"
)

func (a *instance) openFiles(ctx context.Context, now func() time.Time) (err error) {
	if a.cfg.DatabaseURL != "" && a.cfg.Files.URL == "" {
		slog.Info("files are kept in this node's data folder, where other nodes cannot read them; set files.url if there are any")
	}
	key := a.store.Ring.Hash(filesKey)
	a.files, err = files.Open(ctx, files.Options{DB: a.store.DB, URL: string(a.cfg.Files.URL), Folder: filepath.Join(a.cfg.Data, filesFolder), Key: key[:],
		PublicURL: a.URL(), Retention: a.cfg.Files.Retention, FromBucket: a.cfg.Files.FromBucket, Now: now})
	return err
}

// fileURL mints the link to a file in an event.
func (a *instance) fileURL(workspaceID, environment, sha256, name string, expires time.Time) string {
	return a.files.URL(files.Owner{WorkspaceID: workspaceID, Environment: environment}, files.File{SHA256: sha256}, name, expires)
}
