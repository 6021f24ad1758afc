package api_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/operators"
	"turnpike/test/fakes/minisign"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// admin is the admin API of a server.
type admin struct {
	*harness.Server
	key string
}

func newAdmin(t *testing.T, s *harness.Server) *admin { return &admin{s, s.AdminKey(t)} }

func (a *admin) send(t *testing.T, method, path string, body any) *harness.Response {
	t.Helper()
	return a.Do(t, harness.Request{Method: method, Path: "/admin/" + path, Key: a.key, Body: body})
}

const providerKey = "sk-stored-4f1c4b1ff3b84c2a9d07e6a1"

// storedProvider is a provider with one model at the price of "small".
func storedProvider(up *upstreams.OpenAI) map[string]any {
	return map[string]any{"name": "stored", "type": "openai", "base_url": up.BaseURL(), "api_key": providerKey,
		"models": []any{map[string]any{"id": "stored-small", "upstream": "small-2025", "price": map[string]any{"input": 2, "output": 8}}}}
}

func TestStoredProviderServesOnEveryNodeAndItsKeyStaysSecret(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		up := upstreams.NewOpenAI(t, providerKey)
		cfg, clock := harness.Config(t, engine), harness.NewClock()
		first := harness.Start(t, cfg, clock)
		other := first // with SQLite there is one node
		if engine == "postgres" {
			other = harness.Start(t, cfg, clock)
		}
		a, c := newAdmin(t, first), newClient(t, other, accounts.Live)
		c.chat(t, body("stored-small", "Hi.", nil)).Want(t, 503, "no_provider")

		created := a.send(t, "POST", "providers", storedProvider(up)).Want(t, 200, "")
		if created.Text("source") != "database" || created.Text("api_key_hint") != "…e6a1" {
			t.Errorf("got %s", created.Body)
		}
		first.Eventually(t, func() bool { return c.chat(t, body("stored-small", "Hi.", nil)).Status == 200 })
		r := c.chat(t, body("stored-small", "Hi.", nil)).Want(t, 200, "")
		if got := r.Header.Get("Service-Provider"); got != "stored" {
			t.Errorf("got provider %q, want stored", got)
		}
		if got := a.send(t, "POST", "providers/stored/test", nil).Want(t, 200, ""); got.At("ok") != true || got.Text("model") != "stored-small" {
			t.Errorf("got test %s", got.Body)
		}
		route := a.send(t, "POST", "routes", map[string]any{"name": "cheap", "models": []string{"stored-small"}}).Want(t, 200, "")
		first.Eventually(t, func() bool { return c.chat(t, body("route/cheap", "Hi.", nil)).Status == 200 })

		seen := [][]byte{created.Body, route.Body, a.send(t, "GET", "providers", nil).Body, a.send(t, "GET", "providers/stored", nil).Body,
			a.send(t, "PATCH", "providers/stored", map[string]any{"weight": 5}).Want(t, 200, "").Body, first.DumpDatabase(t)}
		if engine == "sqlite" {
			seen = append(seen, dataFiles(t, first.Data)...)
		}
		for _, text := range seen {
			if bytes.Contains(text, []byte(providerKey)) {
				t.Errorf("the key of the provider is in %.200s", text)
			}
		}

		a.send(t, "DELETE", "providers/stored", nil).Want(t, 200, "")
		first.Eventually(t, func() bool { return c.chat(t, body("stored-small", "Hi.", nil)).Status == 503 })
		a.send(t, "GET", "providers/stored", nil).Want(t, 404, "not_found")
	})
}

