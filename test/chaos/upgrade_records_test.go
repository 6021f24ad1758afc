//go:build upgrade

package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// object is a JSON object of the API.
type object map[string]any

func (o object) text(name string) string {
	s, _ := o[name].(string)
	return s
}

// records are the records that the old version stored, and what a client remembers
// of them.
type records struct {
	*outside
	at         program.Place
	test, live string // keys with all permissions
	rotated    string // the old value of a key in its grace period
	revoked    string
	exhausted  string // a key whose budget is spent
	token      string
	pausedHook string
	failedHook string
	failed     string // a delivery
	waiting    string // a run that needs an approval
	acting     string // a run that needs an output
	idempotent string // the ID of an object with the Idempotency-Key "upgrade-1"
	file       string // the path of a file
	content    []byte
	schema     int                          // of the old version
	api        map[string]map[string]object // by list and ID
	rows       map[string][]string          // by table
	columns    map[string][]string          // by table
}

// brokenPath is the path of endpoints that fail while the receiver is broken.
const brokenPath = "/broken"

// outside is what the servers call.
type outside struct {
	receiver string // of webhooks
	broken   atomic.Bool
	provider string
	slow     atomic.Bool // of the receiver and the provider
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{}
	o.provider = upstream(t, func() int64 { return callTokens }, func() time.Duration {
		if o.slow.Load() {
			return time.Minute
		}
		return 0
	})
	ended := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if o.slow.Load() {
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		}
		if o.broken.Load() && r.URL.Path == brokenPath {
			http.Error(w, "the receiver is broken", http.StatusInternalServerError)
		}
	}))
	o.receiver = receiver.URL
	t.Cleanup(func() {
		close(ended)
		receiver.Close()
	})
	return o
}

// send sends a request and returns the decoded response.
func send(t *testing.T, url string, r request) (*outcome, object) {
	t.Helper()
	r.mark = "upgrade"
	o := call(url, r)
	var v object
	if o.status == 0 || !o.whole {
		t.Fatalf("got no response: %v", o)
	}
	_ = json.Unmarshal(o.body, &v) // files aren't JSON
	return o, v
}

// must is send for requests that succeed.
func must(t *testing.T, url string, r request) object {
	t.Helper()
	o, v := send(t, url, r)
	if o.status != http.StatusOK {
		t.Fatalf("%v\n%s", o, o.body)
	}
	return v
}

