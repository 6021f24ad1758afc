package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"sync"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/limits"
	"turnpike/internal/nodes"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator"
	"turnpike/internal/spend"
)

const testKey = "key_test"

// fixture is a gateway with a real ledger, limiter and log. It has one slot in flight, so that
// a call that keeps its slot makes the next one fail.
type fixture struct {
	*Gateway
	t         testing.TB
	db        *db.DB
	log       *audit.Log
	leases    *spend.LeaseCache
	limits    *limits.Limiter
	workspace string
	budget    *credits.Micro // of the workspace
	keyBudget *credits.Micro
	keyRaise  *accounts.Raise
	keyLimits []accounts.Limit
	project   *accounts.Project // of every call; nil for none
	env       accounts.Environment
	observed  func() []Observation // since the last call
	pauses    *[]time.Duration     // before retries, which don't sleep in tests
}

var oneSlot = limits.Limits{InFlight: 1, TokensPerMinute: 1_000_000}

// newFixture creates a fixture with the providers: see withProviders.
func newFixture(t testing.TB, list []providers.Provider, suppliers ...catalog.Supplier) *fixture {
	t.Helper()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	group := db.NewGroup(d)
	t.Cleanup(group.Stop)
	node, err := nodes.Join(t.Context(), d, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	ledger := spend.NewLedger(d)
	month := 1000 * credits.Credit
	r := &fixture{db: d, budget: &month, env: accounts.Live, log: audit.NewLog(group, node, spend.NewSettler(ledger, events.NewPublisher(time.Now), time.Now).Settle),
		leases: ledger.LeaseCache(node), limits: limits.New(d, node.ID, time.Now)}
	w := &accounts.Workspace{Name: "test", RotationGrace: time.Hour}
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return accounts.CreateWorkspace(t.Context(), tx, w, time.Now()) }); err != nil {
		t.Fatal(err)
	}
	r.workspace = w.ID
	return r.withProviders(t, list, suppliers...)
}

// withProviders returns a fixture on the same database with other providers. Unless a supplier is
// given, each has the models "small" (1 dollar per million input tokens, 2 per million output
// tokens) and "large" (ten times that).
func (r *fixture) withProviders(t testing.TB, list []providers.Provider, suppliers ...catalog.Supplier) *fixture {
	t.Helper()
	terms := catalog.Terms{}
	var upstreams []Upstream
	names := ""
	for i, p := range list {
		s := catalog.Supplier{Models: []catalog.ListedModel{
			{ID: "small", Price: dollars(1, 2), MaxOutputTokens: 1000}, {ID: "large", Price: dollars(10, 20), MaxOutputTokens: 1000}}}
		if i < len(suppliers) {
			s = suppliers[i]
		}
		s.Name = p.Name()
		names += s.Name + " "
		terms.Suppliers = append(terms.Suppliers, s)
		upstreams = append(upstreams, Upstream{Provider: p, Weight: 1})
	}
	table, known := catalogs.Load(names)
	if !known || len(suppliers) > 0 {
		loaded, err := catalog.Load(terms)
		if err != nil {
			t.Fatal(err)
		}
		if table = loaded; len(suppliers) == 0 {
			catalogs.Store(names, table)
		}
	}
	other := *r
	other.t = t
	var mu sync.Mutex
	var seen []Observation
	other.observed = func() []Observation {
		mu.Lock()
		defer mu.Unlock()
		all := seen
		seen = nil
		return all
	}
	other.Gateway = New(Options{Simulator: simulator.New(simulator.Options{}), Leases: r.leases, Budgets: other.budgets, Limiter: r.limits, Now: time.Now,
		Observe: func(o Observation) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, o)
		}}, Settings{Catalog: table.(*catalog.Catalog), Upstreams: upstreams, Rates: Rates{Live: oneSlot, Test: oneSlot}, DefaultMaxOutput: 16_384})
	other.pauses = new([]time.Duration)
	other.sleep = func(_ context.Context, d time.Duration) { *other.pauses = append(*other.pauses, d) }
	return &other
}

