package audit

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"turnpike/internal/db"
)

const (
	refusedFlush = 5 * time.Second
	// refusedAddresses bounds the memory an attacker with many addresses can
	// take; what is beyond it is counted under otherAddresses.
	refusedAddresses = 10_000
	otherAddresses   = "other"
)

// Refused counts refused keys by address and minute, and says when an address
// has had too many.
type Refused struct {
	db    *db.DB
	limit int64 // per minute and address; 0: no limit
	now   func() time.Time

	mu     sync.Mutex
	counts map[refusal]*tally
}

type refusal struct {
	minute int64
	ip     string
}

type tally struct{ count, stored int64 }

// NewRefused makes a counter; Run stores what it counts.
func NewRefused(d *db.DB, limit int64, now func() time.Time) *Refused {
	return &Refused{db: d, limit: limit, now: now, counts: map[refusal]*tally{}}
}

// Add counts a refused key. When the address is past the limit it returns how
// long until the next minute begins.
func (r *Refused) Add(ip string) (wait time.Duration, limited bool) {
	now := r.now()
	minute := now.Unix() / 60
	r.mu.Lock()
	defer r.mu.Unlock()
	at := refusal{minute, source(ip)}
	c := r.counts[at]
	if c == nil {
		if len(r.counts) >= refusedAddresses {
			at.ip = otherAddresses
			c = r.counts[at]
		}
		if c == nil {
			c = &tally{}
			r.counts[at] = c
		}
	}
	c.count++
	if r.limit > 0 && c.count > r.limit && at.ip != otherAddresses {
		if c.count == r.limit+1 { // once a minute
			slog.Warn("an address sends refused keys and has to wait", "ip", at.ip, "refused", c.count)
		}
		return time.Unix((minute+1)*60, 0).Sub(now), true
	}
	return 0, false
}

// source is what counts as one address: in IPv6 a /64, which is what one
// customer of a network has.
func source(ip string) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil || addr.Unmap().Is4() {
		return ip
	}
	network, err := addr.WithZone("").Prefix(64)
	if err != nil {
		return ip
	}
	return network.String()
}

// Run stores counts until ctx ends, and then the last of them.
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
			rows = append(rows, []any{at.minute, at.ip, more})
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

// PurgeRefused deletes counts past their window.
func PurgeRefused(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM refused_keys WHERE (minute, ip) IN
		(SELECT minute, ip FROM refused_keys WHERE minute < $1 LIMIT $2)`, before.Unix()/60, limit)
}
