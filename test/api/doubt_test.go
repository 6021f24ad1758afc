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
	"turnpike/internal/agents"
	"turnpike/internal/background"
	modelbatches "turnpike/internal/batches"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/media"
	"turnpike/internal/notifications"
	"turnpike/internal/webhooks"
	"turnpike/test/fakes/smtp"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// lostCommits makes the server lose the responses to commits. On SQLite the database reports them as lost. On PostgreSQL
// the connection breaks.
type lostCommits struct {
	mu        sync.Mutex
	queue     string // whose next commits lose their responses
	statement string // of the queue
	loses     losses
	commits   int // of the queue
	lost      map[string]int
}

// losses reports whether commit n of a queue loses its response.
type losses func(n int) bool

func noLoss(int) bool       { return false }
func twoLosses(n int) bool  { return n < 2 }
func fewLosses(n int) bool  { return n < 4 }
func allLosses(int) bool    { return true }
func evenLosses(n int) bool { return n%2 == 0 }
func oddLosses(n int) bool  { return n%2 == 1 }

// anyQueue means all commits.
const anyQueue = "*"

// arm makes commits of a queue lose their responses.
func (l *lostCommits) arm(queue, statement string, loses losses) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue, l.statement, l.loses, l.commits = queue, statement, loses, 0
}

func (l *lostCommits) count(queue string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost[queue]
}

func (l *lostCommits) isLost(of bool) bool {
	if !of {
		return false
	}
	l.commits++
	if !l.loses(l.commits - 1) {
		return false
	}
	l.lost[l.queue]++
	return true
}

func (l *lostCommits) ofQueues(names []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isLost(l.queue == anyQueue || slices.Contains(names, l.queue))
}

func (l *lostCommits) ofStatements(list []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isLost(l.queue == anyQueue || l.statement != "" && slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, l.statement) }))
}

// doubtClient is a client of a server that loses responses to commits.
type doubtClient struct {
	*agentClient
	media    *mediaProvider
	openai   *upstreams.OpenAI
	mails    *smtp.Server
	chatTool *chatTool
	receiver *receiver
	endpoint string
	commits  *lostCommits
	cost     credits.Micro // as the objects show it
}

func newDoubtClient(t *testing.T, engine string) *doubtClient {
	t.Helper()
	c := &doubtClient{agentClient: &agentClient{model: newScriptedModel(t), cfg: webhookConfig(t, engine)}, media: newMediaProvider(t),
		openai: upstreams.NewOpenAI(t, "sk-one"), mails: smtp.Start(t), chatTool: newChatTool(t), commits: &lostCommits{loses: noLoss, lost: map[string]int{}}}
	watched(&c.cfg)
	c.cfg.SMTP.URL, c.cfg.Mail.From = config.SecretURL(c.mails.URL()), "turnpike@example.com"
	c.cfg.Agents.AllowHTTP, c.cfg.Agents.AllowCIDRs = true, prefixes(t, "127.0.0.0/8")
	c.cfg.Providers = []config.Provider{
		{Name: "chat", Type: config.OpenAI, BaseURL: config.Address(c.openai.BaseURL()), APIKey: "sk-one", Weight: 1, Models: []config.ProviderModel{{ID: "small", Price: price("2", "8", "0.5")}}},
		{Name: "bulk", Type: config.OpenAI, BaseURL: config.Address(c.openai.BaseURL()), APIKey: "sk-one", Weight: 1, BatchPercent: 50, Models: []config.ProviderModel{{ID: "tiny", Price: price("2", "8", "0.5")}}},
		{Name: "agent", Type: config.OpenAI, BaseURL: config.Address(c.model.URL + "/v1"), APIKey: "sk-model", Weight: 1,
			Models: []config.ProviderModel{{ID: "mind", Price: price("1", "2", ""), MaxOutputTokens: 1000, Capabilities: []string{"tools"}}}},
		{Name: "media", Type: config.OpenAI, BaseURL: config.Address(c.media.URL + "/v1"), APIKey: "sk-provider", Weight: 1,
			Models: []config.ProviderModel{{ID: "pic", Kind: "image", Price: &config.ModelPrice{PerImage: "0.001"}}}},
	}
	ctx, direct := context.Background(), ""
	if engine == "sqlite" {
		ctx = db.LoseResponses(ctx, c.commits.ofQueues)
	} else {
		direct = string(c.cfg.DatabaseURL)
		c.cfg.DatabaseURL = config.SecretURL(dbtest.CutResponses(t, direct, c.commits.ofStatements))
	}
	c.client = newClient(t, harness.StartWith(ctx, t, c.cfg, harness.NewClock()), accounts.Live)
	if direct != "" {
		c.DB = dbtest.Open(t, direct)
	}
	c.withPeople(t)
	c.receiver = newReceiver(t, c.Clock, respond(200))
	c.endpoint, _ = c.client.endpoint(t, c.receiver.URL)
	return c
}

