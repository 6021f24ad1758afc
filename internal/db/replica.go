package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// replicaInterval is how often the replica's lag is measured.
	replicaInterval = time.Second
	// replicaTimeout limits a measurement.
	replicaTimeout = time.Second
)

// ReplicaState says whether a replica is in use, and why not.
type ReplicaState string

const (
	ReplicaInUse       ReplicaState = "in_use"
	ReplicaLagging     ReplicaState = "lagging"
	ReplicaUnreachable ReplicaState = "unreachable"
	// ReplicaUnsuitable is a server that isn't a standby of the database.
	ReplicaUnsuitable ReplicaState = "unsuitable"
)

// ReplicaStatus is the last measurement of a replica.
type ReplicaStatus struct {
	State ReplicaState
	Lag   time.Duration // at least; 0 if it isn't known
	Err   error         // why it is unreachable or unsuitable
}

// replica is a standby that serves reads as long as its data is recent.
type replica struct {
	primary *postgresEngine
	pool    *pgxpool.Pool
	now     func() time.Time
	maxLag  time.Duration
	status  atomic.Pointer[ReplicaStatus]

	measuring sync.Mutex
	positions []walPosition // of the primary, oldest first
}

// walPosition is how much the primary had written at a time.
type walPosition struct {
	at  time.Time
	lsn int64
}

// UseReplica makes Replica read from a standby of the database, unless its data is
// older than maxLag. The standby may be down.
func (d *DB) UseReplica(ctx context.Context, address string, maxLag time.Duration) error {
	primary, ok := d.eng.(*postgresEngine)
	if !ok {
		return errors.New("only PostgreSQL has replicas")
	}
	pool, err := newPool(ctx, address)
	if err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	r := &replica{primary: primary, pool: pool, now: d.clock.local, maxLag: maxLag}
	r.status.Store(&ReplicaStatus{State: ReplicaLagging})
	d.replica = r
	d.CheckReplica(ctx)
	watchCtx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(replicaInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.CheckReplica(watchCtx)
			case <-watchCtx.Done():
				return
			}
		}
	})
	d.closeReplica = func() {
		stop()
		watching.Wait()
		pool.Close()
	}
	return nil
}

// Replica reads data that may be outdated by the replica's lag. Without a replica, or
// if it is unreachable or lags too much, it reads from the database itself.
func (d *DB) Replica() Querier {
	if d.replica == nil {
		return d
	}
	return querier{d.replica.query}
}

// ReplicaStatus returns the last measurement, or nil without a replica.
func (d *DB) ReplicaStatus() *ReplicaStatus {
	if d.replica == nil {
		return nil
	}
	return d.replica.status.Load()
}

// CheckReplica measures the replica's lag.
func (d *DB) CheckReplica(ctx context.Context) {
	if d.replica != nil {
		d.replica.check(ctx)
	}
}

// query reads from the replica, or from the primary if the replica fails before its
// first row.
func (r *replica) query(ctx context.Context, query string, args ...any) (Rows, error) {
	if r.status.Load().State == ReplicaInUse {
		rows, err := timedQuery(ctx, statementTimeout, r.pool.Query, query, args)
		if err == nil {
			first := rows.Next()
			if err = classify(rows.Err()); err == nil {
				return &startedRows{rows, first, true}, nil
			}
			rows.Close()
		}
		switch {
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, ErrUnavailable):
			r.set(ReplicaStatus{State: ReplicaUnreachable, Err: err})
		case !errors.Is(err, ErrRace): // a standby cancels queries that keep it from applying changes
			return nil, err
		}
	}
	return r.primary.query(ctx, query, args...)
}

// startedRows are rows whose first one has been read.
type startedRows struct {
	Rows
	first   bool
	pending bool // Next has not returned first yet
}

func (r *startedRows) Next() bool {
	if r.pending {
		r.pending = false
		return r.first
	}
	return r.first && r.Rows.Next()
}

// Err reports a cancellation after the first row as an outage, so that the client retries. The caller may have used the
// first rows, so it is too late to read from the primary.
func (r *startedRows) Err() error {
	err := classify(r.Rows.Err())
	if errors.Is(err, ErrRace) {
		return &classified{ErrUnavailable, err}
	}
	return err
}

// identityQuery names the cluster, the database and the schema of a connection.
const identityQuery = "(SELECT system_identifier FROM pg_control_system())::text || '/' || current_database() || '/' || current_schema()"

// check compares how much the primary has written with how much the replica has
// applied. Both are positions in the log, so no clocks are compared, and a replica of
// an idle database isn't outdated.
func (r *replica) check(ctx context.Context) {
	r.measuring.Lock()
	defer r.measuring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	now := r.now()
	var written, applied int64
	var identity, replicaIdentity string
	var standby bool
	if err := r.primary.pool.QueryRow(ctx, "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint, "+identityQuery).Scan(&written, &identity); err == nil {
		r.remember(walPosition{now, written})
	}
	err := r.pool.QueryRow(ctx, "SELECT pg_is_in_recovery(), coalesce(pg_last_wal_replay_lsn() - '0/0', 0)::bigint, "+identityQuery).Scan(&standby, &applied, &replicaIdentity)
	switch {
	case err != nil:
		r.set(ReplicaStatus{State: ReplicaUnreachable, Err: classify(err)})
	case identity != "" && replicaIdentity != identity:
		r.set(ReplicaStatus{State: ReplicaUnsuitable, Err: errors.New("it is not a copy of the database in database_url")})
	case !standby:
		r.set(ReplicaStatus{State: ReplicaUnsuitable, Err: errors.New("it is not a standby: it accepts writes")})
	default:
		r.set(r.statusAt(now, applied))
	}
}

// statusAt returns the status of a standby that has applied the log up to a position.
func (r *replica) statusAt(now time.Time, applied int64) ReplicaStatus {
	lag, known := r.lag(now, applied)
	if !known || lag > r.maxLag {
		return ReplicaStatus{State: ReplicaLagging, Lag: lag}
	}
	return ReplicaStatus{State: ReplicaInUse, Lag: lag}
}

// remember adds a position and forgets those that lag too much, except for one.
func (r *replica) remember(p walPosition) {
	if n := len(r.positions); n > 0 && r.positions[n-1].lsn > p.lsn {
		r.positions = nil // another server is the primary now
	}
	r.positions = append(r.positions, p)
	for len(r.positions) > 2 && p.at.Sub(r.positions[1].at) > r.maxLag {
		r.positions = r.positions[1:]
	}
}

// lag returns how old the data up to a position is, and whether that is known. If it
// isn't, it is the age of the oldest position.
func (r *replica) lag(now time.Time, applied int64) (time.Duration, bool) {
	for i := len(r.positions) - 1; i >= 0; i-- {
		if p := r.positions[i]; p.lsn <= applied {
			return now.Sub(p.at), true
		}
	}
	if len(r.positions) == 0 {
		return 0, false
	}
	return now.Sub(r.positions[0].at), false
}

func (r *replica) set(s ReplicaStatus) {
	if was := r.status.Swap(&s); was.State != s.State {
		level := slog.LevelWarn
		if s.State == ReplicaInUse {
			level = slog.LevelInfo
		}
		attrs := []any{"state", s.State, "lag", s.Lag.Round(time.Millisecond).String()}
		if s.Err != nil {
			attrs = append(attrs, "error", s.Err)
		}
		slog.Log(context.Background(), level, map[bool]string{true: "reading from the replica", false: "not reading from the replica; using the primary"}[s.State == ReplicaInUse], attrs...)
	}
}
