package db

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// canceledRows end with a conflict with replication after their first row.
type canceledRows struct{ Rows }

func (canceledRows) Next() bool        { return false }
func (canceledRows) Scan(...any) error { return nil }
func (canceledRows) Close()            {}
func (canceledRows) Err() error        { return &pgconn.PgError{Code: "40001"} }

func TestQueryCanceledAfterItsFirstRowIsRetriedByTheClient(t *testing.T) {
	t.Parallel()
	read := 0
	err := Each(&startedRows{canceledRows{}, true, true}, nil, func(Row) error { read++; return nil })
	if read != 1 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v after %d rows, want an outage after 1", err, read)
	}
}

func TestReplicaIsUsedOnlyIfItsLagIsKnownAndShort(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	type position struct {
		at  int
		lsn int64
	}
	for name, c := range map[string]struct {
		written []position
		now     int
		applied int64
		want    ReplicaState
		lag     time.Duration
	}{
		"nothing is known":         {nil, 0, 100, ReplicaLagging, 0},
		"everything is applied":    {[]position{{0, 100}, {1, 200}}, 1, 200, ReplicaInUse, 0},
		"a short lag":              {[]position{{0, 100}, {4, 200}}, 5, 150, ReplicaInUse, 5 * time.Second},
		"a long lag":               {[]position{{0, 100}, {4, 200}}, 6, 150, ReplicaLagging, 6 * time.Second},
		"older than all positions": {[]position{{0, 100}, {1, 200}}, 2, 50, ReplicaLagging, 2 * time.Second},
		"an idle primary":          {[]position{{0, 100}, {60, 100}}, 60, 100, ReplicaInUse, 0},
		"another primary":          {[]position{{0, 100}, {1, 200}, {2, 150}}, 3, 120, ReplicaLagging, time.Second},
	} {
		r := &replica{maxLag: 5 * time.Second}
		for _, p := range c.written {
			r.remember(walPosition{at(p.at), p.lsn})
		}
		if got := r.statusAt(at(c.now), c.applied); got.State != c.want || got.Lag != c.lag {
			t.Errorf("%s: got %+v, want %s with a lag of %v", name, got, c.want, c.lag)
		}
	}
}
