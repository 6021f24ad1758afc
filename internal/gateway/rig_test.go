package gateway

import (
	"context"
	"errors"
	"io"
	"math/big"
	"net/http"
	"os"
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

// TestMain shortens the pauses before a call is repeated, and the patience with
// a provider whose client has left.
func TestMain(m *testing.M) {
	lastWords = 500 * time.Millisecond
	pauses = []time.Duration{10 * time.Millisecond, 20 * time.Millisecond}
	os.Exit(m.Run())
}

const testKey = "key_test"

// rig is a gateway on a real ledger, limiter and log, with one place in flight:
// a call that does not give its place back is noticed by the next one.
type rig struct {
	*Gateway
	t         testing.TB
	db        *db.DB
	log       *audit.Log
	stock     *spend.Ledger
	gate      *limits.Limiter
	workspace string
	budget    *credits.Micro // of the workspace
	keyBudget *credits.Micro
	env       accounts.Environment
	observed  func() []Observation // since it was asked last
}

var onePlace = limits.Limits{InFlight: 1, TokensPerMinute: 1_000_000}

// newRig makes a rig with the providers: see serving.
func newRig(t testing.TB, list []providers.Provider, suppliers ...catalog.Supplier) *rig {
	t.Helper()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	group := db.NewGroup(d)
	t.Cleanup(group.Stop)
	node, err := nodes.Join(t.Context(), d, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	books := spend.NewBooks(d)
	month := 1000 * credits.Credit
	r := &rig{db: d, budget: &month, env: accounts.Live, log: audit.NewLog(group, node, spend.NewBookkeeper(books, events.NewPublisher(time.Now), time.Now).Book),
		stock: books.Ledger(node), gate: limits.New(d, node.ID, time.Now)}
	w := &accounts.Workspace{Name: "test", RotationGrace: time.Hour}
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return accounts.CreateWorkspace(t.Context(), tx, w, time.Now()) }); err != nil {
		t.Fatal(err)
	}
	r.workspace = w.ID
	return r.serving(t, list, suppliers...)
}

// serving is a rig on the same store with providers of its own, each of which
// has the models "small" (a dollar for a million tokens in, two for as many
// out) and "large" (ten times that), unless a supplier is given for it.
func (r *rig) serving(t testing.TB, list []providers.Provider, suppliers ...catalog.Supplier) *rig {
	t.Helper()
	terms := catalog.Terms{}
	var upstreams []Upstream
	names := ""
	for i, p := range list {
		s := catalog.Supplier{Models: []catalog.Supply{
			{ID: "small", Price: dollars(1, 2), MaxOutputTokens: 1000}, {ID: "large", Price: dollars(10, 20), MaxOutputTokens: 1000}}}
		if i < len(suppliers) {
			s = suppliers[i]
		}
		s.Name = p.Name()
		names += s.Name + " "
		terms.Suppliers = append(terms.Suppliers, s)
		upstreams = append(upstreams, Upstream{Provider: p, Weight: 1})
	}
	table, known := tables.Load(names)
	if !known || len(suppliers) > 0 {
		loaded, err := catalog.Load(terms)
		if err != nil {
			t.Fatal(err)
		}
		if table = loaded; len(suppliers) == 0 {
			tables.Store(names, table)
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
	other.Gateway = New(Options{Catalog: table.(*catalog.Catalog), Simulator: simulator.New(simulator.Options{}), Upstreams: upstreams, Ledger: r.stock,
		Budgets: &other, Limiter: r.gate, Rates: Rates{Live: onePlace, Test: onePlace}, DefaultMaxOutput: 16_384, Now: time.Now,
		Observe: func(o Observation) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, o)
		}})
	return &other
}

// tables are those of the usual suppliers, by their names: reading one takes
// longer than most of the tests.
var tables sync.Map

func dollars(in, out int64) *catalog.ListPrice {
	return &catalog.ListPrice{Input: big.NewRat(in, 1), Output: big.NewRat(out, 1)}
}

// Budgets are the rig's.
func (r *rig) Budgets(context.Context, string, accounts.Environment, string) (workspace, project *credits.Micro, err error) {
	return r.budget, nil, nil
}

func (r *rig) open() Call {
	id := ids.New(ids.Request)
	return Call{Principal: &access.Principal{WorkspaceID: r.workspace, Environment: r.env, KeyID: testKey, MonthlyBudget: r.keyBudget},
		Record: r.log.Open(audit.Entry{RequestID: id, WorkspaceID: r.workspace, Environment: string(r.env), KeyID: testKey, CreatedAt: time.Now(), Method: "POST", Path: "/v1/chat/completions"}),
		Header: http.Header{}}
}

