package dashboard_test

import (
	"encoding/csv"
	"html"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/test/harness"
)

type entry struct {
	workspace *accounts.Workspace
	env       accounts.Environment
	key       string
	agent     string
	model     string
	project   string
	metadata  string
	attempts  string
	ip        string
	status    int64
	credits   int64
	age       time.Duration
}

// logs writes entries, oldest first, and returns their IDs.
func logs(t *testing.T, s *harness.Server, list ...entry) []string {
	t.Helper()
	bulk := db.NewBulk("requests", "", "id text", "workspace_id text", "environment text", "key_id text", "key_hint text", "ip text", "method text", "path text",
		"user_agent text", "node_id text", "created_at bigint", "settled boolean", "status bigint", "model text", "project text", "token_metadata text", "attempts text",
		"reserved bigint", "credits bigint", "simulated_credits bigint", "latency_us bigint", "upstream_us bigint", "usage_source text", "price_version text", "provider text")
	made, rows := make([]string, len(list)), make([][]any, len(list))
	for i, e := range list {
		made[i] = ids.New(ids.Request)
		at := s.Clock.Now().Add(-e.age)
		if e.age > 0 {
			const when = len(ids.Request) + 10 // the part of an ID that says when it was created
			made[i] = ids.Floor(ids.Request, at)[:when] + made[i][when:]
		}
		if e.ip == "" {
			e.ip = "192.0.2.1"
		}
		rows[i] = []any{made[i], e.workspace.ID, string(e.env), e.key, "tp_" + string(e.env) + "_…abcd", e.ip, "POST", "/v1/chat/completions",
			e.agent, "node_x", at.UnixMicro(), true, e.status, db.OrNull(e.model), db.OrNull(e.project), db.OrNull(e.metadata), db.OrNull(e.attempts),
			int64(0), e.credits, int64(0), int64(45_600), int64(40_000), "partial", "v7", "somewhere"}
	}
	err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := bulk.Write(t.Context(), tx, rows)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// link returns the target of the first link with the text.
func (a *response) link(t testing.TB, text string) string {
	t.Helper()
	return html.UnescapeString(a.find(t, `<a [^>]*href="([^"]*)"[^>]*>`+text+`</a>`))
}

func (a *response) table(t testing.TB) [][]string {
	t.Helper()
	a.is(t, http.StatusOK)
	if kind := a.header.Get("Content-Type"); kind != "text/csv; charset=utf-8" || !strings.HasPrefix(a.header.Get("Content-Disposition"), "attachment") {
		t.Errorf("%s is %q, %q", a.path, kind, a.header.Get("Content-Disposition"))
	}
	rows, err := csv.NewReader(strings.NewReader(a.body)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func chatWith(model, prompt string) map[string]any {
	return map[string]any{"model": model, "messages": []map[string]string{{"role": "user", "content": prompt}}}
}

func TestRequestIsFoundByIDAndFilter(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		b.get(t, b.in(accounts.Test, "requests")).shows(t, "No test requests yet")
		key, keyID := s.Key(t, w, accounts.Test)
		r := s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatWith("gpt-4o-mini", "hello"),
			Header: http.Header{"Service-Project": {"shop"}, "User-Agent": {"my-client/1.0"}}}).Want(t, 200, "")
		id := r.Header.Get("X-Request-Id")
		var list *response
		s.Eventually(t, func() bool {
			list = b.get(t, b.in(accounts.Test, "requests")).is(t, 200)
			return strings.Contains(list.body, `<span class="badge good">200</span>`)
		})
		list.shows(t, id, "gpt-4o-mini", "simulator", "/v1/chat/completions")
		b.get(t, b.in(accounts.Test, "requests/"+id)).shows(t, id, "my-client/1.0", "reported by the provider", "Simulated credits", "first choice succeeded", "Latency")
		// By its ID, from either environment and from any list.
		page := b.in(accounts.Test, "requests/"+id)
		b.get(t, b.in(accounts.Test, "requests"+query("  "+id+" "))).redirectsTo(t, page)
		b.get(t, b.in(accounts.Live, "requests"+query(id))).redirectsTo(t, page)
		b.get(t, b.in(accounts.Live, "runs"+query("status:failed "+id))).redirectsTo(t, page)
		b.get(t, b.in(accounts.Live, "deliveries"+query(keyID))).redirectsTo(t, b.in(accounts.Test, "keys/"+keyID))
		b.get(t, b.in(accounts.Test, "requests?id="+id)).redirectsTo(t, b.in(accounts.Test, "requests"+query("id:"+id)))
		b.get(t, b.in(accounts.Test, "requests"+query(ids.New(ids.Request)))).shows(t, "has no record with the ID").hides(t, id)
		b.get(t, b.in(accounts.Test, "requests"+query("nonsense"))).shows(t, "Name a field for &#34;nonsense&#34;. Known fields: status, model,", id)
		// It isn't in the other environment or another workspace.
		b.get(t, b.in(accounts.Live, "requests/"+id)).is(t, 404)
		b.get(t, b.in(accounts.Live, "requests")).shows(t, "No live request").hides(t, id)
		other := member(t, s, s.Workspace(t, "other"), accounts.Owner)
		other.get(t, other.in(accounts.Test, "requests/"+id)).is(t, 404).hides(t, "my-client")
		other.get(t, other.in(accounts.Test, "requests"+query(id))).shows(t, "has no record with the ID")
		other.get(t, other.in(accounts.Test, "requests"+query("key:"+keyID))).shows(t, "No requests match").hides(t, "my-client")
		other.get(t, b.in(accounts.Test, "requests/export.csv")).is(t, 404)
		if rows := other.get(t, other.in(accounts.Test, "requests/export.csv"+query("key:"+keyID))).table(t); len(rows) != 1 {
			t.Errorf("somebody else's export has %d rows", len(rows))
		}
	})
}

