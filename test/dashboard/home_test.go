package dashboard_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
	"turnpike/test/sampledata"
)

func TestChecklistTicksItself(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		home := b.in(accounts.Test, "")
		ticked := func(done int, steps ...string) {
			t.Helper()
			page := b.get(t, home).shows(t, "Get started", fmt.Sprintf("%d of 7", done))
			for _, name := range []string{"provider", "key", "request", "webhook", "invite", "factor", "leaks"} {
				is := strings.Contains(page.body, `<div id="start-`+name+`" data-live><div class="step done">`)
				if want := slices.Contains(steps, name); is != want {
					t.Errorf("step %s is done: %t, not %t", name, is, want)
				}
			}
		}
		ticked(0)
		b.get(t, home).shows(t, "Waiting for your first request…", "curl "+s.URL+"/v1/chat/completions", "from openai import OpenAI", "import OpenAI from", "openai-go/v3", "keys/new", "Test requests go to a simulator").
			hides(t, "Needs attention", "Errors by code")
		key, _ := s.Key(t, w, accounts.Test)
		ticked(1, "key")
		chat(t, s, key, "")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/jobs", Key: key}).Want(t, 404, "not_found")
		s.Eventually(t, func() bool { return strings.Contains(b.get(t, home).body, "<strong>1</strong> request<") })
		ticked(2, "key", "request")
		b.get(t, home).shows(t, `<span class="stat">1</span>`, "Simulated spend by day", "<code>not_found</code>", "error%3Anot_found", "Top models", "last%3A24h").hides(t, "Waiting for your first request")
		hook := s.Do(t, harness.Request{Method: "POST", Path: "/v1/webhooks", Key: key, Body: map[string]any{"url": "https://hooks.example/x", "events": []string{"*"}}}).Want(t, 200, "").Text("id")
		ticked(3, "key", "request", "webhook")
		exec := func(query string, args ...any) {
			t.Helper()
			err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), query, args...)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		// A tunnel counts once it has delivered something, and then also when it is gone.
		exec("UPDATE endpoints SET kind = 'tunnel' WHERE id = $1", hook)
		ticked(2, "key", "request")
		exec("INSERT INTO endpoint_stats (endpoint_id, succeeded, failed, failed_attempts, last_success_at) VALUES ($1, 1, 0, 0, 1)", hook)
		exec("UPDATE endpoints SET deleted_at = 1 WHERE id = $1", hook)
		ticked(3, "key", "request", "webhook")
		viewer := member(t, s, w, accounts.Viewer)
		viewer.get(t, home).shows(t, "4 of 7").hides(t, "keys/new")
		ticked(4, "key", "request", "webhook", "invite")
		exec("INSERT INTO totp (user_id, secret, enabled_at, last_step, created_at) VALUES ($1, '', 1, 0, 1)", b.person.ID)
		ticked(5, "key", "request", "webhook", "invite", "factor")
		b.get(t, b.in(accounts.Live, "")).shows(t, "2 of 7")
		exec("UPDATE workspaces SET leak_policy = 'report' WHERE id = $1", w.ID)
		ticked(5, "key", "request", "webhook", "invite", "factor")
		exec("UPDATE workspaces SET leak_policy = 'revoke' WHERE id = $1", w.ID)
		ticked(6, "key", "request", "webhook", "invite", "factor", "leaks")
		b.post(t, b.in(accounts.Test, "start/dismiss"), url.Values{}).redirectsTo(t, home)
		b.get(t, home).hides(t, "Get started")
		b.get(t, b.in(accounts.Live, "")).shows(t, "Get started")
		viewer.get(t, home).shows(t, "Get started")
	})
}

