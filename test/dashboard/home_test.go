package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/test/harness"
)

func TestHomeShowsFirstStepsUntilFirstRequest(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		home := b.in(accounts.Test, "")
		b.get(t, home).shows(t, "First steps", "curl "+s.URL+"/v1/chat/completions", "keys/new", "Free").hides(t, "Needs attention", "Most frequent errors")
		viewer := member(t, s, w, accounts.Viewer)
		viewer.get(t, home).shows(t, "First steps").hides(t, "keys/new")
		key, _ := s.Key(t, w, accounts.Test)
		chat(t, s, key, "")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/jobs", Key: key}).Want(t, 404, "not_found")
		s.Eventually(t, func() bool { return strings.Contains(b.get(t, home).body, "<strong>1</strong> request<") })
		b.get(t, home).shows(t, `<span class="stat">1</span>`, "Simulated spend by day", "<code>not_found</code>").hides(t, "First steps")
		b.get(t, b.in(accounts.Live, "")).shows(t, "First steps").hides(t, "<strong>1</strong> request<")
	})
}

func TestHomeShowsHowLongCreditsLast(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		home := b.in(accounts.Live, "")
		now := s.Clock.Now().UTC()
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO spend (level, account_id, period, settled, leased) VALUES ('workspace', $1, $2, 400000000, 0)", w.ID, now.Format("2006-01"))
			if err != nil {
				return err
			}
			// 70 credits in the last seven days, and many more before.
			for age, spent := range map[time.Duration]int64{time.Hour: 30_000_000, 100 * time.Hour: 40_000_000, 200 * time.Hour: 330_000_000} {
				for table, step := range map[string]time.Duration{"usage_hours": time.Hour, "usage_days": 24 * time.Hour} {
					_, err := tx.Exec(t.Context(), `INSERT INTO `+table+` (workspace_id, environment, start, key_id, project, model, provider, requests, errors, input_tokens, output_tokens, credits, simulated_credits)
						VALUES ($1, 'live', $2, 'key', '', 'm', 'p', 8, 2, 0, 0, $3, 0)`, w.ID, now.Add(-age).Truncate(step).Unix(), spent)
					if err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.get(t, home).shows(t, "Spent this month", `<span class="stat">400</span>`, "without a limit", `<span class="stat">8</span>`, `<span class="stat">2</span>`, "25.0% of model requests", "Spend by day")
		err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE workspaces SET monthly_credits = 600000000 WHERE id = $1", w.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		b.get(t, home).shows(t, "Credits left", `<span class="stat">200</span>`, "of 600 this month: about 20 days").hides(t, ">low<")
		err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE workspaces SET monthly_credits = 410000000 WHERE id = $1", w.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		b.get(t, home).shows(t, "about 24 h", ">low<")
	})
}

func TestHomeShowsIssuesOfThisEnvironmentOnly(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w, other := s.Workspace(t, "acme"), s.Workspace(t, "other")
		b := member(t, s, w, accounts.Owner)
		home := b.in(accounts.Live, "")
		now := s.Clock.Now()
		soon, late := now.Add(6*24*time.Hour+time.Hour), now.Add(8*24*time.Hour)
		for name, ends := range map[string]*time.Time{"ends soon": &soon, "ends late": &late, "never ends": nil} {
			s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: name, Scopes: []string{"*"}, ExpiresAt: ends})
		}
		b.get(t, home).shows(t, "Needs attention", "ends soon", "in 6 days").hides(t, "ends late", "never ends")

		rotating, _ := b.createKey(t, accounts.Live, url.Values{"name": {"was rotated"}, "preset": {"calls"}})
		b.post(t, rotating+"/rotate", url.Values{"grace": {"3600"}}).redirectsTo(t, rotating)
		leaked, _ := s.Key(t, w, accounts.Live)
		s.Do(t, harness.Request{Method: "POST", Path: "/leaks/report", Body: map[string]any{"keys": []string{leaked}}}).Want(t, 202, "")
		endpoint := func(tenant *accounts.Workspace, name, status string, failedAt, succeededAt any) {
			t.Helper()
			id := ids.New(ids.Endpoint)
			err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO endpoints (id, workspace_id, environment, kind, url, events, description, status, secret, secret_hint, created_at)
					VALUES ($1, $2, 'live', 'http', $3, '[]', '', $4, '', '', 0)`, id, tenant.ID, "https://hooks.example/"+name, status)
				if err != nil {
					return err
				}
				_, err = tx.Exec(t.Context(), "INSERT INTO endpoint_stats (endpoint_id, succeeded, failed, failed_attempts, last_failure_at, last_success_at, last_error) VALUES ($1, 0, 0, 0, $2, $3, '<b>503</b>')", id, failedAt, succeededAt)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		at := func(age time.Duration) any { return now.Add(-age).UnixMicro() }
		endpoint(w, "paused", "paused", nil, nil)
		endpoint(w, "failing", "active", at(time.Hour), nil)
		endpoint(w, "worse", "active", at(time.Hour), at(2*time.Hour))
		endpoint(w, "retried", "active", at(time.Hour), at(time.Minute))
		endpoint(w, "recovered", "active", at(25*time.Hour), nil)
		endpoint(w, "healthy", "active", nil, at(time.Minute))
		endpoint(other, "foreign", "paused", nil, nil)
		b.get(t, home).shows(t, "was rotated", "works for another 1 h", "…"+leaked[len(leaked)-4:], "hooks.example/paused", "hooks.example/failing", "hooks.example/worse", "&lt;b&gt;503").
			hides(t, "hooks.example/retried", "hooks.example/recovered", "hooks.example/healthy", "hooks.example/foreign", "<b>503", leaked)
		b.get(t, b.in(accounts.Test, "")).hides(t, "Needs attention")

		s.Clock.Turn(31 * 24 * time.Hour)
		b.signIn(t)
		b.get(t, home).is(t, http.StatusOK).hides(t, "…"+leaked[len(leaked)-4:], "was rotated", "ends soon", "hooks.example/failing")
	})
}

func TestHomeShowsRunsAwaitingApproval(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		var waiting []string
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
			for i := range 9 {
				status := []string{"awaiting_approval", "completed", "queued"}[i%3]
				id := ids.New(ids.Run)
				if status == "awaiting_approval" {
					waiting = append(waiting, id)
				}
				_, err := tx.Exec(t.Context(), `INSERT INTO agent_runs (id, workspace_id, environment, key_id, reader, request_id, lane, status, model, orders, specs, metadata,
					max_steps, steps_used, revisions, input_tokens, output_tokens, credits, turn, tries, worked_us, messages, logged, created_at)
					VALUES ($1, $2, 'test', 'key', '', 'req', $3, $4, 'm', '{}', '[]', '{}', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, $5)`,
					id, w.ID, fmt.Sprintf("lane%d", i), status, s.Clock.Now().UnixMicro())
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		home := b.get(t, b.in(accounts.Test, "")).shows(t, waiting...)
		if n := strings.Count(home.body, "awaits a decision"); n != len(waiting) {
			t.Errorf("%d runs wait, not %d", n, len(waiting))
		}
	})
}
