package db

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	compareInterval = 5 * time.Second
	// clockPrecision is the smallest difference that isn't network latency.
	clockPrecision = 50 * time.Millisecond
	// compareTimeout drops slow responses, which tell too little.
	compareTimeout = time.Second
	// MaxClockSkew is the difference from which on the operator is warned.
	MaxClockSkew = 2 * time.Second
)

// clock is the time that all nodes share: the database's, advanced by this
// machine's monotonic clock. Nodes use it for times that others compare, because
// their own clocks differ and can be set.
type clock struct {
	local   func() time.Time
	started time.Time
	offset  atomic.Int64 // nanoseconds that the database is ahead of monotonic
	warned  atomic.Bool  // that the machine's clock differs
}

func newClock(local func() time.Time) *clock { return &clock{local: local, started: local()} }

// monotonic converts a local time to one that ignores changes of the wall clock.
func (c *clock) monotonic(t time.Time) time.Time { return c.started.Round(0).Add(t.Sub(c.started)) }

// At converts a local time to the time that all nodes share.
func (d *DB) At(t time.Time) time.Time {
	if d.clock == nil {
		return t
	}
	return d.clock.monotonic(t).Add(time.Duration(d.clock.offset.Load()))
}

// Now returns the time that all nodes share.
func (d *DB) Now() time.Time {
	if d.clock == nil {
		return time.Now()
	}
	return d.At(d.clock.local())
}

// ClockSkew returns how far this machine's clock is behind the database's.
func (d *DB) ClockSkew() time.Duration {
	if d.clock == nil {
		return 0
	}
	t := d.clock.local()
	return d.At(t).Sub(t.Round(0))
}

// CompareClocks reads the database's time.
func (d *DB) CompareClocks(ctx context.Context) error {
	c := d.clock
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	before := c.local()
	var us int64
	if err := d.QueryRow(ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(&us); err != nil {
		return err
	}
	took := c.local().Sub(before)
	offset := time.UnixMicro(us).Sub(c.monotonic(before.Add(took / 2)))
	if was := time.Duration(c.offset.Load()); (offset - was).Abs() > clockPrecision+took/2 {
		c.offset.Store(int64(offset))
	}
	skew := d.ClockSkew()
	if differs := skew.Abs() > MaxClockSkew; c.warned.CompareAndSwap(!differs, differs) {
		if differs {
			slog.Warn("this machine's clock differs from the database's; set it, because lists are out of order until then", "behind", skew.Round(time.Millisecond).String())
		} else {
			slog.Info("this machine's clock agrees with the database's again")
		}
	}
	return nil
}

func (d *DB) compareClocks(ctx context.Context) {
	tick := time.NewTicker(compareInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = d.CompareClocks(ctx) // an outage shows elsewhere
		case <-ctx.Done():
			return
		}
	}
}
