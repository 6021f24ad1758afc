package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

const (
	warmImages    = 500
	batchSize     = 50
	batches       = 200
	batchAccounts = 50
	allImages     = batches * batchSize
	busyJobs      = 5000
	lateJobs      = 10
	slowImage     = 500 * time.Millisecond
	jobPoll       = 20 * time.Millisecond
	voiceLength   = 1_000_000 // characters
)

func measureMedia(b *bench) {
	b.patience /= 4 // it measures less than the other parts
	b.measureImages()
	b.measureBusyWorkspace()
	b.measureVoice()
}

// job is a request that creates a job or a run.
type job struct {
	account account
	path    string
	body    []byte
}

func (b *bench) createJobs(s *program.Server, jobs []job) {
	forEach(16, len(jobs), func(i int) error {
		_, err := callAPI(b.ctx, http.MethodPost, s.URL+jobs[i].path, jobs[i].account.key, jobs[i].body)
		return err
	})
}

// queued creates jobs through the API of a server that works as slowly as it
// can, stops it, and starts one with the default settings on the same data: the
// work is waiting before it's measured.
func (b *bench) queued(at program.Place, slow string, jobs []job) *program.Server {
	s := must(b.binary().Serve(at, append([]string{slow, "1"}, noLimits...)...))
	defer s.Kill()
	b.createJobs(s, jobs)
	stopServer(s)
	b.waitForQuiet()
	return must(b.binary().Serve(at, noLimits...))
}

func (b *bench) runJob(s *program.Server, j job) (url string, took time.Duration) {
	var made struct{ ID, Status, URL string }
	begun := time.Now()
	check(json.Unmarshal(must(callAPI(b.ctx, http.MethodPost, s.URL+j.path, j.account.key, j.body)), &made))
	for ; made.Status != "completed"; time.Sleep(jobPoll) {
		check(json.Unmarshal(must(callAPI(b.ctx, http.MethodGet, s.URL+j.path+"/"+made.ID, j.account.key, nil)), &made))
		if made.Status == "failed" || made.Status == "canceled" || time.Since(begun) > orderTimeout {
			check(fmt.Errorf("job %s: got status %s after %v, want completed", made.ID, made.Status, time.Since(begun)))
		}
	}
	return made.URL, time.Since(begun)
}

func count(ctx context.Context, d *db.DB, query string) (n int) {
	check(d.QueryRow(ctx, query).Scan(&n))
	return n
}

// untilNone returns when the query counts nothing.
func untilNone(ctx context.Context, d *db.DB, query string) {
	for end := time.Now().Add(orderTimeout); count(ctx, d, query) > 0; time.Sleep(jobPoll) {
		if time.Now().After(end) {
			check(fmt.Errorf("%s: not 0 after %v", query, orderTimeout))
		}
	}
}

func (b *bench) measureImages() {
	loop := b.startChild(roleDrawing, warmImages, &span{})
	defer loop.kill()
	subjects := []subject{{"drawing loop", func() sample {
		var drawn span
		x := watch(loop.pid(), 0, nil, func() { loop.ask(b.ctx, allImages, &drawn) })
		x.count, x.took = allImages, time.Duration(drawn.Ended-drawn.Begun)
		return x
	}}}
	for _, e := range b.engines {
		subjects = append(subjects, subject{e.String(), func() sample { return b.completeBatches(e) }})
	}
	all := b.rounds("images", subjects...)
	for i, e := range b.engines {
		b.atLeast(all[i+1].ratio(all[0], sample.rate), 0.5, "", "images of waiting batches on %s against a loop that only draws", e.name)
	}
	b.section("Jobs, %d images of the default size (1024x1024) in %d batches of %d workspaces", allImages, batches, batchAccounts)
	b.table(all, rateColumn("images"), ratioColumn, rateRounds, serverCPU("image"), databaseColumn, othersColumn)
	b.method("Jobs use test keys: the simulator creates everything, without delay unless stated. Batches are created through the API of a server that works on one image at a time and is then stopped; a server with the default settings starts on the same data. The clock starts when it accepts requests: the images that are pending at that moment are counted, and the time ends with the last batch. Creating the batches isn't included. Every image is a file on disk, a row and an entry in its batch before it counts.")
	b.method("The drawing loop is a process with one worker per core that calls the same code for the same images and keeps none of them.")
}