// outcome is how a call ended, for the client and in the log.
type outcome struct {
	*Answer
	chunks []string
	code   string // of the error, wherever it came
	err    error
	entry
}

type entry struct {
	Charged, Unbilled, Reserved credits.Micro
	Input, Output               int64
	Source, Attempts, ModelRan  string
}

// chat makes a call as the edge does, and checks that nothing of it is left.
func (r *rig) chat(body string) outcome { return r.chatIn(r.t.Context(), body) }

func (r *rig) chatIn(ctx context.Context, body string) (out outcome) {
	r.t.Helper()
	c := r.open()
	c.Body = []byte(body)
	out.Answer, out.err = r.Chat(ctx, c)
	if out.err == nil && out.Stream != nil {
		out.chunks, out.err = drain(out.Stream)
		_ = out.Stream.Close()
	}
	r.settle(c, &out)
	return out
}

func drain(s *Stream) (chunks []string, err error) {
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

// settle ends a call and reads what the log says of it.
func (r *rig) settle(c Call, out *outcome) {
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
	r.eventually("the entry is settled", func() bool {
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
		r.t.Errorf("%s were charged and %s reserved", out.Charged, out.Reserved)
	}
	r.clean()
}

// clean checks that nothing is set aside and nobody in flight.
func (r *rig) clean() {
	r.t.Helper()
	r.eventually("nothing is reserved", func() bool {
		if err := r.ledger.Recalled(context.Background(), ""); err != nil {
			r.t.Fatal(err)
		}
		b, err := spend.Read(context.Background(), r.db, spend.Account{Level: spend.Workspace, ID: r.workspace}, spend.PeriodOf(time.Now()))
		if err != nil {
			r.t.Fatal(err)
		}
		return b.Reserved == 0
	})
	ticket, err := r.limiter.Begin(testKey, onePlace, 0, time.Now())
	if err != nil {
		r.t.Fatalf("a call has kept its place: %v", err)
	}
	ticket.End()
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("it is not so that %s", what)
		}
	}
}

// fake is a provider that does what a test says, call by call, and then the
// last of it again.
type fake struct {
	name string
	do   []func(ctx context.Context, req *providers.ChatRequest) (*providers.Answer, error)

	mu    sync.Mutex
	asked []providers.ChatRequest
}

func (f *fake) Name() string { return f.name }

func (f *fake) Chat(ctx context.Context, req *providers.ChatRequest) (*providers.Answer, error) {
	f.mu.Lock()
	n := min(len(f.asked), len(f.do)-1)
	f.asked = append(f.asked, *req)
	f.mu.Unlock()
	return f.do[n](ctx, req)
}

func (f *fake) calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

type doing = func(ctx context.Context, req *providers.ChatRequest) (*providers.Answer, error)

func doer(name string, do ...doing) *fake { return &fake{name: name, do: do} }

// says answers with so many tokens in and out, streamed or not.
func says(in, out int64) doing {
	return func(_ context.Context, req *providers.ChatRequest) (*providers.Answer, error) {
		u := providers.Usage{InputTokens: in, OutputTokens: out}
		if req.Stream {
			return &providers.Answer{Stream: &fakeStream{chunks: []providers.Chunk{said("Hello"), said("!"), counted(u)}}}, nil
		}
		return &providers.Answer{Body: []byte(`{"choices":[{"message":{"content":"Hello!"}}]}`), Usage: u}, nil
	}
}

func fails(f providers.Failure) doing {
	return func(context.Context, *providers.ChatRequest) (*providers.Answer, error) {
		if f.Err == nil {
			f.Err = errors.New("as the test says")
		}
		again := f
		return nil, &again
	}
}

func streams(s *fakeStream) doing {
	return func(context.Context, *providers.ChatRequest) (*providers.Answer, error) {
		again := *s
		return &providers.Answer{Stream: &again}, nil
	}
}

// fakeStream sends its chunks and then its end, io.EOF if nil. Each chunk that
// says something counts as as many tokens as perChunk, or one.
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
			panic("as the test says")
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

func said(text string) providers.Chunk {
	return providers.Chunk{Data: []byte(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}`)}
}

func counted(u providers.Usage) providers.Chunk {
	return providers.Chunk{Data: []byte(`{"id":"chatcmpl-1","choices":[],"usage":` + usageJSON(u) + `}`), Usage: &u}
}

const (
	plainCall    = `{"model":"small","messages":[{"role":"user","content":"hi"}]}`
	streamedCall = `{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	countedCall  = `{"model":"small","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`
)
