package api_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/test/harness"
)

// doubtLoad is what a client has created while commits lost their responses.
type doubtLoad struct {
	*doubtClient
	round   int
	batches []string // paths
	jobs    []string
	runs    map[string]string // scripts by path
	answers []string          // paths of background responses
	chats   map[string]credits.Micro
}

// create sends a request until it gets a response. A repetition has the same Idempotency-Key.
func (l *doubtLoad) create(t *testing.T, path string, body any) *harness.Response {
	t.Helper()
	once := http.Header{"Idempotency-Key": {fmt.Sprint(path, l.round, rand.Uint64())}}
	var r *harness.Response
	l.Within(t, time.Minute, func() bool {
		r = l.Do(t, harness.Request{Method: "POST", Path: path, Key: l.key, Body: body, Header: once})
		return r.Status != http.StatusServiceUnavailable && r.Text("error.code") != "conflict"
	})
	return r.Want(t, 200, "")
}

// createAll creates one object of each kind.
func (l *doubtLoad) createAll(t *testing.T, inputs []string, tools []any) {
	t.Helper()
	l.round++
	for _, input := range inputs {
		b := l.create(t, "/v1/batches", map[string]any{"input_file_id": input, "endpoint": "/v1/chat/completions", "completion_window": "24h"})
		l.batches = append(l.batches, "/v1/batches/"+b.Text("id"))
	}
	l.jobs = append(l.jobs, batches+"/"+l.create(t, batches, batchBody("a cat", "a dog", "a cow")).Text("id"))
	script := fmt.Sprint("stock", l.round)
	input := l.model.addScript(script, calls(toolCall{"stock", ok}), reply{text: "Three."})
	l.runs[runs+"/"+l.create(t, runs, runBody(input, tools)).Text("id")] = script
	l.answers = append(l.answers, "/v1/responses/"+l.create(t, "/v1/responses", inBackground("small", "one two three", nil)).Text("id"))
	if r := l.chat(t, body("small", "one two three", withUsage)); r.Status == http.StatusOK {
		l.chats[r.Header.Get("X-Request-Id")] = amount(t, usageChunk(r), "usage.credits")
	}
	l.publish(t, keyRevoked)
}

// checkObjects checks that every object has succeeded, and returns what they cost.
func (l *doubtLoad) checkObjects(t *testing.T) (cost credits.Micro) {
	t.Helper()
	completed := func(path string) *harness.Response {
		r := l.get(t, path)
		if r.Text("status") != "completed" {
			t.Errorf("got %s", r.Body)
		}
		return r
	}
	for _, path := range l.batches {
		b := completed(path)
		if n := len(l.results(t, b, "output_file_id")); n != 5 {
			t.Errorf("%s has %d results, want 5", path, n)
		}
		if charged := l.number(t, "SELECT CAST(COALESCE(SUM(credits), 0) AS BIGINT) FROM requests WHERE path = $1", path); amount(t, b, "cost") != credits.Micro(charged) {
			t.Errorf("the log has a cost of %s for %s", credits.Micro(charged), b.Body)
		}
		cost += amount(t, b, "cost")
	}
	for path, script := range l.runs {
		paid := amount(t, completed(path), "usage.credits")
		// A model call whose entry in the log is in doubt is repeated. It is paid for if the entry is stored.
		if most := credits.Micro(len(l.model.requests(script))) * oneAnswer; paid < 2*oneAnswer || paid > most {
			t.Errorf("%s cost %s, want between %s and %s", path, paid, 2*oneAnswer, most)
		}
		l.checkCost(t, path, paid)
		cost += paid
		if n := len(l.steps(t, path)); n != 2 {
			t.Errorf("%s has %d steps, want 2", path, n)
		}
	}
	for _, path := range l.jobs {
		cost += amount(t, completed(path), "cost")
	}
	for _, path := range l.answers {
		paid := amount(t, completed(path), "usage.credits")
		id := "req" + strings.TrimPrefix(strings.TrimPrefix(path, "/v1/responses/"), "resp")
		if n := l.number(t, "SELECT count(*) FROM requests WHERE id = $1 AND credits = $2", id, int64(paid)); n != 1 {
			t.Errorf("the log doesn't have the cost of %s, %s", path, paid)
		}
		cost += paid
	}
	for id, want := range l.chats {
		if n := l.number(t, "SELECT count(*) FROM requests WHERE id = $1 AND settled AND credits = $2", id, int64(want)); n != 1 {
			t.Errorf("the log has %d entries of the request %s, want 1 with %s", n, id, want)
		}
	}
	// A request that got no response may be charged.
	return cost + credits.Micro(l.number(t, "SELECT CAST(SUM(credits) AS BIGINT) FROM requests WHERE path = '/v1/chat/completions'"))
}

