package api_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/spend"
	"turnpike/test/harness"
)

func TestJobsRespectEveryBudget(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		budget := 10 * credit
		poor, keyID := s.withKey(t, access.Key{MonthlyBudget: &budget})
		s.post(t, "/v1/projects", map[string]any{"id": "sea", "monthly_budget": 8})
		s.credits(t, 20)
		gate := "g"
		create := func(c *mediaClient, project string, n int) *harness.Response {
			prompts := make([]string, n)
			for i := range prompts {
				prompts[i] = "[gate " + gate + "] [blocked] p"
			}
			prompts[0] = "[gate " + gate + "] p"
			h := http.Header{}
			if project != "" {
				h.Set("Service-Project", project)
			}
			return c.Do(t, harness.Request{Method: "POST", Path: batches, Key: c.key, Body: batchBody(prompts...), Header: h})
		}
		type figures struct{ limit, spent, reserved float64 }
		refused := func(r *harness.Response, code, source string, want figures) {
			t.Helper()
			r.Want(t, 402, code)
			if r.Text("error.details.limit_source") != source || r.At("error.details.limit") != want.limit || r.At("error.details.spent") != want.spent ||
				r.At("error.details.reserved") != want.reserved || r.At("error.details.resets_at") != nextMonth(s.Clock.Now()) {
				t.Errorf("%s: %s", source, r.Body)
			}
			if e := s.entry(t, r); e.At("credits") != 0.0 || e.Text("error_code") != code || e.At("model") == nil {
				t.Errorf("%s: got log entry %s", source, e.Body)
			}
		}
		var paths []string
		made := func(r *harness.Response) { paths = append(paths, batches+"/"+r.Want(t, 200, "").Text("id")) }
		made(create(poor, "sea", 6))
		refused(create(poor, "sea", 3), "budget_exceeded", "project", figures{8, 0, 6})
		refused(create(poor, "", 5), "budget_exceeded", "key", figures{10, 0, 6})
		made(create(poor, "sea", 2))
		made(create(s, "", 12))
		refused(create(s, "", 1), "insufficient_credits", "workspace", figures{20, 0, 20})
		if b := s.get(t, "/v1/billing"); b.At("reserved") != 20.0 || b.At("used") != 0.0 {
			t.Errorf("while they work: %s", b.Body)
		}
		s.provider.open("g")
		for _, path := range paths {
			if r := s.waitForEnd(t, path, "completed"); r.At("cost") != 1.0 {
				t.Errorf("got %s", r.Body)
			}
		}
		s.checkLedger(t, 3*credit)
		for _, line := range []struct {
			level spend.Level
			id    string
			want  credits.Micro
		}{{spend.Workspace, s.workspace.ID, 3 * credit}, {spend.Project, spend.ProjectID(s.workspace.ID, "sea"), 2 * credit}, {spend.Key, keyID, 2 * credit}} {
			if b := s.spent(t, line.level, line.id); b.Spent != line.want {
				t.Errorf("%s was charged %s, want %s", line.level, b.Spent, line.want)
			}
		}
		// Everything else can be spent, and no more.
		gate = "h"
		made(create(poor, "sea", 6))
		refused(create(poor, "sea", 1), "budget_exceeded", "project", figures{8, 2, 6})
		s.provider.open("h")
		s.waitForEnd(t, paths[3], "completed")
		s.checkLedger(t, 4*credit)
		var errors float64
		list, _ := s.get(t, "/v1/usage?bucket=day&group_by=model").At("data").([]any)
		for _, u := range list {
			if row, _ := u.(map[string]any); row["model"] != nil && row["model"] != "" {
				errors += row["errors"].(float64)
			}
		}
		if errors != 4 {
			t.Errorf("4 jobs were refused, and %v are among the errors of their models", errors)
		}
		s.waitUntilSettled(t)
	})
}

// waitUntilSettled waits until nothing is reserved. Nodes release unused
// leases.
func (c *client) waitUntilSettled(t *testing.T) {
	t.Helper()
	c.Eventually(t, func() bool {
		c.write(t, func(tx *db.Tx) error { // instead of waiting until the leases are idle
			tx.Signal(spend.SignalReclaim, "")
			_, err := tx.Exec(t.Context(), "UPDATE lanes SET seq = seq + 1") // the embedded database reports only changes
			return err
		})
		return c.rows(t, "spend_leases") == 0 && c.rows(t, "spend WHERE leased <> 0") == 0
	})
}

