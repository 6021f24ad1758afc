package main

import "fmt"

// The targets for agent runs.
const (
	minStepRate     = 500.0
	maxWaitingAdded = 0.01 // of a core
)

func (a *agents) targets() (all []target) {
	for _, s := range a.steps {
		rate := figure(s.samples, stepSample.rate)
		all = append(all, target{fmt.Sprintf("steps of %d runs at once on %s", stepRuns, s.engine), fmt.Sprintf("%.0f/s", rate), fmt.Sprintf("at least %.0f/s", minStepRate), rate >= minStepRate})
	}
	for _, s := range a.waiting {
		all = append(all, target{fmt.Sprintf("CPU that %d waiting runs add to an idle server on %s", waitingRuns, s.engine), percent(s.added()), "under " + percent(maxWaitingAdded), s.added() < maxWaitingAdded})
	}
	if len(a.engines) == 1 {
		all = append(all, target{"agent runs on PostgreSQL", "not measured", "as on SQLite", false})
	}
	return all
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

func (a *agents) tables(line line) {
	line("## Agent runs, %d of %d steps in %d workspaces, at once", stepRuns, stepsEach, stepWorkspaces)
	line("")
	line("| | steps/s | rounds | CPU per step | of its database | commits per step | memory, highest | others |")
	line("|---|---|---|---|---|---|---|---|")
	for _, s := range a.steps {
		store := "–"
		if per := figure(s.samples, func(x stepSample) float64 { return micro(x.storeCPU, x.count) }); per > 0 {
			store = fmt.Sprintf("%.0f µs", per)
		}
		line("| Turnpike, %s | %.0f | %s | %.0f µs | %s | %.2f | %s | %.0f %% |", s.engine, figure(s.samples, stepSample.rate),
			joined(s.samples, func(x stepSample) string { return fmt.Sprintf("%.0f", x.rate()) }), figure(s.samples, func(x stepSample) float64 { return micro(x.cpu, x.count) }), store,
			figure(s.samples, func(x stepSample) float64 { return float64(x.commits) / float64(x.count) }), megabytes(figure(s.samples, func(x stepSample) float64 { return x.peak })),
			100*figure(s.samples, func(x stepSample) float64 { return x.others }))
	}
	line("")
	line("## Agent runs, %d that wait for an approval", waitingRuns)
	line("")
	line("| | made in | CPU of an idle server with them | without | of its database with them | without | memory with them | without |")
	line("|---|---|---|---|---|---|---|---|")
	for _, s := range a.waiting {
		share := func(x idleSample) string { return percent(float64(x.cpu) / float64(idleLook)) }
		store := func(x idleSample) string { return percent(float64(x.storeCPU) / float64(idleLook)) }
		line("| Turnpike, %s | %s | %s | %s | %s | %s | %s | %s |", s.engine, seconds(s.made), share(s.with), share(s.without), store(s.with), store(s.without), megabytes(s.with.mb), megabytes(s.without.mb))
	}
	line("")
}

func (a *agents) method(line line) {
	line("- Agent runs: test keys, so that the simulator is the model, at once. Every step but a run's last calls a tool that does not exist, which the engine answers by itself: so a step is all that the server does for one, which is to write that it begins, to ask the model through the gateway with an entry in the request log, and to write what came of it. Runs are made through the API by a server that works one at a time, which is then stopped; a server with the default settings is started on the same data. The clock begins when that one takes requests: the steps that are left at that moment are counted, and the time is that to the end of the last run. Commits are all transactions that wrote meanwhile, the request log's too; one has many steps in it.")
	line("- Runs that wait: each has made one step and asks for the approval of its call. Both servers are looked at %v after their start, for %v.", idleSettle, idleLook)
}
