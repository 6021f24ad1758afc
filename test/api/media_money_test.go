package api_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/spend"
	"turnpike/test/harness"
)

// TestJobsKeepToEveryBudget: what a job can cost is set aside when it is made,
// under the workspace's, the project's and the key's cap, and what it did not
// cost is free again at its end.
func TestJobsKeepToEveryBudget(t *testing.T) {
	t.Parallel()
	eachShop(t, nil, func(t *testing.T, s *shop) {
		budget := 10 * credit
		poor, keyID := s.keyed(t, access.Key{MonthlyBudget: &budget})
		s.post(t, "/v1/projects", map[string]any{"id": "sea", "monthly_budget": 8})
		s.credits(t, 20)
		gate := "g"
		create := func(c *shop, project string, n int) *harness.Response {
			prompts := make([]string, n)
			for i := range prompts {
				prompts[i] = "[gate " + gate + "] [blocked] p"
			}
			prompts[0] = "[gate " + gate + "] p"
			h := http.Header{}
			if project != "" {
				h.Set("Service-Project", project)
			}
			return c.Do(t, harness.Request{Method: "POST", Path: batches, Key: c.key, Body: batch(prompts...), Header: h})
		}
		refused := func(r *harness.Response, code, source string, limit, spent, reserved float64) {
			t.Helper()
			r.Want(t, 402, code)
			if r.Text("error.details.limit_source") != source || r.At("error.details.limit") != limit || r.At("error.details.spent") != spent ||
				r.At("error.details.reserved") != reserved || r.At("error.details.resets_at") != nextMonth(s.Clock.Now()) {
				t.Errorf("%s: %s", source, r.Body)
			}
			if e := s.entry(t, r); e.At("credits") != 0.0 || e.Text("error_code") != code || e.At("model") == nil {
				t.Errorf("%s: the entry is %s", source, e.Body)
			}
		}
		var paths []string
		made := func(r *harness.Response) { paths = append(paths, batches+"/"+r.Want(t, 200, "").Text("id")) }
		made(create(poor, "sea", 6))
		refused(create(poor, "sea", 3), "budget_exceeded", "project", 8, 0, 6)
		refused(create(poor, "", 5), "budget_exceeded", "key", 10, 0, 6)
		made(create(poor, "sea", 2))
		made(create(s, "", 12))
		refused(create(s, "", 1), "insufficient_credits", "workspace", 20, 0, 20)
		if b := s.get(t, "/v1/billing"); b.At("reserved") != 20.0 || b.At("used") != 0.0 {
			t.Errorf("while they work: %s", b.Body)
		}
		s.studio.open("g")
		for _, path := range paths {
			if r := s.ended(t, path, "completed"); r.At("cost") != 1.0 {
				t.Errorf("it came to %s", r.Body)
			}
		}
		s.balanced(t, 3*credit)
		for _, line := range []struct {
			level spend.Level
			id    string
			want  credits.Micro
		}{{spend.Workspace, s.workspace.ID, 3 * credit}, {spend.Project, spend.ProjectID(s.workspace.ID, "sea"), 2 * credit}, {spend.Key, keyID, 2 * credit}} {
			if b := s.spent(t, line.level, line.id); b.Spent != line.want {
				t.Errorf("%s was charged %s, expected %s", line.level, b.Spent, line.want)
			}
		}
		// All of the rest can be spent, and no more.
		gate = "h"
		made(create(poor, "sea", 6))
		refused(create(poor, "sea", 1), "budget_exceeded", "project", 8, 2, 6)
		s.studio.open("h")
		s.ended(t, paths[3], "completed")
		s.balanced(t, 4*credit)
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
		s.settledDown(t)
	})
}

// settledDown waits until nothing at all is set aside: nodes give back what
// they do not use.
func (c *customer) settledDown(t *testing.T) {
	t.Helper()
	c.Eventually(t, func() bool {
		c.write(t, func(tx *db.Tx) error { // or it would be done when they are idle
			tx.Signal(spend.SignalReclaim, "")
			_, err := tx.Exec(t.Context(), "UPDATE lanes SET seq = seq + 1") // the embedded database tells only of changes
			return err
		})
		return c.rows(t, "spend_leases") == 0 && c.rows(t, "spend WHERE leased <> 0") == 0
	})
}

