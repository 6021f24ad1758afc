// Package harness starts the whole program inside a test, with a clock that
// the test turns, and calls it over HTTP like anybody else.
package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/nodes"
	"turnpike/test/fakes/contract"
)

// MasterKey is the test servers' master key.
const MasterKey = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

// Clock is a time of day that stands still until it is turned.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock begins now.
func NewClock() *Clock { return &Clock{now: time.Now()} }

// Now is the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Turn moves the clock forward.
func (c *Clock) Turn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Run lets the clock go on by itself until the test ends, for what is told by
// several steps of a job and not by one.
func (c *Clock) Run(t testing.TB) {
	t.Helper()
	const step = 10 * time.Millisecond
	var going sync.WaitGroup
	going.Go(func() {
		tick := time.NewTicker(step)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case now := <-tick.C:
				c.Turn(now.Sub(last))
				last = now
			case <-t.Context().Done():
				return
			}
		}
	})
	t.Cleanup(going.Wait)
}

// Server is a running server and a second door to its database.
type Server struct {
	App   *app.App
	URL   string
	Clock *Clock
	DB    *db.DB
	Ring  *keyring.Ring
	Data  string // the data folder

	shared bool

	validator *contract.Validator
}

// Each runs fn against a fresh server on each engine.
func Each(t *testing.T, fn func(t *testing.T, s *Server)) {
	t.Helper()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fn(t, Start(t, Config(t, engine), NewClock()))
		})
	}
}

// OnSQLite is Each for a test of texts and forms, whose queries others run on
// both engines: the second run would tell nothing new.
func OnSQLite(t *testing.T, fn func(t *testing.T, s *Server)) {
	t.Helper()
	fn(t, Start(t, Config(t, "sqlite"), NewClock()))
}

// Config is a server's configuration on an empty database of the engine.
func Config(t testing.TB, engine string) config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Listen = "127.0.0.1:0"
	cfg.PublicURL = ""
	cfg.MasterKey = MasterKey
	cfg.Limits.RefusedKeys = 0
	cfg.ShutdownTimeout = 10 * time.Second
	cfg.Media.Espeak = false // whether it is installed must not matter
	address := dbtest.Address(t, engine)
	if engine == "sqlite" {
		cfg.Data = filepath.Dir(address)
	} else {
		cfg.Data = t.TempDir()
		cfg.DatabaseURL = config.SecretURL(address)
	}
	return cfg
}