// command runs a command of a version.
func command(t *testing.T, b program.Binary, at program.Place, args ...string) object {
	t.Helper()
	out, errOut, err := b.Run(at, append(args, "--json")...)
	list := make([]object, 1)
	if err == nil {
		if err = json.Unmarshal([]byte(out), &list[0]); err != nil { // some commands print an array
			err = json.Unmarshal([]byte(out), &list)
		}
	}
	if err != nil || len(list) != 1 {
		t.Fatalf("turnpike %s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	return list[0]
}

// fillRecords starts a server of the old version, and stores records of every kind.
func fillRecords(t *testing.T, old program.Binary, at program.Place) *records {
	t.Helper()
	f := &records{at: at, outside: newOutside(t)}

	writeProviderConfig(t, at, f.provider)
	// With one quick retry, a delivery fails for good.
	server := f.serve(t, old, "--webhooks-retry-schedule=100ms")
	f.test = command(t, old, at, "keys", "create", "--env", "test").text("value")
	f.live = command(t, old, at, "keys", "create", "--env", "live").text("value")
	f.broken.Store(true)
	f.failedHook = must(t, server.URL, request{method: "POST", path: "/v1/webhooks", key: f.test, body: fmt.Sprintf(`{"url":%q,"events":["key.auto_revoked"]}`, f.receiver+brokenPath)}).text("id")
	f.failed = must(t, server.URL, request{method: "POST", path: "/v1/webhooks/" + f.failedHook + "/test", key: f.test, body: `{}`}).text("id")
	f.wait(t, server.URL, "/v1/deliveries/"+f.failed, "failed")
	stop(t, server)

	server = f.serve(t, old)
	f.fillPeople(t, old)
	f.fillKeys(t, server.URL)
	f.fillWebhooks(t, server.URL)
	f.fillCalls(t, server.URL)
	f.fillJobs(t, server.URL)
	f.fillRuns(t, server.URL)
	stop(t, server)
	f.withDatabase(t, func(d *db.DB) {
		var err error
		if f.schema, _, err = d.SchemaVersion(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.fillEmptyTables(t, d)
	})
	return f
}

// withDatabase opens the database for a moment, so that its files can be copied
// afterward.
func (f *records) withDatabase(t *testing.T, use func(d *db.DB)) {
	t.Helper()
	address := f.at.DatabaseURL
	if address == "" {
		address = filepath.Join(f.at.Dir, "turnpike.db")
	}
	d, err := db.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	use(d)
}

// serve starts a server of a version on the records.
func (f *records) serve(t *testing.T, b program.Binary, args ...string) *program.Server {
	t.Helper()
	s, err := b.Serve(f.at, slices.Concat(unlimited, []string{"--config=" + filepath.Join(f.at.Dir, "metered.yaml"), "--webhooks-allow-http", "--webhooks-allow-cidrs=127.0.0.0/8"}, args)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("end of the server log:\n%s", s.Log())
		}
	})
	return s
}

// wait polls until an object has the status.
func (f *records) wait(t *testing.T, url, path, status string) (v object) {
	t.Helper()
	eventually(t, time.Minute, path+" is "+status, func() bool {
		v = must(t, url, request{method: "GET", path: path, key: f.test})
		return v.text("status") == status
	})
	return v
}

func (f *records) fillPeople(t *testing.T, old program.Binary) {
	t.Helper()
	command(t, old, f.at, "workspaces", "create", "Second")
	command(t, old, f.at, "users", "create", "--email", "ada@example.com", "--role", "owner", "--workspace", "Second")
	command(t, old, f.at, "users", "create", "--email", "ben@example.com", "--role", "viewer", "--workspace", "Second")
}

func (f *records) fillKeys(t *testing.T, url string) {
	t.Helper()
	create := func(parent, body string) object {
		t.Helper()
		return must(t, url, request{method: "POST", path: "/v1/keys", key: parent, body: body})
	}
	must(t, url, request{method: "PATCH", path: "/v1/billing", key: f.live, body: `{"monthly_credits":1000000}`})
	must(t, url, request{method: "POST", path: "/v1/projects", key: f.live, body: `{"id":"shop","name":"Shop","monthly_budget":100}`})
	must(t, url, request{method: "POST", path: "/v1/projects", key: f.test, body: `{"id":"old-shop","name":"Old"}`})
	must(t, url, request{method: "DELETE", path: "/v1/projects/old-shop", key: f.test})
	child := create(f.test, `{"name":"child","scopes":["*"],"monthly_budget":40,"allowed_ips":["127.0.0.0/8"]}`)
	create(child.text("value"), `{"name":"grandchild","scopes":["models:read"],"monthly_budget":40,"allowed_ips":["127.0.0.0/8"]}`)
	rotated := create(f.test, `{"name":"rotated","scopes":["models:read"]}`)
	f.rotated = rotated.text("value")
	must(t, url, request{method: "POST", path: "/v1/keys/" + rotated.text("id") + "/rotate", key: f.test, body: `{"grace_period_seconds":86400}`})
	revoked := create(f.test, `{"name":"revoked","scopes":["models:read"]}`)
	f.revoked = revoked.text("value")
	must(t, url, request{method: "DELETE", path: "/v1/keys/" + revoked.text("id"), key: f.test})
	f.exhausted = create(f.live, `{"name":"exhausted","scopes":["chat.completions:create"],"monthly_budget":2,"project":"shop"}`).text("value")
	leaked := create(f.test, `{"name":"leaked","scopes":["models:read"]}`).text("value")
	if o, _ := send(t, url, request{method: "POST", path: "/leaks/report", body: fmt.Sprintf(`{"keys":[%q]}`, leaked)}); o.status != http.StatusAccepted {
		t.Fatalf("failed to report a key: %v\n%s", o, o.body)
	}
	f.token = must(t, url, request{method: "POST", path: "/v1/scoped_tokens", key: f.test, body: `{"scopes":["models:read"],"expires_in":900,"metadata":{"user":"u-17"}}`}).text("value")
	f.idempotent = must(t, url, request{method: "POST", path: "/v1/keys", key: f.test, once: "upgrade-1", body: `{"name":"idempotent","scopes":["models:read"]}`}).text("id")
	send(t, url, request{method: "GET", path: "/v1/models", key: "tp_test_" + strings.Repeat("x", 40)})
}

// fillWebhooks creates endpoints with deliveries in every state.
func (f *records) fillWebhooks(t *testing.T, url string) {
	t.Helper()
	hook := func(path, events string) string {
		t.Helper()
		return must(t, url, request{method: "POST", path: "/v1/webhooks", key: f.test, body: fmt.Sprintf(`{"url":%q,"events":[%q]}`, f.receiver+path, events)}).text("id")
	}
	try := func(id, status string) {
		t.Helper()
		delivery := must(t, url, request{method: "POST", path: "/v1/webhooks/" + id + "/test", key: f.test, body: `{}`}).text("id")
		f.wait(t, url, "/v1/deliveries/"+delivery, status)
	}
	try(hook("/", "billing.credits.low"), "succeeded")
	retrying := hook(brokenPath, "key.auto_revoked")
	try(retrying, "retrying")
	must(t, url, request{method: "POST", path: "/v1/webhooks/" + retrying + "/replay", key: f.test, body: fmt.Sprintf(`{"since":%d,"status":"all"}`, time.Now().Add(-time.Hour).Unix())})
	deleted := hook(brokenPath, "key.auto_revoked")
	try(deleted, "retrying")
	must(t, url, request{method: "DELETE", path: "/v1/webhooks/" + deleted, key: f.test})
	f.pausedHook = hook("/", "*")
	must(t, url, request{method: "POST", path: "/v1/webhooks/" + f.pausedHook + "/pause", key: f.test, body: `{}`})
}

func (f *records) fillCalls(t *testing.T, url string) {
	t.Helper()
	for _, stream := range []bool{false, true} {
		r := chat("upgrade", f.test, "Hello. [[sim:length=20]]", stream)
		if o := call(url, r); o.status != http.StatusOK || !o.whole {
			t.Fatalf("%v\n%s", o, o.body)
		}
	}
	send(t, url, chat("", f.test, "[[sim:error=503]]", false))
	must(t, url, request{method: "POST", path: "/v1/embeddings", key: f.test, body: `{"model":"text-embedding-3-small","input":"Hello"}`})
	// The budget is enough for two calls.
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusPaymentRequired} {
		if o := call(url, (&account{key: f.exhausted}).paidRequest("upgrade", i%2 == 0)); o.status != want {
			t.Fatalf("call %d: got %v, want status %d\n%s", i, o, want, o.body)
		}
	}
	must(t, url, (&account{key: f.live}).paidRequest("", false))
}