func TestLiveHomeSaysThatNoProviderIsConnected(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.Providers = nil
	s := harness.Start(t, cfg, harness.NewClock())
	w := s.Workspace(t, "acme")
	b := member(t, s, w, accounts.Owner)
	home := b.in(accounts.Live, "")
	b.get(t, home).shows(t, "No provider is connected", "no_provider", "Ask the person who runs this server").hides(t, `href="/dashboard/server"`)
	b.post(t, b.in(accounts.Live, "start/dismiss"), url.Values{}).redirectsTo(t, home)
	b.get(t, home).shows(t, "Needs attention", "No provider is connected")
	b.get(t, b.in(accounts.Test, "")).hides(t, "No provider is connected")
	s.GrantOperator(t, b.person.ID)
	b.get(t, home).shows(t, `href="/dashboard/server"`)
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
		b.get(t, home).shows(t, "Spent this month", `<span class="stat">400</span>`, "no limit", `<span class="stat">8</span>`, "Spend by day")
		err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE workspaces SET monthly_credits = 600000000 WHERE id = $1", w.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		b.get(t, home).shows(t, "Credits left", `<span class="stat">200</span>`, "of 600, enough for about").hides(t, ">low<", "Credits are low")
		err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE workspaces SET monthly_credits = 410000000 WHERE id = $1", w.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		b.get(t, home).shows(t, ">low<", "Credits are low", "10 of 410 credits left this month, about 2", "at the current rate")
		err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE workspaces SET monthly_credits = 400000000 WHERE id = $1", w.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		b.get(t, home).shows(t, "Out of credits", "live requests are rejected").hides(t, "Credits are low")
	})
}

func TestHomeFlagsCreditsThatRunOutBeforeTheMonthEnds(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		now := s.Clock.Now().UTC()
		s.Clock.Turn(time.Date(now.Year(), now.Month()+1, 10, 12, 0, 0, 0, time.UTC).Sub(now))
		now = s.Clock.Now().UTC()
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		home := b.in(accounts.Live, "")
		give(t, s, []any{"UPDATE workspaces SET monthly_credits = 100000000 WHERE id = $1", w.ID},
			[]any{"INSERT INTO spend (level, account_id, period, settled, leased) VALUES ('workspace', $1, $2, 20000000, 0)", w.ID, now.Format("2006-01")})
		spend := func(amount int64) {
			t.Helper()
			give(t, s, []any{`INSERT INTO usage_days (workspace_id, environment, start, key_id, project, model, provider, requests, errors, input_tokens, output_tokens, credits, simulated_credits)
				VALUES ($1, 'live', $2, 'key', '', 'm', $3, 8, 2, 0, 0, $4, 0)`, w.ID, now.Truncate(24 * time.Hour).Add(-24 * time.Hour).Unix(), fmt.Sprint(amount), amount})
		}
		spend(10_000_000) // lasts 52 days
		b.get(t, home).shows(t, "enough for about 52 days").hides(t, ">low<", "Credits run out")
		spend(60_000_000) // lasts a week, of the 20 days that are left
		b.get(t, home).shows(t, ">low<", "Credits run out before the month ends", "80 of 100 credits left this month, about 7 days at the current rate").hides(t, "Credits are low")
	})
}

func TestNumbersOnHomeAreLinks(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		home := b.in(accounts.Test, "")
		key, keyID := s.Key(t, w, accounts.Test)
		chat(t, s, key, "")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/jobs", Key: key}).Want(t, 404, "not_found")
		page := b.until(t, home, "<strong>1</strong> request<")
		for path, text := range map[string]string{
			"q=last%3A30d":                 "<strong>1</strong> request<",
			"q=last%3A30d+status%3Afailed": "<strong>0</strong> errors",
			"metric=credits":               `<strong>[\d.]+</strong> simulated credits`,
			"model%3A":                     `1<span class="hidden-text"> requests of `,
			"group=model":                  `[$\d.]+<span class="hidden-text"> spent by `,
			"key%3A" + keyID:               `1<span class="hidden-text"> requests of `,
			"error%3Anot_found":            `1<span class="hidden-text"> requests with not_found`,
		} {
			if !regexp.MustCompile(`<a [^>]*href="[^"]*` + regexp.QuoteMeta(path) + `[^"]*"[^>]*>` + text).MatchString(html.UnescapeString(page.body)) {
				t.Errorf("%s is no link to %s:\n%s", text, path, page.main())
			}
		}
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
		b.post(t, b.in(accounts.Live, "start/dismiss"), url.Values{})
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
		b.get(t, home).shows(t, "was rotated", "stops working", "…"+leaked[len(leaked)-4:], "hooks.example/paused", "hooks.example/failing", "hooks.example/worse", "&lt;b&gt;503").
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
		if n := strings.Count(home.body, "Approve a tool call"); n != len(waiting) {
			t.Errorf("%d runs wait, not %d", n, len(waiting))
		}
	})
}

