package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// claim records that a holder is about to rely on a file.
type claim struct {
	owner   accounts.Tenant
	holder  string
	upload  string // a second holder while the upload is in progress
	file    File
	at      time.Time
	expires time.Time
}

var (
	// Claiming a file again extends its life for every holder.
	upsertFiles = db.NewBulk("files", `ON CONFLICT (workspace_id, environment, sha256) DO UPDATE SET
		bytes = excluded.bytes, content_type = excluded.content_type,
		expires_at = CASE WHEN excluded.expires_at > files.expires_at THEN excluded.expires_at ELSE files.expires_at END`,
		"workspace_id text", "environment text", "sha256 text", "bytes bigint", "content_type text", "created_at bigint", "expires_at bigint")
	insertUses = db.NewBulk("file_uses", "ON CONFLICT (holder, workspace_id, environment, sha256) DO NOTHING",
		"holder text", "workspace_id text", "environment text", "sha256 text")
)

func compareClaims(a, b claim) int {
	return cmp.Or(cmp.Compare(a.owner.WorkspaceID, b.owner.WorkspaceID), cmp.Compare(a.owner.Environment, b.owner.Environment),
		cmp.Compare(a.file.SHA256, b.file.SHA256), b.expires.Compare(a.expires))
}

// writeClaims is the group commit of claims. It writes the file's row before
// its uses, so that a transaction that locks the row sees all uses.
func writeClaims(ctx context.Context, tx *db.Tx, list []claim) error {
	slices.SortFunc(list, compareClaims) // the same lock order in every transaction
	var rows, uses [][]any
	for i, c := range list {
		for _, holder := range []string{c.holder, c.upload} {
			uses = append(uses, []any{holder, c.owner.WorkspaceID, string(c.owner.Environment), c.file.SHA256})
		}
		// A statement must not touch a row twice. The first claim expires last.
		if i > 0 && list[i-1].owner == c.owner && list[i-1].file.SHA256 == c.file.SHA256 {
			continue
		}
		rows = append(rows, []any{c.owner.WorkspaceID, string(c.owner.Environment), c.file.SHA256, c.file.Bytes, c.file.ContentType,
			c.at.UnixMicro(), c.expires.UnixMicro()})
	}
	if _, err := upsertFiles.Write(ctx, tx, rows); err != nil {
		return fmt.Errorf("store files: %w", err)
	}
	_, err := insertUses.Write(ctx, tx, uses)
	return db.Wrap(err, "store uses of files")
}

const (
	// uploads is the prefix of holders that are uploads. Their IDs contain the
	// start time by the machine's clock, since they belong to processes.
	uploads, afterUploads = "upload/", "upload0"
	// uploadLife is how long the bytes of an upload may still arrive, even if the
	// server was killed.
	uploadLife = 24 * time.Hour
	// endTimeout limits how long the database may take to end an upload and to
	// look up its claim.
	endTimeout = 4 * time.Second
)