func (f *records) fillJobs(t *testing.T, url string) {
	t.Helper()
	create := func(path, body string) string {
		t.Helper()
		return path + "/" + must(t, url, request{method: "POST", path: path, key: f.test, body: body}).text("id")
	}
	video := create("/v1/videos", `{"prompt":"Waves","size":"64x64","seconds":1}`)
	failed := create("/v1/videos", `{"prompt":"Waves [[sim:error=400]]","size":"64x64","seconds":1}`)
	voice := create("/v1/voice/renders", `{"voice":"alloy","input":"Good morning."}`)
	batch := create("/v1/images/batches", `{"requests":[{"custom_id":"a","body":{"prompt":"A bicycle","size":"64x64"}}]}`)
	for path, status := range map[string]string{video: "completed", failed: "failed", voice: "completed", batch: "completed"} {
		f.wait(t, url, path, status)
	}
	f.file = video + "/content"
	o, _ := send(t, url, request{method: "GET", path: f.file, key: f.test})
	if o.status != http.StatusOK || len(o.body) == 0 {
		t.Fatalf("failed to download a file: %v", o)
	}
	f.content = o.body
}

func (f *records) fillRuns(t *testing.T, url string) {
	t.Helper()
	create := func(input string) string {
		t.Helper()
		body, err := json.Marshal(object{"model": "gpt-4o", "input": input, "tools": []object{
			{"type": "function", "name": "find_order"},
			{"type": "http", "name": "refund_order", "url": "https://shop.example.com/refunds", "require_approval": "always"}}})
		if err != nil {
			t.Fatal(err)
		}
		return "/v1/agents/runs/" + must(t, url, request{method: "POST", path: "/v1/agents/runs", key: f.test, body: string(body)}).text("id")
	}
	f.waiting = create(`Refund it. [[sim:script=tool:refund_order{"order":"A-1"};answer]]`)
	f.acting = create("Find it. [[sim:tool=find_order]]")
	canceled := create("Find it. [[sim:tool=find_order]]")
	for path, status := range map[string]string{f.waiting: "awaiting_approval", f.acting: "requires_action", canceled: "requires_action",
		create("Hello."): "completed", create("[[sim:script=error:503]]"): "failed"} {
		f.wait(t, url, path, status)
	}
	must(t, url, request{method: "POST", path: canceled + "/cancel", key: f.test})
}

