package dashboard_test

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/spend"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// eachBilledServer runs fn on each engine with the model "small". costs sets the price of a request.
func eachBilledServer(t *testing.T, fn func(t *testing.T, s *harness.Server, costs func(credits int64))) {
	t.Helper()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			upstream := upstreams.NewOpenAI(t, "sk-one")
			cfg := harness.Config(t, engine)
			cfg.Providers = []config.Provider{{Name: "first", Type: config.OpenAI, BaseURL: config.Address(upstream.BaseURL()), APIKey: "sk-one", Weight: 1,
				Models: []config.ProviderModel{{ID: "small", Price: &config.ModelPrice{Input: "2", Output: "8"}}}}}
			// 100 input tokens at 0.002 and 100 output tokens at 0.008 cost one credit.
			fn(t, harness.Start(t, cfg, harness.NewClock()), func(n int64) {
				upstream.Queue(upstreams.OpenAIReply{Usage: &upstreams.OpenAIUsage{Input: 100 * n, Output: 100 * n}})
			})
		})
	}
}

func TestFormRefusesBudgetBelowSpending(t *testing.T) {
	t.Parallel()
	eachBilledServer(t, func(t *testing.T, s *harness.Server, costs func(int64)) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		key, id := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "bot", Scopes: []string{"*"}})
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: key, Body: map[string]any{"id": "shop"}}).Want(t, 200, "")
		costs(2)
		body := chatWith("small", "hi")
		body["max_tokens"] = 1000
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: body, Header: http.Header{"Service-Project": {"shop"}}}).Want(t, 200, "")
		s.Eventually(t, func() bool {
			return s.Do(t, harness.Request{Method: "GET", Path: "/v1/billing", Key: key}).At("used") == 2.0
		})
		for _, tt := range []struct {
			page  string
			form  url.Values
			field string
			label string
		}{
			{"keys/" + id + "/edit", url.Values{"name": {"renamed"}, "preset": {"everything"}}, "monthly_budget", "The budget per month"},
			{"projects/shop", url.Values{"name": {"renamed"}}, "monthly_budget", "The budget per month"},
			{"billing", url.Values{}, "monthly_credits", "The credits per month"},
		} {
			page := b.in(accounts.Live, tt.page)
			tt.form.Set(tt.field, "1.5")
			b.post(t, page, tt.form).fieldErrors(t, [2]string{tt.field, tt.label + " cannot be 1.5, because 2 credits are already spent. Set at least 2."})
			tt.form.Set(tt.field, "2")
			b.post(t, page, tt.form).is(t, http.StatusSeeOther)
		}
	})
}

func TestBillingShowsChargesToTheMicrocredit(t *testing.T) {
	t.Parallel()
	eachBilledServer(t, func(t *testing.T, s *harness.Server, costs func(int64)) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		b.get(t, b.in(accounts.Test, "billing")).shows(t, "Test requests are free", b.in(accounts.Live, "billing"))
		b.get(t, b.in(accounts.Live, "billing")).shows(t, "without a limit", "No charges", "20%")
		const evil = `<script>alert(1)</script>`
		web, _ := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: evil, Scopes: []string{"*"}})
		bot, botID := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "bot", Scopes: []string{"*"}})
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: bot, Body: map[string]any{"id": "shop", "name": evil + "p"}}).Want(t, 200, "")
		var last string
		for i, key := range []string{web, bot, bot, bot} {
			costs(int64(i + 1))
			body := chatWith("small", "hi")
			body["max_tokens"] = 1000
			last = s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: body, Header: http.Header{"Service-Project": {"shop"}}}).Want(t, 200, "").Header.Get("X-Request-Id")
		}
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: web}).Want(t, 200, "") // costs nothing
		var a *response
		s.Eventually(t, func() bool {
			a = b.get(t, b.in(accounts.Live, "billing")).is(t, 200)
			return strings.Contains(a.body, `<span class="stat">10</span>`)
		})
		month, named := s.Clock.Now().UTC().Format("2006-01"), s.Clock.Now().UTC().Format("January 2006")
		a.shows(t, "Charged in "+named+": 10 <", b.in(accounts.Live, "requests/"+last), "Top keys by spend", "Top projects by spend", "90%", "100%",
			`<a href="`+b.in(accounts.Live, "keys/"+botID)+`">bot</a>`, b.in(accounts.Live, "projects/shop"), "&lt;script&gt;alert(1)&lt;/script&gt;p").hides(t, evil, "/v1/models")
		if first, second := strings.Index(a.body, ">bot</a>"), strings.Index(a.body, "&lt;script&gt;alert(1)&lt;/script&gt;</a>"); first > second {
			t.Error("who spent most does not come first")
		}
		// The listed charges add up to the total.
		rows := b.get(t, a.link(t, ".*Download as CSV</span>")).table(t)
		var sum credits.Micro
		for _, row := range rows[1:] {
			amount, err := credits.Parse(row[19])
			if err != nil {
				t.Fatal(err)
			}
			sum += amount
			if !strings.Contains(a.body, row[0]) {
				t.Errorf("the ledger does not have %s", row[0])
			}
		}
		if rows[0][19] != "credits" || len(rows) != 5 || sum != 10*credits.Credit {
			t.Errorf("%d entries come to %s", len(rows)-1, sum)
		}
		// The next month starts at zero and links to the last one.
		now := s.Clock.Now().UTC()
		s.Clock.Turn(time.Date(now.Year(), now.Month()+1, 2, 0, 0, 0, 0, time.UTC).Sub(now))
		b.signIn(t)
		next := b.get(t, b.in(accounts.Live, "billing")).shows(t, "No charges", `<span class="stat">0</span>`, `">`+named+`</a></td><td data-label="Credits" class="num">10.0000 <`).hides(t, last)
		b.get(t, next.link(t, named)).shows(t, "Charged in "+named+": 10 <", last, `<span class="stat">0</span>`)
		for _, odd := range []string{"x", "2026-13", "0001-01", "9999-12", url.QueryEscape(`"><script>`)} {
			b.get(t, b.in(accounts.Live, "billing?month="+odd)).is(t, 200).hides(t, `"><script>`)
		}
		stranger := member(t, s, s.Workspace(t, "other"), accounts.Owner)
		stranger.get(t, stranger.in(accounts.Live, "billing?month="+month)).shows(t, "No charges").hides(t, last, ">bot<")
		stranger.get(t, b.in(accounts.Live, "billing")).is(t, 404)
	})
}

