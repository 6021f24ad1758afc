package archive

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/files"
	"turnpike/internal/parquet"
	"turnpike/internal/visibility"
)

const (
	spoolPattern = ".log-archive-*"
	// pageRows is how many entries are read from the database at a time.
	pageRows = 2000
)

// write writes a day, or its next generation. After a crash it continues with the first tenant whose files
// aren't complete: their names follow from the day, the tenant and the generation, so the same objects are
// written again.
func (w *worker) write(ctx context.Context, d day) error {
	if err := removeSpooled(w.Spool); err != nil {
		return err
	}
	rec, err := w.begin(ctx, d)
	if err != nil {
		return err
	}
	done, err := w.writtenTenants(ctx, rec)
	if err != nil {
		return err
	}
	for t := (visibility.Tenant{}); ; {
		next, err := audit.NextTenant(ctx, w.DB, t)
		if err != nil {
			return err
		}
		if next == nil {
			break
		}
		if t = *next; done[t] {
			continue
		}
		if err := w.writeTenant(ctx, rec, t); err != nil {
			return fmt.Errorf("workspace %s: %w", t.WorkspaceID, err)
		}
	}
	return w.finish(ctx, rec)
}

// begin returns the day's record, and creates it. Files of the day that the database doesn't know belong to
// another server, or to this one before an older backup was restored. They are never overwritten.
func (w *worker) begin(ctx context.Context, d day) (*record, error) {
	if rec, err := w.find(ctx, d); err != nil || rec != nil {
		return rec, err
	}
	known, err := w.storage.Open(ctx, manifestKey(d))
	if err == nil {
		return nil, errors.Join(fmt.Errorf("the archive has %s already, which this database didn't write; set audit.archive.to to an empty place", manifestKey(d)), known.Close())
	}
	if !errors.Is(err, files.ErrGone) {
		return nil, fmt.Errorf("read %s: %w", manifestKey(d), err)
	}
	err = w.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO log_archive_days (day, state, generation, totals, bytes) VALUES ($1, $2, 0, '{}', 0)", string(d), string(dayWriting))
		return err
	})
	return &record{day: d, state: dayWriting}, err
}

// writtenTenants returns whose files of the next generation are complete.
func (w *worker) writtenTenants(ctx context.Context, rec *record) (map[visibility.Tenant]bool, error) {
	done := map[visibility.Tenant]bool{}
	rows, err := w.DB.Query(ctx, "SELECT DISTINCT workspace_id, environment FROM log_archive_files WHERE day = $1 AND generation = $2", string(rec.day), rec.generation+1)
	err = db.Each(rows, err, func(r db.Row) error {
		var t visibility.Tenant
		err := r.Scan(&t.WorkspaceID, (*string)(&t.Environment))
		done[t] = true
		return err
	})
	return done, err
}

// writeTenant writes the files of a tenant's entries: those in the database, and older ones that are only in
// the archive.
func (w *worker) writeTenant(ctx context.Context, rec *record, t visibility.Tenant) error {
	if some, err := audit.ReadRange(ctx, w.DB, t, rec.day.ids(), 1); err != nil || len(some) == 0 {
		return err
	}
	old, err := db.List(ctx, w.DB, scanFile, "SELECT "+fileColumns+completeFiles+"WHERE f.day = $1 AND f.workspace_id = $2 AND f.environment = $3 ORDER BY f.first_id",
		string(rec.day), t.WorkspaceID, string(t.Environment))
	if err != nil {
		return err
	}
	entries := w.storedEntries(ctx, t, rec.day.ids())
	if len(old) > 0 {
		entries = merge(entries, w.archivedEntries(ctx, old))
	}
	var rows [][]any
	var p *part
	defer func() { p.discard() }()
	finish := func() error {
		f, err := w.store(ctx, p)
		p = nil
		if err != nil {
			return err
		}
		row, err := f.row()
		rows = append(rows, row)
		return err
	}
	for e, err := range entries {
		if err != nil {
			return err
		}
		if p == nil {
			f := file{Object: fmt.Sprintf("%s-%d-%05d.parquet", path(rec.day, t), rec.generation+1, len(rows)+1), day: rec.day, tenant: t, generation: rec.generation + 1}
			if p, err = w.newPart(f); err != nil {
				return err
			}
		}
		if err := p.add(e); err != nil {
			return err
		}
		if p.file.Totals.Rows == int64(w.FileRows) {
			if err := finish(); err != nil {
				return err
			}
		}
	}
	if p != nil {
		if err := finish(); err != nil {
			return err
		}
	}
	return w.DB.Write(ctx, func(tx *db.Tx) error {
		if err := w.claim.Check(ctx, tx); err != nil {
			return err
		}
		_, err := insertFiles.Write(ctx, tx, rows)
		return err
	})
}

