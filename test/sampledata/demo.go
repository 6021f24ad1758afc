package sampledata

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/people"
	"turnpike/internal/spend"
	"turnpike/test/harness"
)

// scripts are the responses of the demo's model, by the start of the prompt.
var scripts = map[string]string{
	"Order LB-20417": `tool:find_order{"order":"LB-20417"};tool:refund_order{"order":"LB-20417","amount":"24.90","currency":"EUR"};text:Refunded.`,
	"Order LB-20388": `tool:find_order{"order":"LB-20388"};text:Your parcel left Rotterdam yesterday evening and arrives on Thursday. You do not have to do anything.`,
	"Order LB-20395": `tool:find_order{"order":"LB-20395"};text:The book is reserved for you until Saturday. You can pick it up in Lisbon from ten o'clock on.`,
	"Order LB-20402": `error:400`,
}

// scriptedProvider is the demo's provider: the simulator of another server, which plays
// the scripts.
func scriptedProvider(t testing.TB) string {
	t.Helper()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	s.Clock.Run(t)
	key, _ := s.Key(t, s.Workspace(t, "provider"), accounts.Test)
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Set("Authorization", "Bearer "+key)
		body, _ := io.ReadAll(r.In.Body)
		for beginning, steps := range scripts {
			quoted, _ := json.Marshal(" [[sim:script=" + steps + "]]")
			body = bytes.ReplaceAll(body, []byte(`"`+beginning), append(append([]byte{'"'}, quoted[1:len(quoted)-1]...), (" "+beginning)...))
		}
		r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Out.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	return front.URL + "/v1"
}

const DemoPassword = "lanterns over the harbour"

// Demo creates a bookshop that has used the server in production for weeks.
func Demo(t testing.TB) *Workspace {
	t.Helper()
	cfg := Config(t, "sqlite")
	cfg.PublicURL = "https://turnpike.example.com"
	cfg.Providers = []config.Provider{{Name: "openai", Type: config.OpenAI, Catalog: "openai", BaseURL: config.Address(scriptedProvider(t)), APIKey: "sk-demo", Weight: 1, Models: []config.ProviderModel{
		{ID: "gpt-4.1"}, {ID: "gpt-4.1-mini"}, {ID: "gpt-4o-mini"}, {ID: "dall-e-3"}, {ID: "tts-1"}}}}
	clock := harness.NewClock()
	clock.Turn(-106 * time.Minute) // the clock is close to the present at the end
	s := harness.Start(t, cfg, clock)
	w := &Workspace{Server: s, Workspace: s.Workspace(t, "Lantern Books"), text: func(s string) string { return s }}
	w.demoPeople(t)
	w.demoKeys(t)
	w.demoJobs(t)
	w.demoRuns(t)
	w.leakLive(t)
	w.demoWebhooks(t) // the clock stops here, so nothing is sent to the new addresses
	w.demoUsage(t)
	w.age(t)
	return w
}

func (w *Workspace) demoPeople(t testing.TB) {
	t.Helper()
	folk := people.New(w.DB, w.Ring, people.Options{Now: w.Clock.Now})
	w.write(t, func(tx *db.Tx) error {
		for _, u := range []*accounts.User{{Name: "Maren Lindqvist", Email: "maren@lanternbooks.example", Role: accounts.Owner}, {Name: "Tomás Ferreira", Email: "tomas@lanternbooks.example", Role: accounts.Admin},
			{Name: "Aiko Tanaka", Email: "aiko@lanternbooks.example", Role: accounts.Developer}, {Name: "Samuel Okoye", Email: "samuel@lanternbooks.example", Role: accounts.Viewer}} {
			u.WorkspaceID = w.Workspace.ID
			if err := accounts.CreateUser(t.Context(), tx, u, w.Clock.Now()); err != nil {
				return err
			}
			if w.Owner == nil {
				w.Owner = u
			}
			w.MemberID = u.ID
		}
		_, err := folk.Invite(t.Context(), tx, people.Operator(), &people.Invitation{WorkspaceID: w.Workspace.ID, Email: "ines@lanternbooks.example", Role: accounts.Developer})
		return err
	})
	var link *people.Link
	w.write(t, func(tx *db.Tx) (err error) {
		link, err = folk.NewPasswordLink(t.Context(), tx, w.Owner.ID, people.WelcomeLimit)
		return err
	})
	if _, err := folk.ResetPassword(t.Context(), link.Token, DemoPassword, people.Browser{}); err != nil {
		t.Fatal(err)
	}
}

