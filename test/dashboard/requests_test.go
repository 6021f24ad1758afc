package dashboard_test

import (
	"encoding/csv"
	"html"
	"net/http"
	"net/url"
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
		if e.ip == "" {
			e.ip = "192.0.2.1"
		}
		rows[i] = []any{made[i], e.workspace.ID, string(e.env), e.key, "tp_" + string(e.env) + "_…abcd", e.ip, "POST", "/v1/chat/completions",
			e.agent, "node_x", s.Clock.Now().UnixMicro(), true, e.status, db.OrNull(e.model), db.OrNull(e.project), db.OrNull(e.metadata), db.OrNull(e.attempts),
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
		list.shows(t, id, "gpt-4o-mini", "simulator", "shop", "127.0.0.1", b.in(accounts.Test, "keys/"+keyID), "/v1/chat/completions")
		b.get(t, b.in(accounts.Test, "requests/"+id)).shows(t, id, "my-client/1.0", "reported by the provider", "Simulated credits", "first choice succeeded", "Latency")
		// By its ID, from either environment.
		page := b.in(accounts.Test, "requests/"+id)
		b.get(t, b.in(accounts.Test, "requests?id=++"+id+"+")).redirectsTo(t, page)
		b.get(t, b.in(accounts.Live, "requests?id="+id)).redirectsTo(t, page)
		b.get(t, b.in(accounts.Test, "requests?id="+ids.New(ids.Request))).rejects(t, 404, "kept for")
		b.get(t, b.in(accounts.Test, "requests?id=nonsense")).rejects(t, 400, "starts with req_")
		// It isn't in the other environment or another workspace.
		b.get(t, b.in(accounts.Live, "requests/"+id)).is(t, 404)
		b.get(t, b.in(accounts.Live, "requests")).shows(t, "No live request").hides(t, id)
		other := member(t, s, s.Workspace(t, "other"), accounts.Owner)
		for _, page := range []string{"requests/" + id, "requests?id=" + id} {
			other.get(t, other.in(accounts.Test, page)).is(t, 404).hides(t, "my-client")
		}
		other.get(t, other.in(accounts.Test, "requests?key="+keyID)).shows(t, "No requests match").hides(t, "my-client")
		other.get(t, b.in(accounts.Test, "requests/export.csv")).is(t, 404)
		if rows := other.get(t, other.in(accounts.Test, "requests/export.csv?key="+keyID)).table(t); len(rows) != 1 {
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

func TestRequestFiltersAreKeptInEveryLink(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		_, one := s.Key(t, w, accounts.Live)
		_, two := s.Key(t, w, accounts.Live)
		at := func(key string, status int64) entry {
			return entry{workspace: w, env: accounts.Live, key: key, model: "small", status: status}
		}
		list := []entry{{workspace: w, env: accounts.Live, key: one, model: "big", project: "shop", ip: "192.0.2.9", status: 200, credits: 5_000_000}, at(two, 429), at(two, 502)}
		for range 60 {
			list = append(list, at(one, 200))
		}
		made := logs(t, s, list...)
		day := s.Clock.Now().UTC().Format(time.DateOnly)
		tomorrow := s.Clock.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
		for filter, want := range map[string][]int{
			"model=big": {0}, "project=shop": {0}, "ip=192.0.2.9": {0}, "status=429": {1}, "status=failed": {1, 2}, "charged=yes": {0},
			"key=" + two: {1, 2}, "key=" + two + "&status=502": {2}, "model=none": {}, "start=" + tomorrow: {},
			"end=" + day + "T00:00": {}, "model=big&start=" + day + "T00:00&end=" + tomorrow: {0},
		} {
			a := b.get(t, b.in(accounts.Live, "requests?"+filter)).is(t, 200)
			export := b.get(t, a.link(t, "Download as CSV")).table(t)
			for i := range 3 {
				shown, exported := strings.Contains(a.body, made[i]), false
				for _, row := range export[1:] {
					exported = exported || row[0] == made[i]
				}
				if wanted := slices.Contains(want, i); shown != wanted || exported != wanted {
					t.Errorf("%s: entry %d is on the page: %v, in the file: %v", filter, i, shown, exported)
				}
			}
		}
		for _, bad := range []string{"key=tp_live_x", "status=9", "status=x", "start=yesterday", "end=1"} {
			// The other filters are kept, and no unfiltered rows are shown.
			if a := b.get(t, b.in(accounts.Live, "requests?model=small&"+bad)).rejects(t, 400, `name="model" value="small"`); len(rowsOf(a)) != 0 {
				t.Errorf("%s: there are %d rows", bad, len(rowsOf(a)))
			}
			b.get(t, b.in(accounts.Live, "requests/export.csv?"+bad)).is(t, 400)
		}
		// Links to the next page and to narrower filters keep the filter.
		first := b.get(t, b.in(accounts.Live, "requests?model=small&status=200")).shows(t, `value="small"`, `<option value="200" selected>`)
		second := first.link(t, "Older")
		if !strings.Contains(second, "model=small") || !strings.Contains(second, "status=200") {
			t.Errorf("the next page is %s", second)
		}
		b.get(t, second).shows(t, made[3], "Newest").hides(t, made[62], made[1])
		if by := first.link(t, "192.0.2.1"); !strings.Contains(by, "model=small") || !strings.Contains(by, "ip=192.0.2.1") {
			t.Errorf("the address leads to %s", by)
		}
	})
}

func TestLongSearchReportsProgressAndContinues(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		_, keyID := s.Key(t, w, accounts.Test)
		s.FillRequests(t, w, keyID, 25_000)
		pages, next := 0, b.in(accounts.Test, "requests?model=rare")
		for {
			a := b.get(t, next).is(t, 200)
			if !strings.Contains(a.body, "Continue") {
				a.shows(t, ">rare</a>").hides(t, "Scanned")
				break
			}
			a.shows(t, "Scanned 10,000 entries", "There are older entries").hides(t, "No requests match")
			if next = a.link(t, "Continue"); !strings.Contains(next, "model=rare") {
				t.Fatalf("it goes on at %s", next)
			}
			if pages++; pages > 5 {
				t.Fatal("the search does not come to an end")
			}
		}
		if pages != 2 {
			t.Errorf("it was found after %d pages", pages)
		}
		if rows := b.get(t, b.in(accounts.Test, "requests/export.csv?model=rare")).table(t); len(rows) != 2 {
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
		tried := `[{"provider":"first","model":"small","outcome":"rate_limited","status":429,"ms":12},{"provider":"first","model":"small","outcome":"connect","ms":3},` +
			`{"provider":"spare","model":"other","outcome":"ok","ms":250}]`
		id := logs(t, s, entry{workspace: w, env: accounts.Live, key: keyID, model: "other", status: 200, credits: 1_500_000, attempts: tried, metadata: `{"user":"u7"}`})[0]
		b.get(t, b.in(accounts.Live, "requests/"+id)).shows(t, "Router attempts", "rate limited by the provider", "retried", "could not connect",
			"tried the next model", "250 ms", "answered", "1.50", "v7", "the client disconnected before the end", "40 ms of it at the provider", "5.60 ms here", "&#34;user&#34;: &#34;u7&#34;")
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
		for _, page := range []string{"requests", "requests/" + id, "billing", "requests?model=" + url.QueryEscape(evil+"m"), "requests?project=" + url.QueryEscape(`"><script>`)} {
			a := b.get(t, b.in(accounts.Live, page)).is(t, 200)
			a.hides(t, "<script>alert", "<img src=x", `"><script>`, "<b>", "\u202e")
			if page != "requests?project="+url.QueryEscape(`"><script>`) {
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
			if want := "'" + cells[len(cells)-1-i]; row[len(row)-1] != want || row[11] != `a "quoted", name` {
				t.Errorf("row %d ends in %q instead of %q, and the model is %q", i, row[len(row)-1], want, row[11])
			}
		}
	})
}