// catalogs caches the catalogs of default suppliers by provider names: loading one takes longer
// than most tests.
var catalogs sync.Map

func dollars(in, out int64) *catalog.ListPrice {
	return &catalog.ListPrice{Input: big.NewRat(in, 1), Output: big.NewRat(out, 1)}
}

func (r *fixture) budgets(context.Context, accounts.Tenant, string) (*accounts.Workspace, *accounts.Project, error) {
	return &accounts.Workspace{ID: r.workspace, MonthlyCredits: r.budget}, r.project, nil
}

func (r *fixture) newCall() Call {
	id := ids.New(ids.Request)
	name := ""
	if r.project != nil {
		name = r.project.ID
	}
	return Call{Project: name, Principal: &access.Principal{Tenant: accounts.Tenant{WorkspaceID: r.workspace, Environment: r.env}, KeyID: testKey,
		MonthlyBudget: r.keyBudget, Raise: r.keyRaise, Limits: r.keyLimits},
		Record: r.log.Open(audit.Entry{RequestID: id, Tenant: accounts.Tenant{WorkspaceID: r.workspace, Environment: r.env}, KeyID: testKey, CreatedAt: time.Now(), Method: "POST", Path: "/v1/chat/completions"}),
		Header: http.Header{}}
}

// outcome is how a call ended for the client and in the log.
type outcome struct {
	*Response
	chunks []string
	code   string // of the error, before or in the stream
	err    error
	entry
}

type entry struct {
	Charged, Unbilled, Reserved credits.Micro
	Input, Output               int64
	Source, Attempts, ModelRan  string
}

// chat makes a call as the API does and checks that it leaves nothing behind.
func (r *fixture) chat(body string) outcome { return r.chatIn(r.t.Context(), body) }

func (r *fixture) chatIn(ctx context.Context, body string) (out outcome) {
	r.t.Helper()
	c := r.newCall()
	c.Body = []byte(body)
	out.Response, out.err = r.Chat(ctx, c)
	if out.err == nil && out.Stream != nil {
		out.chunks, out.err = readAll(out.Stream)
		_ = out.Stream.Close()
	}
	r.settle(c, &out)
	return out
}

func readAll(s *Stream) (chunks []string, err error) {
	for {
		data, err := s.Next()
		if err == io.EOF {
			return chunks, nil
		}
		if err != nil {
			return chunks, err
		}
		chunks = append(chunks, string(data))
	}
}

// settle settles a call and reads its log entry.
func (r *fixture) settle(c Call, out *outcome) {
	r.t.Helper()
	if f, ok := fault.As(out.err); ok {
		out.code = string(f.Code)
	} else if errors.Is(out.err, context.Canceled) {
		out.code = "canceled"
	} else if out.err != nil {
		out.code = out.err.Error()
	}
	var id string
	c.Record.Note(func(e *audit.Entry) { id = e.RequestID })
	c.Record.Settle(func(e *audit.Entry) { e.Status, e.ErrorCode = 200, out.code })
	if err := c.Record.Durable(5 * time.Second); err != nil {
		r.t.Fatal(err)
	}
	r.eventually("the entry to be settled", func() bool {
		e := &out.entry
		var input, output *int64
		var source, attempts, model *string
		err := r.db.QueryRow(context.Background(), `SELECT credits, unbilled_credits, reserved, input_tokens, output_tokens, usage_source, attempts, model FROM requests WHERE id = $1 AND settled`, id).
			Scan((*int64)(&e.Charged), (*int64)(&e.Unbilled), (*int64)(&e.Reserved), &input, &output, &source, &attempts, &model)
		if err != nil {
			return false
		}
		if input != nil {
			e.Input, e.Output = *input, *output
		}
		e.Source, e.Attempts, e.ModelRan = db.Text(source), db.Text(attempts), db.Text(model)
		return true
	})
	if out.Charged > out.Reserved {
		r.t.Errorf("charged %s, reserved only %s", out.Charged, out.Reserved)
	}
	r.checkNothingLeft()
}