func TestStoredProviderKeyNeverReachesTheLog(t *testing.T) { // not in parallel: it replaces the default logger
	old := slog.Default()
	defer slog.SetDefault(old)
	log := &lockedBuffer{}
	slog.SetDefault(slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	up := upstreams.NewOpenAI(t, providerKey)
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	a, c := newAdmin(t, s), newClient(t, s, accounts.Live)
	a.send(t, "POST", "providers", storedProvider(up)).Want(t, 200, "")
	a.send(t, "POST", "providers", storedProvider(up)).Want(t, 409, "invalid_state")
	s.Eventually(t, func() bool { return c.chat(t, body("stored-small", "Hi.", nil)).Status == 200 })
	wrong := providerKey + "-wrong"
	a.send(t, "PATCH", "providers/stored", map[string]any{"api_key": wrong, "color": providerKey}).Want(t, 400, "unknown_parameter")
	a.send(t, "PATCH", "providers/stored", map[string]any{"api_key": wrong}).Want(t, 400, "invalid_parameter") // the provider rejects it
	a.send(t, "POST", "providers/stored/test", nil).Want(t, 200, "")
	up.Queue(upstreams.OpenAIReply{Status: 401, Body: `{"error":{"message":"Incorrect API key provided: ` + providerKey + `"}}`})
	c.chat(t, body("stored-small", "Hi.", nil))
	a.send(t, "DELETE", "providers/stored", nil).Want(t, 200, "")
	if text := log.String(); strings.Contains(text, providerKey) || !strings.Contains(text, "/admin/providers") {
		t.Errorf("the log has the key of the provider, or no requests: %.2000s", text)
	}
}

// TestDefinitionsReachOtherNodesBySignal changes definitions on one node and looks at the signals that others get. Then it
// changes one without a signal, which no node notices until there is one.
func TestDefinitionsReachOtherNodesBySignal(t *testing.T) {
	t.Parallel()
	up := upstreams.NewOpenAI(t, providerKey)
	cfg, clock := harness.Config(t, "postgres"), harness.NewClock() // with SQLite, every commit of another process is a signal
	first, other := harness.Start(t, cfg, clock), harness.Start(t, cfg, clock)
	a, c := newAdmin(t, first), newClient(t, other, accounts.Live)
	signals := make(chan string, 100)
	other.DB.OnSignal(operators.SignalDefinitions, func(name string) {
		if name != "" { // empty when the connection was established
			signals <- name
		}
	})
	signal := func(name string) {
		t.Helper()
		if err := first.DB.Write(t.Context(), func(tx *db.Tx) error { tx.Signal(operators.SignalDefinitions, name); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	first.Eventually(t, func() bool { signal("listening"); return len(signals) > 0 })

	for _, change := range []struct {
		method, path string
		body         any
		name         string
	}{
		{"POST", "providers", storedProvider(up), "stored"},
		{"PATCH", "providers/stored", map[string]any{"weight": 5}, "stored"},
		{"POST", "routes", map[string]any{"name": "cheap", "models": []string{"stored-small"}}, "cheap"},
		{"DELETE", "routes/cheap", nil, "cheap"},
		{"PATCH", "pricing", map[string]any{"markup_percent": 5}, operators.PricingName},
	} {
		a.send(t, change.method, change.path, change.body).Want(t, 200, "")
		got := ""
		first.Eventually(t, func() bool {
			select {
			case got = <-signals:
			default:
			}
			return got != "" && got != "listening"
		})
		if got != change.name {
			t.Errorf("%s %s: got a signal of %q, want %q", change.method, change.path, got, change.name)
		}
	}

	serves := func() bool { return c.chat(t, body("stored-small", "Hi.", nil)).Status == 200 }
	first.Eventually(t, serves)
	if err := first.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "DELETE FROM definitions WHERE kind = $1", operators.Provider)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if !serves() {
			t.Fatal("the node has read the definitions without a signal")
		}
	}
	signal("stored")
	first.Eventually(t, func() bool { return !serves() })
}

// dataFiles returns the content of all files in the data directory.
func dataFiles(t *testing.T, directory string) (contents [][]byte) {
	t.Helper()
	err := filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		contents = append(contents, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return contents
}

func TestAdminAPIAcceptsOnlyAdminKeys(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		a := newAdmin(t, s)
		live, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)
		unknown := withChecksum(t, "tp_admin_"+strings.Repeat("0", 32))
		for _, rt := range api.AdminRoutes() {
			path := strings.ReplaceAll(rt.Path, "{name}", "any")
			for _, key := range []string{"", live, mistyped(a.key), unknown, "tp_admin_"} {
				s.Do(t, harness.Request{Method: rt.Method, Path: path, Key: key}).Want(t, 401, "authentication_error")
			}
		}
		s.Do(t, harness.Request{Method: "GET", Path: "/admin/nothing", Key: live}).Want(t, 401, "authentication_error")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: a.key}).Want(t, 401, "authentication_error")
		a.send(t, "GET", "providers", nil).Want(t, 200, "")
		a.send(t, "GET", "nothing", nil).Want(t, 404, "not_found")
	})
}