// Start runs a server until the test ends.
func Start(t testing.TB, cfg config.Config, clock *Clock) *Server {
	t.Helper()
	a, err := app.Start(context.Background(), cfg, "test", clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	a.Serve()
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	// The first pass is over before a test turns the clock: what has ended by
	// then is otherwise there in one run and gone in another.
	for end := time.Now().Add(time.Minute); a.RetentionPasses() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was looked through for what is to go")
		}
	}
	d, err := app.OpenDatabase(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	ring, err := app.OpenRing(context.Background(), cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	return &Server{App: a, URL: a.URL(), Clock: clock, DB: d, Ring: ring, Data: cfg.Data, validator: contract.New(t)}
}

// Workspace makes a tenant.
func (s *Server) Workspace(t testing.TB, name string) *accounts.Workspace {
	t.Helper()
	if s.shared {
		name += " " + ids.New("") // names are unique on a server
	}
	w := &accounts.Workspace{Name: name, RotationGrace: accounts.DefaultRotationGrace}
	s.write(t, func(tx *db.Tx) error { return accounts.CreateWorkspace(t.Context(), tx, w, s.Clock.Now()) })
	return w
}

// RequireSecondFactor sets whether the members of a workspace must prove a
// second factor.
func (s *Server) RequireSecondFactor(t testing.TB, w *accounts.Workspace, required bool) {
	t.Helper()
	s.write(t, func(tx *db.Tx) error { return accounts.SetRequireSecondFactor(t.Context(), tx, w.ID, required) })
}

// Key makes a key in the workspace with the scopes, or with all of them.
func (s *Server) Key(t testing.TB, w *accounts.Workspace, env accounts.Environment, scopes ...string) (value, id string) {
	t.Helper()
	if len(scopes) == 0 {
		scopes = []string{"*"}
	}
	return s.KeyOf(t, &access.Key{WorkspaceID: w.ID, Environment: env, Name: "test", Scopes: scopes})
}

// KeyOf makes a key as described.
func (s *Server) KeyOf(t testing.TB, k *access.Key) (value, id string) {
	t.Helper()
	s.write(t, func(tx *db.Tx) (err error) {
		value, err = access.NewKeys(s.Ring, s.Clock.Now).Create(t.Context(), tx, access.Caller{Actor: audit.Operator}, k)
		return err
	})
	return value, k.ID
}

func (s *Server) write(t testing.TB, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := s.DB.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// Request is a call to make.
type Request struct {
	Method string
	Path   string
	Key    string
	Body   any // a string is sent as it is, anything else as JSON
	Header http.Header
}

// Response is what came back.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do makes the call and checks the answer against the reference.
func (s *Server) Do(t testing.TB, r Request) *Response {
	t.Helper()
	req := s.request(t, r)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	s.validator.Check(t, req, res, body)
	return &Response{res.StatusCode, res.Header, body}
}

// Open makes the call and leaves the answer to be read as it comes; it is
// checked against the reference all the same.
func (s *Server) Open(t testing.TB, r Request) *http.Response {
	t.Helper()
	res, err := s.validator.Transport(t, nil).RoundTrip(s.request(t, r))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func (s *Server) request(t testing.TB, r Request) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.Method, s.URL+r.Path, bodyOf(t, r.Body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range r.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if r.Key != "" {
		req.Header.Set("Authorization", "Bearer "+r.Key)
	}
	if r.Body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

func bodyOf(t testing.TB, body any) io.Reader {
	t.Helper()
	switch b := body.(type) {
	case nil:
		return nil
	case string:
		return strings.NewReader(b)
	}
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b)
}

// Want fails the test unless the status and, for an error, its code are these.
func (r *Response) Want(t testing.TB, status int, code string) *Response {
	t.Helper()
	if r.Status != status || r.Code() != code {
		t.Fatalf("got %d %q, expected %d %q\n%s", r.Status, r.Code(), status, code, r.Body)
	}
	return r
}

// Code is that of a refusal, or empty: an object may have an error, too.
func (r *Response) Code() string {
	if r.Status < http.StatusBadRequest {
		return ""
	}
	return r.Text("error.code")
}

// Text is the text at a path such as error.code or data.0.id.
func (r *Response) Text(path string) string {
	s, _ := r.At(path).(string)
	return s
}

// At is the value at a path in the JSON body, or nil.
func (r *Response) At(path string) any {
	var v any
	if json.Unmarshal(r.Body, &v) != nil {
		return nil
	}
	for name := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[name]
		case []any:
			var i int
			if json.Unmarshal([]byte(name), &i) != nil || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}

// RevokeAsOperator revokes a key through the database, as a command would.
func (s *Server) RevokeAsOperator(t testing.TB, id string) {
	t.Helper()
	keys := access.NewKeys(s.Ring, s.Clock.Now)
	s.write(t, func(tx *db.Tx) error {
		k, err := keys.FindLocked(t.Context(), tx, id)
		if err != nil {
			return err
		}
		return keys.Revoke(t.Context(), tx, access.Caller{Actor: audit.Operator}, k)
	})
}

// MakeStrict makes the workspace refuse unknown projects, and returns when
// the server knows.
func (s *Server) MakeStrict(t testing.TB, w *accounts.Workspace) {
	t.Helper()
	w.StrictProjects = true
	s.write(t, func(tx *db.Tx) error { return accounts.UpdateWorkspace(t.Context(), tx, w) })
}

// FillProjects makes n projects.
func (s *Server) FillProjects(t testing.TB, w *accounts.Workspace, env accounts.Environment, n int) {
	t.Helper()
	bulk := db.NewBulk("projects", "", "workspace_id text", "environment text", "id text", "name text", "created_at bigint")
	rows := make([][]any, n)
	for i := range rows {
		id := fmt.Sprintf("p%d", i)
		rows[i] = []any{w.ID, string(env), id, id, s.Clock.Now().UnixMicro()}
	}
	s.write(t, func(tx *db.Tx) error {
		_, err := bulk.Write(t.Context(), tx, rows)
		return err
	})
}

// FillRequests puts n entries of the model "common" into the log, and makes
// the oldest one's model "rare".
func (s *Server) FillRequests(t testing.TB, w *accounts.Workspace, keyID string, n int) {
	t.Helper()
	bulk := db.NewBulk("requests", "", "id text", "workspace_id text", "environment text", "key_id text", "key_hint text", "ip text",
		"method text", "path text", "user_agent text", "node_id text", "created_at bigint", "settled boolean", "status bigint", "model text",
		"reserved bigint", "credits bigint", "simulated_credits bigint")
	rows := make([][]any, n)
	for i := range rows {
		model := "common"
		if i == 0 {
			model = "rare"
		}
		rows[i] = []any{ids.New(ids.Request), w.ID, string(accounts.Test), keyID, "tp_test_…0000", "127.0.0.1", "POST", "/v1/chat/completions", "",
			"node_x", s.Clock.Now().UnixMicro(), true, int64(200), model, int64(0), int64(0), int64(0)}
	}
	s.write(t, func(tx *db.Tx) error {
		_, err := bulk.Write(t.Context(), tx, rows)
		return err
	})
}

// LeaveOpen puts an intent into the log as a node does that then dies.
func (s *Server) LeaveOpen(t testing.TB, w *accounts.Workspace, keyID string, reserved int64) (requestID string) {
	t.Helper()
	requestID = ids.New(ids.Request)
	s.write(t, func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO requests (id, workspace_id, environment, key_id, key_hint, ip, method, path, user_agent, node_id,
			created_at, settled, reserved, credits, simulated_credits)
			VALUES ($1, $2, 'test', $3, '', '127.0.0.1', 'POST', '/v1/chat/completions', '', 'node_dead', $4, FALSE, $5, 0, 0)`,
			requestID, w.ID, keyID, s.Clock.Now().UnixMicro(), reserved)
		return err
	})
	return requestID
}

// Recover runs what a node does at its start and now and then.
func (s *Server) Recover(t testing.TB) (int64, error) {
	t.Helper()
	node, err := nodes.Join(t.Context(), s.DB, s.Clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	g := db.NewGroup(s.DB)
	defer g.Stop()
	return audit.NewLog(g, node, nil).Recover(t.Context(), s.DB)
}

// DumpDatabase is every text of every table.
func (s *Server) DumpDatabase(t testing.TB) []byte {
	t.Helper()
	tables := "SELECT name FROM sqlite_master WHERE type = 'table'"
	if s.DB.Engine() == "postgres" {
		tables = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema()"
	}
	rows, err := s.DB.Query(t.Context(), tables)
	names, err := db.All(rows, err, func(r db.Row) (name string, err error) {
		err = r.Scan(&name)
		return name, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.DumpTables(t, names)
}

// DumpTables is every text of some tables, but for some columns.
func (s *Server) DumpTables(t testing.TB, names []string, without ...string) []byte {
	t.Helper()
	var dump bytes.Buffer
	for _, name := range names {
		columns := "SELECT name FROM pragma_table_info('" + name + "')"
		if s.DB.Engine() == "postgres" {
			columns = "SELECT column_name::text FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = '" + name + "'"
		}
		rows, err := s.DB.Query(t.Context(), columns)
		err = db.Each(rows, err, func(r db.Row) error {
			var column string
			if err := r.Scan(&column); err != nil || slices.Contains(without, column) {
				return err
			}
			values, err := s.DB.Query(t.Context(), "SELECT CAST("+column+" AS TEXT) FROM "+name)
			return db.Each(values, err, func(r db.Row) error {
				var v *string
				if err := r.Scan(&v); err != nil {
					return err
				}
				dump.WriteString(db.Text(v) + "\n")
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return dump.Bytes()
}

// Eventually waits for something that happens by itself, ten seconds at most.
func (s *Server) Eventually(t testing.TB, ok func() bool) {
	t.Helper()
	s.Within(t, 10*time.Second, ok)
}

// Within is Eventually with patience of the caller's own.
func (s *Server) Within(t testing.TB, patience time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("it has not happened in %s", patience)
		}
	}
}

// HoldTheWriter keeps SQLite's write lock, as another process can, until release.
func (s *Server) HoldTheWriter(t testing.TB) (release func()) {
	t.Helper()
	held, done, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.DB.Write(context.Background(), func(*db.Tx) error {
			close(held)
			<-done
			return nil
		})
	}()
	<-held
	return sync.OnceFunc(func() {
		close(done)
		<-ended
	})
}
