package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// Status is how far the archive has come.
type Status struct {
	Until   time.Time     // the end of the last archived day; zero if there is none
	Lag     time.Duration // how long the next day has been due; 0 if none is
	Entries int64
	Bytes   int64
	Failure *Failure // of the last attempt, or nil
}

// Status returns how far the archive has come.
func (a *Archive) Status(ctx context.Context) (s Status, err error) {
	rows, err := a.DB.Query(ctx, "SELECT "+dayColumns+" FROM log_archive_days WHERE state <> $1", string(dayWriting))
	err = db.Each(rows, err, func(r db.Row) error {
		rec, err := scanDay(r)
		if err != nil {
			return err
		}
		s.Entries, s.Bytes = s.Entries+rec.totals.Rows, s.Bytes+rec.bytes
		if end := rec.day.end(); end.After(s.Until) {
			s.Until = end
		}
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("read the archive: %w", err)
	}
	due, err := a.due(ctx)
	if err != nil {
		return s, err
	}
	if due != "" {
		s.Lag = a.DB.At(a.Now()).Sub(due.end().Add(a.FinalAfter))
	}
	s.Failure, err = ReadFailure(ctx, a.DB)
	return s, err
}

// Check writes, reads and deletes a small object in the archive.
func (a *Archive) Check(ctx context.Context) error {
	f, err := os.CreateTemp("", "turnpike-doctor-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	const text = "turnpike doctor"
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	key := "doctor/" + ids.New("try")
	if err := a.storage.Write(ctx, key, f); err != nil {
		return fmt.Errorf("write to audit.archive.to: %w", err)
	}
	got := make([]byte, len(text))
	err = a.storage.ReadAt(ctx, key, got, 0)
	if err == nil && string(got) != text {
		err = errors.New("the content differs from the written content")
	}
	if err != nil {
		err = fmt.Errorf("read from audit.archive.to: %w", err)
	}
	if failed := a.storage.Remove(ctx, key); failed != nil {
		err = errors.Join(err, fmt.Errorf("delete from audit.archive.to: %w", failed))
	}
	return err
}