// N14: an admin key can do what its scopes say, from its addresses, and so often.
func TestAdminKeyIsLimitedToItsScopesAddressesAndRate(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		key := func(c *operators.Credential) *admin { return &admin{s, s.AdminKeyOf(t, c)} }
		for scope, allowed := range map[operators.Scope][]operators.Scope{
			operators.AllScopes: operators.Scopes(), operators.WriteAll: operators.Scopes(), operators.ReadAll: {operators.ProvidersRead, operators.PricesRead},
			operators.ProvidersWrite: {operators.ProvidersRead, operators.ProvidersWrite}, operators.ProvidersRead: {operators.ProvidersRead},
			operators.PricesWrite: {operators.PricesRead, operators.PricesWrite}, operators.WorkspacesWrite: {}, operators.MembersRead: {},
		} {
			a := key(&operators.Credential{Name: "test", Scopes: []operators.Scope{scope}})
			for _, rt := range api.AdminRoutes() {
				path := strings.TrimPrefix(strings.ReplaceAll(rt.Path, "{name}", "none"), "/admin/")
				r := a.send(t, rt.Method, path, map[string]any{})
				if refused := r.Status == 403 && r.Text("error.code") == "insufficient_scope"; refused == slices.Contains(allowed, rt.Scope) {
					t.Errorf("a key with %s: %s %s returned %d %s", scope, rt.Method, rt.Path, r.Status, r.Body)
				}
			}
		}
		key(&operators.Credential{Name: "elsewhere", AllowedIPs: prefixes(t, "192.0.2.0/24")}).send(t, "GET", "pricing", nil).Want(t, 403, "ip_not_allowed")
		key(&operators.Credential{Name: "here", AllowedIPs: prefixes(t, "192.0.2.0/24", "127.0.0.0/8", "::1/128")}).send(t, "GET", "pricing", nil).Want(t, 200, "")
		slow := key(&operators.Credential{Name: "slow", RateLimit: 2})
		slow.send(t, "GET", "pricing", nil).Want(t, 200, "")
		slow.send(t, "GET", "pricing", nil).Want(t, 200, "")
		slow.send(t, "GET", "pricing", nil).Want(t, 429, "rate_limit_exceeded")
		// A key from an earlier version keeps its rights.
		old := key(&operators.Credential{Name: "old"})
		old.send(t, "GET", "providers", nil).Want(t, 200, "")
		old.send(t, "PATCH", "pricing", map[string]any{"markup_percent": "many"}).Want(t, 400, "invalid_parameter")
	})
}

func TestInvalidProvidersAreRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		a, up := newAdmin(t, s), upstreams.NewOpenAI(t, providerKey)
		with := func(name string, value any) map[string]any {
			p := storedProvider(up)
			p[name] = value
			return p
		}
		for param, p := range map[string]map[string]any{
			"api_key":       with("api_key", "sk-wrong-4f1c4b1ff3b84c2a9d07"),
			"type":          with("type", "smtp"),
			"base_url":      with("base_url", "ftp://example.com"),
			"weight":        with("weight", 0),
			"name":          with("name", "Not A Name"),
			"catalog":       with("catalog", "nobody"),
			"api_key_env":   with("api_key_env", "PATH"),
			"colour":        with("colour", "red"),
			"models[0].id":  with("models", []any{map[string]any{"price": map[string]any{"input": 1, "output": 1}}}),
			"headers.Host":  with("headers", map[string]any{"Host": "example.com"}),
			"models[0].foo": with("models", []any{map[string]any{"id": "x", "foo": 1}}),
		} {
			r := a.send(t, "POST", "providers", p)
			if r.Status != 400 || r.Text("error.param") != param {
				t.Errorf("%s: got %d %s", param, r.Status, r.Body)
			}
			if strings.Contains(string(r.Body), "sk-") {
				t.Errorf("%s: the error has a key: %s", param, r.Body)
			}
		}
		if list, _ := a.send(t, "GET", "providers", nil).Want(t, 200, "").At("data").([]any); len(list) != 0 {
			t.Errorf("got %d providers, want none", len(list))
		}
		a.send(t, "POST", "providers", storedProvider(up)).Want(t, 200, "")
		a.send(t, "POST", "providers", storedProvider(up)).Want(t, 409, "invalid_state")
		a.send(t, "PATCH", "providers/stored", map[string]any{"name": "other"}).Want(t, 400, "invalid_parameter")
		moved := a.send(t, "PATCH", "providers/stored", map[string]any{"base_url": upstreams.NewOpenAI(t, "").BaseURL()}).Want(t, 400, "missing_parameter")
		if moved.Text("error.param") != "api_key" {
			t.Errorf("a new address without a key: got %s", moved.Body)
		}
		a.send(t, "POST", "routes", map[string]any{"name": "r", "models": []string{"unknown"}}).Want(t, 400, "invalid_parameter")

		// The provider changes its key afterwards.
		revoked := upstreams.NewOpenAI(t, "sk-new")
		a.send(t, "POST", "providers", map[string]any{"name": "dead", "type": "openai", "base_url": revoked.BaseURL(), "headers": map[string]any{"Authorization": "Bearer " + providerKey},
			"models": []any{map[string]any{"id": "m", "price": map[string]any{"input": 1, "output": 1}}}}).Want(t, 200, "")
		test := a.send(t, "POST", "providers/dead/test", nil).Want(t, 200, "")
		if test.At("ok") != false || !strings.Contains(test.Text("problem"), "rejects the key (401)") || strings.Contains(string(test.Body), providerKey) {
			t.Errorf("got test %s", test.Body)
		}
	})
}

func TestConfigurationWinsOverStoredProviders(t *testing.T) {
	t.Parallel()
	up := upstreams.NewOpenAI(t, providerKey)
	cfg := harness.Config(t, "sqlite")
	cfg.Providers = []config.Provider{{Name: "first", Type: config.OpenAI, BaseURL: config.Address(up.BaseURL()), APIKey: providerKey, Weight: 1,
		Models: []config.ProviderModel{{ID: "small", Price: price("2", "8", "")}}}}
	s := harness.Start(t, cfg, harness.NewClock())
	a := newAdmin(t, s)
	p := storedProvider(up)
	p["name"] = "first"
	a.send(t, "POST", "providers", p).Want(t, 409, "invalid_state")
	a.send(t, "PATCH", "providers/first", map[string]any{"weight": 2}).Want(t, 409, "invalid_state")
	a.send(t, "DELETE", "providers/first", nil).Want(t, 409, "invalid_state")

	a.send(t, "POST", "providers", storedProvider(up)).Want(t, 200, "")
	cfg.Providers = append(cfg.Providers, config.Provider{Name: "stored", Type: config.OpenAI, BaseURL: config.Address(up.BaseURL()), APIKey: providerKey, Weight: 1,
		Models: []config.ProviderModel{{ID: "of-the-file", Price: price("2", "8", "")}}})
	reload(t, s, cfg, "providers")
	c := newClient(t, s, accounts.Live)
	c.chat(t, body("of-the-file", "Hi.", nil)).Want(t, 200, "")
	c.chat(t, body("stored-small", "Hi.", nil)).Want(t, 404, "model_not_found")
	list := a.send(t, "GET", "providers", nil).Want(t, 200, "")
	if got := list.Text("data.2.problem"); !strings.Contains(got, "configuration") {
		t.Errorf("got %s, want the problem of the stored provider", list.Body)
	}
	a.send(t, "PATCH", "providers/stored", map[string]any{"weight": 2}).Want(t, 409, "invalid_state")
	a.send(t, "DELETE", "providers/stored", nil).Want(t, 200, "") // the stored one
	a.send(t, "GET", "providers/stored", nil).Want(t, 200, "")
}

