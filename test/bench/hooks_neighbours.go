package main

import (
	"context"
	"fmt"
	"time"
)

// What is published to two endpoints: a burst, and then one event after the
// other.
const (
	neighbourEvents = 2000
	neighbourSteady = 1000
	neighbourEvery  = 5 * time.Millisecond
)

// neighbours is how an endpoint does beside a healthy one and beside one that
// never answers, a round each.
type neighbours struct {
	engine  string
	healthy []neighbourSample
	hanging []neighbourSample
}

type neighbourSample struct{ burst, steady hookSample }

func (b *hookBench) neighbours(ctx context.Context, h *hooks) error {
	for _, e := range b.engines {
		h.neighbours = append(h.neighbours, &neighbours{engine: e.name})
	}
	for round := range b.options.rounds {
		for i, e := range b.engines {
			for _, kind := range []struct {
				path string
				into *[]neighbourSample
			}{{"/second", &h.neighbours[i].healthy}, {hangingPath, &h.neighbours[i].hanging}} {
				s, err := leastDisturbed(b.calm, func(s neighbourSample) float64 { return max(s.burst.others, s.steady.others) },
					func() (neighbourSample, error) { return b.beside(ctx, e, kind.path) })
				if err != nil {
					return fmt.Errorf("%s beside %s: %w", e.name, kind.path, err)
				}
				*kind.into = append(*kind.into, s)
				sayHooks(round, "burst beside "+kind.path, e.name, s.burst)
				sayHooks(round, "steady beside "+kind.path, e.name, s.steady)
			}
		}
	}
	return nil
}

// beside measures a healthy endpoint whose neighbour is at the path. The
// server is new each time, and is killed at the end: what the neighbour did
// not take stays where it is.
func (b *hookBench) beside(ctx context.Context, e *engine, path string) (s neighbourSample, err error) {
	n, stop, err := e.node(ctx)
	if err != nil {
		return s, err
	}
	defer stop()
	for _, p := range []string{"/first", path} {
		if err := n.subscribe(ctx, b.to.url+p); err != nil {
			return s, err
		}
	}
	deliver := func(o publishOrder) (s hookSample, err error) {
		if path == hangingPath {
			return b.deliver(ctx, n, o, "/first")
		}
		if err := b.to.expect(ctx, path, o.Count); err != nil {
			return s, err
		}
		if s, err = b.deliver(ctx, n, o, "/first"); err != nil {
			return s, err
		}
		_, err = b.to.wait(ctx, path)
		return s, err
	}
	if _, err := deliver(publishOrder{Count: warmEvents, Batch: burstBatch}); err != nil {
		return s, err
	}
	if s.burst, err = deliver(publishOrder{Count: neighbourEvents, Batch: burstBatch}); err != nil {
		return s, err
	}
	s.steady, err = deliver(publishOrder{Count: neighbourSteady, Batch: 1, Every: neighbourEvery})
	return s, err
}
