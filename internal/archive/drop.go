package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/parquet"
)

const (
	// deleteBatch keeps a transaction that compares and deletes under ten milliseconds, because SQLite writes nothing
	// else meanwhile.
	deleteBatch = 250
	// deletePause leaves the database to requests.
	deletePause = 10 * time.Millisecond
	// sumStep is the part of a day that is summed up in one query.
	sumStep = 15 * time.Minute
)

// dropAll deletes the entries of days that are past their time in the database, the oldest first. Days that log
// sinks haven't sent stay. It returns the number of days.
func (w *worker) dropAll(ctx context.Context) (int, error) {
	keep, err := audit.Unsent(ctx, w.DB, w.DB.At(w.Now()).AddDate(0, 0, -w.DatabaseDays))
	if err != nil {
		return 0, err
	}
	until := dayOf(keep) // this day isn't past it yet
	days, err := db.List(ctx, w.DB, scanDay, "SELECT "+dayColumns+" FROM log_archive_days WHERE state = $1 OR state = $2 AND day < $3 ORDER BY day",
		string(dayDropping), string(dayArchived), string(until))
	if err != nil {
		return 0, err
	}
	for n, rec := range days {
		if dropped, err := w.drop(ctx, rec); err != nil {
			return n, fmt.Errorf("delete %s, which is archived: %w", rec.day, err)
		} else if !dropped {
			return n, nil
		}
	}
	return len(days), nil
}

// drop deletes the entries of a day. It returns false if it must wait: for earlier entries to be archived, for a
// late entry of the day that is open, or for its partition.
func (w *worker) drop(ctx context.Context, rec *record) (bool, error) {
	first, err := audit.FirstID(ctx, w.DB, "")
	if err != nil || first != "" && first < rec.day.ids().From {
		return false, err
	}
	open, err := audit.FirstOpen(ctx, w.DB)
	if err != nil || open != "" && open < rec.day.ids().To {
		return false, err
	}
	partition, err := audit.Requests.OfDay(ctx, w.DB, rec.day.start())
	if err != nil {
		return false, err
	}
	if partition != nil && rec.state == dayArchived { // not after a part was deleted
		dropped, err := w.dropPartition(ctx, rec, partition)
		if !errors.Is(err, errFewer) {
			return dropped, err
		}
	}
	if rec.state == dayArchived {
		if err := w.compare(ctx, rec); err != nil {
			return false, err
		}
	}
	deleted, err := w.verifyAndDelete(ctx, rec)
	if errors.Is(err, errChanged) {
		if err := w.rewrite(ctx, rec); err != nil {
			return false, err
		}
		var more int64
		more, err = w.verifyAndDelete(ctx, rec)
		deleted += more
	}
	if errors.Is(err, errUnsent) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	slog.Info("deleted the archived entries of a day from the database", "day", string(rec.day), "entries", deleted)
	return true, w.setState(ctx, rec.day, dayDropped)
}

// dropPartition drops the partition of a day, which costs the same for any number of entries.
func (w *worker) dropPartition(ctx context.Context, rec *record, p *db.Partition) (bool, error) {
	err := w.verifyAndDrop(ctx, rec, p)
	if errors.Is(err, errChanged) {
		if err := w.rewrite(ctx, rec); err != nil {
			return false, err
		}
		err = w.verifyAndDrop(ctx, rec, p)
	}
	switch {
	case errors.Is(err, errOpen), errors.Is(err, errUnsent):
		return false, nil
	case errors.Is(err, db.ErrRace):
		slog.Warn("failed to lock the partition of an archived day, maybe because of a backup; retrying", "day", string(rec.day), "retry_in", checkInterval, "error", err)
		return false, nil
	case err != nil:
		return false, err
	}
	slog.Info("dropped the partition of an archived day", "day", string(rec.day), "entries", rec.totals.Rows)
	return true, nil
}