func TestRequestsMoveFromARejectedKeyToAnother(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		up := upstreams.NewOpenAI(t, "") // accepts every key
		a, c := newAdmin(t, s), newClient(t, s, accounts.Live)
		p := storedProvider(up)
		delete(p, "api_key")
		p["api_keys"] = []any{map[string]any{"api_key": providerKey, "weight": 1000}, map[string]any{"api_key": "sk-second-4f1c4b1ff3b84c2a9d07"}}
		created := a.send(t, "POST", "providers", p).Want(t, 200, "")
		if strings.Contains(string(created.Body), "sk-") || created.At("api_keys.0.weight") != 1000.0 {
			t.Errorf("got %s", created.Body)
		}
		before := len(up.Requests())
		up.Queue(upstreams.OpenAIReply{Status: 429, Message: "Rate limit reached."})
		c.chat(t, body("stored-small", "Hi.", nil)).Want(t, 200, "")
		got := up.Requests()[before:]
		if len(got) != 2 || got[0].Header.Get("Authorization") == got[1].Header.Get("Authorization") {
			t.Errorf("got %d requests, want a second one with another key", len(got))
		}
		p["name"], p["api_key"] = "both", providerKey
		if r := a.send(t, "POST", "providers", p).Want(t, 400, "invalid_parameter"); r.Text("error.param") != "api_keys" {
			t.Errorf("api_key and api_keys: got %s", r.Body)
		}
		p["api_keys"] = []any{map[string]any{"api_key_env": "PATH"}}
		delete(p, "api_key")
		a.send(t, "POST", "providers", p).Want(t, 400, "invalid_parameter")
	})
}

func TestModelsThatTheTableDoesNotKnowAreDiscovered(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		a, up := newAdmin(t, s), upstreams.NewOpenAI(t, providerKey)
		up.Models = []string{"small-2025", "brand-new"}
		a.send(t, "POST", "providers", storedProvider(up)).Want(t, 200, "")
		r := a.send(t, "GET", "providers/stored/models", nil).Want(t, 200, "")
		if r.Text("data.0.id") != "brand-new" || r.At("data.0.known") != false || r.Text("data.1.id") != "small-2025" || r.At("data.1.known") != true || r.At("data.1.priced") != true {
			t.Errorf("got %s", r.Body)
		}
		up.Queue(upstreams.OpenAIReply{Status: 401, Message: "Incorrect API key provided: " + providerKey})
		if r := a.send(t, "GET", "providers/stored/models", nil).Want(t, 502, "upstream_error"); strings.Contains(string(r.Body), providerKey) {
			t.Errorf("the error has the key: %s", r.Body)
		}
	})
}