func TestBackButtonDoesNotRestoreOldFilters(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		// A browser would restore the previous choice next to another list.
		for _, page := range []string{"requests", "log", "usage", "billing", "deliveries", "events", "jobs/images", "runs"} {
			a := b.get(t, b.in(accounts.Live, page)).shows(t, `method="get" autocomplete="off"`)
			if forms, quiet := strings.Count(a.body, `method="get"`), strings.Count(a.body, `method="get" autocomplete="off"`); forms != quiet {
				t.Errorf("%s has %d filters, and %d that a browser leaves alone", page, forms, quiet)
			}
		}
	})
}

func TestRequestsAreSearched(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		_, one := s.Key(t, w, accounts.Live)
		_, two := s.Key(t, w, accounts.Live)
		b.exec(t, "UPDATE keys SET name = 'The other one' WHERE id = $1", two)
		at := func(key string, status int64) entry {
			return entry{workspace: w, env: accounts.Live, key: key, model: "small", status: status}
		}
		list := []entry{{workspace: w, env: accounts.Live, key: one, model: "big", project: "shop", ip: "192.0.2.9", status: 200, credits: 5_000_000}, at(two, 429), at(two, 502)}
		for range 60 {
			list = append(list, at(one, 200))
		}
		made := logs(t, s, list...)
		b.exec(t, "UPDATE requests SET requested_model = 'gpt-unknown' WHERE id = $1", made[1])
		day := s.Clock.Now().UTC().Format(time.DateOnly)
		tomorrow := s.Clock.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
		for search, want := range map[string][]int{
			"model:big": {0}, "model:B*": {0}, "project:sh*p": {0}, "ip:192.0.2.9": {0}, "192.0.2.9": {0}, "status:429": {1}, "429": {1}, "status:4xx": {1}, "status:failed": {1, 2}, "status:>429": {2},
			"is:charged": {0}, "cost:>4.9": {0}, "cost:>5": {}, "model:big >45ms": {0}, "model:big <45ms": {}, "path:/v1/chat* project:shop": {0}, "/v1/none": {}, "provider:some* model:big": {0},
			"method:post ip:192.0.2.9": {0}, "error:none": {}, "key:" + two: {1, 2}, "key:" + two + " status:502": {2}, `key:"The other one"`: {1, 2}, `key:"THE other*" 429`: {1}, "model:none": {}, "model:gpt-unknown": {1}, "model:gpt*": {1},
			"from:" + tomorrow: {}, "until:" + day + "T00:00": {}, "model:big from:" + day + " until:" + day: {0}, "model:big last:24h": {0},
		} {
			a := b.get(t, b.in(accounts.Live, "requests"+query(search))).is(t, 200).hides(t, `id="search-problems"`)
			export := b.get(t, b.in(accounts.Live, "requests/export.csv"+query(search))).table(t)
			if !strings.Contains(html.UnescapeString(a.body), b.in(accounts.Live, "requests/export.csv"+query(search))) {
				t.Errorf("%s: the page doesn't link to its export", search)
			}
			for i := range 3 {
				shown, exported := strings.Contains(a.body, made[i]), false
				for _, row := range export[1:] {
					exported = exported || row[0] == made[i]
				}
				if wanted := slices.Contains(want, i); shown != wanted || exported != wanted {
					t.Errorf("%s: entry %d is on the page: %v, in the file: %v", search, i, shown, exported)
				}
			}
		}
		// Links to the next page keep the search.
		first := b.get(t, b.in(accounts.Live, "requests"+query("model:small status:200"))).shows(t, `value="model:small status:200"`, `<option value="200" selected>`)
		second := first.link(t, "Older")
		if !strings.Contains(second, "q=model%3Asmall+status%3A200") {
			t.Errorf("the next page is %s", second)
		}
		b.get(t, second).shows(t, made[3], "Newest").hides(t, made[62], made[1])
	})
}

