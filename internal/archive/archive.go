// Package archive moves old entries of the request log to Parquet files in a directory or a bucket, and
// reads them there.
//
// A day in UTC (dayState):
//
//	                ┌─────── partition ─────┐
//	writing ──▶ archived ──▶ dropping ──▶ dropped
//	               ▲            ▲            │
//	               └ changed    └────────────┘ late entries
//
// A day is archived when none of its entries can change anymore. Its entries stay in the database until
// audit.retention_days have passed. Before they are deleted, the archive is read back as a whole, and the
// database must still have what was archived.
//
// A partition of exactly this day is dropped in the transaction that makes the day dropped, after all its
// entries were compared with the archive. Other days become dropping first, and the transactions that
// delete their entries compare them. If an entry has changed or was added since, the day is written again,
// as its next generation. From dropping on, the log is read from the archive.
//
//	write.go    writes a day
//	drop.go     verifies a day and deletes its entries, or drops its partition
//	read.go     lists the log across the database and the archive
//	entries.go  entries as rows of Parquet files
package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/nodes"
	"turnpike/internal/visibility"
)

const (
	claimRow   = "log_archive_claim"
	failureRow = "log_archive_failure"

	checkInterval = time.Minute
	retryInterval = 10 * time.Minute
)

// Options configure an archive.
type Options struct {
	DB *db.DB
	// To is a directory, or the URL of a bucket with a prefix.
	To string
	// Spool is the directory for files on their way to a bucket.
	Spool string
	Node  string
	// FinalAfter is the age at which entries no longer change.
	FinalAfter time.Duration
	// DatabaseDays is how long entries stay in the database.
	DatabaseDays int
	// Days is how long entries stay in the archive; 0 means forever.
	Days int
	Now  func() time.Time
	// GroupRows and FileRows limit row groups and files, for tests.
	GroupRows, FileRows int
}

// Archive is the request log in the database and in Parquet files. A nil Archive is the log without files.
type Archive struct {
	Options
	storage storage
	cache   cache
	// verified is for the node with the claim.
	verified *verifiedDay
}

const (
	// groupRows keeps a row group, as a whole, in a few megabytes.
	groupRows = 8192
	// fileRows keeps the metadata of a file small.
	fileRows = 64 * groupRows
)

// New opens an archive. It returns nil without a place for it.
func New(o Options) (*Archive, error) {
	if o.To == "" {
		return nil, nil
	}
	if o.GroupRows == 0 {
		o.GroupRows = groupRows
	}
	if o.FileRows == 0 {
		o.FileRows = fileRows
	}
	s, err := openStorage(o.To)
	if err != nil {
		return nil, fmt.Errorf("open the archive of the request log: %w", err)
	}
	return &Archive{Options: o, storage: s, cache: cache{memory: semaphore.NewWeighted(readMemory)}}, nil
}

// day is a UTC day, such as 2026-11-17.
type day string

func dayOf(t time.Time) day { return day(t.UTC().Format(time.DateOnly)) }

func (d day) start() time.Time {
	t, _ := time.Parse(time.DateOnly, string(d)) // only dayOf and the archive make days
	return t
}

func (d day) end() time.Time { return d.start().AddDate(0, 0, 1) }

func (d day) ids() audit.IDRange {
	return audit.IDRange{From: ids.Floor(ids.Request, d.start()), To: ids.Floor(ids.Request, d.end())}
}

// dayState is the progress of a day. See the package comment.
type dayState string

const (
	dayWriting  dayState = "writing"
	dayArchived dayState = "archived"
	dayDropping dayState = "dropping"
	dayDropped  dayState = "dropped"
)

// written returns the state after a day was written, for the first time or again.
func (s dayState) written() dayState {
	if s == dayDropping || s == dayDropped { // the new entries are deleted, too
		return dayDropping
	}
	return dayArchived
}

// record is a day in the database.
type record struct {
	day        day
	state      dayState
	generation int64
	totals     audit.Totals
	bytes      int64
}

const dayColumns = "day, state, generation, totals, bytes"

func scanDay(r db.Row) (*record, error) {
	var d record
	var totals string
	if err := r.Scan((*string)(&d.day), (*string)(&d.state), &d.generation, &totals, &d.bytes); err != nil {
		return nil, err
	}
	return &d, json.Unmarshal([]byte(totals), &d.totals)
}

// find returns a day, or nil.
func (a *Archive) find(ctx context.Context, d day) (*record, error) {
	r, err := scanDay(a.DB.QueryRow(ctx, "SELECT "+dayColumns+" FROM log_archive_days WHERE day = $1", string(d)))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	return r, err
}

// file is a Parquet file of the archive.
type file struct {
	Object string `json:"object"`
	day    day
	tenant visibility.Tenant

	generation int64
	FirstID    string       `json:"first_id"`
	LastID     string       `json:"last_id"`
	Bytes      int64        `json:"bytes"`
	SHA256     string       `json:"sha256"`
	Totals     audit.Totals `json:"totals"`
}

const fileColumns = "f.object, f.day, f.workspace_id, f.environment, f.generation, f.first_id, f.last_id, f.bytes, f.sha256, f.totals"

// completeFiles are the files of the days' current generations.
const completeFiles = " FROM log_archive_files f JOIN log_archive_days d ON d.day = f.day AND f.generation <= d.generation "

