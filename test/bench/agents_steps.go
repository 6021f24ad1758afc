package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// The runs whose steps are counted.
const (
	stepRuns       = 1000
	stepWorkspaces = 10
	stepsEach      = 10
	// Every step but the last calls a tool that does not exist, which the
	// engine answers by itself: nothing but the model and the store is asked.
	stepBody = `{"model":"gpt-4o","input":"Go on. [[sim:script=unknown:nothing*9;text:done]]"}`
)

// stepSample is one measurement of steps.
type stepSample struct {
	count    int // that were left when the clock was started
	took     time.Duration
	cpu      time.Duration // of the server, for all of them
	storeCPU time.Duration
	commits  int64 // of transactions that wrote
	peak     float64
	others   float64
}

func (s stepSample) rate() float64 { return float64(s.count) / s.took.Seconds() }

// stepSeries is one engine's samples, a round each.
type stepSeries struct {
	engine  string
	samples []stepSample
}

// steps measures how fast runs are worked that wait already.
func (b *agentBench) steps(ctx context.Context, a *agents) error {
	for _, e := range b.engines {
		a.steps = append(a.steps, &stepSeries{engine: e.name})
	}
	for round := range b.options.rounds {
		for i, s := range a.steps {
			x, err := leastDisturbed(b.calm, func(x stepSample) float64 { return x.others }, func() (stepSample, error) { return b.worked(ctx, b.engines[i]) })
			if err != nil {
				return fmt.Errorf("steps, %s: %w", s.engine, err)
			}
			s.samples = append(s.samples, x)
			say("round %d, steps, %s: %.0f steps/s, %.0f µs of the server's and %.0f µs of the database's CPU each, %.2f commits each, others had %.0f %%", round+1, s.engine,
				x.rate(), micro(x.cpu, x.count), micro(x.storeCPU, x.count), float64(x.commits)/float64(x.count), 100*x.others)
		}
	}
	return nil
}

func micro(d time.Duration, n int) float64 { return float64(d) / float64(n) / 1e3 }

// worked has runs made, and a server work what is left of them.
func (b *agentBench) worked(ctx context.Context, e *engine) (s stepSample, err error) {
	at, remove, err := e.fresh(ctx)
	if err != nil {
		return s, err
	}
	defer remove()
	tenants, err := testTenants(ctx, at, stepWorkspaces)
	if err != nil {
		return s, err
	}
	slow, err := b.serve(e, at, tenants, oneAtATime...)
	if err != nil {
		return s, err
	}
	defer slow.Kill()
	if err := slow.create(ctx, runsOf(tenants, stepRuns, stepBody)); err != nil {
		return s, err
	}
	if err := slow.leave(); err != nil {
		return s, err
	}
	if err := b.calm.wait(); err != nil {
		return s, err
	}
	server, err := b.serve(e, at, tenants)
	if err != nil {
		return s, err
	}
	defer server.Kill()
	u, err := watch(present(server.Pid(), server.store), func() error { return s.untilDone(ctx, at) })
	if err != nil {
		return s, err
	}
	s.cpu, s.others = u.cpu[0], u.others
	if server.store != 0 {
		s.storeCPU = u.cpu[1]
	}
	s.peak, err = peakMB(server.Pid())
	return s, err
}

// untilDone counts what is left of the runs, and waits for their end.
func (s *stepSample) untilDone(ctx context.Context, at program.Place) error {
	d, err := app.OpenDatabase(ctx, settings(at))
	if err != nil {
		return err
	}
	defer d.Close()
	begun := time.Now()
	// The server is at work already: from here on, what is left counts.
	done, err := stepsDone(ctx, d)
	if err != nil {
		return err
	}
	before, err := commits(ctx, d, at)
	if err != nil {
		return err
	}
	if err := untilNone(ctx, at, "SELECT count(*) FROM agent_runs WHERE completed_at IS NULL"); err != nil {
		return err
	}
	s.took = time.Since(begun)
	after, err := commits(ctx, d, at)
	if err != nil {
		return err
	}
	s.count, s.commits = stepRuns*stepsEach-done, after-before
	all, err := stepsDone(ctx, d)
	if err == nil && all != stepRuns*stepsEach {
		err = fmt.Errorf("%d steps were made of %d", all, stepRuns*stepsEach)
	}
	return err
}

// stepsDone is how many have an answer.
func stepsDone(ctx context.Context, d *db.DB) (n int, err error) {
	err = d.QueryRow(ctx, "SELECT count(*) FROM agent_steps WHERE status = 'completed'").Scan(&n)
	return n, err
}

// commits is how many transactions have written so far.
func commits(ctx context.Context, d *db.DB, at program.Place) (n int64, err error) {
	if d.Engine() == "postgres" {
		// The next transaction's number: only those that write get one.
		err = d.QueryRow(ctx, "SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)").Scan(&n)
		return n, err
	}
	// SQLite counts them in the index of its log, in the third word.
	found, err := filepath.Glob(filepath.Join(at.Folder, "*-shm"))
	if err != nil || len(found) != 1 {
		return 0, fmt.Errorf("the index of SQLite's log is not in its folder: %w", err)
	}
	f, err := os.Open(found[0])
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var words [3]uint32
	if err := binary.Read(f, binary.NativeEndian, &words); err != nil {
		return 0, err
	}
	return int64(words[2]), nil
}