func (b *bench) completeBatches(e *engine) (x sample) {
	at, remove := b.newPlace(e)
	defer remove()
	owners := newAccounts(b.ctx, at, batchAccounts, testKey)
	jobs := make([]job, batches)
	for i := range jobs {
		var requests []map[string]any
		for n := i * batchSize; n < (i+1)*batchSize; n++ {
			requests = append(requests, map[string]any{"custom_id": fmt.Sprint(n), "body": json.RawMessage(imageBody(n))})
		}
		jobs[i] = job{owners[i%len(owners)], "/v1/images/batches", must(json.Marshal(map[string]any{"requests": requests}))}
	}
	server := b.queued(at, "--media-concurrency", jobs)
	defer server.Kill()
	d := must(app.OpenDatabase(b.ctx, settings(at)))
	defer d.Close()
	pending := 0
	x = watch(server.Pid(), e.pid, nil, func() {
		// The server is working already: count what is left.
		pending = count(b.ctx, d, "SELECT count(*) FROM media_tasks WHERE due_at IS NOT NULL")
		untilNone(b.ctx, d, "SELECT count(*) FROM media_jobs WHERE completed_at IS NULL")
	})
	x.count = pending
	if made := count(b.ctx, d, "SELECT sum(completed) FROM media_jobs WHERE status = 'completed'"); made != allImages {
		check(fmt.Errorf("got %d images, want %d", made, allImages))
	}
	return x
}

func (b *bench) measureBusyWorkspace() {
	b.section("Jobs, next to a workspace with %d pending", busyJobs)
	b.header("the neighbor's images take", "median", "longest", "alone, median", "longest", "neighbor's jobs left")
	for _, e := range b.engines {
		for _, model := range []time.Duration{0, slowImage} {
			alone, beside, left := b.besideWorkspace(e, model)
			say("next to a busy workspace whose images take %v, %s: %s at most, alone %s", model, e, millis(slices.Max(beside)), millis(median(alone)))
			b.row(e.String(), model.String(), millis(median(beside)), millis(slices.Max(beside)), millis(median(alone)), millis(slices.Max(alone)), fmt.Sprint(left))
			b.atMost(inMillis(slices.Max(beside)-median(alone)), 1000, "ms", "time added to a job next to a workspace with %d pending, whose images take %v each, on %s, longest", busyJobs, model, e.name)
		}
	}
	b.method("Next to a busy workspace: another one creates %d jobs of one image, one after the other, and polls every %v. *Alone* is the same server with nothing else to do; the added time is the longest of them less the median alone.", lateJobs, jobPoll)
}

func (b *bench) besideWorkspace(e *engine, model time.Duration) (alone, beside []time.Duration, left int) {
	at, remove := b.newPlace(e)
	defer remove()
	owners := newAccounts(b.ctx, at, 2, testKey)
	image := func(a account, prompt string) job {
		return job{a, "/v1/images/batches", fmt.Appendf(nil, `{"requests":[{"custom_id":"a","body":{"prompt":%q,"size":"256x256"}}]}`, prompt)}
	}
	late := func(s *program.Server, n int) (all []time.Duration) {
		for i := range n {
			_, took := b.runJob(s, image(owners[1], fmt.Sprintf("a hill at dusk, number %d", i)))
			all = append(all, took)
		}
		return all
	}
	idle := must(b.binary().Serve(at, noLimits...))
	defer idle.Kill()
	late(idle, 1) // opens the connections
	alone = late(idle, lateJobs)
	stopServer(idle)
	jobs := make([]job, busyJobs)
	for i := range jobs {
		prompt := fmt.Sprintf("a harbour at dawn, number %d", i)
		if model > 0 {
			prompt += fmt.Sprintf(" [[sim:delay=%v]]", model)
		}
		jobs[i] = image(owners[0], prompt)
	}
	busy := b.queued(at, "--media-concurrency", jobs)
	defer busy.Kill()
	beside = late(busy, lateJobs)
	d := must(app.OpenDatabase(b.ctx, settings(at)))
	defer d.Close()
	return alone, beside, count(b.ctx, d, "SELECT count(*) FROM media_jobs WHERE completed_at IS NULL")
}