// TestMistakeInSearchKeepsTheOtherTerms covers a key's name that doesn't exist, too: the
// page says so instead of failing.
func TestMistakeInSearchKeepsTheOtherTerms(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		_, key := s.Key(t, w, accounts.Live)
		made := logs(t, s, entry{workspace: w, env: accounts.Live, key: key, model: "big", status: 200}, entry{workspace: w, env: accounts.Live, key: key, model: "small", status: 404})
		for term, message := range map[string]string{"status:9": "Enter a status such as", "modle:x": "Unknown field &#34;modle&#34;. Known fields:", "from:yesterday": "Enter a time in UTC", ">2": "duration with a unit"} {
			a := b.get(t, b.in(accounts.Live, "requests"+query("model:small "+term))).shows(t, "<code>"+html.EscapeString(term)+"</code>", message, `aria-invalid="true"`, "matches of the other terms")
			if rows := rowsOf(a); len(rows) != 1 || rows[0] != made[1] {
				t.Errorf("%s: got rows %v, want %s", term, rows, made[1])
			}
			b.get(t, b.in(accounts.Live, "requests/export.csv"+query(term))).is(t, 400)
		}
		for term, message := range map[string]string{"key:Shop": "No live key is named Shop.", "key:tp_live_" + strings.Repeat("a", 43): "This is the secret of a key."} {
			if rows := rowsOf(b.get(t, b.in(accounts.Live, "requests"+query(term))).shows(t, message)); len(rows) != 0 {
				t.Errorf("%s: got rows %v, want none", term, rows)
			}
		}
		b.get(t, b.in(accounts.Live, "requests?key=Shop")).redirectsTo(t, b.in(accounts.Live, "requests"+query("key:Shop")))
	})
}

// TestPickersAndOldLinksBecomeTheSearch covers what the fields behind Filters send, and
// links from before the search box.
func TestPickersAndOldLinksBecomeTheSearch(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Viewer)
		for given, want := range map[string]string{
			"requests?status=failed&start=2026-01-02T03:04&charged=yes":             "status:failed is:charged from:2026-01-02T03:04",
			"requests?q=model:a+%3E2s+nonsense&status=404&model=&latency=%3E5s":     "latency:>5s nonsense status:404",
			"requests?q=model:a&model=my+model&key=":                                `model:"my model"`,
			"requests?q=last:1h&last=1h&from=2026-01-02T03:04&until=":               "from:2026-01-02T03:04",
			"requests?q=from:2026-01-02T03:04&last=1h&from=2026-01-02T03:04&until=": "last:1h",
			"requests?q=from:2026-01-02T03:04&last=&from=2026-01-02T03:04&until=":   "from:2026-01-02T03:04",
			"runs?status=awaiting_approval":                                         "status:awaiting_approval",
			"jobs/images?status=failed&q=project:x":                                 "project:x status:failed",
			"log?actor=usr_1&action=key.created":                                    "actor:usr_1 action:key.created",
			"requests?model=":                                                       "",
		} {
			path, _, _ := strings.Cut(given, "?")
			if want != "" {
				path += query(want)
			}
			b.get(t, b.in(accounts.Live, given)).redirectsTo(t, b.in(accounts.Live, path))
		}
	})
}

