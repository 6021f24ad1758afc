package dashboard_test

import (
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/test/harness"
)

type used struct {
	at             time.Time
	key            string
	project, model string
	requests       int64
	credits        int64
	errors         int64 // one per added-up row
}

func rollUp(t *testing.T, s *harness.Server, w *accounts.Workspace, env accounts.Environment, list ...used) {
	t.Helper()
	err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
		for table, step := range map[string]time.Duration{"usage_hours": time.Hour, "usage_days": 24 * time.Hour} {
			bulk := db.NewBulk(table, `ON CONFLICT (workspace_id, environment, start, key_id, project, model, provider) DO UPDATE SET
				requests = `+table+`.requests + excluded.requests, errors = `+table+`.errors + excluded.errors, input_tokens = `+table+`.input_tokens + excluded.input_tokens,
				output_tokens = `+table+`.output_tokens + excluded.output_tokens, credits = `+table+`.credits + excluded.credits`,
				"workspace_id text", "environment text", "start bigint", "key_id text", "project text", "model text", "provider text",
				"requests bigint", "errors bigint", "input_tokens bigint", "output_tokens bigint", "credits bigint", "simulated_credits bigint")
			// A statement can insert a row only once, so duplicates are added up first.
			sums := map[used]*used{}
			for _, u := range list {
				at := used{at: u.at.UTC().Truncate(step), key: u.key, project: u.project, model: u.model}
				if sums[at] == nil {
					sums[at] = &used{}
				}
				sums[at].errors++
				sums[at].requests += u.requests
				sums[at].credits += u.credits
			}
			var rows [][]any
			for at, u := range sums {
				rows = append(rows, []any{w.ID, string(env), at.at.Unix(), at.key, at.project, at.model, "somewhere", u.requests, u.errors, 10 * u.requests, 20 * u.requests, u.credits, int64(0)})
			}
			if _, err := bulk.Write(t.Context(), tx, rows); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUsageCountsRequests(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		b.get(t, b.in(accounts.Test, "usage")).shows(t, "No usage in this period", "UTC")
		key, keyID := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Test), Name: "web <shop>", Scopes: []string{"*"}})
		other, _ := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Test), Name: "=backend", Scopes: []string{"*"}})
		for i, k := range []string{key, key, other} {
			r := harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: k, Body: chatWith("gpt-4o-mini", "hello")}
			if i == 0 {
				r.Header = map[string][]string{"Service-Project": {"shop"}}
			}
			s.Do(t, r).Want(t, 200, "")
		}
		s.Eventually(t, func() bool {
			return strings.Contains(b.get(t, b.in(accounts.Test, "usage")).is(t, 200).body, "<h2>Requests: 3</h2>")
		})
		for _, bucket := range []string{"minute&range=1h", "hour&range=24h", "day", "month"} {
			b.get(t, b.in(accounts.Test, "usage?bucket="+bucket)).shows(t, "<h2>Requests: 3</h2>", "<svg")
		}
		b.get(t, b.in(accounts.Test, "usage?group=key")).shows(t, "<h2>Requests by key: 3</h2>", `<a href="`+b.in(accounts.Test, "keys/"+keyID)+`">web &lt;shop&gt;</a>`, `<figcaption class="legend">`).hides(t, "web <shop>")
		b.get(t, b.in(accounts.Test, "usage?group=project")).shows(t, "no project", `<a href="`+b.in(accounts.Test, "projects/shop")+`">shop</a>`)
		b.get(t, b.in(accounts.Test, "usage?group=model")).shows(t, "gpt-4o-mini")
		b.get(t, b.in(accounts.Test, "usage?group=provider&metric=simulated_credits")).shows(t, "Simulated credits by provider: 0.", "simulator")
		b.get(t, b.in(accounts.Test, "usage?group=key&then=project")).shows(t, "Requests by key and project: 3", "web &lt;shop&gt; · shop", "web &lt;shop&gt; · no project", "=backend · no project")
		b.get(t, b.in(accounts.Test, "usage?metric=error_rate&group=key")).shows(t, "Error rate by key: 0.0%")
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error { // the clock stands still, so requests take no time
			_, err := tx.Exec(t.Context(), "UPDATE usage_days SET latency_5 = 3 WHERE workspace_id = $1", w.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		latency := b.get(t, b.in(accounts.Test, "usage?metric=latency_p95&group=model")).shows(t, "Latency p95 by model: 987 ms</h2>", `data-label="p50"`, `<circle class="dot`)
		if rows := b.get(t, latency.link(t, ".*Download as CSV</span>")).table(t); len(rows) != 2 || rows[0][len(rows[0])-1] != "latency_p95_ms" || rows[1][len(rows[1])-1] == "0" {
			t.Errorf("the file is %q", rows)
		}
		b.get(t, b.in(accounts.Live, "usage?metric=credits")).shows(t, "<h2>Credits: 0</h2>").hides(t, "Simulated")

		a := b.get(t, b.in(accounts.Test, "usage?group=key&bucket=day"))
		rows := b.get(t, a.link(t, ".*Download as CSV</span>")).table(t)
		if len(rows) != 3 || strings.Join(rows[0], ",") != "start,key_id,key_name,requests,errors,input_tokens,output_tokens,cached_tokens,credits,simulated_credits" {
			t.Fatalf("the file is %q", rows)
		}
		if first := rows[1]; first[0] != s.Clock.Now().UTC().Format("2006-01-02")+"T00:00:00Z" || first[1] != keyID || first[2] != "web <shop>" || first[3] != "2" || first[7] != "0" || first[8] != "0" || first[9] == "0" {
			t.Errorf("the first row is %q", first)
		}
		if rows[2][2] != "'=backend" {
			t.Errorf("a spreadsheet would run %q", rows[2][2])
		}
		// Other workspaces have no usage.
		stranger := member(t, s, s.Workspace(t, "other"), accounts.Owner)
		stranger.get(t, stranger.in(accounts.Test, "usage?group=key")).shows(t, "No usage in this period").hides(t, keyID)
	})
}