func TestConcurrentJobsNeverOverspend(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		s.credits(t, 50)
		nodes := []*harness.Server{s.Server}
		if s.DB.Engine() == "postgres" {
			nodes = append(nodes, harness.Start(t, s.cfg, s.Clock))
		}
		var made, refused atomic.Int64
		var all sync.WaitGroup
		work := make(chan int)
		for range 20 {
			all.Go(func() {
				for i := range work {
					r := nodes[i%len(nodes)].Do(t, harness.Request{Method: "POST", Path: batches, Key: s.key, Body: batchBody("[gate g] p")})
					switch {
					case r.Status == 200:
						made.Add(1)
					case r.Code() == "insufficient_credits":
						refused.Add(1)
					default:
						t.Errorf("got %d %s", r.Status, r.Body)
					}
				}
			})
		}
		for i := range 200 {
			work <- i
		}
		close(work)
		all.Wait()
		if made.Load() != 50 || refused.Load() != 150 {
			t.Errorf("%d were made and %d refused", made.Load(), refused.Load())
		}
		s.provider.open("g")
		s.Eventually(t, func() bool { return s.rows(t, "media_jobs WHERE status = 'completed'") == 50 })
		s.checkLedger(t, 50*credit)
		if n := s.rows(t, "events WHERE type = 'image.batch.completed'"); n != 50 {
			t.Errorf("%d events", n)
		}
		if n := s.provider.count("POST", ""); n != 50 {
			t.Errorf("got %d provider requests", n)
		}
		s.waitUntilSettled(t)
	})
}

func TestRestartKeepsReservationsOfJobs(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		s.credits(t, 5)
		path := s.createJob(t, batches, batchBody("one", "two", "[fails 1] three", "[fails 1] [blocked] four"))
		s.Eventually(t, func() bool { return s.rows(t, "media_tasks WHERE tries = 1") == 2 && s.get(t, path).At("cost") == 2.0 })
		s.restart(t)
		if b := s.get(t, "/v1/billing"); b.At("used") != 0.0 || amount(t, b, "reserved") < 4*credit {
			t.Errorf("after the restart: %s", b.Body)
		}
		s.ask(t, "POST", batches, batchBody("a", "b")).Want(t, 402, "insufficient_credits")
		s.advance(t, 5*time.Second)
		if r := s.waitForEnd(t, path, "completed"); r.At("cost") != 3.0 {
			t.Errorf("got %s", r.Body)
		}
		s.checkLedger(t, 3*credit)
		s.waitForEnd(t, s.createJob(t, batches, batchBody("a", "b")), "completed")
		s.checkLedger(t, 5*credit)
		s.waitUntilSettled(t)
	})
}

func TestTestJobsAreFree(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		s.credits(t, 0)
		c := s.withTestKey(t)
		made := c.post(t, batches, map[string]any{"requests": []any{map[string]any{"custom_id": "a", "body": map[string]any{"prompt": "p", "size": "64x64"}},
			map[string]any{"custom_id": "b", "body": map[string]any{"prompt": "[[sim:fail=moderation_blocked_input]]", "size": "64x64"}}}})
		r := c.waitForEnd(t, batches+"/"+made.Text("id"), "completed")
		if r.At("cost") != 0.0 || r.Text("results.1.error.code") != "moderation_blocked_input" {
			t.Errorf("got %s", r.Body)
		}
		checkFiles(t, r.Body, 1)
		e := c.entry(t, made)
		if e.At("credits") != 0.0 {
			t.Errorf("got log entry %s", e.Body)
		}
		if n := c.number(t, "SELECT simulated_credits FROM requests WHERE id = $1", made.Header.Get("X-Request-Id")); n <= 0 {
			t.Errorf("it would have cost %d", n)
		}
		s.checkLedger(t, 0)
	})
}

func TestLowCreditAlertCountsJobs(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		s.credits(t, 10)
		s.waitForEnd(t, s.createJob(t, batches, batchBody("1", "2", "3", "4", "5", "6", "7")), "completed")
		if n := s.rows(t, "events WHERE type = 'billing.credits.low'"); n != 0 {
			t.Errorf("%d alerts at 3 of 10", n)
		}
		s.waitForEnd(t, s.createJob(t, batches, batchBody("8", "9")), "completed")
		if n := s.rows(t, "events WHERE type = 'billing.credits.low'"); n != 1 {
			t.Errorf("%d alerts at 1 of 10", n)
		}
	})
}