func TestChargesRecordTheVersionOfStoredPrices(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		up, signer := upstreams.NewOpenAI(t, providerKey), minisign.NewSigner(1)
		cfg, clock := harness.Config(t, engine), harness.NewClock()
		cfg.CatalogKey = signer.PublicKey()
		first := harness.Start(t, cfg, clock)
		other := first // with SQLite there is one node
		if engine == "postgres" {
			other = harness.Start(t, cfg, clock)
		}
		a, c := newAdmin(t, first), newClient(t, other, accounts.Live)
		version := func() string { return a.send(t, "GET", "pricing", nil).Want(t, 200, "").Text("price_version") }
		versions := map[string]bool{version(): true}
		// expect makes calls until one has the current version, and returns what it costs.
		expect := func(model string) (cost credits.Micro) {
			t.Helper()
			want := version()
			if versions[want] {
				t.Errorf("the prices of %s have the version %s of others", model, want)
			}
			versions[want] = true
			first.Eventually(t, func() bool {
				r := c.chat(t, body(model, "Hi.", nil))
				if r.Status != 200 {
					return false
				}
				cost = charged(t, r)
				return c.entry(t, r).Text("price_version") == want
			})
			return cost
		}
		a.send(t, "POST", "providers", storedProvider(up)).Want(t, 200, "")
		plain := expect("stored-small")
		p := a.send(t, "PATCH", "pricing", map[string]any{"markup_percent": 100}).Want(t, 200, "")
		if p.At("markup_percent") != 100.0 || p.Text("markup_source") != "database" {
			t.Errorf("got %s", p.Body)
		}
		if got := expect("stored-small"); got != 2*plain {
			t.Errorf("with a markup of 100%%: got %s, want %s", got, 2*plain)
		}
		for _, bad := range []any{-1, 1000.5, "much", []int{1}} {
			if r := a.send(t, "PATCH", "pricing", map[string]any{"markup_percent": bad}).Want(t, 400, "invalid_parameter"); r.Text("error.param") != "markup_percent" {
				t.Errorf("%v: got %s", bad, r.Body)
			}
		}
		a.send(t, "PATCH", "pricing", map[string]any{"markup": 1}).Want(t, 400, "unknown_parameter")

		listed := storedProvider(up) // with the prices of the table
		listed["name"], listed["catalog"] = "listed", "openai"
		listed["models"] = []any{map[string]any{"id": "gpt-4o"}}
		a.send(t, "POST", "providers", listed).Want(t, 200, "")
		before := version()
		versions[before] = false
		old := expect("gpt-4o")
		table := []byte(`{"as_of":"` + time.Now().UTC().Format(time.DateOnly) + `","models":[{"provider":"openai","id":"gpt-4o","kind":"chat","usd":{"input_per_million":"25","output_per_million":"100"}}]}`)
		m := app.NewDefinitions(&app.Store{DB: first.DB, Ring: first.Ring}, cfg)
		if _, err := m.CheckTable(t.Context(), table, minisign.NewSigner(2).Sign(table)); err == nil {
			t.Error("a table with the signature of another key was accepted")
		}
		update, err := m.CheckTable(t.Context(), table, signer.Sign(table))
		if err != nil {
			t.Fatal(err)
		}
		if version() != before {
			t.Error("checking a table changed the prices")
		}
		if err := m.ApplyTable(t.Context(), audit.Operator, update); err != nil {
			t.Fatal(err)
		}
		first.Eventually(t, func() bool { return version() != before })
		if got := expect("gpt-4o"); got != 10*old {
			t.Errorf("with ten times the price: got %s, want %s", got, 10*old)
		}
		a.send(t, "PATCH", "pricing", map[string]any{"markup_percent": nil}).Want(t, 200, "")
		if got := expect("gpt-4o"); got != 5*old {
			t.Errorf("without the markup: got %s, want %s", got, 5*old)
		}
	})
}

func TestConfiguredMarkupIsReadOnly(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.MarkupPercent = "5"
	s := harness.Start(t, cfg, harness.NewClock())
	a := newAdmin(t, s)
	a.send(t, "PATCH", "pricing", map[string]any{"markup_percent": 7}).Want(t, 409, "invalid_state")
	if p := a.send(t, "GET", "pricing", nil).Want(t, 200, ""); p.At("markup_percent") != 5.0 || p.Text("markup_source") != "configuration" {
		t.Errorf("got %s", p.Body)
	}
}
