package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// The pictures that are drawn.
const (
	pictureWorkspaces = 50
	pictureBatches    = 200
	batchPictures     = 50
	picturesInAll     = pictureBatches * batchPictures
	warmPictures      = 500
)

// mediaSample is one measurement of pictures.
type mediaSample struct {
	count    int // that waited when the clock was started
	took     time.Duration
	cpu      time.Duration // of the server, for all of them
	storeCPU time.Duration
	others   float64
}

func (s mediaSample) rate() float64 { return float64(s.count) / s.took.Seconds() }

// mediaSeries is one subject's samples, a round each.
type mediaSeries struct {
	subject string
	samples []mediaSample
}

// pictures measures how fast batches are worked that wait already.
func (b *mediaBench) pictures(ctx context.Context, m *media) error {
	pool, err := startChild(ctx, rolePool, poolOrder{Count: warmPictures}, &published{})
	if err != nil {
		return err
	}
	defer pool.kill()
	m.pictures = []*mediaSeries{{subject: "drawing loop"}}
	for _, e := range b.engines {
		m.pictures = append(m.pictures, &mediaSeries{subject: "Turnpike, " + e.name})
	}
	for round := range b.options.rounds {
		for i, s := range m.pictures {
			x, err := leastDisturbed(b.calm, func(x mediaSample) float64 { return x.others }, func() (mediaSample, error) {
				if i == 0 {
					return drawn(ctx, pool)
				}
				return b.batches(ctx, b.engines[i-1])
			})
			if err != nil {
				return fmt.Errorf("pictures, %s: %w", s.subject, err)
			}
			s.samples = append(s.samples, x)
			say("round %d, pictures, %s: %.0f pictures/s, others had %.0f %%", round+1, s.subject, x.rate(), 100*x.others)
		}
	}
	return nil
}

// drawn has the loop draw.
func drawn(ctx context.Context, pool *child) (s mediaSample, err error) {
	var p published
	u, err := watch([]int{pool.pid()}, func() error { return pool.ask(ctx, poolOrder{Count: picturesInAll}, &p) })
	if err != nil {
		return s, err
	}
	return mediaSample{count: picturesInAll, took: time.Duration(p.Ended - p.Begun), cpu: u.cpu[0], others: u.others}, nil
}

// batches has a server work what waits.
func (b *mediaBench) batches(ctx context.Context, e *engine) (s mediaSample, err error) {
	at, remove, err := e.fresh(ctx)
	if err != nil {
		return s, err
	}
	defer remove()
	tenants, err := testTenants(ctx, at, pictureWorkspaces)
	if err != nil {
		return s, err
	}
	jobs, err := batchesOf(tenants)
	if err != nil {
		return s, err
	}
	server, err := b.queued(ctx, e, at, tenants, jobs)
	if err != nil {
		return s, err
	}
	defer server.Kill()
	d, err := app.OpenDatabase(ctx, settings(at))
	if err != nil {
		return s, err
	}
	defer d.Close()
	u, err := watch(present(server.Pid(), server.store), func() error {
		// The server is at work already: from here on, what is left counts.
		begun := time.Now()
		if err := d.QueryRow(ctx, "SELECT count(*) FROM media_tasks WHERE due_at IS NOT NULL").Scan(&s.count); err != nil {
			return err
		}
		err := ended(ctx, d)
		s.took = time.Since(begun)
		return err
	})
	if err != nil {
		return s, err
	}
	s.cpu, s.others = u.cpu[0], u.others
	if server.store != 0 {
		s.storeCPU = u.cpu[1]
	}
	return s, nil
}

// batchesOf orders the pictures, from workspace to workspace.
func batchesOf(tenants []tenant) ([]newJob, error) {
	type request struct {
		CustomID string          `json:"custom_id"`
		Body     json.RawMessage `json:"body"`
	}
	jobs := make([]newJob, pictureBatches)
	for i := range jobs {
		requests := make([]request, batchPictures)
		for k := range requests {
			n := i*batchPictures + k
			requests[k] = request{fmt.Sprint(n), json.RawMessage(pictureBody(n))}
		}
		body, err := json.Marshal(map[string]any{"requests": requests})
		if err != nil {
			return nil, err
		}
		jobs[i] = newJob{tenants[i%len(tenants)], "/v1/images/batches", body}
	}
	return jobs, nil
}

// lookEvery is how often the store is asked whether jobs have ended.
const lookEvery = 20 * time.Millisecond

// ended returns when everybody can see that no job is open any more, and all
// pictures are there.
func ended(ctx context.Context, d *db.DB) error {
	for end := time.Now().Add(askPatience); time.Now().Before(end); time.Sleep(lookEvery) {
		var open int
		if err := d.QueryRow(ctx, "SELECT count(*) FROM media_jobs WHERE completed_at IS NULL").Scan(&open); err != nil {
			return err
		}
		if open > 0 {
			continue
		}
		var made int
		err := d.QueryRow(ctx, "SELECT sum(completed) FROM media_jobs WHERE status = 'completed'").Scan(&made)
		if err == nil && made != picturesInAll {
			err = fmt.Errorf("%d pictures were made of %d", made, picturesInAll)
		}
		return err
	}
	return fmt.Errorf("jobs had not ended after %v", askPatience)
}

// open is how many jobs have not ended.
func open(ctx context.Context, at program.Place) (n int, err error) {
	d, err := app.OpenDatabase(ctx, settings(at))
	if err != nil {
		return 0, err
	}
	defer d.Close()
	err = d.QueryRow(ctx, "SELECT count(*) FROM media_jobs WHERE completed_at IS NULL").Scan(&n)
	return n, err
}
