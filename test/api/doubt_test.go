package api_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// lostCommits makes the server lose the responses to commits. On SQLite the database reports them as lost. On PostgreSQL
// the connection breaks.
type lostCommits struct {
	mu        sync.Mutex
	queue     string // whose next commits lose their responses
	statement string // of the queue
	left      int
	lost      map[string]int
}

// arm makes the next two commits of a queue lose their responses.
func (l *lostCommits) arm(queue, statement string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue, l.statement, l.left = queue, statement, 2
}

func (l *lostCommits) count(queue string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost[queue]
}

func (l *lostCommits) isLost(of bool) bool {
	if !of || l.left == 0 {
		return false
	}
	l.left--
	l.lost[l.queue]++
	return true
}

func (l *lostCommits) ofQueues(names []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isLost(slices.Contains(names, l.queue))
}

func (l *lostCommits) ofStatements(list []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isLost(l.statement != "" && slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, l.statement) }))
}

// doubtClient is a client of a server that loses responses to commits.
type doubtClient struct {
	*agentClient
	media    *mediaProvider
	openai   *upstreams.OpenAI
	receiver *receiver
	endpoint string
	commits  *lostCommits
	cost     credits.Micro // as the objects show it
}

func newDoubtClient(t *testing.T, engine string) *doubtClient {
	t.Helper()
	c := &doubtClient{agentClient: &agentClient{model: newScriptedModel(t), cfg: webhookConfig(t, engine)}, media: newMediaProvider(t),
		openai: upstreams.NewOpenAI(t, "sk-one"), commits: &lostCommits{lost: map[string]int{}}}
	watched(&c.cfg)
	c.cfg.Agents.AllowHTTP, c.cfg.Agents.AllowCIDRs = true, prefixes(t, "127.0.0.0/8")
	c.cfg.Providers = []config.Provider{
		{Name: "chat", Type: config.OpenAI, BaseURL: config.Address(c.openai.BaseURL()), APIKey: "sk-one", Weight: 1, Models: []config.ProviderModel{{ID: "small", Price: price("2", "8", "0.5")}}},
		{Name: "agent", Type: config.OpenAI, BaseURL: config.Address(c.model.URL + "/v1"), APIKey: "sk-model", Weight: 1,
			Models: []config.ProviderModel{{ID: "mind", Price: price("1", "2", ""), MaxOutputTokens: 1000, Capabilities: []string{"tools"}}}},
		{Name: "media", Type: config.OpenAI, BaseURL: config.Address(c.media.URL + "/v1"), APIKey: "sk-provider", Weight: 1,
			Models: []config.ProviderModel{{ID: "pic", Kind: "image", Price: &config.ModelPrice{PerImage: "0.001"}}}},
	}
	ctx := context.Background()
	if engine == "sqlite" {
		ctx = db.LoseResponses(ctx, c.commits.ofQueues)
	} else {
		c.cfg.DatabaseURL = config.SecretURL(dbtest.CutResponses(t, string(c.cfg.DatabaseURL), c.commits.ofStatements))
	}
	c.client = newClient(t, harness.StartWith(ctx, t, c.cfg, harness.NewClock()), accounts.Live)
	c.receiver = newReceiver(t, c.Clock, respond(200))
	c.endpoint, _ = c.client.endpoint(t, c.receiver.URL)
	return c
}

// A durableWriter is a durable queue whose commits lose their responses during its work.
type durableWriter struct {
	statement string // that only this queue has in a commit
	work      func(t *testing.T, c *doubtClient)
}

