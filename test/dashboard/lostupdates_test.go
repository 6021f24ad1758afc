package dashboard_test

import (
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/cli"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/endusers"
	"turnpike/test/harness"
	"turnpike/test/statements"
)

// commandVariable makes the test program the turnpike command: operators run it in another process.
const commandVariable = "TURNPIKE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	harness.MainWithStatements(m, statements.Dashboard)
}

// editors are two people who change the same record: one in a transaction of the test, one through a face.
type editors struct {
	*browser
	env     accounts.Environment
	key     string
	command []string
}

func newEditors(t *testing.T, cfg config.Config) *editors {
	t.Helper()
	s := harness.Start(t, cfg, harness.NewClock())
	w := s.Workspace(t, "acme")
	e := &editors{browser: member(t, s, w, accounts.Owner), env: accounts.Live}
	e.key, _ = s.Key(t, w, e.env)
	e.command = append(os.Environ(), commandVariable+"=1", "TURNPIKE_MASTER_KEY="+harness.MasterKey, "TURNPIKE_DATA="+cfg.Data, "TURNPIKE_DATABASE_URL="+string(cfg.DatabaseURL))
	return e
}

// inTest returns the editors in the test environment, whose models need no provider.
func (e *editors) inTest(t *testing.T) *editors {
	t.Helper()
	other := *e
	other.env = accounts.Test
	other.key, _ = e.s.Key(t, e.workspace, other.env)
	return &other
}

// create creates a record through the API and returns its ID.
func (e *editors) create(t *testing.T, path string, body map[string]any) string {
	t.Helper()
	return e.s.Do(t, harness.Request{Method: "POST", Path: path, Key: e.key, Body: body}).Want(t, http.StatusOK, "").Text("id")
}

// api returns the change of a record through the API.
func (e *editors) api(method, path string, body map[string]any) func(t *testing.T) {
	return func(t *testing.T) {
		e.s.Do(t, harness.Request{Method: method, Path: path, Key: e.key, Body: body}).Want(t, http.StatusOK, "")
	}
}

// turnpike returns the change of a record by a command.
func (e *editors) turnpike(args ...string) func(t *testing.T) {
	return func(t *testing.T) {
		program, err := os.Executable()
		if err != nil {
			t.Error(err)
		}
		c := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // this program
		c.Env = e.command
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("turnpike %v: %v\n%s", args, err, out)
		}
	}
}