// demoKey is a key of the bookshop, with its share of the requests.
type demoKey struct {
	name, project, model string
	budget               credits.Micro
	perDay               float64 // requests
	input, output        int64   // prices of a token, as in the catalog
	id, hint             string
}

// cost returns what a request costs.
func (k *demoKey) cost(input, output int64) int64 { return input*k.input + output*k.output }

var demoKeys = []*demoKey{
	{name: "Shop backend", project: "shop", model: "gpt-4.1-mini", budget: 20_000_000_000, perDay: 1900, input: 400, output: 1600},
	{name: "Support agent", project: "support", model: "gpt-4.1", budget: 20_000_000_000, perDay: 420, input: 2000, output: 8000},
	{name: "Catalogue job", project: "catalogue", model: "gpt-4o-mini", budget: 10_000_000_000, perDay: 2600, input: 150, output: 600},
}

func (w *Workspace) demoKeys(t testing.TB) {
	t.Helper()
	keys := access.NewKeys(w.Ring, w.Clock.Now)
	by := access.Caller{Actor: audit.Actor{Name: w.Owner.ID, IP: "203.0.113.24"}}
	monthly := credits.Micro(60_000_000_000)
	w.write(t, func(tx *db.Tx) error {
		for _, p := range []accounts.Project{{ID: "shop", Name: "Shop"}, {ID: "support", Name: "Customer support"}, {ID: "catalogue", Name: "Catalogue texts"}} {
			p.Tenant = w.Workspace.In(accounts.Live)
			budget := credits.Micro(30_000_000_000)
			p.MonthlyBudget = &budget
			if err := accounts.CreateProject(t.Context(), tx, &p, w.Clock.Now()); err != nil {
				return err
			}
		}
		for _, k := range demoKeys {
			made := &access.Key{Name: k.name, Tenant: w.Workspace.In(accounts.Live), Project: k.project, MonthlyBudget: &k.budget,
				Scopes: []string{"chat.completions:create", "embeddings:create", "images:create", "images:read", "agents.runs:create", "agents.runs:read"}}
			if k.name == "Shop backend" {
				made.AllowedIPs = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
			}
			if _, err := keys.Create(t.Context(), tx, by, made); err != nil {
				return err
			}
			k.id, k.hint = made.ID, made.Hint()
			if k.name == "Support agent" {
				if _, err := keys.Rotate(t.Context(), tx, by, made, access.Rotation{Grace: 24 * time.Hour}); err != nil {
					return err
				}
			}
		}
		old := &access.Key{Name: "Tomás' laptop", Tenant: w.Workspace.In(accounts.Live), Scopes: []string{"models:read"}}
		if _, err := keys.Create(t.Context(), tx, by, old); err != nil {
			return err
		}
		if err := keys.Revoke(t.Context(), tx, by, old); err != nil {
			return err
		}
		_, err := accounts.ChangeWorkspace(t.Context(), tx, w.Workspace.ID, accounts.Change[accounts.Workspace]{By: by.Actor, At: w.Clock.Now(), Apply: func(ws *accounts.Workspace) error {
			ws.MonthlyCredits, ws.Alert = &monthly, accounts.Threshold{Percent: 20}
			return nil
		}})
		return err
	})
	w.KeyID, w.ProjectID = demoKeys[0].id, "support"
	w.Key, _ = w.KeyOf(t, &access.Key{Tenant: w.Workspace.In(accounts.Live), Name: "Operations", Scopes: []string{"*"}})
}