// verifyAndDrop compares all entries of a day with the archive. It fails with errChanged if one differs, or changes
// before the partition is dropped.
func (w *worker) verifyAndDrop(ctx context.Context, rec *record, p *db.Partition) error {
	v := w.verified
	if w.verified = nil; v == nil || v.day != rec.day || v.generation != rec.generation {
		watched, err := w.compareAll(ctx, rec, p)
		if err != nil {
			return err
		}
		v = &verifiedDay{rec.day, rec.generation, watched}
	}
	err := v.watched.Drop(ctx, w.DB, func(tx *db.Tx) error {
		if err := w.checkSent(ctx, tx, rec.day); err != nil {
			return err
		}
		return w.setStateIn(ctx, tx, rec.day, dayDropped)
	})
	switch {
	case errors.Is(err, db.ErrChanged):
		return errors.Join(errChanged, err)
	case errors.Is(err, db.ErrRace):
		w.verified = v
	case errors.Is(err, db.ErrInDoubt):
		return w.confirm(ctx, rec.day, err)
	}
	return err
}

// confirm returns the error of a drop without a response, unless it has happened. PostgreSQL deletes the files of a
// large partition before it responds.
func (w *worker) confirm(ctx context.Context, d day, inDoubt error) error {
	if rec, err := w.find(ctx, d); err == nil && rec != nil && rec.state == dayDropped {
		return nil
	}
	return inDoubt
}

// verifiedDay is a day that was compared with the archive, but whose partition couldn't be locked. The next attempt
// doesn't compare it again.
type verifiedDay struct {
	day        day
	generation int64
	watched    *db.Watched
}

// compareAll compares all entries of a day with the archive, and watches its partition for changes since then.
func (w *worker) compareAll(ctx context.Context, rec *record, p *db.Partition) (*db.Watched, error) {
	watched, err := p.Watch(ctx, w.DB)
	if err != nil {
		return nil, err
	}
	var archived digest
	if err := w.verify(ctx, rec, &archived); err != nil {
		return nil, err
	}
	stored, err := w.storedDigest(ctx, rec.day)
	if err == nil && stored != archived {
		err = errChanged
		if stored.entries < archived.entries {
			err = errFewer
		}
		err = fmt.Errorf("the database has %d entries, and the archive %d: %w", stored.entries, archived.entries, err)
	}
	return watched, err
}

// checkSent fails with errUnsent if log sinks haven't sent all entries of a day.
func (w *worker) checkSent(ctx context.Context, q db.Querier, d day) error {
	unsent, err := audit.Unsent(ctx, q, d.end())
	if err == nil && unsent.Before(d.end()) {
		err = errUnsent
	}
	return err
}

var (
	// errOpen means that an entry isn't settled.
	errOpen = errors.New("an entry is open")
	// errUnsent means that a log sink hasn't sent an entry, which may have changed since it was archived.
	errUnsent = errors.New("a log sink hasn't sent an entry")
	// errFewer means that the database lacks archived entries. The purge deleted them while the archive was off.
	errFewer = errors.New("the database lacks entries")
)

// storedDigest reads a day in the order of its partition, which is much faster than by tenants.
func (w *worker) storedDigest(ctx context.Context, d day) (sum digest, err error) {
	for r := d.ids(); ; {
		list, err := audit.ReadAll(ctx, w.DB, r, pageRows)
		if err != nil {
			return sum, err
		}
		for _, e := range list {
			if !e.Settled {
				return sum, fmt.Errorf("%s: %w", e.RequestID, errOpen)
			}
			sum.add(e)
		}
		if len(list) < pageRows {
			return sum, nil
		}
		r.From = list[len(list)-1].RequestID + "\x01"
	}
}

func (w *worker) verifyAndDelete(ctx context.Context, rec *record) (int64, error) {
	if err := w.verify(ctx, rec, nil); err != nil {
		return 0, err
	}
	if err := w.checkSent(ctx, w.DB, rec.day); err != nil {
		return 0, err
	}
	if err := w.setState(ctx, rec.day, dayDropping); err != nil {
		return 0, err
	}
	return w.deleteArchived(ctx, rec)
}

// rewrite archives a day again.
func (w *worker) rewrite(ctx context.Context, rec *record) error {
	if err := w.write(ctx, rec.day); err != nil {
		return err
	}
	changed, err := w.find(ctx, rec.day)
	if err == nil {
		*rec = *changed
	}
	return err
}