// storedEntries reads a tenant's entries from the database, in the order of their IDs.
func (a *Archive) storedEntries(ctx context.Context, t visibility.Tenant, r audit.IDRange) iter.Seq2[*audit.Entry, error] {
	return func(yield func(*audit.Entry, error) bool) {
		for {
			list, err := audit.ReadRange(ctx, a.DB, t, r, pageRows)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range list {
				if !yield(e, nil) {
					return
				}
			}
			if len(list) < pageRows {
				return
			}
			r.From = list[len(list)-1].RequestID + "\x01" // the next possible ID
		}
	}
}

// archivedEntries reads all entries of files, in the order of their IDs.
func (a *Archive) archivedEntries(ctx context.Context, list []*file) iter.Seq2[*audit.Entry, error] {
	return func(yield func(*audit.Entry, error) bool) {
		for _, f := range list {
			opened, err := a.open(ctx, f)
			if err != nil {
				yield(nil, err)
				return
			}
			for g := range opened.Groups() {
				entries, err := readEntries(opened, g)
				if err != nil {
					yield(nil, err)
					return
				}
				for _, e := range entries {
					if !yield(e, nil) {
						return
					}
				}
			}
		}
	}
}

// merge joins two sorted sequences. Of two entries with the same ID, it returns that of the first.
func merge(first, second iter.Seq2[*audit.Entry, error]) iter.Seq2[*audit.Entry, error] {
	return func(yield func(*audit.Entry, error) bool) {
		next, stop := iter.Pull2(second)
		defer stop()
		other, err, more := next()
		for e, failed := range first {
			for failed == nil && more && (err != nil || other.RequestID <= e.RequestID) {
				if (err != nil || other.RequestID < e.RequestID) && !yield(other, err) || err != nil {
					return
				}
				other, err, more = next()
			}
			if !yield(e, failed) || failed != nil {
				return
			}
		}
		for ; more; other, err, more = next() {
			if !yield(other, err) || err != nil {
				return
			}
		}
	}
}

// part is a file in progress, on this node's disk.
type part struct {
	file    file
	spool   *os.File
	buffer  *bufio.Writer
	sum     hash.Hash
	parquet *parquet.Writer
}

func (a *Archive) newPart(f file) (*part, error) {
	spool, err := os.CreateTemp(a.Spool, spoolPattern)
	if err != nil {
		return nil, err
	}
	p := &part{file: f, spool: spool, sum: sha256.New()}
	p.buffer = bufio.NewWriterSize(io.MultiWriter(spool, p.sum), 1<<20)
	if p.parquet, err = parquet.NewWriter(p.buffer, schema, a.GroupRows); err != nil {
		p.discard()
		return nil, err
	}
	return p, nil
}

func (p *part) add(e *audit.Entry) error {
	if p.file.FirstID == "" {
		p.file.FirstID = e.RequestID
	}
	p.file.LastID = e.RequestID
	p.file.Totals.Count(e)
	return appendEntry(p.parquet, e)
}

func (p *part) discard() {
	if p != nil {
		_ = p.spool.Close()
		_ = os.Remove(p.spool.Name())
	}
}

// store completes a part and moves it to the storage.
func (w *worker) store(ctx context.Context, p *part) (*file, error) {
	defer p.discard()
	if err := errors.Join(p.parquet.Close(), p.buffer.Flush()); err != nil {
		return nil, err
	}
	info, err := p.spool.Stat()
	if err != nil {
		return nil, err
	}
	p.file.Bytes, p.file.SHA256 = info.Size(), hex.EncodeToString(p.sum.Sum(nil))
	if _, err := p.spool.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return &p.file, w.storage.Write(ctx, p.file.Object, p.spool)
}