// demoUsage creates a month of requests: busy days, quiet nights and weekends.
func (w *Workspace) demoUsage(t testing.TB) {
	t.Helper()
	dice := rand.New(rand.NewPCG(7, 42)) //nolint:gosec // the same pictures every time
	now := w.Clock.Now()
	hours := db.NewBulk("usage_hours", "", "workspace_id text", "environment text", "start bigint", "key_id text", "project text", "model text", "provider text",
		"requests bigint", "errors bigint", "input_tokens bigint", "output_tokens bigint", "credits bigint", "simulated_credits bigint",
		"latency_5 bigint", "latency_7 bigint", "latency_9 bigint")
	var rows [][]any
	spent := map[spend.Account]int64{}
	for at := now.Add(-30 * 24 * time.Hour).Truncate(time.Hour); at.Before(now); at = at.Add(time.Hour) {
		busy := 0.55 + 0.45*math.Sin(float64(at.UTC().Hour()-8)/24*2*math.Pi)
		if day := at.UTC().Weekday(); day == time.Saturday || day == time.Sunday {
			busy *= 0.5
		}
		for _, k := range demoKeys {
			n := int64(k.perDay / 24 * busy * (0.7 + 0.6*dice.Float64()))
			cost := n * k.cost(620, 180)
			rows = append(rows, []any{w.Workspace.ID, "live", at.Unix(), k.id, k.project, k.model, "openai", n, (n + 20) / 60, n * 620, n * 180, cost, int64(0), n / 2, n / 3, n / 8})
			if spend.PeriodOf(at) == spend.PeriodOf(now) {
				for _, a := range []spend.Account{{Level: spend.Workspace, ID: w.Workspace.ID}, {Level: spend.Key, ID: k.id}, {Level: spend.Project, ID: spend.ProjectID(w.Workspace.ID, k.project)}} {
					spent[a] += cost
				}
			}
		}
	}
	w.write(t, func(tx *db.Tx) error {
		if _, err := hours.Write(t.Context(), tx, rows); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `INSERT INTO usage_days (workspace_id, environment, start, key_id, project, model, provider, requests, errors, input_tokens, output_tokens, credits, simulated_credits, latency_5, latency_7, latency_9)
			SELECT workspace_id, environment, start - start % 86400, key_id, project, model, provider, sum(requests), sum(errors), sum(input_tokens), sum(output_tokens), sum(credits), sum(simulated_credits), sum(latency_5), sum(latency_7), sum(latency_9)
			FROM usage_hours WHERE workspace_id = $1 AND key_id IN ($2, $3, $4) GROUP BY workspace_id, environment, start - start % 86400, key_id, project, model, provider`,
			w.Workspace.ID, demoKeys[0].id, demoKeys[1].id, demoKeys[2].id)
		if err != nil {
			return err
		}
		for a, n := range spent {
			_, err := tx.Exec(t.Context(), `INSERT INTO spend (level, account_id, period, settled, leased) VALUES ($1, $2, $3, $4, 0)
				ON CONFLICT (level, account_id, period) DO UPDATE SET settled = spend.settled + excluded.settled`, string(a.Level), a.ID, string(spend.PeriodOf(now)), n)
			if err != nil {
				return err
			}
		}
		// One budget is nearly exhausted.
		tight := demoKeys[2]
		_, err = tx.Exec(t.Context(), "UPDATE keys SET monthly_budget = $2 WHERE id = $1", tight.id, spent[spend.Account{Level: spend.Key, ID: tight.id}]*100/93/1_000_000*1_000_000)
		if err != nil {
			return err
		}
		return w.demoRequests(t, tx, dice)
	})
}

// demoRequests creates the latest requests in the log.
func (w *Workspace) demoRequests(t testing.TB, tx *db.Tx, dice *rand.Rand) error {
	t.Helper()
	log := db.NewBulk("requests", "", "id text", "workspace_id text", "environment text", "key_id text", "key_hint text", "ip text", "method text", "path text", "project text",
		"user_agent text", "node_id text", "created_at bigint", "settled boolean", "status bigint", "error_code text", "model text", "provider text", "input_tokens bigint", "output_tokens bigint",
		"reserved bigint", "credits bigint", "simulated_credits bigint", "usage_source text", "latency_us bigint", "upstream_us bigint")
	var rows [][]any
	// The last 90 are close to each other, the others are spread over two days.
	const total, latest = 400, 90
	for i := range total {
		at := w.Clock.Now().Add(time.Duration(i-total) * 47 * time.Second)
		if i < total-latest {
			at = at.Add(time.Duration(i-total+latest) * 9 * time.Minute)
		}
		k := demoKeys[dice.IntN(len(demoKeys))]
		status, code := int64(200), any(nil)
		in, out := int64(200+dice.IntN(900)), int64(60+dice.IntN(400))
		input, output, cost := any(in), any(out), k.cost(in, out)
		took := int64(600_000 + dice.IntN(2_600_000))
		switch {
		case i%17 == 5:
			status, code, input, output, cost, took = 429, "rate_limit_exceeded", nil, nil, 0, 1_400
		case i%23 == 9:
			status, code, input, output, cost = 502, "upstream_error", nil, nil, 0
		}
		id := ids.Floor(ids.Request, at)
		id = id[:len(id)-3] + strconv.Itoa(100+i)
		rows = append(rows, []any{id, w.Workspace.ID, "live", k.id, k.hint, "203.0.113." + strconv.Itoa(20+dice.IntN(6)), "POST", "/v1/chat/completions", k.project,
			"lantern-shop/4.2", "node_demo", at.UnixMicro(), true, status, code, k.model, "openai", input, output, int64(0), cost, int64(0), "provider", took, took - 900})
		if code == nil {
			w.RequestID = id
		} else {
			w.FailedRequestID = id
		}
	}
	_, err := log.Write(t.Context(), tx, rows)
	return err
}