// checkNothingLeft checks that nothing is reserved or in flight.
func (r *fixture) checkNothingLeft() {
	r.t.Helper()
	r.eventually("reservations to end", func() bool {
		if err := r.leases.ReleaseUnused(context.Background(), ""); err != nil {
			r.t.Fatal(err)
		}
		reserved, err := db.Value[int64](r.db.QueryRow(context.Background(), "SELECT count(*) FROM spend WHERE leased <> 0"))
		if err != nil {
			r.t.Fatal(err)
		}
		return reserved == 0 // a refill in the background may still hold a lease
	})
	ticket, err := r.Limiter.Begin(testKey, oneSlot, 0, time.Now())
	if err != nil {
		r.t.Fatalf("a call kept its slot: %v", err)
	}
	ticket.End()
}

func (r *fixture) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// fake is a provider with one function per call; the last one repeats.
type fake struct {
	name string
	do   []func(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error)

	mu       sync.Mutex
	requests []providers.ChatRequest
}

func (f *fake) Name() string { return f.name }

func (f *fake) Chat(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
	f.mu.Lock()
	n := min(len(f.requests), len(f.do)-1)
	f.requests = append(f.requests, *req)
	f.mu.Unlock()
	return f.do[n](ctx, req)
}

func (f *fake) calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
}

type chatFunc = func(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error)

func newFake(name string, do ...chatFunc) *fake { return &fake{name: name, do: do} }

// respond returns a response with the given usage, streamed or not.
func respond(in, out int64) chatFunc {
	return func(_ context.Context, req *providers.ChatRequest) (*providers.Response, error) {
		u := providers.Usage{InputTokens: in, OutputTokens: out}
		if req.Stream {
			return &providers.Response{Stream: &fakeStream{chunks: []providers.Chunk{textChunk("Hello"), textChunk("!"), usageChunk(u)}}}, nil
		}
		return &providers.Response{Body: []byte(`{"choices":[{"message":{"content":"Hello!"}}]}`), Usage: u}, nil
	}
}

func fail(f providers.Failure) chatFunc {
	return func(context.Context, *providers.ChatRequest) (*providers.Response, error) {
		if f.Err == nil {
			f.Err = errors.New("test failure")
		}
		again := f
		return nil, &again
	}
}

func respondStream(s *fakeStream) chatFunc {
	return func(context.Context, *providers.ChatRequest) (*providers.Response, error) {
		again := *s
		return &providers.Response{Stream: &again}, nil
	}
}

// fakeStream sends its chunks and then its end, io.EOF if nil. Each chunk of text counts as
// perChunk tokens, or one.
type fakeStream struct {
	chunks   []providers.Chunk
	end      error
	perChunk int64
	panics   bool // instead of the end
	used     providers.Usage
}

func (s *fakeStream) Next() (providers.Chunk, error) {
	if len(s.chunks) == 0 {
		if s.panics {
			panic("test panic")
		}
		if s.end == nil {
			return providers.Chunk{}, io.EOF
		}
		return providers.Chunk{}, s.end
	}
	c := s.chunks[0]
	s.chunks = s.chunks[1:]
	if c.Usage == nil {
		s.used.OutputTokens += max(1, s.perChunk)
	}
	return c, nil
}

func (s *fakeStream) SoFar() providers.Usage { return s.used }
func (s *fakeStream) Close() error           { return nil }

func textChunk(text string) providers.Chunk {
	return providers.Chunk{Data: []byte(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}`)}
}

func usageChunk(u providers.Usage) providers.Chunk {
	return providers.Chunk{Data: fmt.Appendf(nil, `{"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`,
		u.InputTokens, u.OutputTokens, u.InputTokens+u.OutputTokens), Usage: &u}
}

const (
	plainBody       = `{"model":"small","messages":[{"role":"user","content":"hi"}]}`
	streamBody      = `{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	streamUsageBody = `{"model":"small","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`
)

// anyone returns an owner without limits.
func anyone(env accounts.Environment) Owner {
	return Owner{Principal: &access.Principal{Tenant: accounts.Tenant{Environment: env}}}
}