// durableWriters has every durable queue of the server.
var durableWriters = map[string]durableWriter{
	"request_settlements": {"INSERT INTO spend_journal", func(t *testing.T, c *doubtClient) {
		c.Eventually(t, func() bool {
			c.openai.Queue(upstreams.OpenAIReply{Text: "one two three", Delay: 300 * time.Millisecond}) // the intent is stored by then
			r := c.chat(t, body("small", "one two three", withUsage))
			if r.Status != 200 { // its intent was in the commit
				return false
			}
			c.cost += amount(t, usageChunk(r), "usage.credits")
			c.Eventually(t, func() bool { // a request for the entry could lose its own commit
				return c.number(t, "SELECT count(*) FROM requests WHERE id = $1 AND settled", r.Header.Get("X-Request-Id")) == 1
			})
			return c.commits.count("request_settlements") > 0 // unless the group was waiting, and stored both together
		})
	}},
	"batch_lines": {"UPDATE batch_lines SET status = v.status", func(t *testing.T, c *doubtClient) { // B1
		var lines []any
		for i := range 5 {
			lines = append(lines, chatLine(fmt.Sprint("line", i), "small", "Hi."))
		}
		path := c.createBatch(t, "/v1/chat/completions", jsonLines(t, lines...))
		var b *harness.Response
		c.Within(t, 30*time.Second, func() bool {
			c.Clock.Turn(time.Second) // a line whose start got no response waits for the log
			c.wakeBatches(t)
			b = c.get(t, path)
			return b.At("completed_at") != nil
		})
		if n := len(c.results(t, b, "output_file_id")); n != 5 || b.At("request_counts.completed") != 5.0 {
			t.Errorf("got %d results of %s, want 5", n, b.Body)
		}
		c.cost += amount(t, b, "cost")
		if n := c.number(t, "SELECT count(*) FROM requests WHERE path = $1 AND credits > 0 AND unbilled_credits = 0", path); n != 5 {
			t.Errorf("%d requests of the batch are charged, want 5", n)
		}
	}},
	"job_tasks": {"UPDATE media_tasks SET", func(t *testing.T, c *doubtClient) {
		path := c.createJob(t, batches, batchBody("a cat", "a dog", "a cow"))
		j := c.waitForEnd(t, path, "completed")
		c.cost += amount(t, j, "cost")
		if n := c.media.count("", "a "); n != 3 {
			t.Errorf("the provider was called %d times, want 3", n)
		}
	}},
	"run_turns": {"UPDATE agent_runs SET", func(t *testing.T, c *doubtClient) { // B2
		tool := newTool(t, c.agentClient, `{"stock":3}`)
		path := c.startRun(t, runBody(c.model.addScript("stock", calls(toolCall{"stock", ok}), calls(toolCall{"stock", ok}), reply{text: "Three."}),
			[]any{webTool("stock", tool.URL+"/stock")}))
		r := c.waitForStatus(t, path, "completed", "failed", "awaiting_approval")
		if r.Text("status") != "completed" || tool.count() != 2 || len(c.model.requests("stock")) != 3 {
			t.Errorf("the tool was called %d times and the model %d times for %s", tool.count(), len(c.model.requests("stock")), r.Body)
		}
		c.checkCost(t, path, 3*oneAnswer)
		c.cost += 3 * oneAnswer
	}},
	"response_events": {"UPDATE background_responses SET next_event = v.", checkStreamedResponse},
	"response_ends":   {"DELETE FROM background_responses WHERE id", checkStreamedResponse},
	"upload_ends": {"DELETE FROM file_uses WHERE holder", func(t *testing.T, c *doubtClient) {
		f := c.Do(t, uploadFile(t, c.key, "user_data", "some text")).Want(t, 200, "")
		if got := c.get(t, filePath(f)+"/content"); string(got.Body) != "some text" {
			t.Errorf("got the file %q", got.Body)
		}
	}},
	"delivery_attempts": {"INSERT INTO attempts", func(t *testing.T, c *doubtClient) { c.publish(t, keyRevoked, keyRevoked) }},
}

// checkStreamedResponse creates a background response whose stream has each event once.
func checkStreamedResponse(t *testing.T, c *doubtClient) {
	t.Helper()
	r := c.respond(t, inBackground("small", "one two three four five six", map[string]any{"stream": true})).Want(t, 200, "")
	list := chunks(r)
	for i, e := range list {
		if count(e, "sequence_number") != int64(i) {
			t.Errorf("event %d is %s", i, e.Body)
		}
	}
	last := list[len(list)-1]
	if last.Text("type") != "response.completed" {
		t.Fatalf("the last event is %s", last.Body)
	}
	c.cost += amount(t, last, "response.usage.credits")
	id := "resp" + strings.TrimPrefix(r.Header.Get("X-Request-Id"), "req")
	if n := len(c.eventsOf(t, id)); n != 1 {
		t.Errorf("%d events about the response, want 1", n)
	}
}

var parkedQueue = regexp.MustCompile(`^turnpike_commit_parked\{.*queue="(.*?)"`)

// queues returns the names of the server's durable queues.
func (c *doubtClient) queues(t *testing.T) (names []string) {
	t.Helper()
	for series := range scrape(t, c.Server) {
		if m := parkedQueue.FindStringSubmatch(series); m != nil {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return names
}

// TestResultWhoseCommitLostItsResponseCountsOnce loses the responses to commits of every durable queue. The ledger, the log,
// the objects and the deliveries then agree as if nothing had happened. (B1, B2)
func TestResultWhoseCommitLostItsResponseCountsOnce(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		c := newDoubtClient(t, engine)
		if got, want := c.queues(t), slices.Sorted(maps.Keys(durableWriters)); !slices.Equal(got, want) {
			t.Fatalf("the server has the durable queues %v, and this test covers %v", got, want)
		}
		for queue, w := range durableWriters {
			t.Log(queue)
			c.commits.arm(queue, w.statement)
			w.work(t, c)
			c.Eventually(t, func() bool { return c.commits.count(queue) > 0 })
			c.commits.arm("", "")
		}
		c.waitUntilSettled(t)
		c.checkLedger(t, c.cost)
		// Every event was delivered with one attempt.
		events := int(c.number(t, "SELECT count(*) FROM events"))
		for _, id := range c.deliveries(t, c.endpoint, events) {
			c.waitForDelivery(t, id, "succeeded", 1)
		}
		if n := c.number(t, "SELECT succeeded FROM endpoint_stats WHERE endpoint_id = $1", c.endpoint); n != int64(events) || c.receiver.count() != events {
			t.Errorf("%d successes are counted, and the endpoint has received %d requests; want %d", n, c.receiver.count(), events)
		}
		for table, what := range map[string]string{"batch_lines": "lines of ended batches", "background_responses": "background responses", "file_uses WHERE holder LIKE 'upload/%'": "uploads in progress"} {
			if n := c.rows(t, table); n != 0 {
				t.Errorf("%d %s are left", n, what)
			}
		}
	})
}
