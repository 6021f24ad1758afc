package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A workspace with much to do, and one that comes behind it.
const (
	busyJobs  = 5000
	lateJobs  = 10
	latePoll  = 20 * time.Millisecond
	slowModel = 500 * time.Millisecond
)

// besideSeries is how long a job takes on a server that has nothing to do, and
// on one where another workspace has thousands waiting.
type besideSeries struct {
	engine string
	model  time.Duration // that the neighbour's pictures take each
	alone  []time.Duration
	beside []time.Duration
	left   int // jobs of the neighbour's that were not done when the last was
}

// added is the longest that the neighbour made one wait, against the median of
// a server without it.
func (s *besideSeries) added() time.Duration { return slices.Max(s.beside) - median(s.alone) }

func (b *mediaBench) neighbours(ctx context.Context, m *media) error {
	for _, e := range b.engines {
		for _, model := range []time.Duration{0, slowModel} {
			s, err := b.beside(ctx, e, model)
			if err != nil {
				return fmt.Errorf("beside a busy workspace, %s: %w", e.name, err)
			}
			m.beside = append(m.beside, s)
			say("beside a busy workspace whose pictures take %v, %s: %s at most, alone %s; %d jobs were left", model, e.name, millis(slices.Max(s.beside)), millis(median(s.alone)), s.left)
		}
	}
	return nil
}

func (b *mediaBench) beside(ctx context.Context, e *engine, model time.Duration) (*besideSeries, error) {
	s := &besideSeries{engine: e.name, model: model}
	at, remove, err := e.fresh(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	tenants, err := testTenants(ctx, at, 2)
	if err != nil {
		return nil, err
	}
	idle, err := b.serve(e, at, tenants)
	if err != nil {
		return nil, err
	}
	defer idle.Kill()
	if _, err := idle.late(ctx, 1); err != nil { // makes the connections
		return nil, err
	}
	if s.alone, err = idle.late(ctx, lateJobs); err != nil {
		return nil, err
	}
	if err := idle.Terminate(); err != nil {
		return nil, err
	}
	if _, err := idle.Wait(askPatience); err != nil {
		return nil, err
	}
	jobs := make([]newJob, busyJobs)
	for i := range jobs {
		prompt := fmt.Sprintf("a harbour at dawn, number %d", i)
		if model > 0 {
			prompt += fmt.Sprintf(" [[sim:delay=%v]]", model)
		}
		jobs[i] = onePicture(tenants[0], prompt)
	}
	busy, err := b.queued(ctx, e, at, tenants, jobs)
	if err != nil {
		return nil, err
	}
	defer busy.Kill()
	if s.beside, err = busy.late(ctx, lateJobs); err != nil {
		return nil, err
	}
	s.left, err = open(ctx, at)
	return s, err
}

// late has jobs of the second tenant done, one after the other.
func (s *jobServer) late(ctx context.Context, n int) (all []time.Duration, err error) {
	for i := range n {
		_, took, err := s.done(ctx, onePicture(s.tenants[1], fmt.Sprintf("a hill at dusk, number %d", i)), latePoll)
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
}

func onePicture(t tenant, prompt string) newJob {
	return newJob{t, "/v1/images/batches", fmt.Appendf(nil, `{"requests":[{"custom_id":"a","body":{"prompt":%q,"size":"256x256"}}]}`, prompt)}
}