func TestUsageMergesSmallGroups(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		var list []used
		now := s.Clock.Now()
		for hour := range 120 {
			for model := range 55 {
				name := fmt.Sprintf("model-%02d with a name that is somewhat longer", model)
				list = append(list, used{at: now.Add(-time.Duration(hour) * time.Hour), key: "key_x", model: name, requests: int64(100 - model), credits: 1_000_000})
			}
		}
		rollUp(t, s, w, accounts.Live, list...)
		day := func(back int) string { return now.UTC().AddDate(0, 0, back).Format(time.DateOnly) }
		span := "&start=" + day(-3) + "&end=" + day(-1)
		a := b.get(t, b.in(accounts.Live, "usage?group=model&bucket=hour"+span)).shows(t, "model-00", "model-49", "5 others, included in the CSV", "by 2 hours", "</i>other</span>")
		for _, model := range []string{"model-00", "model-05"} {
			a.find(t, `(<i class="s\d"[^>]*></i><a [^>]*>`+model+`)`)
		}
		if strings.Contains(a.body, `>model-06 with a name that is somewhat lo</a></span>`) {
			t.Error("the seventh has a color of its own")
		}
		if len(a.body) > 115_000 { // the names of models are unusually long
			t.Errorf("the page has %d bytes", len(a.body))
		}
		total := 0
		for model := range 55 {
			total += 3 * 24 * (100 - model)
		}
		a.shows(t, fmt.Sprintf("Requests by model: %d,%03d<", total/1000, total%1000))
		rows := b.get(t, a.link(t, ".*Download as CSV</span>")).table(t)
		if len(rows) != 1+3*24*55 {
			t.Errorf("the file has %d rows", len(rows))
		}
		for _, filter := range []string{"bucket=hour" + span, "bucket=day&start=" + day(-390), "bucket=minute"} {
			if a := b.get(t, b.in(accounts.Live, "usage?"+filter)).is(t, 200); len(a.body) > 100_000 {
				t.Errorf("%s: the page has %d bytes", filter, len(a.body))
			}
		}
		b.get(t, b.in(accounts.Live, "usage?metric=credits&group=model&bucket=month&start="+day(-60))).shows(t, "Credits by model: 6,600")
	})
}