// give runs statements in one transaction.
func give(t *testing.T, s *harness.Server, statements ...[]any) {
	t.Helper()
	err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
		for _, st := range statements {
			if _, err := tx.Exec(t.Context(), st[0].(string), st[1:]...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestHomeFlagsExhaustedBudgets(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		home := b.in(accounts.Live, "")
		now := s.Clock.Now().UTC()
		month, today := now.Format("2006-01"), now.Format("2006-01-02")
		budget := 50 * credits.Credit
		limits := []accounts.Limit{{Models: catalog.Patterns{"gpt-*"}, Budget: &budget, Window: accounts.WindowDay}}
		newKey := func(name string, limits ...accounts.Limit) string {
			k := &access.Key{Tenant: w.In(accounts.Live), Name: name, Scopes: []string{"*"}, Limits: limits}
			if limits == nil {
				k.MonthlyBudget = &budget
			}
			_, id := s.KeyOf(t, k)
			return id
		}
		const spend = "INSERT INTO spend (level, account_id, period, settled, leased) VALUES ($1, $2, $3, $4, 0)"
		const alert = "INSERT INTO budget_alerts (level, account_id, period, budget, percent, fired_at) VALUES ($1, $2, $3, $4, 100, $5)"
		refused, nearly, fine, daily, user := newKey("refused one"), newKey("nearly one"), newKey("fine one"), newKey("daily one", limits...), ids.New(ids.EndUser)
		give(t, s,
			[]any{"INSERT INTO projects (workspace_id, environment, id, name, monthly_budget, created_at) VALUES ($1, 'live', 'shop', 'Shop', 10000000, 0)", w.ID},
			[]any{spend, "project", w.ID + "/shop", month, 10_000_000},
			[]any{spend, "key", refused, month, 49_500_000},
			[]any{alert, "key", refused, month, int64(budget), now.Add(-2 * time.Hour).UnixMicro()},
			[]any{spend, "key", nearly, month, 41_000_000},
			[]any{spend, "key", fine, month, 39_000_000},
			[]any{spend, "key_limit", daily + "/" + limits[0].ID, today, 45_000_000},
			[]any{"INSERT INTO end_users (id, workspace_id, environment, name, created_at, seen_at) VALUES ($1, $2, 'live', 'u1', 0, 0)", user, w.ID},
			[]any{alert, "user", user, month, 1000, now.Add(-time.Hour).UnixMicro()},
		)
		page := b.get(t, home).shows(t, "Needs attention", "Project Shop", "monthly budget exhausted, requests are rejected: 10 of 10 credits", "Key refused one", "49.50 of 50 credits", "2 h ago",
			"Key nearly one", "82% of its monthly budget spent: 41 of 50 credits", "Key daily one", "90% of its daily budget for gpt-* spent", "1 user reached their budget", "/keys/"+refused, "/projects/shop").hides(t, "fine one")
		if strings.Index(page.body, "refused one") > strings.Index(page.body, "nearly one") {
			t.Error("an exhausted budget is below one that isn't")
		}
		b.get(t, b.in(accounts.Test, "")).hides(t, "Needs attention")
	})
}

func TestHomeSaysWhichRequestsItsErrorsAreOf(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		home := b.in(accounts.Test, "")
		key, keyID := s.Key(t, w, accounts.Test)
		chat(t, s, key, "")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/jobs", Key: key}).Want(t, 404, "not_found")
		b.until(t, home, "<code>not_found</code>").shows(t, "Errors by code, last 24 hours").hides(t, "1,000", "Counted back")
		s.FillRequests(t, w, keyID, 1000)
		b.get(t, home).shows(t, "Errors by code, newest 1,000 requests").hides(t, "<code>not_found</code>")
	})
}

// The number of failed requests, the codes beside it and the link all come from the log: usage lacks requests that were
// refused before a model was chosen.
func TestHomeCountsRefusedRequestsAsFailed(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		home := b.in(accounts.Test, "")
		key, _ := s.Key(t, w, accounts.Test)
		chat(t, s, key, "")
		for range 3 {
			s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatWith("gpt-nonexistent", "hello")}).Want(t, 404, "model_not_found")
		}
		page := b.until(t, home, "<code>model_not_found</code>").shows(t, "75.0%")
		if got := page.find(t, `<h3>Failed requests</h3>\s*<span class="value"><span class="stat">([^<]*)<`); got != "3" {
			t.Errorf("%s requests failed, want 3 as the codes say", got)
		}
		list := b.get(t, b.in(accounts.Test, "requests"+query("status:failed last:24h")))
		if got := rowsOf(list); len(got) != 3 {
			t.Errorf("the link shows %d requests, want 3", len(got))
		}
	})
}