// TestManyLostCommitResponses loses 6% of the responses to commits under load: on PostgreSQL of all commits, and on SQLite
// of those with results. Afterward, the ledger, the log, the objects, the deliveries and the emails agree. `make chaos` runs it.
func TestManyLostCommitResponses(t *testing.T) {
	if os.Getenv("TURNPIKE_CHAOS") != "full" {
		t.Skip("long form only; in CI: TestResultWhoseCommitLostItsResponseCountsOnce")
	}
	eachEngine(t, both, func(t *testing.T, engine string) {
		const rounds = 150
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		l := &doubtLoad{doubtClient: newDoubtClient(t, engine), runs: map[string]string{}, chats: map[string]credits.Micro{}}
		l.ask(t, "PATCH", "/v1/notifications", map[string]any{"webhook": map[string]any{"url": l.chatTool.URL, "format": "json"}}).Want(t, 200, "")
		tool := newTool(t, l.agentClient, `{"stock":3}`)
		tools := []any{webTool("stock", tool.URL+"/stock")}
		var inputs []string
		for _, model := range []string{"small", "tiny"} {
			var lines []any
			for i := range 5 {
				lines = append(lines, chatLine(fmt.Sprint("line", i), model, "Hi."))
			}
			inputs = append(inputs, l.Do(t, uploadFile(t, l.key, "batch", jsonLines(t, lines...))).Want(t, 200, "").Text("id"))
		}
		l.Clock.Run(t)
		l.commits.arm(anyQueue, "", func(int) bool { return random.Float64() < 0.06 })
		for range rounds {
			l.createAll(t, inputs, tools)
			l.openai.Batches.End("completed", 5)
		}
		l.publish(t, creditsLow)
		// The last results lose responses as well.
		left := func(what string) bool { return l.rows(t, what) > 0 }
		l.Within(t, 3*time.Minute, func() bool {
			l.Clock.Turn(time.Second)
			l.openai.Batches.End("completed", 5)
			l.wakeBatches(t)
			l.wakeNotifications(t, 0)
			return !left("batches WHERE ended_at IS NULL") && !left("media_jobs WHERE completed_at IS NULL") && !left("agent_runs WHERE completed_at IS NULL") && !left("background_responses") &&
				!left("new_events") && !left("deliveries WHERE status <> 'succeeded'") && !left("notifications") && !left("mails WHERE status <> 'sent'") && !left("requests WHERE NOT settled")
		})
		t.Logf("lost %d responses", l.commits.count(anyQueue))
		l.commits.arm("", "", noLoss)
		if n := len(l.openai.Batches.All()); n != rounds {
			t.Errorf("the provider got %d batches, want %d", n, rounds)
		}
		if n := tool.count(); n != rounds {
			t.Errorf("the tool was called %d times, want %d", n, rounds)
		}
		if n := len(l.mails.Messages()); n != 2 {
			t.Errorf("the owner and the admin got %d emails, want 2", n)
		}
		events := l.rows(t, "events")
		if n := l.rows(t, "deliveries"); n != events || l.receiver.count() != events {
			t.Errorf("got %d deliveries and %d requests at the endpoint for %d events", n, l.receiver.count(), events)
		}
		cost := l.checkObjects(t)
		l.waitUntilSettled(t)
		l.checkLedger(t, cost)
	})
}