func TestOnlyOwnersAndAdminsSetMonthlyCredits(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		set := func(b *browser, env accounts.Environment, limit, alert string) *response {
			return b.post(t, b.in(env, "billing"), url.Values{"monthly_credits": {limit}, "alert_threshold": {alert}})
		}
		stored := func() (string, string) {
			t.Helper()
			b, err := spend.ReadBilling(t.Context(), s.DB, w.ID, s.Clock.Now())
			if err != nil {
				t.Fatal(err)
			}
			if b.Workspace.MonthlyCredits == nil {
				return "", b.Workspace.Alert.String()
			}
			return b.Workspace.MonthlyCredits.String(), b.Workspace.Alert.String()
		}
		for _, role := range []accounts.Role{accounts.Viewer, accounts.Developer} {
			b := member(t, s, w, role)
			b.get(t, b.in(accounts.Live, "billing")).shows(t, "Owners and admins can change this").hides(t, `name="monthly_credits"`)
			for _, env := range []accounts.Environment{accounts.Live, accounts.Test} {
				set(b, env, "1", "1").rejects(t, 403, "billing:write")
			}
		}
		if limit, alert := stored(); limit != "" || alert != "20%" {
			t.Fatalf("after what was refused there are %s and %s", limit, alert)
		}
		b := member(t, s, w, accounts.Admin)
		for _, c := range []struct{ limit, alert, wantLimit, wantAlert string }{
			{"1,000", "250.5", "1000", "250.5"}, {"0.5", "30 %", "0.5", "30%"}, {"0", "0", "0", "0"}, {"", "", "", "20%"}, {"1000", "10%", "1000", "10%"},
		} {
			set(b, accounts.Live, c.limit, c.alert).redirectsTo(t, b.in(accounts.Live, "billing"))
			if limit, alert := stored(); limit != c.wantLimit || alert != c.wantAlert {
				t.Errorf("after %q and %q there are %s and %s", c.limit, c.alert, limit, alert)
			}
		}
		b.get(t, b.in(accounts.Live, "billing")).shows(t, "Monthly credits saved", `value="1000"`, `value="10%"`, "An alert is sent at 100.", `<span class="stat">1,000</span>`)
		for _, c := range []struct{ limit, alert string }{{"-1", ""}, {"x", ""}, {"0.0000001", ""}, {"1000000000001", ""}, {"5", "101%"}, {"5", "-1"}, {"5", "2.5%"}, {"5", `"><script>`}} {
			a := set(b, accounts.Live, c.limit, c.alert).rejects(t, 400, `aria-invalid="true"`).hides(t, `"><script>`)
			if !strings.Contains(a.body, `value="`+html.EscapeString(c.limit)+`"`) {
				t.Errorf("what was typed is lost: %q", c.limit)
			}
		}
		set(b, accounts.Test, "1", "1").is(t, 409)
		if limit, alert := stored(); limit != "1000" || alert != "10%" {
			t.Errorf("after what was refused there are %s and %s", limit, alert)
		}
		b.get(t, b.in(accounts.Live, "log"+query("action:billing.updated"))).shows(t, "The admin", "this workspace", "&#34;monthly_credits&#34;: 1000", "&#34;alert_threshold&#34;: &#34;10%&#34;")
		key, _ := s.Key(t, w, accounts.Live)
		if r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/billing", Key: key}).Want(t, 200, ""); r.At("monthly_credits") != 1000.0 || r.At("alert_threshold") != "10%" {
			t.Errorf("the API says %s", r.Body)
		}
	})
}

func TestAmbiguousDecimalCommaIsRejected(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		billing, project := b.in(accounts.Live, "billing"), b.in(accounts.Live, "projects")
		for _, text := range []string{"2,5", "1.000,50", "1,00", "10,00,000", ",500", "1,000,"} {
			b.post(t, billing, url.Values{"monthly_credits": {text}}).rejects(t, 400, "such as 100 or 2.5").contains(t, `value="`+text+`"`)
			b.post(t, billing, url.Values{"alert_threshold": {text}}).rejects(t, 400, "The alert must be")
			b.post(t, project, url.Values{"id": {"shop"}, "monthly_budget": {text}}).rejects(t, 400, "such as 100 or 2.5")
		}
		b.post(t, billing, url.Values{"alert_threshold": {"5,5%"}}).rejects(t, 400, "The alert must be")
		// Grouped digits, as the pages show them.
		b.post(t, billing, url.Values{"monthly_credits": {"1,234,567.5"}, "alert_threshold": {"1,000"}}).redirectsTo(t, billing)
		b.get(t, billing).shows(t, `value="1234567.5"`, `value="1000"`)
	})
}
