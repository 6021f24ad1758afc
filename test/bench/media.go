package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// media is what was measured of jobs.
type media struct {
	engines  []string
	pictures []*mediaSeries // the drawing loop's first
	beside   []*besideSeries
	voice    []voiceSample
}

// measureMedia measures jobs. Without a database it does without PostgreSQL.
func measureMedia(ctx context.Context, o options, database *postgres) (*media, error) {
	binary, err := program.Build(o.folder)
	if err != nil {
		return nil, err
	}
	b := &mediaBench{options: o, binary: binary, engines: []*engine{{name: "SQLite", folder: o.folder}}, calm: &calm{left: mediaPatience}}
	if database != nil {
		b.engines = append(b.engines, &engine{name: "PostgreSQL", folder: o.folder, database: database})
	}
	m := &media{}
	for _, e := range b.engines {
		m.engines = append(m.engines, e.name)
	}
	for _, part := range []func(context.Context, *media) error{b.pictures, b.neighbours, b.voice} {
		if err := part(ctx, m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// mediaPatience is less than that of other parts, which measure more: a round
// should take less than three minutes.
const mediaPatience = time.Minute

// mediaBench is what the measurements share.
type mediaBench struct {
	options options
	binary  program.Binary
	engines []*engine
	calm    *calm
}

// jobServer is a server with workspaces whose jobs the simulator works.
type jobServer struct {
	*program.Server
	at      program.Place
	store   int // process of its database, 0 when it has none
	tenants []tenant
}

// serve starts a server with the tenants.
func (b *mediaBench) serve(e *engine, at program.Place, tenants []tenant, flags ...string) (*jobServer, error) {
	s, err := b.binary.Serve(at, append(flags, noLimits...)...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	return &jobServer{Server: s, at: at, store: e.store(), tenants: tenants}, nil
}

// queued has jobs made by a server that works them as slowly as it can, ends
// it, and starts one with the usual settings on the same data: so the work
// waits before it is measured, and was made by the API.
func (b *mediaBench) queued(ctx context.Context, e *engine, at program.Place, tenants []tenant, jobs []newJob) (*jobServer, error) {
	slow, err := b.serve(e, at, tenants, "--media-concurrency", "1")
	if err != nil {
		return nil, err
	}
	defer slow.Kill()
	begun := time.Now()
	if err := slow.create(ctx, jobs); err != nil {
		return nil, err
	}
	say("%s: %d jobs made in %s", e.name, len(jobs), seconds(time.Since(begun)))
	if err := slow.Terminate(); err != nil {
		return nil, err
	}
	// Not killed: its lanes would be free only when their leases end.
	if _, err := slow.Wait(askPatience); err != nil {
		return nil, err
	}
	if err := b.calm.wait(); err != nil {
		return nil, err
	}
	return b.serve(e, at, tenants)
}

// newJob is one that a tenant orders.
type newJob struct {
	tenant tenant
	path   string
	body   []byte
}

// makers is how many connections make jobs.
const makers = 16

// create orders jobs, several at once.
func (s *jobServer) create(ctx context.Context, jobs []newJob) error {
	next := make(chan newJob)
	errs := make(chan error, makers)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for range makers {
		all.Go(func() {
			for j := range next {
				if _, err := s.post(ctx, j); err != nil {
					errs <- err
					cancel()
					return
				}
			}
		})
	}
	for _, j := range jobs {
		select {
		case next <- j:
		case <-ctx.Done():
		}
	}
	close(next)
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return ctx.Err()
	}
}

// jobObject is what all jobs have in common.
type jobObject struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	URL    string `json:"url"`
}

// post orders a job.
func (s *jobServer) post(ctx context.Context, j newJob) (made jobObject, err error) {
	return s.call(ctx, http.MethodPost, j.path, j.tenant.key, j.body)
}

func (s *jobServer) call(ctx context.Context, method, path, key string, body []byte) (o jobObject, err error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return o, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := mediaClient.Do(req)
	if err != nil {
		return o, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s was answered with %s: %s", method, path, res.Status, answer)
	}
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal(answer, &o)
}

var mediaClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: makers}}

// done has a job made and returns when it is completed, with how long it took
// whoever ordered it.
func (s *jobServer) done(ctx context.Context, j newJob, every time.Duration) (o jobObject, took time.Duration, err error) {
	begun := time.Now()
	if o, err = s.post(ctx, j); err != nil {
		return o, 0, err
	}
	for end := begun.Add(askPatience); time.Now().Before(end); time.Sleep(every) {
		o, err = s.call(ctx, http.MethodGet, j.path+"/"+o.ID, j.tenant.key, nil)
		switch {
		case err != nil:
			return o, 0, err
		case o.Status == "completed":
			return o, time.Since(begun), nil
		case o.Status != "queued" && o.Status != "in_progress":
			return o, 0, fmt.Errorf("a job is %s", o.Status)
		}
	}
	return o, 0, fmt.Errorf("a job is still %s after %v", o.Status, askPatience)
}

// testTenants makes workspaces with a test key each, in a database that may be
// empty.
func testTenants(ctx context.Context, at program.Place, n int) (list []tenant, err error) {
	cfg := settings(at)
	if at.DatabaseURL == "" {
		cfg.MasterKey = "" // the folder's own, which the server takes
	}
	s, err := app.OpenStore(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	keys := access.NewKeys(s.Ring, time.Now)
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		list = nil
		for i := range n {
			w := &accounts.Workspace{Name: fmt.Sprintf("bench %d", i), RotationGrace: accounts.DefaultRotationGrace}
			if err := accounts.CreateWorkspace(ctx, tx, w, time.Now()); err != nil {
				return err
			}
			value, err := keys.Create(ctx, tx, access.Caller{Actor: audit.Operator},
				&access.Key{WorkspaceID: w.ID, Environment: accounts.Test, Name: "bench", Scopes: []string{"*"}})
			if err != nil {
				return err
			}
			list = append(list, tenant{w.ID, value})
		}
		return nil
	})
	return list, err
}