// TestUsageExportIsComplete: unlike the page, the file omits nothing.
func TestUsageExportIsComplete(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		const days, models = 3, 7_001 // more than 20,000 rows
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		list := make([]used, 0, days*models)
		for day := range days {
			for model := range models {
				list = append(list, used{at: s.Clock.Now().AddDate(0, 0, -day), key: "key_x", model: fmt.Sprintf("m%d", model), requests: 1})
			}
		}
		rollUp(t, s, w, accounts.Live, list...)
		a := b.get(t, b.in(accounts.Live, "usage?group=model&bucket=day&range=7d")).shows(t, "Requests by model: 14,002<", "This period has more usage")
		rows := b.get(t, a.link(t, ".*Download as CSV</span>")).table(t)
		if len(rows) != 1+days*models {
			t.Errorf("the file has %d rows", len(rows))
		}
		if first := rows[1]; first[0] != s.Clock.Now().UTC().AddDate(0, 0, 1-days).Format(time.DateOnly)+"T00:00:00Z" || first[1] != "m0" || first[2] != "1" {
			t.Errorf("the first row is %q", first)
		}
	})
}

func TestUsageFiltersAreKeptAndChecked(t *testing.T) {
	t.Parallel()
	// Other tests count usage on both engines.
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		now := s.Clock.Now().UTC()
		rollUp(t, s, w, accounts.Live, used{at: now, model: `<script>alert(1)</script>`, project: "p", requests: 1}, used{at: now.AddDate(0, 0, -40), model: "=old", requests: 5})
		a := b.get(t, b.in(accounts.Live, "usage?group=model&metric=errors&range=24h")).
			shows(t, `<option value="errors" selected>`, `<option value="model" selected>`, "&lt;script&gt;").hides(t, "<script>alert", "=old")
		for _, text := range []string{"30 days", ".*Download as CSV</span>"} {
			if to := a.link(t, text); !strings.Contains(to, "group=model") || !strings.Contains(to, "metric=errors") {
				t.Errorf("%s leads to %s", text, to)
			}
		}
		b.get(t, a.link(t, "12 months")).shows(t, "=old")
		// Days take precedence over a range.
		old := now.AddDate(0, 0, -40).Format(time.DateOnly)
		b.get(t, b.in(accounts.Live, "usage?range=24h&start="+old+"&end="+old)).shows(t, "<h2>Requests: 5</h2>", `value="`+old+`"`)
		rows := b.get(t, b.in(accounts.Live, "usage/export.csv?group=model&start="+old+"&end="+old)).table(t)
		if len(rows) != 2 || rows[1][1] != "'=old" || rows[1][2] != "5" {
			t.Errorf("the file is %q", rows)
		}
		b.get(t, b.in(accounts.Live, "usage?bucket=minute&range=30d")).shows(t, "With bucket minute, the page shows at most the last 24 h")
		b.get(t, b.in(accounts.Live, "usage?bucket=minute&start="+old+"&end="+old)).shows(t, "kept for 7 days")
		for _, bad := range []string{"bucket=week", "group=ip", "group=" + url.QueryEscape("key; drop"), "start=x", "end=1", "start=2026-02-02&end=2026-02-01"} {
			b.get(t, b.in(accounts.Live, "usage?metric=errors&"+bad)).rejects(t, 400, `<option value="errors" selected>`).hides(t, "usage-chart")
			b.get(t, b.in(accounts.Live, "usage/export.csv?"+bad)).is(t, 400)
		}
	})
}