// TestTimelineCountsTheRangeAndLinksToParts covers the histogram of entries, and that of
// usage for a log that is too long to scan.
func TestTimelineCountsTheRangeAndLinksToParts(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		_, key := s.Key(t, w, accounts.Live)
		b.get(t, b.in(accounts.Live, "requests")).hides(t, "log-chart")
		// With an age, IDs have the time of the test's clock and not of a later minute.
		logs(t, s, entry{workspace: w, env: accounts.Live, key: key, model: "big", status: 200, age: time.Minute}, entry{workspace: w, env: accounts.Live, key: key, model: "big", status: 500, age: time.Minute},
			entry{workspace: w, env: accounts.Live, key: key, status: 404, age: time.Minute})
		all := b.get(t, b.in(accounts.Live, "requests")).shows(t, "<strong>3</strong> requests, <strong class=\"log-failed\">2</strong> failed, last 24 hours")
		b.get(t, b.in(accounts.Live, "requests"+query("model:big last:1h status:2xx"))).shows(t, "<strong>1</strong> request, last hour")
		b.get(t, b.in(accounts.Live, "requests"+query("model:big last:1h"))).shows(t, "<strong>2</strong> requests, <strong class=\"log-failed\">1</strong> failed, last hour")
		// A bar leads to its time.
		part := html.UnescapeString(all.find(t, `<a class="slot" href="([^"]*)" aria-label="[^"]*3 requests`))
		if rows := rowsOf(b.get(t, part).shows(t, "value=\"from:20")); len(rows) != 3 {
			t.Errorf("%s has %d rows, want 3", part, len(rows))
		}

		s.FillRequests(t, w, key, 3100) // of the test environment, without usage
		b.exec(t, `INSERT INTO usage_hours (workspace_id, environment, start, key_id, project, model, provider, requests, errors, input_tokens, output_tokens, credits, simulated_credits)
			VALUES ($1, 'test', $2, $3, '', 'common', 'openai', 5000, 70, 0, 0, 0, 0), ($1, 'test', $2, $3, '', 'other', 'openai', 4, 3, 0, 0, 0, 0)`, w.ID, s.Clock.Now().Truncate(time.Hour).Unix(), key)
		b.get(t, b.in(accounts.Test, "requests"+query("last:24h"))).shows(t, "<strong>5,004</strong> model requests, <strong class=\"log-failed\">73</strong> failed")
		b.get(t, b.in(accounts.Test, "requests"+query("last:24h model:o*"))).shows(t, "<strong>4</strong> model requests")
		b.get(t, b.in(accounts.Test, "requests"+query("last:24h status:failed key:"+key))).shows(t, "<strong>73</strong> model requests")
		b.get(t, b.in(accounts.Test, "requests"+query("last:24h ip:127.0.0.1"))).shows(t, "<strong>3,000</strong> requests", "Older ones aren't counted")
	})
}

func TestLongSearchReportsProgressAndContinues(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		_, keyID := s.Key(t, w, accounts.Test)
		s.FillRequests(t, w, keyID, 25_000)
		pages, next := 0, b.in(accounts.Test, "requests"+query("model:rare"))
		for {
			a := b.get(t, next).is(t, 200)
			if !strings.Contains(a.body, "Continue") {
				a.shows(t, ">rare</td>").hides(t, "Searched 10")
				break
			}
			a.shows(t, "Searched 10,000 entries", "There are older entries").hides(t, "No requests match")
			if next = a.link(t, "Continue"); !strings.Contains(next, "q=model%3Arare") {
				t.Fatalf("it goes on at %s", next)
			}
			if pages++; pages > 5 {
				t.Fatal("the search does not come to an end")
			}
		}
		if pages != 2 {
			t.Errorf("it was found after %d pages", pages)
		}
		if rows := b.get(t, b.in(accounts.Test, "requests/export.csv"+query("model:rare"))).table(t); len(rows) != 2 {
			t.Errorf("the file has %d rows", len(rows))
		}
	})
}

func TestRequestPageShowsRouterAttempts(t *testing.T) {
	t.Parallel()
	// Other tests read the log on both engines.
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		_, keyID := s.Key(t, w, accounts.Live)
		tried := `[{"provider":"first","model":"small","outcome":"rate_limited","status":429,"ms":12},{"provider":"first","model":"small","outcome":"connect","ms":3,"wait_ms":250},` +
			`{"provider":"spare","model":"other","outcome":"ok","status":200,"ms":25}]`
		id := logs(t, s, entry{workspace: w, env: accounts.Live, key: keyID, model: "other", status: 200, credits: 1_500_000, attempts: tried, metadata: `{"user":"u7"}`})[0]
		b.get(t, b.in(accounts.Live, "requests/"+id)).shows(t, "Routing attempts", "rate limited by the provider", "retried", "could not connect",
			"tried the next model", "250 ms", "succeeded", "1.50", "v7", "the client disconnected before the end", "40 ms of it at the provider", "Wait for the provider&#39;s rate limit", "&#34;user&#34;: &#34;u7&#34;").
			hides(t, "The request failed")
	})
}