func (w *Workspace) demoJobs(t testing.TB) {
	t.Helper()
	picture := func(id, prompt string) map[string]any {
		return map[string]any{"custom_id": id, "body": map[string]any{"prompt": prompt, "size": "1024x1024"}}
	}
	w.BatchID = w.post(t, "/v1/images/batches", map[string]any{"model": "dall-e-3", "metadata": map[string]string{"season": "winter"}, "requests": []any{
		picture("cover-1041", "A lighthouse in the snow at dusk, as the cover of a novel"), picture("cover-1042", "A harbour at night with paper lanterns"),
		picture("cover-1043", "A reading chair beside a window, rain outside"), picture("cover-1044", "Hills and a small train, in the style of a woodcut")}}).Text("id")
	w.Clock.Turn(4 * time.Minute)
	w.VoiceID = w.post(t, "/v1/voice/renders", map[string]any{"model": "tts-1", "voice": "alloy", "input": "Welcome to Lantern Books. The shop opens at ten o'clock."}).Text("id")
	for _, path := range []string{"/v1/images/batches/" + w.BatchID, "/v1/voice/renders/" + w.VoiceID} {
		w.until(t, path, func(r *harness.Response) bool { return r.At("completed_at") != nil })
	}
	for _, prompt := range []string{"Six covers for the poetry shelf", "A map of the old town with every bookshop"} {
		w.Clock.Turn(9 * time.Minute)
		id := w.post(t, "/v1/images/batches", map[string]any{"model": "dall-e-3", "requests": []any{picture("a", prompt), picture("b", prompt+", in blue")}}).Text("id")
		w.until(t, "/v1/images/batches/"+id, func(r *harness.Response) bool { return r.At("completed_at") != nil })
	}
}

// demoWebhooks creates two endpoints. One of them fails.
func (w *Workspace) demoWebhooks(t testing.TB) {
	t.Helper()
	well := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNoContent) }))
	ill := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		http.Error(rw, `{"error":"the queue is full"}`, http.StatusServiceUnavailable)
	}))
	t.Cleanup(well.Close)
	t.Cleanup(ill.Close)
	fine := w.post(t, "/v1/webhooks", map[string]any{"url": well.URL, "events": []string{"*"}, "description": "Orders and stock"}).Text("id")
	broken := w.post(t, "/v1/webhooks", map[string]any{"url": ill.URL, "events": []string{"image.batch.completed", "video.render.completed"}, "description": "Covers, to the print shop"}).Text("id")
	w.EndpointID = broken
	for _, kind := range []string{"image.batch.completed", "agent.run.completed", "billing.credits.low", "voice.render.completed", "agent.run.awaiting_approval"} {
		w.Clock.Turn(6 * time.Minute)
		w.delivered(t, fine, kind)
	}
	w.Clock.Turn(2 * time.Minute)
	w.delivered(t, broken, "video.render.completed")
	w.DeliveryID = w.delivered(t, broken, "image.batch.completed")
	w.addresses = map[string]string{fine: "https://api.lanternbooks.example/hooks/turnpike", broken: "https://print.lanternbooks.example/hooks"}
}

