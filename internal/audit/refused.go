package audit

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"turnpike/internal/addrlimit"
	"turnpike/internal/db"
)

const refusedFlush = 5 * time.Second

// Refused counts rejected keys by client address and minute, and limits them
// per address.
type Refused struct {
	db      *db.DB
	limit   int64 // per minute and address; 0 for no limit
	now     func() time.Time
	all     *addrlimit.Limiter
	lookups *addrlimit.Limiter // of well-formed keys that needed a database query

	mu     sync.Mutex
	counts map[refusal]*tally
}

type refusal struct {
	minute  int64
	network string
}

type tally struct{ count, stored int64 }

// NewRefused returns a counter. Run stores its counts.
func NewRefused(d *db.DB, limit int64, now func() time.Time) *Refused {
	return &Refused{db: d, limit: limit, now: now, all: addrlimit.New(limit, now), lookups: addrlimit.New(limit, now), counts: map[refusal]*tally{}}
}

// LookupWait returns how long a client must wait before another unknown key is
// looked up for it.
func (r *Refused) LookupWait(ip netip.Addr) time.Duration { return r.lookups.Wait(ip) }

// Add counts a rejected key, and whether it was looked up in the database. If
// the client is past the limit, Add returns how long it must wait.
func (r *Refused) Add(ip netip.Addr, lookedUp bool) (wait time.Duration) {
	now := r.now()
	minute := now.Unix() / 60
	if lookedUp {
		r.lookups.Add(ip)
	}
	network, count := r.all.Add(ip)
	name := networkName(network)
	r.mu.Lock()
	defer r.mu.Unlock()
	at := refusal{minute, name}
	c := r.counts[at]
	if c == nil {
		c = &tally{}
		r.counts[at] = c
	}
	c.count++
	if r.limit == 0 || count <= r.limit {
		return 0
	}
	if count == r.limit+1 { // once a minute
		slog.Warn("an address sends too many rejected keys and has to wait", "ip", name, "refused", count)
	}
	return time.Unix((minute+1)*60, 0).Sub(now)
}

// networkName returns an address, a network, or "other" for clients that share
// a counter.
func networkName(network netip.Prefix) string {
	switch {
	case !network.IsValid():
		return "other"
	case network.IsSingleIP():
		return network.Addr().String()
	}
	return network.String()
}

// Run stores counts until ctx ends, and then the remaining ones.
func (r *Refused) Run(ctx context.Context) {
	tick := time.NewTicker(refusedFlush)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.flush(ctx)
		case <-ctx.Done():
			r.flush(context.WithoutCancel(ctx))
			return
		}
	}
}

var insertRefused = db.NewBulk("refused_keys", "ON CONFLICT (minute, ip) DO UPDATE SET count = refused_keys.count + excluded.count",
	"minute bigint", "ip text", "count bigint")

func (r *Refused) flush(ctx context.Context) {
	minute := r.now().Unix() / 60
	var rows [][]any
	r.mu.Lock()
	for at, c := range r.counts {
		if more := c.count - c.stored; more > 0 {
			rows = append(rows, []any{at.minute, at.network, more})
			c.stored = c.count
		}
		if at.minute < minute {
			delete(r.counts, at)
		}
	}
	r.mu.Unlock()
	if len(rows) == 0 {
		return
	}
	err := r.db.Write(ctx, func(tx *db.Tx) error {
		_, err := insertRefused.Write(ctx, tx, rows)
		return err
	})
	if err != nil {
		slog.Warn("could not store the count of refused keys", "error", err)
	}
}

// PurgeRefused deletes counts past their retention.
func PurgeRefused(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM refused_keys WHERE (minute, ip) IN
		(SELECT minute, ip FROM refused_keys WHERE minute < $1 LIMIT $2)`, before.Unix()/60, limit)
}
