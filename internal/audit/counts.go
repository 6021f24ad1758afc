package audit

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"turnpike/internal/addrlimit"
	"turnpike/internal/db"
	"turnpike/internal/visibility"
)

const countsFlush = 5 * time.Second

type minuteCounts[K comparable] struct {
	db     *db.DB
	now    func() time.Time
	insert *db.Bulk
	row    func(minute int64, key K, n int64) []any

	mu     sync.Mutex
	counts map[minuteKey[K]]*minuteCount
}

type minuteKey[K comparable] struct {
	minute int64
	key    K
}

type minuteCount struct{ count, unstored int64 }

// add counts one, and returns the count of the current minute. The first ones aren't stored.
func (c *minuteCounts[K]) add(key K, first int64) (count int64) {
	at := minuteKey[K]{c.now().Unix() / 60, key}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counts[at]
	if n == nil {
		n = &minuteCount{}
		c.counts[at] = n
	}
	if n.count++; n.count > first {
		n.unstored++
	}
	return n.count
}

// Run stores counts until ctx ends, and then the remaining ones.
func (c *minuteCounts[K]) Run(ctx context.Context) { db.FlushEvery(ctx, countsFlush, c.flush) }

func (c *minuteCounts[K]) flush(ctx context.Context) {
	minute := c.now().Unix() / 60
	var rows [][]any
	c.mu.Lock()
	for at, n := range c.counts {
		if n.unstored > 0 {
			rows = append(rows, c.row(at.minute, at.key, n.unstored))
			n.unstored = 0
		}
		if at.minute < minute {
			delete(c.counts, at)
		}
	}
	c.mu.Unlock()
	if len(rows) == 0 {
		return
	}
	err := c.db.Write(ctx, func(tx *db.Tx) error {
		_, err := c.insert.Write(ctx, tx, rows)
		return err
	})
	if err != nil {
		slog.Warn("failed to store the counts of rejected requests; dropping them", "error", err, "counts", len(rows))
	}
}

// Refused counts rejected keys by client address and minute, and limits them
// per address.
type Refused struct {
	minuteCounts[string]       // by network
	limit                int64 // per minute and address; 0 for no limit
	all                  *addrlimit.Limiter
	lookups              *addrlimit.Limiter // of well-formed keys that needed a database query
}

var insertRefused = db.NewBulk("refused_keys", "ON CONFLICT (minute, ip) DO UPDATE SET count = refused_keys.count + excluded.count",
	"minute bigint", "ip text", "count bigint")

// NewRefused returns a counter. Run stores its counts.
func NewRefused(d *db.DB, limit int64, now func() time.Time) *Refused {
	return &Refused{limit: limit, all: addrlimit.New(limit, now), lookups: addrlimit.New(limit, now),
		minuteCounts: minuteCounts[string]{db: d, now: now, insert: insertRefused, counts: map[minuteKey[string]]*minuteCount{},
			row: func(minute int64, network string, n int64) []any { return []any{minute, network, n} }}}
}

// LookupWait returns how long a client must wait before another unknown key is
// looked up for it.
func (r *Refused) LookupWait(ip netip.Addr) time.Duration { return r.lookups.Wait(ip) }

// Add counts a rejected key, and whether it was looked up in the database. If
// the client is past the limit, Add returns how long it must wait.
func (r *Refused) Add(ip netip.Addr, lookedUp bool) (wait time.Duration) {
	now := r.now()
	if lookedUp {
		r.lookups.Add(ip)
	}
	network, count := r.all.Add(ip)
	name := networkName(network)
	r.add(name, 0)
	if r.limit == 0 || count <= r.limit {
		return 0
	}
	if count == r.limit+1 { // once a minute
		slog.Warn("an address sends too many rejected keys and has to wait", "ip", name, "refused", count)
	}
	return time.Unix((now.Unix()/60+1)*60, 0).Sub(now)
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

// PurgeRefused deletes counts past their retention.
func PurgeRefused(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM refused_keys WHERE (minute, ip) IN
		(SELECT minute, ip FROM refused_keys WHERE minute < $1 LIMIT $2)`, before.Unix()/60, limit)
}

// throttledEntries is how many requests over a rate limit get a log entry,
// per key and minute. 60 show who sends what, and can't fill a disk.
const throttledEntries = 60

// Throttled limits the log entries of requests over a rate limit. On each node
// the first 60 per key and minute get one. The others are only counted.
type Throttled struct{ minuteCounts[throttledKey] }

type throttledKey struct {
	visibility.Tenant
	keyID string
}

var insertThrottled = db.NewBulk("throttled_requests", "ON CONFLICT (minute, key_id) DO UPDATE SET count = throttled_requests.count + excluded.count",
	"minute bigint", "key_id text", "workspace_id text", "environment text", "count bigint")

// NewThrottled returns a counter. Run stores its counts.
func NewThrottled(d *db.DB, now func() time.Time) *Throttled {
	return &Throttled{minuteCounts[throttledKey]{db: d, now: now, insert: insertThrottled, counts: map[minuteKey[throttledKey]]*minuteCount{},
		row: func(minute int64, k throttledKey, n int64) []any {
			return []any{minute, k.keyID, k.WorkspaceID, string(k.Environment), n}
		}}}
}

// Add counts a request and reports whether it gets an entry in the log.
func (t *Throttled) Add(e Entry) (logged bool) {
	return t.add(throttledKey{e.Tenant, e.KeyID}, throttledEntries) <= throttledEntries
}

// PurgeThrottled deletes at most limit counts from before a time.
func PurgeThrottled(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM throttled_requests WHERE (minute, key_id) IN
		(SELECT minute, key_id FROM throttled_requests WHERE minute < $1 LIMIT $2)`, before.Unix()/60, limit)
}