// age makes new data look old: realistic receiver addresses, dates weeks ago, and no
// log entries of the demo itself, whose IDs are as young as the test.
func (w *Workspace) age(t testing.TB) {
	t.Helper()
	now := w.Clock.Now()
	const weeks = int64(60 * 24 * time.Hour / time.Microsecond)
	w.write(t, func(tx *db.Tx) error {
		do := func(query string, args ...any) {
			if _, err := tx.Exec(t.Context(), query, args...); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
		}
		for id, address := range w.addresses {
			do("UPDATE endpoints SET url = $2 WHERE id = $1", id, address)
			do("UPDATE attempts SET url = $2, address = '198.51.100.40:443' WHERE delivery_id IN (SELECT id FROM deliveries WHERE endpoint_id = $1)", id, address)
		}
		for _, table := range []string{"keys", "projects", "members", "endpoints"} {
			do("UPDATE "+table+" SET created_at = created_at - $2 WHERE workspace_id = $1", w.Workspace.ID, weeks)
		}
		do("UPDATE workspaces SET created_at = created_at - $2 WHERE id = $1", w.Workspace.ID, weeks)
		do("DELETE FROM requests WHERE workspace_id = $1 AND path <> '/v1/chat/completions'", w.Workspace.ID)
		do("UPDATE requests SET ip = '203.0.113.20' WHERE workspace_id = $1 AND ip = '127.0.0.1'", w.Workspace.ID)
		do("UPDATE admin_actions SET ip = '203.0.113.20' WHERE workspace_id = $1 AND ip = '127.0.0.1'", w.Workspace.ID)
		for i, k := range demoKeys {
			do("UPDATE keys SET last_used_at = $2, last_used_ip = '203.0.113.21' WHERE id = $1", k.id, now.Add(-time.Duration(20+70*i)*time.Second).UnixMicro())
		}
		return nil
	})
}

// delivered sends a test event and waits for its first attempt.
func (w *Workspace) delivered(t testing.TB, endpoint, kind string) (id string) {
	t.Helper()
	id = w.post(t, "/v1/webhooks/"+endpoint+"/test", map[string]any{"type": kind}).Text("id")
	last := w.until(t, "/v1/deliveries/"+id, func(r *harness.Response) bool { return r.At("attempt_count") != 0.0 })
	w.EventID = last.Text("event_id")
	return id
}

func (w *Workspace) demoRuns(t testing.TB) {
	t.Helper()
	tools := []any{
		map[string]any{"type": "function", "name": "find_order", "description": "Finds an order of the shop.", "parameters": orderOnly},
		map[string]any{"type": "http", "name": "refund_order", "url": "https://shop.lanternbooks.example/refunds", "require_approval": "always", "description": "Pays an order back.",
			"parameters": map[string]any{"type": "object", "properties": map[string]any{"order": text, "amount": text, "currency": text}, "required": []string{"order", "amount", "currency"}}}}
	for _, r := range []struct{ input, found, ends string }{
		{"Order LB-20388 has not arrived yet. Where is it?", `{"status":"in transit","carrier":"PostNord","last_scan":"Rotterdam"}`, "completed"},
		{"Order LB-20402 came with a torn cover.", "", "failed"},
		{"Order LB-20395 should be ready for collection. Is it?", `{"status":"ready","shop":"Lisbon"}`, "completed"},
		{"Order LB-20417 was cancelled by the customer before it left. Please sort it out.", `{"status":"cancelled","paid":"24.90 EUR"}`, "awaiting_approval"},
	} {
		w.Clock.Turn(11 * time.Minute)
		id := w.post(t, "/v1/agents/runs", map[string]any{"model": "gpt-4.1", "input": r.input, "tools": tools, "instructions": "You answer customers of a bookshop. Be brief and kind, and never promise what you have not looked up.",
			"metadata": map[string]string{"ticket": strings.TrimPrefix(strings.Fields(r.input)[1], "LB-")}}).Text("id")
		path := "/v1/agents/runs/" + id
		if r.found != "" {
			w.until(t, path, func(r *harness.Response) bool { return r.Text("status") == "requires_action" })
			w.post(t, path+"/tool_outputs", map[string]any{"tool_outputs": []any{map[string]string{"call_id": "call_1_0", "output": r.found}}})
		}
		w.until(t, path, func(got *harness.Response) bool { return got.Text("status") == r.ends })
		w.RunID = id
	}
}

var (
	text      = map[string]any{"type": "string"}
	orderOnly = map[string]any{"type": "object", "properties": map[string]any{"order": text}, "required": []string{"order"}}
)

func (w *Workspace) leakLive(t testing.TB) {
	t.Helper()
	value, _ := w.KeyOf(t, &access.Key{Tenant: w.Workspace.In(accounts.Live), Name: "Prototype of the chat", Scopes: []string{"chat.completions:create"}})
	w.Do(t, harness.Request{Method: "POST", Path: "/leaks/report", Body: map[string]any{"keys": []string{value}, "url": "https://git.example/lantern/prototype/blob/main/.env"}})
	w.Clock.Turn(8 * time.Minute)
}
