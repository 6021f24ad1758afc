package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"turnpike/webhook"
)

// What is published to one endpoint.
const (
	burstEvents = 5000
	burstBatch  = 50
	warmEvents  = 1000

	steadyEvents = 1000
	steadyEvery  = 10 * time.Millisecond
)

// hookSubject is what delivers: a server, or the bare loop.
type hookSubject struct {
	name    string
	measure func(publishOrder) (hookSample, error)
}

// streams measures one endpoint: how fast a burst is delivered, against a bare
// loop, and how soon an event is when they come one after the other.
func (b *hookBench) streams(ctx context.Context, h *hooks) error {
	var servers []hookSubject
	for _, e := range b.engines {
		n, stop, err := e.node(ctx)
		if err != nil {
			return err
		}
		defer stop()
		path := "/" + e.name
		if err := n.subscribe(ctx, b.to.url+path); err != nil {
			return err
		}
		if _, err := b.deliver(ctx, n, publishOrder{Count: warmEvents, Batch: burstBatch}, path); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		servers = append(servers, hookSubject{"Turnpike, " + e.name, func(o publishOrder) (hookSample, error) { return b.deliver(ctx, n, o, path) }})
	}
	loop, err := b.startLoop(ctx, "/"+b.engines[0].name, h)
	if err != nil {
		return err
	}
	defer loop.kill()
	bare := hookSubject{"bare loop", func(o publishOrder) (hookSample, error) { return loop.measure(ctx, o.Count) }}
	withBare := slices.Concat([]hookSubject{bare}, servers)

	if h.meanwhile, err = b.rounds("published meanwhile", publishOrder{Count: burstEvents, Batch: burstBatch}, withBare); err != nil {
		return err
	}
	if h.before, err = b.rounds("published before", publishOrder{Count: burstEvents, Batch: burstEvents}, withBare); err != nil {
		return err
	}
	h.steady, err = b.rounds("steady", publishOrder{Count: steadyEvents, Batch: 1, Every: steadyEvery}, servers)
	return err
}

// rounds measures the subjects in turn, so that what else the machine does
// meets all of them.
func (b *hookBench) rounds(kind string, o publishOrder, subjects []hookSubject) (all []*hookSeries, err error) {
	for _, s := range subjects {
		all = append(all, &hookSeries{subject: s.name})
	}
	for round := range b.options.rounds {
		for i, s := range subjects {
			sample, err := leastDisturbed(b.calm, func(x hookSample) float64 { return x.others }, func() (hookSample, error) { return s.measure(o) })
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", s.name, kind, err)
			}
			all[i].samples = append(all[i].samples, sample)
			sayHooks(round, kind, s.name, sample)
		}
	}
	return all, nil
}

func sayHooks(round int, kind, subject string, s hookSample) {
	say("round %d, %s, %s: %.0f deliveries/s, p99 %s, others had %.0f %%", round+1, kind, subject, s.rate(), millis(s.p99), 100*s.others)
}

// bareLoop is the process that only signs and posts.
type bareLoop struct {
	*child
	to    *receiverChild
	order senderOrder
}

// startLoop starts a loop that sends the very body that came to the path, and
// has it done once.
func (b *hookBench) startLoop(ctx context.Context, path string, h *hooks) (*bareLoop, error) {
	got, err := b.to.wait(ctx, path)
	if err != nil {
		return nil, err
	}
	h.body = len(got.Body)
	l := &bareLoop{to: b.to, order: senderOrder{URL: b.to.url + "/bare", Secret: webhook.NewSecret(), Body: got.Body, Count: warmEvents, AtOnce: h.atOnce}}
	if err := l.to.expect(ctx, "/bare", warmEvents); err != nil {
		return nil, err
	}
	l.child, err = startChild(ctx, roleSender, l.order, &published{})
	return l, err
}

// measure has the loop send a burst.
func (l *bareLoop) measure(ctx context.Context, n int) (s hookSample, err error) {
	l.order.Count = n
	if err := l.to.expect(ctx, "/bare", n); err != nil {
		return s, err
	}
	var p published
	var got receipts
	u, err := watch([]int{l.pid(), l.to.pid()}, func() (err error) {
		if err = l.ask(ctx, l.order, &p); err != nil {
			return err
		}
		got, err = l.to.wait(ctx, "/bare")
		return err
	})
	if err != nil {
		return s, err
	}
	return hookSample{count: n, took: time.Duration(slices.Max(got.At) - p.Begun), cpu: u.cpu[0], others: u.others}, nil
}