func (w *worker) setState(ctx context.Context, d day, state dayState) error {
	return w.DB.Write(ctx, func(tx *db.Tx) error { return w.setStateIn(ctx, tx, d, state) })
}

func (w *worker) setStateIn(ctx context.Context, tx *db.Tx, d day, state dayState) error {
	if err := w.claim.Check(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE log_archive_days SET state = $2 WHERE day = $1", string(d), string(state))
	return err
}

// errChanged means that an entry in the database isn't the same in the archive.
var errChanged = errors.New("an entry isn't what was archived")

// deleteArchived deletes the entries that the archive has. Entries that have been added since stay for the next
// generation of the day.
func (w *worker) deleteArchived(ctx context.Context, rec *record) (total int64, err error) {
	list, err := w.currentFiles(ctx, rec.day, rec.generation)
	if err != nil {
		return 0, err
	}
	for _, f := range list {
		left, err := audit.ReadRange(ctx, w.DB, f.tenant, audit.IDRange{From: f.FirstID, To: f.LastID + "\x01"}, 1)
		if err != nil {
			return total, err
		}
		if len(left) == 0 {
			continue // deleted before a crash
		}
		n, err := w.deleteFile(ctx, f)
		if total += n; err != nil {
			return total, fmt.Errorf("compare with %s: %w", f.Object, err)
		}
	}
	return total, nil
}

// deleteFile deletes the entries of a file.
func (w *worker) deleteFile(ctx context.Context, f *file) (total int64, err error) {
	batch := make([]*audit.Entry, 0, deleteBatch)
	remove := func() error {
		n, err := w.deleteSame(ctx, batch)
		if total, batch = total+n, batch[:0]; err != nil || n == 0 {
			return err
		}
		select {
		case <-time.After(deletePause):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for e, err := range w.archivedEntries(ctx, []*file{f}) {
		if err != nil {
			return total, err
		}
		if batch = append(batch, e); len(batch) == deleteBatch {
			if err := remove(); err != nil {
				return total, err
			}
		}
	}
	if len(batch) == 0 {
		return total, nil
	}
	return total, remove()
}

// deleteSame deletes entries in one transaction, which fails with errChanged if the database has another version
// of one.
func (w *worker) deleteSame(ctx context.Context, list []*audit.Entry) (n int64, err error) {
	archived, names := make(map[string]*audit.Entry, len(list)), make([]string, len(list))
	for i, e := range list {
		archived[e.RequestID], names[i] = e, e.RequestID
	}
	err = w.DB.Write(ctx, func(tx *db.Tx) error {
		if err := w.claim.Check(ctx, tx); err != nil {
			return err
		}
		deleted, err := audit.Delete(ctx, tx, names)
		if err != nil {
			return err
		}
		for _, e := range deleted {
			if !isSame(e, archived[e.RequestID]) {
				return fmt.Errorf("%s: %w", e.RequestID, errChanged)
			}
		}
		n = int64(len(deleted))
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// compare checks that the database still has what was archived. If entries have changed since, for example
// because a job ended late, it archives the day again. The sums are cheap and miss some changes, which
// deleteSame finds later. The database may have fewer entries, because the purge deletes some while the archive is off.
func (w *worker) compare(ctx context.Context, rec *record) error {
	for again := range 2 {
		stored, err := w.sum(ctx, rec.day)
		if err != nil || stored == rec.totals || stored.Rows < rec.totals.Rows {
			return err
		}
		if again > 0 {
			return fmt.Errorf("the database has %+v, and the archive %+v", stored, rec.totals)
		}
		if err := w.rewrite(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// sum adds up a day in short queries.
func (w *worker) sum(ctx context.Context, d day) (total audit.Totals, err error) {
	for at := d.start(); at.Before(d.end()); at = at.Add(sumStep) {
		t, err := audit.Sum(ctx, w.DB, audit.IDRange{From: ids.Floor(ids.Request, at), To: ids.Floor(ids.Request, at.Add(sumStep))})
		if err != nil {
			return total, err
		}
		total.Add(t)
	}
	return total, nil
}

// verify reads a day of the archive as a whole: the manifest, and checksum and entries of each file. It adds
// the entries to sum, unless that is nil.
func (w *worker) verify(ctx context.Context, rec *record, sum *digest) error {
	list, err := w.currentFiles(ctx, rec.day, rec.generation)
	if err != nil {
		return err
	}
	m := newManifest(rec, list)
	want, err := m.encode()
	if err != nil {
		return err
	}
	r, err := w.storage.Open(ctx, manifestKey(rec.day))
	if err != nil {
		return fmt.Errorf("read %s: %w", manifestKey(rec.day), err)
	}
	got, err := io.ReadAll(io.LimitReader(r, int64(len(want))+1)) //budget:own as long as what was written
	_ = r.Close()
	if err != nil {
		return fmt.Errorf("read %s: %w", manifestKey(rec.day), err)
	}
	if !bytes.Equal(got, want) || m.Totals != rec.totals {
		return fmt.Errorf("%s isn't what was written; nothing is deleted", manifestKey(rec.day))
	}
	for _, f := range list {
		if err := w.verifyFile(ctx, f, sum); err != nil {
			return fmt.Errorf("verify %s: %w", f.Object, err)
		}
	}
	return nil
}

func (w *worker) verifyFile(ctx context.Context, f *file, sum *digest) error {
	r, err := w.storage.Open(ctx, f.Object)
	if err != nil {
		return err
	}
	defer r.Close()
	spool, err := os.CreateTemp(w.Spool, spoolPattern)
	if err != nil {
		return err
	}
	defer func() {
		_ = spool.Close()
		_ = os.Remove(spool.Name())
	}()
	checksum := sha256.New()
	n, err := io.Copy(io.MultiWriter(spool, checksum), r)
	if err != nil {
		return err
	}
	if n != f.Bytes || hex.EncodeToString(checksum.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("its %d bytes aren't what was written; nothing is deleted", n)
	}
	opened, err := parquet.Open(spool, n, schema)
	if err != nil {
		return err
	}
	var totals audit.Totals
	last := ""
	for g := range opened.Groups() {
		entries, err := readEntries(opened, g)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.RequestID <= last || e.Tenant != f.tenant {
				return fmt.Errorf("the entry %s is out of place; nothing is deleted", e.RequestID)
			}
			last = e.RequestID
			totals.Count(e)
			if sum != nil {
				sum.add(e)
			}
		}
	}
	if totals != f.Totals || last != f.LastID {
		return fmt.Errorf("it has %+v, want %+v; nothing is deleted", totals, f.Totals)
	}
	return nil
}

// expire deletes days that are past their time in the archive.
func (w *worker) expire(ctx context.Context) error {
	if w.Days == 0 {
		return nil
	}
	days, err := db.List(ctx, w.DB, scanDay, "SELECT "+dayColumns+" FROM log_archive_days WHERE state = $1 AND day < $2 ORDER BY day",
		string(dayDropped), string(w.oldestDay()))
	if err != nil {
		return err
	}
	for _, rec := range days {
		if err := w.storage.Remove(ctx, manifestKey(rec.day)); err != nil {
			return fmt.Errorf("delete %s: %w", manifestKey(rec.day), err)
		}
		if err := w.sweep(ctx, rec.day, nil); err != nil {
			return fmt.Errorf("delete the archive of %s: %w", rec.day, err)
		}
		err := w.DB.Write(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, "DELETE FROM log_archive_files WHERE day = $1", string(rec.day)); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "DELETE FROM log_archive_days WHERE day = $1", string(rec.day))
			return err
		})
		if err != nil {
			return err
		}
		slog.Info("deleted a day from the archive of the request log", "day", string(rec.day), "entries", rec.totals.Rows)
	}
	return nil
}

// oldestDay returns the first day that the archive keeps.
func (a *Archive) oldestDay() day {
	if a.Days == 0 {
		return dayOf(time.Unix(0, 0))
	}
	return dayOf(a.DB.At(a.Now()).AddDate(0, 0, -a.Days))
}