func TestHomeFlagsErrorSpikes(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		home := b.in(accounts.Live, "")
		_, key := s.Key(t, w, accounts.Live)
		log := func(age time.Duration, requests, failed int) {
			t.Helper()
			list := make([]entry, requests)
			for i := range list {
				list[i] = entry{workspace: w, env: accounts.Live, key: key, status: 200, age: age}
				if i < failed {
					list[i].status = 429
				}
			}
			logs(t, s, list...)
		}
		log(10*time.Hour, 400, 20)
		log(time.Minute, 100, 12)
		b.get(t, home).hides(t, "Errors are up") // 12% is not three times 5%
		log(9*time.Hour, 400, 4)
		b.get(t, home).shows(t, "Errors are up", "12 of 100 requests failed in the last hour (12.0%, against 3.0% the day before)", "status%3Afailed")

		// With more requests than a page scans, usage says it.
		now := s.Clock.Now().UTC()
		log(time.Minute, 900, 0)
		b.get(t, home).hides(t, "Errors are up").shows(t, "of the newest 1,000 requests")
		for table, step := range map[string]time.Duration{"usage_hours": time.Hour, "usage_minutes": time.Minute} {
			give(t, s, []any{"INSERT INTO " + table + ` (workspace_id, environment, start, key_id, project, model, provider, requests, errors, input_tokens, output_tokens, credits, simulated_credits)
				VALUES ($1, 'live', $2, 'key', '', 'm', 'p', 1000, 120, 0, 0, 0, 0)`, w.ID, now.Truncate(step).Unix()})
		}
		b.get(t, home).shows(t, "120 of 1,000 model requests failed in the last hour (12.0%, against none the day before)")
	})
}

func TestHomeFlagsFailingProviders(t *testing.T) {
	t.Parallel()
	up := upstreams.NewOpenAI(t, providerKey)
	var broken atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			http.Error(rw, `{"error":{"message":"The server had an error."}}`, http.StatusInternalServerError)
			return
		}
		up.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	cfg := harness.Config(t, "sqlite")
	cfg.Providers = []config.Provider{{Name: "acme-ai", Type: config.OpenAI, Catalog: "openai", BaseURL: config.Address(server.URL + "/v1"), APIKey: providerKey, Weight: 1,
		Models: []config.ProviderModel{{ID: "gpt-4o-mini"}, {ID: "gpt-4o"}}}}
	s := harness.Start(t, cfg, harness.NewClock())
	w := s.Workspace(t, "acme")
	b := member(t, s, w, accounts.Owner)
	home := b.in(accounts.Live, "")
	key, _ := s.Key(t, w, accounts.Live)
	call := func(model string, status int, code string) {
		t.Helper()
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": "Hi."}}}}).Want(t, status, code)
	}
	call("gpt-4o", 200, "")
	b.get(t, home).hides(t, "is failing")
	broken.Store(true)
	for range 3 {
		call("gpt-4o-mini", 502, "upstream_error")
	}
	s.Clock.Turn(time.Minute)
	b.get(t, home).shows(t, "Needs attention", "Provider acme-ai is failing", "on gpt-4o-mini<", "1 min ago</time>", "provider%3Aacme-ai&#43;status%3Afailed")
	b.get(t, b.in(accounts.Test, "")).hides(t, "is failing") // test requests don't use providers
	s.GrantOperator(t, b.person.ID)
	b.get(t, home).shows(t, `href="/dashboard/server/providers/acme-ai">Provider acme-ai is failing`)
	broken.Store(false)
	s.Clock.Turn(10 * time.Minute)
	call("gpt-4o-mini", 200, "")
	b.get(t, home).hides(t, "is failing")
}

func TestHomeNamesTheToolThatWaits(t *testing.T) {
	t.Parallel()
	w := sampledata.Demo(t)
	b := newBrowser(t, w.Server)
	b.workspace = w.Workspace
	b.post(t, "/dashboard/login", url.Values{"email": {w.Owner.Email}, "password": {sampledata.DemoPassword}}).redirectsTo(t, "/dashboard/")
	b.post(t, b.in(accounts.Live, "start/dismiss"), url.Values{})
	b.get(t, b.in(accounts.Live, "")).shows(t, "Approve refund_order", "Order LB-20417 was cancelled by the customer", "p95", "vs. previous 24 h", "Top models", "Top keys", "Shop backend", "rate_limit_exceeded", "Key Catalogue job", "93% of its monthly budget spent").
		hides(t, w.RunID+"</code>", "Get started")
}