func removeSpooled(dir string) error {
	stale, err := filepath.Glob(filepath.Join(dir, spoolPattern))
	for _, name := range stale {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// manifest lists the files of a day. It is written last, so a day without one is incomplete.
type manifest struct {
	Format     int            `json:"format"`
	Day        day            `json:"day"`
	Generation int64          `json:"generation"`
	Totals     audit.Totals   `json:"totals"`
	Bytes      int64          `json:"bytes"`
	Files      []manifestFile `json:"files"`
}

type manifestFile struct {
	file
	WorkspaceID string                 `json:"workspace_id"`
	Environment visibility.Environment `json:"environment"`
}

const manifestFormat = 1

func manifestKey(d day) string { return "manifests/" + string(d) + ".json" }

func newManifest(rec *record, list []*file) *manifest {
	m := &manifest{Format: manifestFormat, Day: rec.day, Generation: rec.generation, Files: make([]manifestFile, len(list))}
	for i, f := range list {
		m.Files[i] = manifestFile{*f, f.tenant.WorkspaceID, f.tenant.Environment}
		m.Totals.Add(f.Totals)
		m.Bytes += f.Bytes
	}
	return m
}

// encode returns the manifest with its own checksum.
func (m *manifest) encode() ([]byte, error) {
	body, err := json.MarshalIndent(m, "  ", "  ")
	sum := sha256.Sum256(body)
	return fmt.Appendf(nil, "{\n  \"sha256\": \"%s\",\n  \"archive\": %s\n}\n", hex.EncodeToString(sum[:]), body), err
}

// currentFiles returns the files of a day as of a generation: of each tenant, the newest.
func (w *worker) currentFiles(ctx context.Context, d day, generation int64) ([]*file, error) {
	return db.List(ctx, w.DB, scanFile, "SELECT "+fileColumns+` FROM log_archive_files f WHERE f.day = $1 AND f.generation = (SELECT max(n.generation) FROM log_archive_files n
		WHERE n.day = f.day AND n.workspace_id = f.workspace_id AND n.environment = f.environment AND n.generation <= $2) ORDER BY f.workspace_id, f.environment, f.first_id`,
		string(d), generation)
}

// finish writes the manifest and makes the generation the current one.
func (w *worker) finish(ctx context.Context, rec *record) error {
	next := *rec
	next.generation++
	next.state = rec.state.written()
	list, err := w.currentFiles(ctx, rec.day, next.generation)
	if err != nil {
		return err
	}
	m := newManifest(&next, list)
	next.totals, next.bytes = m.Totals, m.Bytes
	if err := w.writeManifest(ctx, m); err != nil {
		return err
	}
	totals, err := json.Marshal(next.totals)
	if err != nil {
		return err
	}
	err = w.DB.Write(ctx, func(tx *db.Tx) error {
		if err := w.claim.Check(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM log_archive_files WHERE day = $1 AND generation < $2 AND EXISTS (SELECT 1 FROM log_archive_files n
			WHERE n.day = log_archive_files.day AND n.workspace_id = log_archive_files.workspace_id AND n.environment = log_archive_files.environment AND n.generation = $2)`,
			string(rec.day), next.generation); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE log_archive_days SET state = $2, generation = $3, totals = $4, bytes = $5, archived_at = $6 WHERE day = $1",
			string(rec.day), string(next.state), next.generation, string(totals), next.bytes, w.DB.At(w.Now()).UnixMicro())
		return err
	})
	if err != nil {
		return err
	}
	slog.Info("archived a day of the request log", "day", string(rec.day), "entries", next.totals.Rows, "bytes", next.bytes, "files", len(list), "generation", next.generation)
	*rec = next
	return w.sweep(ctx, rec.day, list)
}

func (w *worker) writeManifest(ctx context.Context, m *manifest) error {
	text, err := m.encode()
	if err != nil {
		return err
	}
	spool, err := os.CreateTemp(w.Spool, spoolPattern)
	if err != nil {
		return err
	}
	defer func() {
		_ = spool.Close()
		_ = os.Remove(spool.Name())
	}()
	if _, err := spool.Write(text); err != nil {
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return w.storage.Write(ctx, manifestKey(m.Day), spool)
}

// sweep deletes the objects of a day that its manifest doesn't list: earlier generations, and leftovers of a
// crash.
func (w *worker) sweep(ctx context.Context, d day, list []*file) error {
	listed := make(map[string]bool, len(list))
	for _, f := range list {
		listed[f.Object] = true
	}
	return w.storage.Each(ctx, dayPath(d), func(key string) error {
		if listed[key] {
			return nil
		}
		return w.storage.Remove(ctx, key)
	})
}
