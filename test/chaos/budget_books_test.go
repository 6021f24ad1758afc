package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// What calls cost here: input nothing, and a token of output a thousandth of a
// credit, so that a call is bounded by max_tokens alone, to one credit.
const (
	callTokens = 1000
	callBound  = credits.Credit
	callPrice  = "{input: 0, output: 1}" // dollars for a million
	callModel  = "metered"
)

// upstream is a provider that answers every call after a while, with as many
// tokens of output as the test says.
func upstream(t *testing.T, tokens func() int64, delay func() time.Duration) (url string) {
	t.Helper()
	closing := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Stream bool }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return // the caller was killed
		}
		select {
		case <-time.After(delay()):
		case <-closing:
		}
		usage := fmt.Sprintf(`"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":0}`, tokens())
		const head = `{"id":"chatcmpl-1","created":1,"model":"` + callModel + `",`
		if !in.Stream {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, head+`"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}],`+usage+`}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{`"choices":[{"index":0,"delta":{"role":"assistant","content":"Y"},"finish_reason":null}]`,
			`"choices":[{"index":0,"delta":{"content":"es."},"finish_reason":"stop"}]`, `"choices":[],` + usage} {
			fmt.Fprint(w, "data: "+head+`"object":"chat.completion.chunk",`+event+"}\n\n")
			_ = http.NewResponseController(w).Flush() // whoever has left does not need it
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(func() {
		close(closing)
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + "/v1"
}

// slowStream is a provider whose streams send a token every few seconds until
// over is closed, and then end.
func slowStream(t *testing.T, over <-chan struct{}) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const head = `data: {"id":"chatcmpl-1","created":1,"model":"` + callModel + `","object":"chat.completion.chunk",`
		w.Header().Set("Content-Type", "text/event-stream")
		for tokens := 1; ; tokens++ {
			fmt.Fprint(w, head+`"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(2 * time.Second):
				continue
			case <-r.Context().Done():
				return
			case <-over:
			}
			fmt.Fprint(w, head+`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n")
			fmt.Fprintf(w, head+`"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":0}}`+"\n\ndata: [DONE]\n\n", tokens)
			return
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + "/v1"
}

// metered writes the settings of a server whose live calls go to the upstream,
// as many at a time as there are, and returns the flag that names them.
func metered(t *testing.T, at program.Place, upstream string) string {
	t.Helper()
	path := filepath.Join(at.Folder, "metered.yaml")
	settings := fmt.Sprintf(`
limits: {live_requests_per_minute: 0, live_tokens_per_minute: 0, live_in_flight: 0}
providers:
  - name: mock
    type: openai
    base_url: %s
    api_key: sk-mock
    models:
      - {id: %s, price: %s, max_output_tokens: %d}
`, upstream, callModel, callPrice, callTokens)
	if err := os.WriteFile(path, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--config=" + path
}

// payer is whoever makes live calls, within budgets.
type payer struct {
	at    program.Place
	key   string // of the calls
	admin string // of everything else
}

// newPayer makes a live key that is pinned to a project, both with budgets that
// are too large to matter: there are three caps to keep, and three accounts.
func newPayer(t *testing.T, at program.Place, url string) *payer {
	t.Helper()
	p := &payer{at: at, key: liveKey(t, at, "--project", "p1", "--budget", "100000"), admin: liveKey(t, at)}
	o := call(url, request{mark: "project", method: "PATCH", path: "/v1/projects/p1", key: p.admin, body: `{"monthly_budget":50000}`})
	if o.status != http.StatusOK {
		t.Fatalf("the project has no budget: %v\n%s", o, o.body)
	}
	return p
}

func liveKey(t *testing.T, at program.Place, args ...string) string {
	t.Helper()
	out, errOut, err := binary(t).Run(at, append([]string{"keys", "create", "--env", "live", "--json"}, args...)...)
	if err != nil {
		t.Fatalf("keys create: %v\n%s", err, errOut)
	}
	var key struct{ Value string }
	if err := json.Unmarshal([]byte(out), &key); err != nil || key.Value == "" {
		t.Fatalf("keys create --json printed no value (%v):\n%s", err, out)
	}
	return key.Value
}

// setCredits is what the workspace may use.
func (p *payer) setCredits(t *testing.T, url string, limit credits.Micro) {
	t.Helper()
	o := call(url, request{mark: "billing", method: "PATCH", path: "/v1/billing", key: p.admin, body: fmt.Sprintf(`{"monthly_credits":%s}`, limit)})
	if o.status != http.StatusOK {
		t.Fatalf("the workspace has no limit: %v\n%s", o, o.body)
	}
}

// used asks how much of it is.
func (p *payer) used(c *client) (used, reserved credits.Micro, ok bool) {
	o := c.do(request{mark: "billing", method: "GET", path: "/v1/billing", key: p.admin}, nil)
	var b struct{ Used, Reserved credits.Micro }
	if o.status != http.StatusOK || json.Unmarshal(o.body, &b) != nil {
		return 0, 0, false // it was killed, or is about to be
	}
	return b.Used, b.Reserved, true
}

// pay is a call that costs.
func (p *payer) pay(mark string, stream bool) request {
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"max_tokens":%d,"messages":[{"role":"user","content":"Well?"}]}`, callModel, stream, callTokens)
	return request{mark: mark, method: "POST", path: "/v1/chat/completions", key: p.key, body: body, streamed: stream}
}