var insertFiles = db.NewBulk("log_archive_files", `ON CONFLICT (object) DO UPDATE SET first_id = excluded.first_id, last_id = excluded.last_id, bytes = excluded.bytes,
	sha256 = excluded.sha256, totals = excluded.totals`,
	"object text", "day text", "workspace_id text", "environment text", "generation bigint", "first_id text", "last_id text", "bytes bigint", "sha256 text", "totals text")

func (f *file) row() ([]any, error) {
	totals, err := json.Marshal(f.Totals)
	return []any{f.Object, string(f.day), f.tenant.WorkspaceID, string(f.tenant.Environment), f.generation, f.FirstID, f.LastID, f.Bytes, f.SHA256, string(totals)}, err
}

func scanFile(r db.Row) (*file, error) {
	var f file
	var totals string
	if err := r.Scan(&f.Object, (*string)(&f.day), &f.tenant.WorkspaceID, (*string)(&f.tenant.Environment), &f.generation, &f.FirstID, &f.LastID, &f.Bytes, &f.SHA256, &totals); err != nil {
		return nil, err
	}
	return &f, json.Unmarshal([]byte(totals), &f.Totals)
}

// Run archives until ctx ends. Of all nodes, one does at a time.
func (a *Archive) Run(ctx context.Context) {
	if a == nil {
		return
	}
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		if err := a.RunOnce(ctx); err != nil && ctx.Err() == nil {
			slog.Error("failed to archive the request log; its entries stay in the database; retrying", "retry_in", retryInterval, "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// RunOnce does all that is due, unless another node does.
func (a *Archive) RunOnce(ctx context.Context) error {
	claim := &nodes.Claim{DB: a.DB, Row: claimRow, Node: a.Node, Now: a.Now}
	if taken, err := claim.Take(ctx); err != nil || !taken {
		return err
	}
	err := claim.Hold(ctx, func(ctx context.Context) error {
		w := &worker{Archive: a, claim: claim}
		return w.work(ctx)
	})
	ending := context.WithoutCancel(ctx)
	if err != nil && ctx.Err() == nil {
		return errors.Join(err, a.setFailure(ending, err), claim.End(ending, retryInterval))
	}
	return errors.Join(err, a.setFailure(ending, nil), claim.End(ending, 0))
}

// Failure is why the archive doesn't proceed.
type Failure struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// setFailure stores a failure, or removes the last one.
func (a *Archive) setFailure(ctx context.Context, cause error) error {
	if cause == nil {
		if last, err := ReadFailure(ctx, a.DB); err != nil || last == nil {
			return err
		}
		return a.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, "DELETE FROM meta WHERE name = $1", failureRow)
			return err
		})
	}
	text, err := json.Marshal(Failure{a.DB.At(a.Now()).UTC(), cause.Error()})
	if err != nil {
		return err
	}
	return a.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", failureRow, string(text))
		return err
	})
}

// ReadFailure returns why the archive doesn't proceed, or nil.
func ReadFailure(ctx context.Context, q db.Querier) (*Failure, error) {
	text, err := db.Value[string](q.QueryRow(ctx, "SELECT value FROM meta WHERE name = $1", failureRow))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, db.Wrap(err, "read the archive's failure")
	}
	var f Failure
	return &f, json.Unmarshal([]byte(text), &f)
}

// worker is the archive on the node that has the claim.
type worker struct {
	*Archive
	claim *nodes.Claim
}

// work archives and deletes until nothing is due. Late entries of several days take several rounds.
func (w *worker) work(ctx context.Context) error {
	for {
		if err := w.writeAll(ctx); err != nil {
			return err
		}
		dropped, err := w.dropAll(ctx)
		if err != nil {
			return err
		}
		if dropped == 0 {
			return w.expire(ctx)
		}
	}
}

func (w *worker) writeAll(ctx context.Context) error {
	for {
		due, err := w.due(ctx)
		if err != nil || due == "" {
			return err
		}
		if err := w.write(ctx, due); err != nil {
			return fmt.Errorf("archive %s: %w", due, err)
		}
	}
}

// due returns the oldest day with entries that aren't archived yet and no longer change, or an empty
// string.
func (a *Archive) due(ctx context.Context) (day, error) {
	first, err := audit.FirstID(ctx, a.DB, "")
	if err != nil || !ids.Valid(ids.Request, first) {
		return "", err
	}
	next := dayOf(ids.Time(first))
	known, err := a.find(ctx, next)
	if err != nil {
		return "", err
	}
	if known != nil && (known.state == dayArchived || known.state == dayDropping) {
		last, err := db.Value[string](a.DB.QueryRow(ctx, "SELECT max(day) FROM log_archive_days WHERE state <> $1", string(dayWriting)))
		if err != nil {
			return "", err
		}
		first, err = audit.FirstID(ctx, a.DB, day(last).ids().To)
		if err != nil || !ids.Valid(ids.Request, first) {
			return "", err
		}
		next = dayOf(ids.Time(first))
	}
	open, err := audit.FirstOpen(ctx, a.DB)
	if err != nil || open != "" && open < next.ids().To {
		return "", err
	}
	if a.DB.At(a.Now()).Before(next.end().Add(a.FinalAfter)) {
		return "", nil
	}
	return next, nil
}