// endUpload records that a claim's upload is over. Until then the row stays, so
// that a purge finds the bytes even if the job was deleted or the server
// killed.
func (s *Store) endUpload(ctx context.Context, c claim) error {
	if err := s.ends.Add(c.upload).WaitFor(endTimeout); err != nil {
		return fmt.Errorf("end an upload: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	var held int64
	err := s.db.QueryRow(ctx, "SELECT count(*) FROM file_uses WHERE holder = $1 AND workspace_id = $2 AND environment = $3 AND sha256 = $4",
		c.holder, c.owner.WorkspaceID, c.owner.Environment, c.file.SHA256).Scan(&held)
	if err != nil {
		return fmt.Errorf("look up a claim: %w", err)
	}
	if held == 0 {
		return ErrGone
	}
	return nil
}

// writeEnds is the group commit of ended uploads.
func writeEnds(ctx context.Context, tx *db.Tx, list []string) error {
	for _, upload := range list {
		if _, err := tx.Exec(ctx, "DELETE FROM file_uses WHERE holder = $1", upload); err != nil {
			return fmt.Errorf("end uploads: %w", err)
		}
	}
	return nil
}

// Use is the use of a stored file by another holder.
type Use struct {
	accounts.Tenant
	Holder string
	SHA256 string
	Until  time.Time // the file is kept no longer
}

// Hold adds a holder to a stored file, which is then kept until the holder drops it. It reports
// false if the file no longer exists.
func (s *Store) Hold(ctx context.Context, tx *db.Tx, u Use) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE files SET expires_at = CASE WHEN expires_at > $4 THEN expires_at ELSE $4 END
		WHERE workspace_id = $1 AND environment = $2 AND sha256 = $3 AND expires_at > 0`, u.WorkspaceID, u.Environment, u.SHA256, u.Until.UnixMicro())
	if err != nil || n == 0 {
		return false, db.Wrap(err, "hold a file")
	}
	_, err = insertUses.Write(ctx, tx, [][]any{{u.Holder, u.WorkspaceID, string(u.Environment), u.SHA256}})
	return true, db.Wrap(err, "hold a file")
}

// Drop removes a holder's uses. From the commit on, a file without holders
// can't be read, and the next purge deletes it.
func (s *Store) Drop(ctx context.Context, tx *db.Tx, t accounts.Tenant, holder string) error {
	const held = "workspace_id = $1 AND environment = $2 AND sha256 IN (SELECT sha256 FROM file_uses WHERE holder = $3 AND workspace_id = $1 AND environment = $2)"
	args := []any{t.WorkspaceID, t.Environment, holder}
	// A separate statement takes the locks, so that the next one sees concurrent
	// claims.
	_, err := db.List(ctx, tx, db.Value[string], "SELECT sha256 FROM files WHERE "+held+" ORDER BY sha256"+tx.Lock("files"), args...)
	if err != nil {
		return fmt.Errorf("lock files: %w", err)
	}
	if _, err := tx.Exec(ctx, "UPDATE files SET expires_at = 0 WHERE "+held+` AND NOT EXISTS (SELECT 1 FROM file_uses u
		WHERE u.workspace_id = files.workspace_id AND u.environment = files.environment AND u.sha256 = files.sha256 AND u.holder <> $3
			AND NOT (u.holder >= $4 AND u.holder < $5))`, append(args, uploads, afterUploads)...); err != nil {
		return fmt.Errorf("expire files: %w", err)
	}
	_, err = tx.Exec(ctx, "DELETE FROM file_uses WHERE workspace_id = $1 AND environment = $2 AND holder = $3", args...)
	return db.Wrap(err, "remove uses of files")
}

const (
	// purgeBatch is how many files one transaction deletes, concurrently. It is
	// small because buckets are slow, and the embedded database blocks other
	// writers meanwhile.
	purgeBatch = 16
	// purgeTimeout limits how long the bucket may take for a batch.
	purgeTimeout = 2 * time.Second
)

// Purge deletes expired files that have no upload in progress. Their rows stay
// locked until the bytes are deleted, so that a concurrent claim waits and then
// finds nothing. A full batch counts as the limit, so that another follows.
func (s *Store) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	n := min(limit, purgeBatch)
	rows, err := tx.Query(ctx, `SELECT workspace_id, environment, sha256 FROM files WHERE expires_at <= $1 AND NOT EXISTS (SELECT 1 FROM file_uses u
		WHERE u.workspace_id = files.workspace_id AND u.environment = files.environment AND u.sha256 = files.sha256 AND u.holder >= $3 AND u.holder < $4)
		ORDER BY expires_at LIMIT $2`+tx.Claim("files"), s.now().UnixMicro(), n, ids.Floor(uploads, time.Now().Add(-uploadLife)), afterUploads)
	type expired struct {
		accounts.Tenant
		sha256 string
	}
	list, err := db.All(rows, err, func(r db.Row) (f expired, err error) {
		err = r.Scan(&f.WorkspaceID, &f.Environment, &f.sha256)
		return f, err
	})
	if err != nil {
		return 0, fmt.Errorf("read files: %w", err)
	}
	keys := make([]string, len(list))
	for i, f := range list {
		keys[i] = objectKey(f.Tenant, f.sha256)
	}
	if err := s.remove(ctx, keys); err != nil {
		return 0, fmt.Errorf("remove files: %w", err)
	}
	for _, f := range list {
		for _, table := range []string{"file_uses", "files"} {
			if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE workspace_id = $1 AND environment = $2 AND sha256 = $3", f.WorkspaceID, f.Environment, f.sha256); err != nil {
				return 0, fmt.Errorf("remove %s: %w", table, err)
			}
		}
	}
	if int64(len(list)) == n {
		return limit, nil
	}
	return int64(len(list)), nil
}

// remove deletes objects concurrently. A missing object counts as deleted: it
// was never written, or an earlier purge failed to commit. A missing bucket is
// an error.
func (s *Store) remove(ctx context.Context, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	failures := make([]error, len(keys))
	var missing atomic.Bool
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() {
			if err := s.storage.remove(ctx, key); errors.Is(err, errMissing) {
				missing.Store(true)
			} else {
				failures[i] = err
			}
		})
	}
	all.Wait()
	if missing.Load() {
		failures = append(failures, s.storage.reachable(ctx))
	}
	return errors.Join(failures...)
}

// find returns the metadata of a file that hasn't expired.
func (s *Store) find(ctx context.Context, t accounts.Tenant, sha256 string) (File, error) {
	f := File{SHA256: sha256}
	err := s.db.QueryRow(ctx, "SELECT bytes, content_type FROM files WHERE workspace_id = $1 AND environment = $2 AND sha256 = $3 AND expires_at > $4",
		t.WorkspaceID, t.Environment, sha256, s.now().UnixMicro()).Scan(&f.Bytes, &f.ContentType)
	if errors.Is(err, db.ErrNotFound) {
		return f, ErrGone
	}
	return f, err
}
