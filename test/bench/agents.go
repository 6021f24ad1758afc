package main

import (
	"context"
	"fmt"
	"time"

	"turnpike/internal/app"
	"turnpike/test/chaos/program"
)

// agents is what was measured of agent runs.
type agents struct {
	engines []string
	steps   []*stepSeries
	waiting []*waitingSeries
}

// measureAgents measures agent runs. Without a database it does without
// PostgreSQL.
func measureAgents(ctx context.Context, o options, database *postgres) (*agents, error) {
	binary, err := program.Build(o.folder)
	if err != nil {
		return nil, err
	}
	b := &agentBench{mediaBench{options: o, binary: binary, engines: []*engine{{name: "SQLite", folder: o.folder}}, calm: &calm{left: mediaPatience}}}
	if database != nil {
		b.engines = append(b.engines, &engine{name: "PostgreSQL", folder: o.folder, database: database})
	}
	a := &agents{}
	for _, e := range b.engines {
		a.engines = append(a.engines, e.name)
	}
	for _, part := range []func(context.Context, *agents) error{b.steps, b.waiting} {
		if err := part(ctx, a); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// agentBench is what the measurements share, with those of other jobs.
type agentBench struct{ mediaBench }

// runsOf orders runs, from workspace to workspace.
func runsOf(tenants []tenant, n int, body string) []newJob {
	jobs := make([]newJob, n)
	for i := range jobs {
		jobs[i] = newJob{tenants[i%len(tenants)], "/v1/agents/runs", []byte(body)}
	}
	return jobs
}

// oneAtATime is a server that works runs as slowly as it can.
var oneAtATime = []string{"--agents-concurrency", "1"}

// leave stops a server so that its lanes are free at once.
func (s *jobServer) leave() error {
	if err := s.Terminate(); err != nil {
		return err
	}
	_, err := s.Wait(askPatience)
	return err
}

// untilNone returns when the query, which counts, finds nothing any more.
func untilNone(ctx context.Context, at program.Place, query string) error {
	d, err := app.OpenDatabase(ctx, settings(at))
	if err != nil {
		return err
	}
	defer d.Close()
	left := 0
	for end := time.Now().Add(askPatience); time.Now().Before(end); time.Sleep(lookEvery) {
		if err := d.QueryRow(ctx, query).Scan(&left); err != nil || left == 0 {
			return err
		}
	}
	return fmt.Errorf("after %v there are still %d runs that should be further", askPatience, left)
}
