package main

import (
	"context"
	"fmt"
	"time"
)

// The runs that wait for somebody.
const (
	waitingRuns = 10_000
	waitingBody = `{"model":"gpt-4o","input":"Pay. [[sim:script=tool:pay]]","tools":[{"type":"function","name":"pay","require_approval":"always"}]}`

	idleSettle = 5 * time.Second // after a start
	idleLook   = 10 * time.Second
)

// idleSample is what a server with nothing to do uses.
type idleSample struct {
	cpu, storeCPU time.Duration // in idleLook
	mb            float64
}

// waitingSeries is how a server idles without any run, and with many that wait.
type waitingSeries struct {
	engine        string
	without, with idleSample
	made          time.Duration // that making them and their first steps took
}

// added is what they cost, as a share of a core.
func (s *waitingSeries) added() float64 {
	return max(0, float64(s.with.cpu-s.without.cpu)/float64(idleLook))
}

func (b *agentBench) waiting(ctx context.Context, a *agents) error {
	for _, e := range b.engines {
		s, err := b.idle(ctx, e)
		if err != nil {
			return fmt.Errorf("runs that wait, %s: %w", e.name, err)
		}
		a.waiting = append(a.waiting, s)
		say("%d runs wait, %s: made in %s; idle with %v of CPU in %v and %s, without them %v and %s", waitingRuns, e.name, seconds(s.made), s.with.cpu, idleLook,
			megabytes(s.with.mb), s.without.cpu, megabytes(s.without.mb))
	}
	return nil
}

func (b *agentBench) idle(ctx context.Context, e *engine) (*waitingSeries, error) {
	s := &waitingSeries{engine: e.name}
	at, remove, err := e.fresh(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	tenants, err := testTenants(ctx, at, stepWorkspaces)
	if err != nil {
		return nil, err
	}
	empty, err := b.serve(e, at, tenants)
	if err != nil {
		return nil, err
	}
	defer empty.Kill()
	if s.without, err = empty.idles(); err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := empty.create(ctx, runsOf(tenants, waitingRuns, waitingBody)); err != nil {
		return nil, err
	}
	if err := untilNone(ctx, at, "SELECT count(*) FROM agent_runs WHERE status <> 'awaiting_approval'"); err != nil {
		return nil, err
	}
	s.made = time.Since(begun)
	// Both are looked at after a start, so that neither has yesterday's memory.
	if err := empty.leave(); err != nil {
		return nil, err
	}
	full, err := b.serve(e, at, tenants)
	if err != nil {
		return nil, err
	}
	defer full.Kill()
	s.with, err = full.idles()
	return s, err
}

// idles looks at a server that has nothing to do.
func (s *jobServer) idles() (x idleSample, err error) {
	time.Sleep(idleSettle)
	u, err := watch(present(s.Pid(), s.store), func() error {
		time.Sleep(idleLook)
		return nil
	})
	if err != nil {
		return x, err
	}
	x.cpu = u.cpu[0]
	if s.store != 0 {
		x.storeCPU = u.cpu[1]
	}
	x.mb, err = residentMB(s.Pid())
	return x, err
}
