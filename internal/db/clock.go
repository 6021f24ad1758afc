package db

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	compareEvery = 5 * time.Second
	// A difference of less than this is not told from the way to the database.
	sameTime = 50 * time.Millisecond
	// An answer that took longer says too little.
	comparePatience = time.Second
	// ClocksDiffer is from when on somebody should set a machine's clock.
	ClocksDiffer = 2 * time.Second
)

// clock tells the time that all servers of a database have in common: the
// database's, carried on by this machine's monotonic clock. What one of them
// writes and another compares with the time of day goes by it. The times of day
// of two machines differ, and are set.
type clock struct {
	local func() time.Time
	begun time.Time
	ahead atomic.Int64 // nanoseconds by which the database is ahead of begun and what has passed since
	told  atomic.Bool  // that the machine's differs
}

func newClock(local func() time.Time) *clock { return &clock{local: local, begun: local()} }

// passed is a moment of this machine by what has passed since the beginning,
// whatever its time of day was set to meanwhile.
func (c *clock) passed(t time.Time) time.Time { return c.begun.Round(0).Add(t.Sub(c.begun)) }

// At is a moment of this machine in the time that all servers have in common.
// With the embedded database there is one.
func (d *DB) At(t time.Time) time.Time {
	if d.clock == nil {
		return t
	}
	return d.clock.passed(t).Add(time.Duration(d.clock.ahead.Load()))
}

// Now is the time that all servers of the database have in common.
func (d *DB) Now() time.Time {
	if d.clock == nil {
		return time.Now()
	}
	return d.At(d.clock.local())
}

// Behind is by how much this machine's time of day is behind the database's.
func (d *DB) Behind() time.Duration {
	if d.clock == nil {
		return 0
	}
	t := d.clock.local()
	return d.At(t).Sub(t.Round(0))
}

// CompareClocks asks the database for its time. The embedded one has none of its
// own.
func (d *DB) CompareClocks(ctx context.Context) error {
	c := d.clock
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, comparePatience)
	defer cancel()
	before := c.local()
	var us int64
	if err := d.QueryRow(ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(&us); err != nil {
		return err
	}
	took := c.local().Sub(before)
	ahead := time.UnixMicro(us).Sub(c.passed(before.Add(took / 2)))
	if was := time.Duration(c.ahead.Load()); (ahead - was).Abs() > sameTime+took/2 {
		c.ahead.Store(int64(ahead))
	}
	behind := d.Behind()
	if differs := behind.Abs() > ClocksDiffer; c.told.CompareAndSwap(!differs, differs) {
		if differs {
			slog.Warn("the clocks of this machine and of the database differ: set them; until then times in lists are not in order", "behind", behind.Round(time.Millisecond).String())
		} else {
			slog.Info("the clocks of this machine and of the database agree again")
		}
	}
	return nil
}

// keepTime compares the clocks until ctx ends. One that cannot be compared goes
// on as it is.
func (d *DB) keepTime(ctx context.Context) {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = d.CompareClocks(ctx) // whoever needs the database says so when it is away
		case <-ctx.Done():
			return
		}
	}
}