// A durableWriter stores results whose commits lose their responses during its work.
type durableWriter struct {
	lane      string // whose work it is
	statement string // that only this writer has in a commit
	loses     losses
	work      func(t *testing.T, c *doubtClient)
}

// durableQueues has every durable queue of the server.
var durableQueues = map[string]durableWriter{
	"request_settlements": {"", "INSERT INTO spend_journal", twoLosses, func(t *testing.T, c *doubtClient) {
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
	"batch_lines": {modelbatches.Queue, "UPDATE batch_lines SET status = v.status", twoLosses, func(t *testing.T, c *doubtClient) { // B1
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
		c.checkLines(t, path, b, 5)
	}},
	"job_tasks": {media.Queue, "UPDATE media_tasks SET", twoLosses, func(t *testing.T, c *doubtClient) {
		path := c.createJob(t, batches, batchBody("a cat", "a dog", "a cow"))
		j := c.waitForEnd(t, path, "completed")
		c.cost += amount(t, j, "cost")
		if n := c.media.count("", "a "); n != 3 {
			t.Errorf("the provider was called %d times, want 3", n)
		}
	}},
	"run_turns": {agents.Queue, "UPDATE agent_runs SET", allLosses, func(t *testing.T, c *doubtClient) { // B2
		tool := newTool(t, c.agentClient, `{"stock":3}`)
		path := c.startRun(t, runBody(c.model.addScript("stock", calls(toolCall{"stock", ok}), calls(toolCall{"stock", ok}), reply{text: "Three."}),
			[]any{webTool("stock", tool.URL+"/stock")}))
		r := c.waitForStatus(t, path, "completed", "failed", "awaiting_approval")
		if r.Text("status") != "completed" || tool.count() != 2 || len(c.model.requests("stock")) != 3 {
			t.Errorf("the tool was called %d times and the model %d times for %s", tool.count(), len(c.model.requests("stock")), r.Body)
		}
		if n := c.commits.count("run_turns"); n < 10 {
			t.Errorf("%d commits of the run lost their responses, want each checkpoint and outcome", n)
		}
		if n := len(c.steps(t, path)); n != 3 {
			t.Errorf("the run has %d steps, want 3", n)
		}
		once := "run.queued run.in_progress step.started step.completed tool_call.requested tool_call.started tool_call.completed step.started step.completed" +
			" tool_call.requested tool_call.started tool_call.completed step.started step.completed run.verifying run.completed"
		if got := strings.Join(c.history(t, path), " "); got != once {
			t.Errorf("got the events %s, want %s", got, once)
		}
		if n := len(c.eventsOf(t, idOf(path))); n != 1 {
			t.Errorf("%d events about the run, want 1", n)
		}
		c.checkCost(t, path, 3*oneAnswer)
		c.cost += 3 * oneAnswer
	}},
	"response_events": {background.Queue, "UPDATE background_responses SET next_event = v.", twoLosses, checkStreamedResponse},
	"response_ends":   {background.Queue, "DELETE FROM background_responses WHERE id", twoLosses, checkStreamedResponse},
	"upload_ends": {"", "DELETE FROM file_uses WHERE holder", twoLosses, func(t *testing.T, c *doubtClient) {
		f := c.Do(t, uploadFile(t, c.key, "user_data", "some text")).Want(t, 200, "")
		if got := c.get(t, filePath(f)+"/content"); string(got.Body) != "some text" {
			t.Errorf("got the file %q", got.Body)
		}
	}},
	"delivery_attempts": {webhooks.Queue, "INSERT INTO attempts", twoLosses, func(t *testing.T, c *doubtClient) { c.publish(t, keyRevoked, keyRevoked) }},
}

// otherWriters store results in commits of their own. On SQLite, such a commit always has a response.
var otherWriters = map[string]durableWriter{
	// Each kind of commit is lost in one of the two. A lost intent to submit is repeated, so not all may be lost.
	"provider_batches_even": {modelbatches.Queue, "UPDATE batches SET", evenLosses, checkProviderBatch},
	"provider_batches_odd":  {modelbatches.Queue, "UPDATE batches SET", oddLosses, checkProviderBatch},
	// More than a response may be interrupted by crashes.
	"response_starts": {background.Queue, "UPDATE background_responses SET attempts = attempts + 1", fewLosses, checkStreamedResponse},
	"fan_out":         {"", "DELETE FROM new_events", twoLosses, func(t *testing.T, c *doubtClient) { c.publish(t, keyRevoked, keyRevoked) }},
	"mails":           {"", "UPDATE mails SET status", twoLosses, checkNotified},
	"notifications":   {notifications.Queue, "DELETE FROM notifications", twoLosses, checkNotified},
}

// checkProviderBatch runs a batch at the provider, which gets it once.
func checkProviderBatch(t *testing.T, c *doubtClient) {
	t.Helper()
	before := len(c.openai.Batches.All())
	var lines []any
	for i := range 5 {
		lines = append(lines, chatLine(fmt.Sprint("line", i), "tiny", "Hi."))
	}
	path := c.createBatch(t, "/v1/chat/completions", jsonLines(t, lines...))
	var b *harness.Response
	c.Within(t, 30*time.Second, func() bool {
		c.Clock.Turn(30 * time.Second)
		c.wakeBatches(t)
		c.openai.Batches.End("completed", 5)
		b = c.get(t, path)
		return b.At("completed_at") != nil
	})
	if n := len(c.openai.Batches.All()) - before; n != 1 {
		t.Errorf("the provider got %d batches, want 1", n)
	}
	c.checkLines(t, path, b, 5)
}

// checkLines checks the results of a batch's lines and their charges.
func (c *doubtClient) checkLines(t *testing.T, path string, b *harness.Response, n int) {
	t.Helper()
	if got := len(c.results(t, b, "output_file_id")); got != n || b.At("request_counts.completed") != float64(n) {
		t.Errorf("got %d results of %s, want %d", got, b.Body, n)
	}
	c.cost += amount(t, b, "cost")
	if got := c.number(t, "SELECT count(*) FROM requests WHERE path = $1 AND credits > 0 AND unbilled_credits = 0", path); got != int64(n) {
		t.Errorf("%d requests of the batch are charged, want %d", got, n)
	}
}

// checkNotified causes an event that people learn of once, by email and by the incoming webhook.
func checkNotified(t *testing.T, c *doubtClient) {
	t.Helper()
	sent, messages := len(c.mails.Messages()), len(c.chatTool.messages())
	c.ask(t, "PATCH", "/v1/notifications", map[string]any{"webhook": map[string]any{"url": c.chatTool.URL, "format": "json"}}).Want(t, 200, "")
	const events = 3 // a lost response ends a round of emails, and each event begins one
	for i := range events {
		c.Clock.Turn(time.Hour) // the leases of the last round have ended
		c.publish(t, creditsLow)
		c.Eventually(t, func() bool {
			c.wakeNotifications(t, time.Second)
			return c.rows(t, "mails WHERE status = 'sent'") > sent+i && c.rows(t, "notifications") == 0 && c.rows(t, "new_events") == 0
		})
	}
	c.Within(t, 30*time.Second, func() bool { return c.rows(t, "mails WHERE status <> 'sent'") == 0 })
	if n := len(c.mails.Messages()) - sent; n != 2*events {
		t.Errorf("the owner and the admin got %d emails about %d events", n, events)
	}
	if n := len(c.chatTool.messages()) - messages; n != events {
		t.Errorf("the incoming webhook got %d messages about %d events", n, events)
	}
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

var (
	parkedQueue = regexp.MustCompile(`^turnpike_commit_parked\{.*queue="(.*?)"`)
	laneQueue   = regexp.MustCompile(`^turnpike_lanes_held\{.*queue="(.*?)"`)
)

// checkComplete checks that the writers cover every durable queue and every kind of lane.
func (c *doubtClient) checkComplete(t *testing.T, writers map[string]durableWriter) {
	t.Helper()
	queues, lanes := map[string]bool{}, map[string]bool{}
	for series := range scrape(t, c.Server) {
		if m := parkedQueue.FindStringSubmatch(series); m != nil {
			queues[m[1]] = true
		}
		if m := laneQueue.FindStringSubmatch(series); m != nil {
			lanes[m[1]] = true
		}
	}
	worked := map[string]bool{}
	for _, w := range writers {
		if w.lane != "" {
			worked[w.lane] = true
		}
	}
	if got, want := slices.Sorted(maps.Keys(queues)), slices.Sorted(maps.Keys(durableQueues)); !slices.Equal(got, want) {
		t.Fatalf("the server has the durable queues %v, and this test covers %v", got, want)
	}
	if got, want := slices.Sorted(maps.Keys(lanes)), slices.Sorted(maps.Keys(worked)); !slices.Equal(got, want) {
		t.Fatalf("the server has the lanes %v, and this test covers %v", got, want)
	}
}

// TestResultWhoseCommitLostItsResponseCountsOnce loses the responses to commits of every durable writer. The ledger, the log,
// the objects, the deliveries and the emails then agree as if nothing had happened. (B1, B2)
func TestResultWhoseCommitLostItsResponseCountsOnce(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		c := newDoubtClient(t, engine)
		writers := maps.Clone(durableQueues)
		maps.Copy(writers, otherWriters)
		c.checkComplete(t, writers)
		if engine == "sqlite" {
			writers = durableQueues
		}
		for name, w := range writers {
			t.Log(name)
			c.commits.arm(name, w.statement, w.loses)
			w.work(t, c)
			c.Eventually(t, func() bool { return c.commits.count(name) > 0 })
			c.commits.arm("", "", noLoss)
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
