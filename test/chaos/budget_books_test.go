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

// Input is free and an output token costs a thousandth of a credit. So max_tokens alone
// limits the cost of a request, to one credit.
const (
	callTokens = 1000
	callBound  = credits.Credit
	callPrice  = "{input: 0, output: 1}" // dollars per million tokens
	callModel  = "metered"
)

// upstream starts a provider that responds after the delay with the given number of
// output tokens.
func upstream(t *testing.T, tokens func() int64, delay func() time.Duration) (url string) {
	t.Helper()
	closing := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Stream bool }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return // the client was killed
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
			_ = http.NewResponseController(w).Flush() // fails only if the client has disconnected
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

// slowStream starts a provider whose streams send a token every few seconds until over
// is closed.
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

// writeProviderConfig writes a configuration that sends live requests to the upstream
// without a concurrency limit. It returns the flag that names the file.
func writeProviderConfig(t *testing.T, at program.Place, upstream string) string {
	t.Helper()
	path := filepath.Join(at.Dir, "metered.yaml")
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

// account has keys for live requests within budgets.
type account struct {
	at    program.Place
	key   string // for model requests
	admin string // for everything else
}

// newAccount creates a live key that is pinned to a project. Both have budgets too
// large to matter, so three limits and three balances apply.
func newAccount(t *testing.T, at program.Place, url string) *account {
	t.Helper()
	p := &account{at: at, key: liveKey(t, at, "--project", "p1", "--budget", "100000"), admin: liveKey(t, at)}
	o := call(url, request{mark: "project", method: "PATCH", path: "/v1/projects/p1", key: p.admin, body: `{"monthly_budget":50000}`})
	if o.status != http.StatusOK {
		t.Fatalf("failed to set the project's budget: %v\n%s", o, o.body)
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

// setCredits sets the monthly credits of the workspace.
func (p *account) setCredits(t *testing.T, url string, limit credits.Micro) {
	t.Helper()
	o := call(url, request{mark: "billing", method: "PATCH", path: "/v1/billing", key: p.admin, body: fmt.Sprintf(`{"monthly_credits":%s}`, limit)})
	if o.status != http.StatusOK {
		t.Fatalf("failed to set the workspace's credits: %v\n%s", o, o.body)
	}
}

// used returns the credits that the workspace has used and reserved.
func (p *account) used(c *client) (used, reserved credits.Micro, ok bool) {
	o := c.do(request{mark: "billing", method: "GET", path: "/v1/billing", key: p.admin}, nil)
	var b struct{ Used, Reserved credits.Micro }
	if o.status != http.StatusOK || json.Unmarshal(o.body, &b) != nil {
		return 0, 0, false // the server was killed, or is about to be
	}
	return b.Used, b.Reserved, true
}

// paidRequest returns a request that costs credits.
func (p *account) paidRequest(mark string, stream bool) request {
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"max_tokens":%d,"messages":[{"role":"user","content":"Well?"}]}`, callModel, stream, callTokens)
	return request{mark: mark, method: "POST", path: "/v1/chat/completions", key: p.key, body: body, streamed: stream}
}

// totalSpent returns the cost of all live requests according to the log.
func totalSpent(t *testing.T, d *db.DB) credits.Micro {
	t.Helper()
	return credits.Micro(count(t, d, "SELECT CAST(coalesce(sum(credits), 0) AS BIGINT) FROM requests WHERE environment = 'live'"))
}

// checkBalances compares spending, reservations and usage with the log, to the
// microcredit. No request may be in progress.
func checkBalances(t *testing.T, d *db.DB) {
	t.Helper()
	eventually(t, 15*time.Second, "all charges are posted", func() bool { return count(t, d, "SELECT count(*) FROM spend_journal") == 0 })
	wrong := &failures{t: t}
	defer wrong.done()
	if n := count(t, d, "SELECT count(*) FROM requests WHERE NOT settled"); n > 0 {
		wrong.add("got %d open log entries, want 0", n)
	}
	if n := count(t, d, "SELECT count(*) FROM spend_leases"); n > 0 {
		wrong.add("got %d leases, want 0", n)
	}
	spent := map[string]int64{}
	type slot struct{ table, key string }
	usage := map[slot][5]int64{}
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
					wrong.add("got a request charged to %v, want %v", stored, want)
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
			wrong.add("%s: got %d settled and %d leased, want %d as in the log", line, settled, leased, spent[line])
		}
		delete(spent, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for line, n := range spent {
		wrong.add("%s: got no balance, want %d as in the log", line, n)
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
				wrong.add("%s %s: got usage %v, want %v as in the log", table, s.key, u, usage[s])
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
			wrong.add("%s %s: got no usage, want %v as in the log", s.table, s.key, u)
		}
	}
}

func stop(t *testing.T, servers ...*program.Server) {
	t.Helper()
	for _, s := range servers {
		if err := s.Terminate(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range servers {
		if code, err := s.Wait(30 * time.Second); code != 0 || err != nil {
			t.Fatalf("got exit code %d (%v), want 0\n%s", code, err, s.Log())
		}
	}
}
