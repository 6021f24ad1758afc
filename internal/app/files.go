package app

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/files"
)

const (
	filesDirectory = "files"
	// filesKey derives the key that signs URLs. No API key has the same hash,
	// because API keys begin with tp_.
	filesKey = "turnpike/files/v1"
)

func (i *instance) openFiles(ctx context.Context) (err error) {
	if i.cfg.DatabaseURL != "" && i.cfg.Files.URL == "" {
		slog.Info("files are stored in this node's data directory; if you run several nodes, set files.url")
	}
	key := i.store.Ring.Hash(filesKey)
	i.files, err = files.Open(ctx, files.Options{DB: i.store.DB, URL: string(i.cfg.Files.URL), Folder: filepath.Join(i.cfg.Data, filesDirectory), Key: key[:],
		PublicURL: i.URL(), Retention: i.cfg.Files.Retention, FromBucket: i.cfg.Files.FromBucket, Now: i.now})
	return err
}

func (i *instance) fileURL(t accounts.Tenant, sha256, name string, expires time.Time) string {
	return i.files.URL(t, files.File{SHA256: sha256}, name, expires)
}