// total is what the log says that live calls cost.
func total(t *testing.T, d *db.DB) credits.Micro {
	t.Helper()
	return credits.Micro(count(t, d, "SELECT CAST(coalesce(sum(credits), 0) AS BIGINT) FROM requests WHERE environment = 'live'"))
}

// checkBooks holds every sum against the log, to the microcredit, when nothing
// is under way: what is spent, what is set aside, and usage.
func checkBooks(t *testing.T, d *db.DB) {
	t.Helper()
	wrong := &complaints{t: t}
	defer wrong.done()
	if n := count(t, d, "SELECT count(*) FROM requests WHERE NOT settled"); n > 0 {
		wrong.add("%d entries of the log are open at rest", n)
	}
	if n := count(t, d, "SELECT count(*) FROM spend_leases"); n > 0 {
		wrong.add("%d leases are left at rest", n)
	}
	spent := map[string]int64{}
	type slot struct{ table, key string }
	usage := map[slot][5]int64{} // requests, errors, input, output, credits
	rows, err := d.Query(t.Context(), `SELECT workspace_id, environment, key_id, coalesce(project, ''), coalesce(model, ''), coalesce(provider, ''), created_at,
		coalesce(status, 0), coalesce(input_tokens, 0), coalesce(output_tokens, 0), credits, coalesce(accounts, '[]') FROM requests`)
	err = db.Each(rows, err, func(r db.Row) error {
		var workspace, environment, key, project, model, provider, accounts string
		var created, status, input, output, charged int64
		if err := r.Scan(&workspace, &environment, &key, &project, &model, &provider, &created, &status, &input, &output, &charged, &accounts); err != nil {
			return err
		}
		if charged != 0 {
			var stored [][3]string
			if err := json.Unmarshal([]byte(accounts), &stored); err != nil {
				return err
			}
			month := time.UnixMicro(created).UTC().Format("2006-01")
			for _, want := range [][3]string{{"workspace", workspace, month}, {"key", key, month}, {"project", workspace + "/" + project, month}} {
				if (want[0] != "project" || project != "") && !slices.Contains(stored, want) {
					wrong.add("a call was charged to %v and not to %v", stored, want)
				}
			}
			for _, account := range stored {
				spent[strings.Join(account[:], " ")] += charged
			}
		}
		if model == "" {
			return nil
		}
		failed := int64(0)
		if status >= 400 {
			failed = 1
		}
		for table, step := range map[string]int64{"usage_minutes": 60, "usage_hours": 3600, "usage_days": 86400} {
			start := created / 1e6 / step * step
			s := slot{table, strings.Join([]string{workspace, environment, fmt.Sprint(start), key, project, model, provider}, " ")}
			u := usage[s]
			usage[s] = [5]int64{u[0] + 1, u[1] + failed, u[2] + input, u[3] + output, u[4] + charged}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rows, err = d.Query(t.Context(), "SELECT level, account_id, period, settled, leased FROM spend")
	err = db.Each(rows, err, func(r db.Row) error {
		var level, id, period string
		var settled, leased int64
		if err := r.Scan(&level, &id, &period, &settled, &leased); err != nil {
			return err
		}
		line := level + " " + id + " " + period
		if settled != spent[line] || leased != 0 {
			wrong.add("%s: the books say %d settled and %d set aside, the log has %d", line, settled, leased, spent[line])
		}
		delete(spent, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for line, n := range spent {
		wrong.add("%s: the log has %d, the books nothing", line, n)
	}
	for _, table := range []string{"usage_minutes", "usage_hours", "usage_days"} {
		rows, err := d.Query(t.Context(), `SELECT workspace_id, environment, start, key_id, project, model, provider, requests, errors, input_tokens, output_tokens, credits FROM `+table)
		err = db.Each(rows, err, func(r db.Row) error {
			var workspace, environment, key, project, model, provider string
			var start int64
			var u [5]int64
			if err := r.Scan(&workspace, &environment, &start, &key, &project, &model, &provider, &u[0], &u[1], &u[2], &u[3], &u[4]); err != nil {
				return err
			}
			s := slot{table, strings.Join([]string{workspace, environment, fmt.Sprint(start), key, project, model, provider}, " ")}
			if u != usage[s] {
				wrong.add("%s %s: %v, and by the log %v", table, s.key, u, usage[s])
			}
			delete(usage, s)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for s, u := range usage {
		if u != [5]int64{} {
			wrong.add("%s %s: nothing, and by the log %v", s.table, s.key, u)
		}
	}
}

// stop asks servers to stop and waits until they have.
func stop(t *testing.T, servers ...*program.Server) {
	t.Helper()
	for _, s := range servers {
		if err := s.Terminate(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range servers {
		if code, err := s.Wait(30 * time.Second); code != 0 || err != nil {
			t.Fatalf("a server ended with %d, %v\n%s", code, err, s.Log())
		}
	}
}