func (b *bench) measureVoice() {
	b.section("Jobs, a text of %d characters read aloud", voiceLength)
	b.header("time", "file", "memory before", "highest")
	var text strings.Builder
	for i := 0; text.Len() < voiceLength; i++ {
		fmt.Fprintf(&text, "This is sentence number %d of a story that goes on for a very long time. ", i)
	}
	body := must(json.Marshal(map[string]any{"model": "tts-1", "voice": "alloy-8k", "input": text.String()[:voiceLength]}))
	for _, e := range b.engines {
		at, remove := b.newPlace(e)
		defer remove()
		owner := newAccounts(b.ctx, at, 1, testKey)[0]
		server := must(b.binary().Serve(at, noLimits...))
		defer server.Kill()
		idle := highestMB(server.Pid(), settleTime)
		b.waitForQuiet()
		url, took := b.runJob(server, job{owner, "/v1/voice/renders", body})
		_, peak := memoryMB(server.Pid())
		res := must(http.Head(url))
		res.Body.Close()
		if res.StatusCode != http.StatusOK || res.ContentLength < voiceLength {
			check(errors.New("the audio file is missing or too short: " + res.Status))
		}
		server.Kill()
		say("a text of %d characters, %s: %s, %s at most", voiceLength, e, seconds(took), megabytes(peak))
		b.row(e.String(), seconds(took), megabytes(float64(res.ContentLength)/1e6), megabytes(idle), megabytes(peak))
		b.atMost(peak, 150, "MB", "memory while a text of %d characters is read on %s", voiceLength, e.name)
	}
	b.method("A text: at 8 kHz, on a server that has done nothing else. Memory is the highest resident size since its start. Every piece is a file, and so is the whole.")
}

const (
	stepRuns      = 1000
	stepsEach     = 10
	agentAccounts = 10
	waitingRuns   = 10_000
	idleSettle    = 5 * time.Second // after a start
	idleDuration  = 10 * time.Second

	// Every step but the last calls a tool that doesn't exist, which the engine
	// answers itself: only the model and the database are involved.
	stepBody    = `{"model":"gpt-4o","input":"Go on. [[sim:script=unknown:nothing*9;text:done]]"}`
	waitingBody = `{"model":"gpt-4o","input":"Pay. [[sim:script=tool:pay]]","tools":[{"type":"function","name":"pay","require_approval":"always"}]}`
)

func measureAgents(b *bench) {
	b.patience /= 4 // it measures less than the other parts
	b.measureSteps()
	b.measureWaitingRuns()
}

func runs(owners []account, n int, body string) []job {
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = job{owners[i%len(owners)], "/v1/agents/runs", []byte(body)}
	}
	return jobs
}

func (b *bench) measureSteps() {
	var subjects []subject
	for _, e := range b.engines {
		subjects = append(subjects, subject{e.String(), func() sample { return b.completeRuns(e) }})
	}
	all := b.rounds("agent steps", subjects...)
	for i, e := range b.engines {
		b.atLeast(all[i].figure(sample.rate), 500, "/s", "steps of %d concurrent runs on %s", stepRuns, e.name)
	}
	b.section("Agent runs, %d concurrent runs of %d steps in %d workspaces", stepRuns, stepsEach, agentAccounts)
	b.table(all, rateColumn("steps"), rateRounds, serverCPU("step"), databaseColumn,
		figureColumn("commits per step", "", func(x sample) float64 { return float64(x.commits) / float64(x.count) }),
		figureColumn("memory, highest", "MB", func(x sample) float64 { return x.peakMB }), othersColumn)
	b.method("Agent runs use test keys: the simulator is the model, without delay. Every step but a run's last calls a tool that doesn't exist, which the engine answers itself. A step is all that the server does for one: it stores that the step begins, calls the model through the gateway with an entry in the request log, and stores the result. Runs are created through the API of a server that works on one run at a time and is then stopped; a server with the default settings starts on the same data. The clock starts when it accepts requests: the steps that are left at that moment are counted, and the time ends with the last run. Commits are all transactions that wrote meanwhile, including the request log's; one holds many steps.")
}