// Bars and legends lead to the requests that they count, in their time.
func TestUsageChartLeadsToItsRequests(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		_, key := s.Key(t, w, accounts.Live)
		now := s.Clock.Now().UTC()
		rollUp(t, s, w, accounts.Live, used{at: now.Add(-48 * time.Hour), key: key, project: "shop", model: "gpt-4o", requests: 5, credits: 7_000_000})
		search := func(page *response, pattern string) string {
			t.Helper()
			u, err := url.Parse(html.UnescapeString(page.find(t, pattern)))
			if err != nil || u.Path != b.in(accounts.Live, "requests") {
				t.Fatalf("a link leads to %v (%v)", u, err)
			}
			return u.Query().Get("q")
		}
		day := now.AddDate(0, 0, -2).Truncate(24 * time.Hour)
		span := "from:" + day.Format("2006-01-02T15:04") + " until:" + day.AddDate(0, 0, 1).Format("2006-01-02T15:04")
		const slot = `<a class="slot" href="([^"]+)" aria-label="%s: %s`
		for metric, want := range map[string][2]string{"requests": {"5", span}, "errors": {"1", span + " status:failed"}, "error_rate": {"20.0%", span + " status:failed"}} {
			page := b.get(t, b.in(accounts.Live, "usage?range=7d&metric="+metric))
			if got := search(page, fmt.Sprintf(slot, day.Format("Jan 2"), want[0])); got != want[1] {
				t.Errorf("a bar of %s leads to %q, want %q", metric, got, want[1])
			}
		}
		for group, value := range map[string]string{"key": key, "project": "shop", "model": "gpt-4o", "provider": "somewhere"} {
			page := b.get(t, b.in(accounts.Live, "usage?range=7d&group="+group))
			got := search(page, `data-term="`+group+`:`+value+`"></i><a href="([^"]+)"`)
			if !strings.HasPrefix(got, "from:"+now.AddDate(0, 0, -6).Format("2006-01-02")) || !strings.HasSuffix(got, " "+group+":"+value) || !strings.Contains(got, " until:") {
				t.Errorf("the legend of %s leads to %q, want its requests of the week", group, got)
			}
		}
		b.get(t, b.in(accounts.Live, "usage?range=7d&group=project&then=model")).find(t, `data-term="project:shop model:gpt-4o"></i><a href="([^"]+)"`)
	})
}

func TestChartsShowMonthlyBudgets(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		budget := 50 * credits.Credit
		_, limited := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "limited", Scopes: []string{"*"}, MonthlyBudget: &budget})
		_, free := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "free", Scopes: []string{"*"}})
		b.post(t, b.in(accounts.Live, "projects"), url.Values{"id": {"shop"}, "monthly_budget": {"80"}})
		b.post(t, b.in(accounts.Live, "projects"), url.Values{"id": {"blog"}})
		now := s.Clock.Now().UTC()
		month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
		for _, key := range []string{limited, free} {
			rollUp(t, s, w, accounts.Live, used{at: month.Add(-time.Hour), key: key, project: "shop", model: "m", requests: 1, credits: 9_000_000},
				used{at: month, key: key, project: "shop", model: "m", requests: 1, credits: 7_000_000}, used{at: now, key: key, project: "blog", model: "m", requests: 1, credits: 3_000_000})
		}
		today := now.Format("Jan 2")
		b.get(t, b.in(accounts.Live, "keys/"+limited)).shows(t, "Spend this month", "Budget 50<", `aria-label="`+today+`: 10.00 credits"`)
		b.get(t, b.in(accounts.Live, "keys/"+free)).hides(t, "Spend this month", "Budget 50<")
		b.get(t, b.in(accounts.Live, "projects/shop")).shows(t, "Spend this month", "Budget 80<", `aria-label="`+today+`: 14.00 credits"`)
		b.get(t, b.in(accounts.Live, "projects/blog")).hides(t, "Spend this month")

		// The workspace's credits are a line where a month adds up.
		give(t, s, []any{"UPDATE workspaces SET monthly_credits = 90000000 WHERE id = $1", w.ID})
		b.get(t, b.in(accounts.Live, "usage?metric=credits&range=month&sum=yes")).shows(t, "Budget 90<")
		for _, other := range []string{"metric=credits&range=month", "metric=credits&range=7d&sum=yes", "metric=requests&range=month&sum=yes"} {
			b.get(t, b.in(accounts.Live, "usage?"+other)).hides(t, "Budget 90<")
		}
	})
}