// TestRequestPageExplainsFailure covers what a client was told, with the way to the limit that refused.
func TestRequestPageExplainsFailure(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		key, keyID := s.Key(t, w, accounts.Test)
		failed := s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatWith("gpt-nonexistent", "hi")}).Want(t, 404, "model_not_found")
		invalid := s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: map[string]any{"model": "gpt-4o-mini", "messages": "hi"}}).Want(t, 400, "invalid_parameter")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: key}).Want(t, 200, "")
		page := b.get(t, b.in(accounts.Test, "requests/"+failed.Header.Get("X-Request-Id")+"?q=status%3Afailed"))
		page.shows(t, "This server has no such model", "gpt-nonexistent", html.EscapeString(failed.Text("error.message")), "/docs/reference/errors#model_not_found", "<dt>Model</dt><dd>–</dd>",
			"$TURNPIKE_API_KEY", html.EscapeString(`"model":"gpt-nonexistent"`)).hides(t, key, "Older", "What to do")
		// The neighbors are those of the filtered list.
		newer := page.link(t, `.*</svg> Newer`)
		if !strings.HasSuffix(newer, invalid.Header.Get("X-Request-Id")+"?q=status%3Afailed") {
			t.Errorf("the newer request is %s, want the other one that failed", newer)
		}
		b.get(t, newer).shows(t, "A value in the request is invalid", "<code>messages</code>", html.EscapeString(invalid.Text("error.message")), "Older").hides(t, "Newer")
		b.get(t, b.in(accounts.Test, "requests?q=status%3Afailed")).shows(t, failed.Header.Get("X-Request-Id")+"?q=status%3Afailed")

		refused := logs(t, s, entry{workspace: w, env: accounts.Live, key: keyID, status: 402})[0]
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE requests SET error_code = 'budget_exceeded', requested_model = 'small', failure = $2 WHERE id = $1", refused,
				`{"message":"Too little left.","refused_by":{"kind":"budget","level":"project","id":"shop","limit_id":"lim_1"}}`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		b.get(t, b.in(accounts.Live, "requests/"+refused)).shows(t, "A budget has too little left", "Too little left.", "budget of the project", "/projects/shop", "lim_1", "Raise the budget")
	})
}

func TestRequestLogEscapesClientText(t *testing.T) {
	t.Parallel()
	// Other tests read the log on both engines.
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		_, keyID := s.Key(t, w, accounts.Live)
		const evil = `<script>alert(1)</script>"'`
		id := logs(t, s, entry{workspace: w, env: accounts.Live, key: keyID, model: evil + "m", agent: evil + "a", project: evil + "p", ip: evil + "i", status: 200, credits: 1,
			metadata: `{"<script>alert(1)</script>":"` + "\u202e" + `</code><img src=x>"}`, attempts: `[{"provider":"` + `<script>alert(1)</script>` + `","model":"<b>","outcome":"<i>","ms":1}]`})[0]
		for _, page := range []string{"requests", "requests/" + id, "billing", "requests" + query(`model:"`+strings.ReplaceAll(evil, `"`, `\"`)+`m"`), "requests" + query(`project:\"><script>`)} {
			a := b.get(t, b.in(accounts.Live, page)).is(t, 200)
			a.hides(t, "<script>alert", "<img src=x", `"><script>`, "<b>", "\u202e")
			if !strings.Contains(page, "project") {
				a.shows(t, "&lt;script&gt;alert(1)")
			}
		}
		b.get(t, b.in(accounts.Live, "requests/"+id)).shows(t, `\u202e`)
		// A spreadsheet must not run it as a formula.
		cells := []string{"=1+1", "+1", "-1", "@sum(a)", "\tx"}
		var list []entry
		for _, cell := range cells {
			list = append(list, entry{workspace: w, env: accounts.Test, key: keyID, agent: cell, model: `a "quoted", name`, status: 200})
		}
		logs(t, s, list...)
		rows := b.get(t, b.in(accounts.Test, "requests/export.csv")).table(t)
		if len(rows) != len(cells)+1 {
			t.Fatalf("the file has %d rows", len(rows))
		}
		for i, row := range rows[1:] {
			if want := "'" + cells[len(cells)-1-i]; row[26] != want || row[11] != `a "quoted", name` {
				t.Errorf("row %d has the user agent %q, want %q, and the model %q", i, row[26], want, row[11])
			}
		}
	})
}