// TestACrowdOfJobsNeverOverspends: of 200 that come at once, on one node or on
// two, a budget for 50 takes 50.
func TestACrowdOfJobsNeverOverspends(t *testing.T) {
	t.Parallel()
	eachShop(t, nil, func(t *testing.T, s *shop) {
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
					r := nodes[i%len(nodes)].Do(t, harness.Request{Method: "POST", Path: batches, Key: s.key, Body: batch("[gate g] p")})
					switch {
					case r.Status == 200:
						made.Add(1)
					case r.Code() == "insufficient_credits":
						refused.Add(1)
					default:
						t.Errorf("answered %d %s", r.Status, r.Body)
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
		s.studio.open("g")
		s.Eventually(t, func() bool { return s.rows(t, "media_jobs WHERE status = 'completed'") == 50 })
		s.balanced(t, 50*credit)
		if n := s.rows(t, "events WHERE type = 'image.batch.completed'"); n != 50 {
			t.Errorf("%d events", n)
		}
		if n := s.studio.count("POST", ""); n != 50 {
			t.Errorf("the provider was asked %d times", n)
		}
		s.settledDown(t)
	})
}

// TestAJobIsChargedToTheMonthItWasMadeIn.
func TestAJobIsChargedToTheMonthItWasMadeIn(t *testing.T) {
	t.Parallel()
	eachShop(t, func(cfg *config.Config) { cfg.Media.Deadline = 60 * 24 * time.Hour }, func(t *testing.T, s *shop) {
		s.credits(t, 10)
		path := s.make(t, batches, batch("[fails 1] one", "[fails 1] [blocked] two"))
		s.Eventually(t, func() bool { return s.rows(t, "media_tasks WHERE tries = 1") == 2 })
		was := spend.PeriodOf(s.Clock.Now())
		s.later(t, 32*24*time.Hour)
		s.ended(t, path, "completed")
		old, err := spend.ReadBalance(t.Context(), s.DB, spend.Account{Level: spend.Workspace, ID: s.workspace.ID}, was)
		if err != nil {
			t.Fatal(err)
		}
		if now := s.spent(t, spend.Workspace, s.workspace.ID); old.Spent != credit || now.Spent != 0 {
			t.Errorf("the old month was charged %s, the new one %s", old.Spent, now.Spent)
		}
		if n := s.rows(t, "spend_leases WHERE node_id LIKE 'job:%'"); n != 0 {
			t.Errorf("%d leases of jobs are left", n)
		}
		if b := s.get(t, "/v1/billing"); b.At("used") != 0.0 || b.At("remaining") != 10.0 {
			t.Errorf("the new month begins with %s", b.Body)
		}
		s.settledDown(t)
	})
}

// TestARestartLosesNoReservation: what is set aside for a job stays so, and is
// settled once, whoever works it in the end.
func TestARestartLosesNoReservation(t *testing.T) {
	t.Parallel()
	eachShop(t, nil, func(t *testing.T, s *shop) {
		s.credits(t, 5)
		path := s.make(t, batches, batch("one", "two", "[fails 1] three", "[fails 1] [blocked] four"))
		s.Eventually(t, func() bool { return s.rows(t, "media_tasks WHERE tries = 1") == 2 && s.get(t, path).At("cost") == 2.0 })
		s.restart(t)
		if b := s.get(t, "/v1/billing"); b.At("used") != 0.0 || amount(t, b, "reserved") < 4*credit {
			t.Errorf("after the restart: %s", b.Body)
		}
		s.ask(t, "POST", batches, batch("a", "b")).Want(t, 402, "insufficient_credits")
		s.later(t, 5*time.Second)
		if r := s.ended(t, path, "completed"); r.At("cost") != 3.0 {
			t.Errorf("it came to %s", r.Body)
		}
		s.balanced(t, 3*credit)
		s.ended(t, s.make(t, batches, batch("a", "b")), "completed")
		s.balanced(t, 5*credit)
		s.settledDown(t)
	})
}

// TestTwoNodesShareTheJobs, and each is done, paid for and told once.
func TestTwoNodesShareTheJobs(t *testing.T) {
	t.Parallel()
	eachShop(t, nil, func(t *testing.T, s *shop) {
		if s.DB.Engine() != "postgres" {
			return // which is one node's alone
		}
		s.credits(t, 1000)
		two := harness.Start(t, s.cfg, s.Clock)
		var paths []string
		for i := range 40 {
			on := []*harness.Server{s.Server, two}[i%2]
			r := on.Do(t, harness.Request{Method: "POST", Path: batches, Key: s.key, Body: batch("one", "[blocked] two", "three")}).Want(t, 200, "")
			paths = append(paths, batches+"/"+r.Text("id"))
		}
		for _, path := range paths {
			if r := s.ended(t, path, "completed"); r.At("cost") != 2.0 {
				t.Errorf("it came to %s", r.Body)
			}
		}
		s.balanced(t, 80*credit)
		if n := s.studio.count("POST", ""); n != 120 {
			t.Errorf("the provider was asked %d times", n)
		}
		if n := s.rows(t, "events WHERE type = 'image.batch.completed'"); n != 40 {
			t.Errorf("%d events", n)
		}
		s.settledDown(t)
	})
}

// TestTestJobsAreFree: what they would have cost stands beside the zero.
func TestTestJobsAreFree(t *testing.T) {
	t.Parallel()
	eachShop(t, nil, func(t *testing.T, s *shop) {
		s.credits(t, 0)
		c := s.inTest(t)
		made := c.post(t, batches, map[string]any{"requests": []any{map[string]any{"custom_id": "a", "body": map[string]any{"prompt": "p", "size": "64x64"}},
			map[string]any{"custom_id": "b", "body": map[string]any{"prompt": "[[sim:fail=moderation_blocked_input]]", "size": "64x64"}}}})
		r := c.ended(t, batches+"/"+made.Text("id"), "completed")
		if r.At("cost") != 0.0 || r.Text("results.1.error.code") != "moderation_blocked_input" {
			t.Errorf("it came to %s", r.Body)
		}
		checkFiles(t, r.Body, 1)
		e := c.entry(t, made)
		if e.At("credits") != 0.0 {
			t.Errorf("the entry is %s", e.Body)
		}
		if n := c.number(t, "SELECT simulated_credits FROM requests WHERE id = $1", made.Header.Get("X-Request-Id")); n <= 0 {
			t.Errorf("it would have cost %d", n)
		}
		s.balanced(t, 0)
	})
}

// TestTheAlertCountsJobs: their charge can be the one that makes credits low.
func TestTheAlertCountsJobs(t *testing.T) {
	t.Parallel()
	eachShop(t, nil, func(t *testing.T, s *shop) {
		s.credits(t, 10)
		s.ended(t, s.make(t, batches, batch("1", "2", "3", "4", "5", "6", "7")), "completed")
		if n := s.rows(t, "events WHERE type = 'billing.credits.low'"); n != 0 {
			t.Errorf("%d alerts at 3 of 10", n)
		}
		s.ended(t, s.make(t, batches, batch("8", "9")), "completed")
		if n := s.rows(t, "events WHERE type = 'billing.credits.low'"); n != 1 {
			t.Errorf("%d alerts at 1 of 10", n)
		}
	})
}
