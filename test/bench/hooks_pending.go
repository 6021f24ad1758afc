package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"turnpike/test/chaos/program"
)

const (
	firstDeliveries = 1000
	listCalls       = 21
	pendingWork     = 5 * time.Second // for how long the memory is looked at
)

// pendingSeries is one engine's figures, by the number of waiting deliveries.
type pendingSeries struct {
	engine string
	sizes  []pendingSample
}

// pendingSample is how a server does with many deliveries that wait.
type pendingSample struct {
	pending int
	filled  time.Duration
	first   time.Duration // from the start of the server to the receipt of the first deliveries
	lists   []listSample
	mb      float64 // the highest while it worked
}

// listSample is what a page of GET /v1/deliveries took.
type listSample struct {
	name    string
	median  time.Duration
	slowest time.Duration
}

func (b *hookBench) pending(ctx context.Context, h *hooks) error {
	for _, e := range b.engines {
		s := &pendingSeries{engine: e.name}
		h.pending = append(h.pending, s)
		for _, n := range b.options.pending {
			one, err := b.pendingAt(ctx, e, n)
			if err != nil {
				return fmt.Errorf("%s with %d waiting deliveries: %w", e.name, n, err)
			}
			s.sizes = append(s.sizes, one)
			say("%s, %d wait: filled in %s, first %d after %s, lists %s, %s", e.name, n, seconds(one.filled), firstDeliveries, seconds(one.first),
				joined(one.lists, func(l listSample) string { return millis(l.median) }), megabytes(one.mb))
		}
	}
	return nil
}

func (b *hookBench) pendingAt(ctx context.Context, e *engine, pending int) (s pendingSample, err error) {
	s.pending = pending
	at, remove, err := e.fresh(ctx)
	if err != nil {
		return s, err
	}
	defer remove()
	begun := time.Now()
	f, err := fill(ctx, at, b.to.url+"/pending", pending)
	if err != nil {
		return s, err
	}
	s.filled = time.Since(begun)
	if s.lists, err = b.lists(ctx, e, at, f); err != nil {
		return s, err
	}
	if err := release(ctx, at); err != nil {
		return s, err
	}
	if err := b.calm.wait(); err != nil {
		return s, err
	}
	err = b.work(ctx, at, f, &s)
	return s, err
}

// pages is what one look at all of the lists took.
type pages struct {
	lists  []listSample
	others float64
}

// lists asks a server that is at rest for pages of deliveries.
func (b *hookBench) lists(ctx context.Context, e *engine, at program.Place, f filled) ([]listSample, error) {
	n, err := startNode(ctx, at, f.tenant)
	if err != nil {
		return nil, err
	}
	defer n.kill()
	best, err := leastDisturbed(b.calm, func(p pages) float64 { return p.others }, func() (p pages, err error) {
		u, err := watch(present(n.pid(), e.store()), func() (err error) {
			p.lists, err = n.lists(ctx, f.endpoint)
			return err
		})
		p.others = u.others
		return p, err
	})
	return best.lists, err
}

func (n *node) lists(ctx context.Context, endpoint string) (all []listSample, err error) {
	for _, list := range []struct{ name, query string }{
		{"first page", ""},
		{"one endpoint's, pending", "?status=pending&endpoint=" + endpoint},
		{"failed", "?status=failed"}, // there is none
	} {
		took := make([]time.Duration, 0, listCalls)
		for i := range listCalls + 1 {
			begun := time.Now()
			if _, err := n.call(ctx, http.MethodGet, "/v1/deliveries"+list.query, nil); err != nil {
				return nil, err
			}
			if i > 0 { // the first one makes the connections
				took = append(took, time.Since(begun))
			}
		}
		all = append(all, listSample{list.name, median(took), slices.Max(took)})
	}
	return all, nil
}

// work starts a server that finds all of it due.
func (b *hookBench) work(ctx context.Context, at program.Place, f filled, s *pendingSample) error {
	first := min(firstDeliveries, s.pending)
	if err := b.to.expect(ctx, "/pending", first); err != nil {
		return err
	}
	n, err := startNode(ctx, at, f.tenant)
	if err != nil {
		return err
	}
	defer n.kill()
	for end := time.Now().Add(pendingWork); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		mb, err := residentMB(n.pid())
		if err != nil {
			return err
		}
		s.mb = max(s.mb, mb)
	}
	got, err := b.to.wait(ctx, "/pending")
	if err != nil {
		return err
	}
	s.first = time.Duration(slices.Max(got.At) - n.Begun)
	return nil
}
