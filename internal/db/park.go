package db

import (
	"log/slog"
	"time"
)

// An item of a durable queue that the database rejects is parked: it no longer takes part in commits
// with others, and is retried alone. It stays in memory until it is written or the process ends. Then
// its work is repeated, as after a crash: what it is the result of is still stored.

const (
	// The delay of a parked item doubles from retryInterval to maxParkedDelay.
	maxParkedDelay = time.Minute
	// alertAfter is how often an item must be rejected until operators are alerted, which takes 8 seconds.
	alertAfter = 5
	// maxParkedTries limits the parked items that are tried between two commits of others.
	maxParkedTries = 16
)

// parked is an item that the database rejects.
type parked struct {
	one      groupBatch
	rejected int // how often
	due      time.Time
	err      error
}

// reject fails an item that the database rejects, or parks it if its queue is durable.
func (g *Group) reject(one groupBatch, err error) {
	if !one.queue().durable {
		one.finish(err)
		return
	}
	g.park(parked{one: one, err: err})
}

func (g *Group) park(p parked) {
	delay := min(retryInterval<<min(p.rejected, 16), maxParkedDelay)
	p.rejected++
	p.due = time.Now().Add(delay)
	queue := p.one.queue()
	args := []any{"group", g.name, "queue", queue.name, "item", p.one.item(), "error", p.err, "retry_in", delay}
	switch {
	case p.rejected == alertAfter:
		slog.Error("the database rejects a result; keeping it in memory and retrying until the cause is fixed", args...)
	case p.rejected < alertAfter:
		slog.Warn("the database rejects a result; retrying", args...)
	}
	queue.parked.Add(1)
	g.parked = append(g.parked, p)
}

// untilRetry returns a channel that receives when a parked item is due, or nil without one.
func (g *Group) untilRetry() <-chan time.Time {
	if len(g.parked) == 0 {
		return nil
	}
	first := g.parked[0].due
	for _, p := range g.parked {
		if p.due.Before(first) {
			first = p.due
		}
	}
	return time.After(time.Until(first))
}

// retryParked tries parked items that are due, each alone. If the process stops, it tries each a last
// time, and then gives it up.
func (g *Group) retryParked(stopping bool) {
	last := stopping || g.giveUp.Load()
	list, tries, now := g.parked, 0, time.Now()
	g.parked = nil
	for _, p := range list {
		if g.doubt != nil || !last && (tries == maxParkedTries || p.due.After(now)) {
			g.parked = append(g.parked, p)
			continue
		}
		tries++
		p.one.queue().parked.Add(-1)
		switch err := g.write([]groupBatch{p.one}); {
		case g.doubt != nil: // resolve knows it
		case err == nil:
			p.one.finish(nil)
		case last:
			slog.Error("gave up a result that the database rejects; its work is repeated after the next start", "group", g.name, "queue", p.one.queue().name, "item", p.one.item(), "error", err)
			p.one.finish(err)
		default:
			if !isRejected(err) {
				p.rejected--
			} else {
				p.err = err
			}
			g.park(p)
		}
	}
}

// GiveUpParked makes groups fail what they have parked, so that no one waits for it while the process stops.
func (d *DB) GiveUpParked() {
	for _, g := range d.groups.all() {
		g.giveUp.Store(true)
		g.wakeUp()
	}
}