// transientTables are empty when a server has stopped.
var transientTables = []string{"nodes", "new_events", "spend_leases", "spend_journal", "limit_rates", "limit_places", "limit_nodes"}

// fillEmptyTables inserts a row into each table without rows, whose records the API
// can't create: sessions, passkeys and the like.
func (f *records) fillEmptyTables(t *testing.T, d *db.DB) {
	t.Helper()
	var filled []string
	for table, columns := range tableColumns(t, d) {
		if slices.Contains(transientTables, table) || table == "schema_migrations" {
			continue
		}
		if n, err := db.Count(t.Context(), d, table); err != nil || n > 0 {
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		var names, values []string
		for name, kind := range columns {
			value := "'upgrade'"
			switch {
			case name == "user_id" || name == "workspace_id":
				value = "(SELECT min(id) FROM " + strings.TrimSuffix(name, "_id") + "s)"
			case kind == "boolean":
				value = "FALSE"
			case kind == "bigint":
				value = fmt.Sprint(time.Now().Add(time.Hour).UnixMicro())
			}
			names, values = append(names, name), append(values, value)
		}
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO "+table+" ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(values, ", ")+")")
			return err
		})
		if err != nil {
			t.Fatalf("fill %s: %v", table, err)
		}
		filled = append(filled, table)
	}
	slices.Sort(filled)
	t.Logf("tables that were filled without the API: %s", strings.Join(filled, ", "))
}