// apply returns the change of a record of the workspace by turnpike apply.
func (e *editors) apply(t *testing.T, fields string) func(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "state.yaml")
	if err := os.WriteFile(file, []byte("workspaces: [{name: acme, "+fields+"}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return e.turnpike("apply", "-f", file)
}

// form returns the change of a record by a form that is open already. It sends all fields, so it is rejected.
func (e *editors) form(t *testing.T, page string, form url.Values) func(t *testing.T) {
	t.Helper()
	path, pattern := e.in(e.env, page), `name="seen" value="([0-9a-f]+)"`
	page, isPart := strings.CutSuffix(path, "/notifications")
	if isPart {
		pattern = `(?s)` + path + `".*?` + pattern
	}
	form.Set("seen", e.get(t, page).find(t, pattern))
	return func(t *testing.T) {
		e.post(t, path, form).rejects(t, http.StatusConflict, "Someone changed this after you opened the page")
	}
}

// during makes a change while a transaction that has made another one is open.
func (e *editors) during(t *testing.T, theirs string, ours func(t *testing.T)) {
	t.Helper()
	var once sync.Once
	done := make(chan struct{})
	err := e.s.DB.Write(t.Context(), func(tx *db.Tx) error {
		if err := tx.DisableTimeouts(t.Context()); err != nil {
			return err
		}
		if n, err := tx.Exec(t.Context(), theirs); err != nil || n != 1 {
			t.Errorf("%s: changed %d rows (%v)", theirs, n, err)
			return err
		}
		go once.Do(func() {
			defer close(done)
			ours(t)
		})
		e.awaitBlocked(t, tx, done)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	<-done
}

// awaitBlocked waits until another transaction waits for tx. On SQLite, all writers do.
func (e *editors) awaitBlocked(t *testing.T, tx *db.Tx, done <-chan struct{}) {
	t.Helper()
	if e.s.DB.Engine() == "sqlite" {
		return
	}
	holder, err := db.Value[int](tx.QueryRow(t.Context(), "SELECT pg_backend_pid()"))
	for waiting := 0; waiting == 0 && err == nil; {
		select {
		case <-done:
			t.Error("the change didn't wait for the other transaction")
			return
		default:
			waiting, err = db.Value[int](e.s.DB.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))", holder))
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// changeTest is a record, a change that a transaction makes, and changes of other fields through faces.
type changeTest struct {
	table, id     string // the primary key is a column id, or workspace_id
	theirs, undo  string // assignments of another field
	theirsIs      string // the condition that their change survived
	oursIs        string // the condition that ours is stored, for faces that change only what was asked
	api           func(t *testing.T)
	command       func(t *testing.T)
	apply         func(t *testing.T)
	form          func(t *testing.T)
	resetOurs     string // undoes ours
	primaryColumn string
}

func (c changeTest) run(t *testing.T, e *editors) {
	where := " WHERE " + c.primaryColumn + " = '" + c.id + "'"
	holds := func(condition string) bool {
		t.Helper()
		n, err := db.Value[int64](e.s.DB.QueryRow(t.Context(), "SELECT count(*) FROM "+c.table+where+" AND "+condition))
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	for face, change := range map[string]func(*testing.T){"the API": c.api, "the command": c.command, "apply": c.apply, "the form": c.form} {
		if change == nil {
			continue
		}
		e.during(t, "UPDATE "+c.table+" SET "+c.theirs+where, change)
		if !holds(c.theirsIs) {
			t.Errorf("%s: %s reverted a concurrent change (%s)", c.table, face, c.theirs)
		}
		if face != "the form" && !holds(c.oursIs) {
			t.Errorf("%s: the change through %s is lost (%s)", c.table, face, c.oursIs)
		}
		reset := c.undo
		if c.resetOurs != "" {
			reset += ", " + c.resetOurs
		}
		if err := e.s.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE "+c.table+" SET "+reset+where)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConcurrentChangesOfDifferentFieldsSurvive changes each kind of record through each face, while a transaction
// that has changed another field is open.
func TestConcurrentChangesOfDifferentFieldsSurvive(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			e := newEditors(t, harness.Config(t, engine))
			for name, c := range e.changes(t) {
				t.Run(name, func(t *testing.T) { c.run(t, e) })
			}
		})
	}
}

func (e *editors) changes(t *testing.T) map[string]changeTest {
	t.Helper()
	_, key := e.s.KeyOf(t, &access.Key{Tenant: e.workspace.In(accounts.Live), Name: "worker", Scopes: []string{"models:read"}}) // apply manages keys that no key created
	project := e.create(t, "/v1/projects", map[string]any{"id": "shop"})
	endpoint := e.create(t, "/v1/webhooks", map[string]any{"url": "https://example.com/hook", "events": []string{"*"}})
	server := e.create(t, "/v1/tool_servers", map[string]any{"label": "docs", "url": "https://example.com/mcp"})
	rule := e.create(t, "/v1/federation_rules", map[string]any{"name": "ci", "issuer": "https://issuer.example", "audience": "turnpike", "subject": "repo:acme/app", "key_id": key, "scopes": []string{"models:read"}})
	test := e.inTest(t)
	route := test.create(t, "/v1/routes", map[string]any{"name": "fast", "models": []string{"gpt-4o"}})
	e.api("PATCH", "/v1/notifications", map[string]any{"webhook": map[string]any{"url": "https://example.com/chat/secret-path"}})(t)
	var user *endusers.User
	if err := e.s.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		user, err = endusers.Ensure(t.Context(), tx, endusers.Use{Tenant: e.workspace.In(accounts.Live), Name: "ada", At: e.s.Clock.Now()})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return map[string]changeTest{
		"settings of a workspace": {table: "workspaces", primaryColumn: "id", id: e.workspace.ID,
			theirs: "strict_projects = TRUE", theirsIs: "strict_projects", undo: "strict_projects = FALSE",
			oursIs: "rotation_grace_seconds = 172800", resetOurs: "rotation_grace_seconds = 86400",
			command: e.turnpike("workspaces", "update", "acme", "--rotation-grace", "48h"),
			apply:   e.apply(t, "rotation_grace_seconds: 172800"),
			form:    e.form(t, "settings", url.Values{"rotation_grace": {"48"}})},
		"security of a workspace": {table: "workspaces", primaryColumn: "id", id: e.workspace.ID,
			theirs: "test_tools = 'real'", theirsIs: "test_tools = 'real'", undo: "test_tools = NULL",
			oursIs: "leak_policy = 'revoke'", resetOurs: "leak_policy = 'off'",
			command: e.turnpike("workspaces", "update", "acme", "--leak-policy", "revoke"),
			apply:   e.apply(t, "leak_policy: revoke")},
		"billing": {table: "workspaces", primaryColumn: "id", id: e.workspace.ID,
			theirs: "monthly_credits = 7000000", theirsIs: "monthly_credits = 7000000", undo: "monthly_credits = NULL",
			oursIs: "alert_thresholds = '[30]'", resetOurs: "alert_thresholds = NULL",
			api:     e.api("PATCH", "/v1/billing", map[string]any{"alert_thresholds": []int{30}}),
			command: e.turnpike("workspaces", "update", "acme", "--alert-thresholds", "30"),
			apply:   e.apply(t, "alert_thresholds: [30]"),
			form:    e.form(t, "billing", url.Values{"alert_thresholds": {"30"}})},
		"settings of users": {table: "workspaces", primaryColumn: "id", id: e.workspace.ID,
			theirs: "user_requests_per_minute = 7", theirsIs: "user_requests_per_minute = 7", undo: "user_requests_per_minute = NULL",
			oursIs: "user_field", resetOurs: "user_field = FALSE",
			api:     e.api("PATCH", "/v1/users/settings", map[string]any{"from_requests": true}),
			command: e.turnpike("workspaces", "update", "acme", "--users-from-requests"),
			form:    e.form(t, "users", url.Values{"from_requests": {"yes"}})},
		"key": {table: "keys", primaryColumn: "id", id: key,
			theirs: "alert_email = 'ada@example.com'", theirsIs: "alert_email = 'ada@example.com'", undo: "alert_email = NULL",
			oursIs: "rate_limit = 9", resetOurs: "rate_limit = NULL",
			api:     e.api("PATCH", "/v1/keys/"+key, map[string]any{"rate_limit": 9}),
			command: e.turnpike("keys", "update", key, "--rate-limit", "9"),
			apply:   e.apply(t, "keys: [{id: "+key+", rate_limit: 9}]"),
			form:    e.form(t, "keys/"+key+"/edit", url.Values{"name": {"worker"}, "preset": {"choose"}, "scopes": {"models:read"}, "rate_limit": {"9"}})},
		"project": {table: "projects", primaryColumn: "id", id: project,
			theirs: "monthly_budget = 7000000", theirsIs: "monthly_budget = 7000000", undo: "monthly_budget = NULL",
			oursIs: "content_log_days = 3", resetOurs: "content_log_days = NULL",
			api:   e.api("PATCH", "/v1/projects/"+project, map[string]any{"content_log_days": 3}),
			apply: e.apply(t, "projects: [{id: "+project+", content_log_days: 3}]"),
			form:  e.form(t, "projects/"+project, url.Values{"name": {"shop"}, "content_log_days": {"3"}})},
		"end user": {table: "end_users", primaryColumn: "id", id: user.ID,
			theirs: "override_window = 'day'", theirsIs: "override_window = 'day'", undo: "override_window = NULL",
			oursIs: "override_requests_per_minute = 9", resetOurs: "override_requests_per_minute = NULL",
			api:  e.api("PATCH", "/v1/users/"+user.ID, map[string]any{"requests_per_minute": 9}),
			form: e.form(t, "users/"+user.ID, url.Values{"requests_per_minute": {"9"}})},
		"endpoint": {table: "endpoints", primaryColumn: "id", id: endpoint,
			theirs: "description = 'theirs'", theirsIs: "description = 'theirs'", undo: "description = ''",
			oursIs: "requests_per_second = 9", resetOurs: "requests_per_second = NULL",
			api:   e.api("PATCH", "/v1/webhooks/"+endpoint, map[string]any{"requests_per_second": 9}),
			apply: e.apply(t, "webhooks: [{id: "+endpoint+", requests_per_second: 9}]"),
			form:  e.form(t, "webhooks/"+endpoint+"/edit", url.Values{"url": {"https://example.com/hook"}, "events": {"*"}, "requests_per_second": {"9"}})},
		"endpoint of OpenAI's API": {table: "endpoints", primaryColumn: "id", id: endpoint,
			theirs: "requests_per_second = 7", theirsIs: "requests_per_second = 7", undo: "requests_per_second = NULL",
			oursIs: "description = 'ours'", resetOurs: "description = ''",
			api: e.api("POST", "/v1/webhook_endpoints/"+endpoint, map[string]any{"name": "ours"})},
		"tool server": {table: "tool_servers", primaryColumn: "id", id: server,
			theirs: "description = 'theirs'", theirsIs: "description = 'theirs'", undo: "description = ''",
			oursIs: "timeout_seconds = 9", resetOurs: "timeout_seconds = 30",
			api:  e.api("PATCH", "/v1/tool_servers/"+server, map[string]any{"timeout_seconds": 9}),
			form: e.form(t, "tools/"+server+"/edit", url.Values{"label": {"docs"}, "url": {"https://example.com/mcp"}, "timeout_seconds": {"9"}, "approval_timeout_seconds": {"600"}})},
		"federation rule": {table: "federation_rules", primaryColumn: "id", id: rule,
			theirs: "audience = 'theirs'", theirsIs: "audience = 'theirs'", undo: "audience = 'turnpike'",
			oursIs: "expires_in = 60", resetOurs: "expires_in = 900",
			api:   e.api("PATCH", "/v1/federation_rules/"+rule, map[string]any{"expires_in": 60}),
			apply: e.apply(t, "federation_rules: [{id: "+rule+", expires_in: 60}]"),
			form: e.form(t, "federation/"+rule+"/edit", url.Values{"name": {"ci"}, "issuer": {"https://issuer.example"}, "audience": {"turnpike"}, "subject": {"repo:acme/app"},
				"key_id": {key}, "scopes": {"models:read"}, "expires_in": {"60"}})},
		"route": {table: "workspace_routes", primaryColumn: "id", id: route,
			theirs: "timeout_ms = 7000", theirsIs: "timeout_ms = 7000", undo: "timeout_ms = 0",
			oursIs: "strategy = 'price'", resetOurs: "strategy = 'order'",
			api:   test.api("PATCH", "/v1/routes/"+route, map[string]any{"strategy": "price"}),
			apply: e.apply(t, "routes: [{id: "+route+", environment: test, name: fast, strategy: price}]"),
			form:  test.form(t, "routes/"+route, url.Values{"name": {"fast"}, "models": {"gpt-4o"}, "strategy": {"price"}})},
		"notifications": {table: "notification_settings", primaryColumn: "workspace_id", id: e.workspace.ID,
			theirs: "omit_arguments = TRUE", theirsIs: "omit_arguments", undo: "omit_arguments = FALSE",
			oursIs: "format = 'json'", resetOurs: "format = 'slack'",
			api:  e.api("PATCH", "/v1/notifications", map[string]any{"webhook": map[string]any{"format": "json"}}),
			form: e.form(t, "settings/notifications", url.Values{"webhook.format": {"json"}})},
	}
}