func (b *bench) completeRuns(e *engine) (x sample) {
	at, remove := b.newPlace(e)
	defer remove()
	owners := newAccounts(b.ctx, at, agentAccounts, testKey)
	server := b.queued(at, "--agents-concurrency", runs(owners, stepRuns, stepBody))
	defer server.Kill()
	d := must(app.OpenDatabase(b.ctx, settings(at)))
	defer d.Close()
	const completed = "SELECT count(*) FROM agent_steps WHERE status = 'completed'"
	done, before, after := 0, int64(0), int64(0)
	var took time.Duration
	x = watch(server.Pid(), e.pid, nil, func() {
		begun := time.Now()
		// The server is working already: count what is left.
		done, before = count(b.ctx, d, completed), commits(b.ctx, d, at)
		untilNone(b.ctx, d, "SELECT count(*) FROM agent_runs WHERE completed_at IS NULL")
		took = time.Since(begun)
		after = commits(b.ctx, d, at)
	})
	if all := count(b.ctx, d, completed); all != stepRuns*stepsEach {
		check(fmt.Errorf("got %d steps, want %d", all, stepRuns*stepsEach))
	}
	x.count, x.took, x.commits = stepRuns*stepsEach-done, took, after-before
	_, x.peakMB = memoryMB(server.Pid())
	return x
}

// commits is how many transactions have written so far.
func commits(ctx context.Context, d *db.DB, at program.Place) (n int64) {
	if d.Engine() == "postgres" {
		// The next transaction's number: only those that write get one.
		check(d.QueryRow(ctx, "SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)").Scan(&n))
		return n
	}
	// SQLite counts them in the third word of its WAL index.
	found := must(filepath.Glob(filepath.Join(at.Dir, "*-shm")))
	if len(found) != 1 {
		check(fmt.Errorf("got %d WAL indexes in %s, want 1", len(found), at.Dir))
	}
	f := must(os.Open(found[0]))
	defer f.Close()
	var words [3]uint32
	check(binary.Read(f, binary.NativeEndian, &words))
	return int64(words[2])
}

func (b *bench) measureWaitingRuns() {
	b.section("Agent runs, %d that wait for an approval", waitingRuns)
	b.header("created in", "CPU of an idle server with them", "without", "database CPU with them", "without", "memory with them", "without")
	share := func(d time.Duration) string { return number(100*float64(d)/float64(idleDuration), "%") }
	for _, e := range b.engines {
		without, with, created := b.idleWithRuns(e)
		say("%d runs wait, %s: CPU %v in %v, without them %v", waitingRuns, e, with.cpu, idleDuration, without.cpu)
		b.row(e.String(), seconds(created), share(with.cpu), share(without.cpu), share(with.databaseCPU), share(without.databaseCPU), megabytes(with.peakMB), megabytes(without.peakMB))
		added := max(0, 100*float64(with.cpu-without.cpu)/float64(idleDuration))
		b.atMost(added, 1, "%", "CPU that %d waiting runs add to an idle server on %s", waitingRuns, e.name)
	}
	b.method("Waiting runs: each has completed one step and waits for the approval of its tool call. Both servers are observed %v after their start, for %v.", idleSettle, idleDuration)
}

func (b *bench) idleWithRuns(e *engine) (without, with sample, created time.Duration) {
	at, remove := b.newPlace(e)
	defer remove()
	owners := newAccounts(b.ctx, at, agentAccounts, testKey)
	idle := func(s *program.Server) (x sample) {
		time.Sleep(idleSettle)
		x = watch(s.Pid(), e.pid, nil, func() { time.Sleep(idleDuration) })
		x.peakMB, _ = memoryMB(s.Pid())
		return x
	}
	empty := must(b.binary().Serve(at, noLimits...))
	defer empty.Kill()
	without = idle(empty)
	begun := time.Now()
	b.createJobs(empty, runs(owners, waitingRuns, waitingBody))
	d := must(app.OpenDatabase(b.ctx, settings(at)))
	defer d.Close()
	untilNone(b.ctx, d, "SELECT count(*) FROM agent_runs WHERE status <> 'awaiting_approval'")
	created = time.Since(begun)
	stopServer(empty) // both are observed after a start: neither has memory left from earlier work
	full := must(b.binary().Serve(at, noLimits...))
	defer full.Kill()
	return without, idle(full), created
}