// tableColumns returns the types of the columns of each table.
func tableColumns(t *testing.T, d *db.DB) map[string]map[string]string {
	t.Helper()
	query := `SELECT m.name, p.name, lower(p.type) FROM sqlite_master m JOIN pragma_table_info(m.name) p WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!'`
	if d.Engine() == "postgres" {
		query = `SELECT c.table_name::text, c.column_name::text, c.data_type::text FROM information_schema.columns c JOIN pg_class p ON p.relname = c.table_name
			WHERE c.table_schema = current_schema() AND NOT p.relispartition AND p.relkind IN ('r', 'p')`
	}
	tables := map[string]map[string]string{}
	rows, err := d.Query(t.Context(), query)
	err = db.Each(rows, err, func(r db.Row) error {
		var table, column, kind string
		if err := r.Scan(&table, &column, &kind); err != nil {
			return err
		}
		if tables[table] == nil {
			tables[table] = map[string]string{}
		}
		tables[table][column] = kind
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// lists are the lists of the API, with the field that identifies an item.
var lists = map[string]string{"/v1/keys": "id", "/v1/projects": "id", "/v1/webhooks": "id", "/v1/deliveries": "id", "/v1/events": "id",
	"/v1/images/batches": "id", "/v1/videos": "id", "/v1/voice/renders": "id", "/v1/agents/runs": "id", "/v1/audit": "id", "/v1/audit/actions": "id"}

// readAPI reads every record with the API.
func (f *records) readAPI(t *testing.T, url string) map[string]map[string]object {
	t.Helper()
	all := map[string]map[string]object{}
	for path, id := range lists {
		for _, key := range []string{f.test, f.live} {
			items := map[string]object{}
			for after := ""; ; {
				page := must(t, url, request{method: "GET", path: path + "?limit=100" + after, key: key})
				data, _ := page["data"].([]any)
				for _, item := range data {
					o := object(item.(map[string]any))
					items[o.text(id)] = o
				}
				if more, _ := page["has_more"].(bool); !more {
					break
				}
				after = "&after=" + page.text("last_id")
			}
			all[path+" "+key[:8]] = items
		}
	}
	for _, run := range slices.Collect(maps.Keys(all["/v1/agents/runs "+f.test[:8]])) {
		path := "/v1/agents/runs/" + run
		all[path] = map[string]object{"run": must(t, url, request{method: "GET", path: path, key: f.test}),
			"steps": must(t, url, request{method: "GET", path: path + "/steps", key: f.test})}
	}
	return all
}

// changing are fields that may change without an action of a client: uses of keys,
// attempts of deliveries, and signed URLs.
var changing = []string{"last_used_at", "last_used_ip", "stats", "url", "urls", "url_expires_at", "expires_at", "attempts", "attempt_count", "next_attempt_at",
	"used", "reserved", "spent_this_month"}

// difference returns where a record lacks what the old version returned, or "". New
// fields are allowed.
func difference(path string, old, now any) string {
	switch o := old.(type) {
	case object:
		return difference(path, map[string]any(o), now)
	case map[string]any:
		n, ok := now.(map[string]any)
		if v, is := now.(object); is {
			n, ok = v, true
		}
		if !ok {
			return fmt.Sprintf("%s: got %v, want an object", path, now)
		}
		for name, value := range o {
			if slices.Contains(changing, name) {
				continue
			}
			if d := difference(path+"."+name, value, n[name]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		n, ok := now.([]any)
		if !ok || len(n) != len(o) {
			return fmt.Sprintf("%s: got %v, want %v", path, now, old)
		}
		for i := range o {
			if d := difference(fmt.Sprintf("%s[%d]", path, i), o[i], n[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if old != now {
		return fmt.Sprintf("%s: got %v, want %v", path, now, old)
	}
	return ""
}

// checkAPI compares the records with those that the old version returned.
func (f *records) checkAPI(t *testing.T, url string) (n int) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	now := f.readAPI(t, url)
	for list, items := range f.api {
		for id, old := range items {
			n++
			if found, ok := now[list][id]; !ok {
				wrong.add("%s: %s is missing", list, id)
			} else if d := difference(id, old, found); d != "" {
				wrong.add("%s: %s", list, d)
			}
		}
	}
	return n
}

// readRows reads every row of every table as text, with the given columns or all.
func readRows(t *testing.T, d *db.DB, only map[string][]string) (rows, columns map[string][]string) {
	t.Helper()
	rows, columns = map[string][]string{}, map[string][]string{}
	for table, types := range tableColumns(t, d) {
		names := slices.Sorted(maps.Keys(types))
		if only != nil {
			names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(only[table], name) })
		}
		if len(names) == 0 || slices.Contains(transientTables, table) || table == "schema_migrations" {
			continue
		}
		columns[table] = names
		list := make([]string, len(names))
		for i, name := range names {
			list[i] = "coalesce(CAST(" + name + " AS TEXT), 'NULL')"
		}
		found, err := db.List(t.Context(), d, db.Value[string], "SELECT "+strings.Join(list, " || '|' || ")+" FROM "+table)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(found)
		rows[table] = found
	}
	return rows, columns
}

// checkRows checks that a migration has kept every row of the old version.
func (f *records) checkRows(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	now, columns := readRows(t, d, f.columns)
	for table, rows := range f.rows {
		if !slices.Equal(columns[table], f.columns[table]) {
			t.Logf("%s has lost columns: it has %v of %v", table, columns[table], f.columns[table])
			continue
		}
		for _, row := range rows {
			n++
			if _, found := slices.BinarySearch(now[table], row); !found {
				wrong.add("%s has lost or changed a row: %.300s", table, row)
			}
		}
	}
	return n
}

// use continues with the old version's records: it finishes what was waiting, and
// checks that keys and budgets are as before.
func (f *records) use(t *testing.T, url string) {
	t.Helper()
	f.broken.Store(false)
	for _, c := range []struct {
		what, key string
		want      int
	}{{"a rotated key in its grace period", f.rotated, http.StatusOK}, {"a revoked key", f.revoked, http.StatusUnauthorized}, {"a scoped token", f.token, http.StatusOK}} {
		if o, _ := send(t, url, request{method: "GET", path: "/v1/models", key: c.key}); o.status != c.want {
			t.Errorf("%s: got status %d, want %d", c.what, o.status, c.want)
		}
	}
	if o := call(url, (&account{key: f.exhausted}).paidRequest("upgrade", false)); o.status != http.StatusPaymentRequired {
		t.Errorf("a key whose budget is spent: got %v, want status 402", o)
	}
	again := must(t, url, request{method: "POST", path: "/v1/keys", key: f.test, once: "upgrade-1", body: `{"name":"idempotent","scopes":["models:read"]}`})
	if again.text("id") != f.idempotent {
		t.Errorf("a repeated request: got %s, want %s", again.text("id"), f.idempotent)
	}
	if o, _ := send(t, url, request{method: "GET", path: f.file, key: f.test}); o.status != http.StatusOK || string(o.body) != string(f.content) {
		t.Errorf("the file has changed: got %v", o)
	}
	run := must(t, url, request{method: "GET", path: f.waiting, key: f.test})
	action := object(run["required_actions"].([]any)[0].(map[string]any))
	must(t, url, request{method: "POST", path: f.waiting + "/approvals/" + action.text("id"), key: f.test,
		body: fmt.Sprintf(`{"decision":"approve","arguments_hash":%q}`, action.text("arguments_hash"))})
	f.wait(t, url, f.waiting, "completed")
	run = must(t, url, request{method: "GET", path: f.acting, key: f.test})
	action = object(run["required_actions"].([]any)[0].(map[string]any))
	must(t, url, request{method: "POST", path: f.acting + "/tool_outputs", key: f.test, body: fmt.Sprintf(`{"tool_outputs":[{"call_id":%q,"output":"found"}]}`, action.text("call_id"))})
	f.wait(t, url, f.acting, "completed")

	for _, hook := range []string{f.pausedHook, f.failedHook} {
		must(t, url, request{method: "POST", path: "/v1/webhooks/" + hook + "/resume", key: f.test, body: `{}`})
	}
	must(t, url, request{method: "POST", path: "/v1/deliveries/" + f.failed + "/replay", key: f.test, body: `{}`})
	f.wait(t, url, "/v1/deliveries/"+f.failed, "succeeded")
	eventually(t, time.Minute, "the held deliveries arrive", func() bool {
		page := must(t, url, request{method: "GET", path: "/v1/deliveries?limit=100&endpoint=" + f.pausedHook, key: f.test})
		data, _ := page["data"].([]any)
		return len(data) > 0 && !slices.ContainsFunc(data, func(v any) bool { return v.(map[string]any)["status"] != "succeeded" })
	})
}

// interrupt starts a server of the old version, and kills it during a request, a
// delivery and a job. It returns the paths of the last two.
func (f *records) interrupt(t *testing.T, old program.Binary) (delivery, job string) {
	t.Helper()
	server, d := f.serve(t, old), open(t, f.at)
	f.slow.Store(true)
	defer f.slow.Store(false)
	hook := must(t, server.URL, request{method: "POST", path: "/v1/webhooks", key: f.test, body: fmt.Sprintf(`{"url":%q,"events":["key.auto_revoked"]}`, f.receiver)}).text("id")
	delivery = "/v1/deliveries/" + must(t, server.URL, request{method: "POST", path: "/v1/webhooks/" + hook + "/test", key: f.test, body: `{}`}).text("id")
	var calls sync.WaitGroup
	calls.Go(func() { call(server.URL, (&account{key: f.live}).paidRequest("interrupted", true)) })
	eventually(t, time.Minute, "the request is in progress", func() bool { return count(t, d, "SELECT count(*) FROM requests WHERE NOT settled") == 1 })
	job = "/v1/images/batches/" + must(t, server.URL, request{method: "POST", path: "/v1/images/batches", key: f.test,
		body: `{"requests":[{"custom_id":"a","body":{"prompt":"A bicycle","size":"64x64"}}]}`}).text("id")
	server.Kill()
	calls.Wait()
	return delivery, job
}
