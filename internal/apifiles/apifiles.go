// Package apifiles stores the files of the Files API: uploads, and the results of batches.
// Their content is encrypted in parts (content.go), so that a line of a large file can be read
// without the rest. A file is deleted when it expires.
package apifiles

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

// Purpose is what a file is for.
type Purpose string

// The purposes. Clients upload files for all but the last.
const (
	Batch       Purpose = "batch"
	UserData    Purpose = "user_data"
	BatchOutput Purpose = "batch_output"
)

// Purposes are all purposes.
var Purposes = []Purpose{Batch, UserData, BatchOutput}

// File is a file as it is stored.
type File struct {
	ID string
	visibility.Tenant
	Project   string
	Purpose   Purpose
	Filename  string
	Bytes     int64  // of its content
	SHA256    string // of its encrypted content
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Store stores files.
type Store struct {
	// MaxBytes limits the stored content of a workspace, and MaxFile that of one file. Set them
	// before the store is used.
	MaxBytes atomic.Int64
	MaxFile  atomic.Int64

	db      *db.DB
	content *files.Store
	ring    *keyring.Ring
	now     func() time.Time
}

// New creates a store that keeps content in another.
func New(d *db.DB, content *files.Store, ring *keyring.Ring, now func() time.Time) *Store {
	return &Store{db: d, content: content, ring: ring, now: now}
}

// Retention returns how long a file is kept at most.
func (s *Store) Retention() time.Duration { return s.content.Retention() }

const columns = "id, workspace_id, environment, project, purpose, filename, bytes, sha256, created_at, expires_at"

var scan = db.Scanner(func(f *File) []any {
	return []any{&f.ID, &f.WorkspaceID, &f.Environment, &f.Project, &f.Purpose, &f.Filename, &f.Bytes, &f.SHA256, &f.CreatedAt, &f.ExpiresAt}
})

// Insert stores the row of a file whose content is stored.
func (s *Store) Insert(ctx context.Context, tx *db.Tx, f *File) error {
	_, err := tx.Exec(ctx, db.Insert("api_files", columns), f.ID, f.WorkspaceID, f.Environment, db.OrNull(f.Project), f.Purpose, f.Filename, f.Bytes, f.SHA256,
		f.CreatedAt.UnixMicro(), f.ExpiresAt.UnixMicro())
	return db.Wrap(err, "store a file")
}

// InsertUpload is Insert that fails if the workspace has no room. The insert locks the count of stored
// bytes, so no concurrent upload exceeds the limit.
func (s *Store) InsertUpload(ctx context.Context, tx *db.Tx, f *File) error {
	if err := s.Insert(ctx, tx, f); err != nil {
		return err
	}
	return s.checkRoom(ctx, tx, f, f.Bytes)
}

// CheckRoom fails if the workspace has no room for a file.
func (s *Store) CheckRoom(ctx context.Context, f *File) error { return s.checkRoom(ctx, s.db, f, 0) }

// checkRoom is CheckRoom for a file of which the database already counts some bytes.
func (s *Store) checkRoom(ctx context.Context, q db.Querier, f *File, counted int64) error {
	stored, err := accounts.StoredBytes(ctx, q, f.WorkspaceID)
	if err != nil {
		return err
	}
	stored -= counted
	if limit := s.MaxBytes.Load(); stored+f.Bytes > limit {
		return fault.New(fault.LimitReached, "The workspace stores %d of %d bytes, and this file has %d. Delete files that you no longer need, or wait until they expire.", stored, limit, f.Bytes)
	}
	return nil
}

func (s *Store) search(f visibility.Filter) db.Search {
	search := db.Search{Table: "api_files", Columns: columns, Where: f.Rows()}
	search.Where.Add("expires_at >", s.now().UnixMicro())
	return search
}

// Get returns a file.
func (s *Store) Get(ctx context.Context, q db.Querier, f visibility.Filter, id string) (*File, error) {
	found, err := db.FindOne(ctx, q, s.search(f), id, scan)
	return found, db.OrNoSuch(err, "file", id)
}

// List returns a page of the files with a purpose, or of all files.
func (s *Store) List(ctx context.Context, q db.Querier, f visibility.Filter, purpose Purpose, page db.Page) (*db.Found[*File], error) {
	search := s.search(f)
	if purpose != "" {
		search.Filter.Add("purpose =", string(purpose))
	}
	return db.Find(ctx, q, search, page, db.Record[*File]{Scan: scan, ID: func(f *File) string { return f.ID }})
}

// Delete deletes a file. Batches that use it keep its content until they end.
func (s *Store) Delete(ctx context.Context, tx *db.Tx, f visibility.Filter, id string) error {
	search := s.search(f)
	search.Lock = tx.Lock("api_files")
	found, err := db.FindOne(ctx, tx, search, id, scan)
	if err != nil {
		return db.OrNoSuch(err, "file", id)
	}
	return s.remove(ctx, tx, []*File{found})
}

// remove deletes files. One statement deletes their rows, because each statement locks the counts of stored
// bytes in one order.
func (s *Store) remove(ctx context.Context, tx *db.Tx, list []*File) error {
	deleted := make([]string, len(list))
	for i, f := range list {
		deleted[i] = f.ID
		if err := s.content.Drop(ctx, tx, f.Tenant, f.ID); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		return nil
	}
	places, args := db.Places(nil, deleted)
	_, err := tx.Exec(ctx, "DELETE FROM api_files WHERE id IN "+places, args...)
	return db.Wrap(err, "delete files")
}

// Purge deletes expired files.
func (s *Store) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	n := min(limit, purgeBatch)
	list, err := db.List(ctx, tx, scan, "SELECT "+columns+" FROM api_files WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2"+tx.Claim("api_files"), s.now().UnixMicro(), n)
	if err != nil {
		return 0, fmt.Errorf("read expired files: %w", err)
	}
	if err := s.remove(ctx, tx, list); err != nil {
		return 0, err
	}
	if int64(len(list)) == n {
		return limit, nil // there may be more
	}
	return int64(len(list)), nil
}

// purgeBatch is how many files a transaction deletes, with two statements each.
const purgeBatch = 64

// NewID returns an ID for a new file.
func NewID() string { return ids.New(ids.File) }
