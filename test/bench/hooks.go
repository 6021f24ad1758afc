package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"turnpike/test/chaos/program"
)

// hooks is what was measured of webhooks.
type hooks struct {
	body       int           // bytes of a delivery
	atOnce     int           // attempts to one endpoint
	engines    []string      // their names
	meanwhile  []*hookSeries // a burst, published while it is delivered; the bare loop's first
	before     []*hookSeries // one that was published before
	steady     []*hookSeries // one event after the other; no bare loop
	neighbours []*neighbours
	pending    []*pendingSeries
}

// hookSample is one measurement of deliveries.
type hookSample struct {
	count    int
	took     time.Duration
	p50, p99 time.Duration // from the commit to the receipt
	cpu      time.Duration // of the server, for all deliveries
	storeCPU time.Duration
	others   float64
}

func (s hookSample) rate() float64 { return float64(s.count) / s.took.Seconds() }

// hookSeries is one subject's samples, a round each.
type hookSeries struct {
	subject string
	samples []hookSample
}

// measureHooks measures deliveries. Without a database it does without
// PostgreSQL.
func measureHooks(ctx context.Context, o options, database *postgres) (*hooks, error) {
	engines := []*engine{{name: "SQLite", folder: o.folder}}
	if database != nil {
		engines = append(engines, &engine{name: "PostgreSQL", folder: o.folder, database: database})
	}
	to, err := startReceiver(ctx)
	if err != nil {
		return nil, err
	}
	defer to.kill()
	h := &hooks{atOnce: settings(program.Place{}).Webhooks.PerEndpoint}
	for _, e := range engines {
		h.engines = append(h.engines, e.name)
	}
	b := &hookBench{options: o, engines: engines, to: to, calm: &calm{left: patience}}
	for _, part := range []func(context.Context, *hooks) error{b.streams, b.neighbours, b.pending} {
		if err := part(ctx, h); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// hookBench is what the measurements share.
type hookBench struct {
	options options
	engines []*engine
	to      *receiverChild
	calm    *calm
}

// engine is a kind of database.
type engine struct {
	name     string
	folder   string
	database *postgres // nil for the embedded one
	made     int
}

// fresh makes an empty database. remove is to be called when no server is on
// it any more.
func (e *engine) fresh(ctx context.Context) (at program.Place, remove func(), err error) {
	e.made++
	name := fmt.Sprintf("hooks%d", e.made)
	at.Folder = filepath.Join(e.folder, e.name+name)
	if err := os.Mkdir(at.Folder, 0o700); err != nil {
		return at, nil, err
	}
	if e.database != nil {
		if at.DatabaseURL, err = e.database.create(ctx, name); err != nil {
			return at, nil, err
		}
	}
	return at, func() {
		_ = os.RemoveAll(at.Folder) // what stays behind goes at the end
		if e.database != nil {
			e.database.drop(name)
		}
	}, nil
}

// node starts a server with a tenant on an empty database.
func (e *engine) node(ctx context.Context) (n *node, stop func(), err error) {
	at, remove, err := e.fresh(ctx)
	if err != nil {
		return nil, nil, err
	}
	t, err := newTenant(ctx, at)
	if err == nil {
		n, err = startNode(ctx, at, t)
	}
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("%s: %w", e.name, err)
	}
	n.store = e.store()
	return n, func() {
		n.kill()
		remove()
	}, nil
}

// store is the process of the database, 0 when it has none.
func (e *engine) store() int {
	if e.database == nil {
		return 0
	}
	return e.database.cmd.Process.Pid
}

// receiverChild is the customer's server.
type receiverChild struct {
	*child
	url string
}

func startReceiver(ctx context.Context) (*receiverChild, error) {
	var first receipts
	c, err := startChild(ctx, roleReceiver, receiverOrder{}, &first)
	if err != nil {
		return nil, err
	}
	return &receiverChild{c, "http://" + first.Address}, nil
}

// expect announces deliveries to a path. What came there before is forgotten.
func (r *receiverChild) expect(ctx context.Context, path string, n int) error {
	return r.ask(ctx, receiverOrder{Path: path, Expect: n}, &receipts{})
}

// wait returns when all of them have come.
func (r *receiverChild) wait(ctx context.Context, path string) (got receipts, err error) {
	if err := r.ask(ctx, receiverOrder{Path: path}, &got); err != nil {
		return got, err
	}
	if got.Missing > 0 {
		return got, fmt.Errorf("of %d deliveries to %s %d did not come within %v", len(got.At), path, got.Missing, receiptPatience)
	}
	return got, nil
}

// settle is how long after the last receipt a server is watched: the outcomes
// of the last deliveries are still to be written.
const settle = 100 * time.Millisecond

// deliver has a server publish and waits for the receipts at the path.
func (b *hookBench) deliver(ctx context.Context, n *node, o publishOrder, path string) (s hookSample, err error) {
	if err := b.to.expect(ctx, path, o.Count); err != nil {
		return s, err
	}
	var p published
	var got receipts
	u, err := watch(present(n.pid(), b.to.pid(), n.store), func() (err error) {
		if p, err = n.publish(ctx, o); err != nil {
			return err
		}
		got, err = b.to.wait(ctx, path)
		time.Sleep(settle)
		return err
	})
	if err != nil {
		return s, err
	}
	s = hookSample{count: o.Count, cpu: u.cpu[0], others: u.others, took: time.Duration(slices.Max(got.At) - p.Begun)}
	if n.store != 0 {
		s.storeCPU = u.cpu[2]
	}
	if o.Batch >= o.Count { // then all of it was there before anything could be delivered
		s.took = time.Duration(slices.Max(got.At) - p.Ended)
	}
	waits := make([]time.Duration, o.Count)
	for i := range waits {
		waits[i] = time.Duration(max(0, got.At[i]-p.Committed[i])) // the receipt may be there before we have looked at the clock
	}
	slices.Sort(waits)
	s.p50, s.p99 = waits[len(waits)/2], waits[len(waits)*99/100]
	return s, nil
}
