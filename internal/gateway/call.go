// Package gateway makes model calls: one readable function from the caller's
// bytes to the provider's answer, with everything that must happen on the way.
package gateway

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// Gateway routes model calls to providers.
type Gateway struct {
	catalog          *catalog.Catalog
	simulator        providers.Provider
	upstreams        []Upstream
	routes           map[string][]string
	routeNames       []string
	ledger           *spend.Ledger
	budgets          Budgets
	limiter          *limits.Limiter
	rates            Rates
	defaultMaxOutput int64
	strict           bool
	now              func() time.Time
	observe          func(Observation)

	inFlight  atomic.Int64
	healths   healths
	simulated map[string]target      // by the model's id
	choice    map[choiceKey][]target // what the router may choose from
}

// Route is a name of the operator's for a list of models.
type Route struct {
	Name   string
	Models []string
}

// Rates are the limits of keys that have none of their own.
type Rates struct{ Live, Test limits.Limits }

// Options configure a gateway.
type Options struct {
	Catalog   *catalog.Catalog
	Simulator providers.Provider
	Upstreams []Upstream
	Routes    []Route
	Ledger    *spend.Ledger
	Budgets   Budgets
	Limiter   *limits.Limiter
	Rates     Rates
	// DefaultMaxOutput bounds the answer's tokens when the caller does not.
	DefaultMaxOutput int64
	// Strict makes the upstream call itself wait until the request is in the
	// log, so that no provider is ever called unrecorded.
	Strict bool
	Now    func() time.Time
	// Observe is told of every call that has ended; nil is for nobody.
	Observe func(Observation)
}

// New makes a gateway.
func New(o Options) *Gateway {
	g := &Gateway{catalog: o.Catalog, simulator: o.Simulator, upstreams: o.Upstreams, routes: map[string][]string{}, ledger: o.Ledger, budgets: o.Budgets,
		limiter: o.Limiter, rates: o.Rates, defaultMaxOutput: o.DefaultMaxOutput, strict: o.Strict, now: o.Now, observe: o.Observe}
	for _, r := range o.Routes {
		g.routes[r.Name] = r.Models
		g.routeNames = append(g.routeNames, r.Name)
	}
	slices.Sort(g.routeNames)
	g.prepare()
	return g
}

// recordPatience is how long a strict call waits for the log before it gives
// up: a commit takes milliseconds.
const recordPatience = 4 * time.Second

// Call is one model call.
type Call struct {
	Principal *access.Principal
	Project   string
	Record    *audit.Record
	Body      []byte
	// Header is the answer's: it gets the state of the rate limits.
	Header http.Header
	// Allowance is what is left for a run of which this call is a step; nil for
	// no limit. Steps are no requests of their own to the key's limits.
	Allowance *Allowance
	Step      bool
	// Shape makes what the caller gets of a plain answer, before it is charged;
	// nil leaves it as it is.
	Shape func(body []byte) ([]byte, error)
	// UseProject is called once the request is admitted, before anything is
	// reserved or asked of a provider; nil does nothing.
	UseProject func(ctx context.Context) error
	// TraceParent is the caller's span, in the notation of that header, or empty.
	TraceParent string
	// Later takes what the answer need not wait for, to be done once it has
	// left; nil does it at once.
	Later func(func())
}

// Allowance is a budget that only one call at a time is made under, so that
// nothing of it is leased.
type Allowance struct{ Limit, Spent credits.Micro }

// Answer is what goes back: Body for a plain call, Stream for a streamed one,
// Sound for speech.
type Answer struct {
	Model    string // what really ran
	Provider string
	Credits  credits.Micro // of a plain call; a stream says it in its usage chunk
	Body     []byte
	Stream   *Stream
	Sound    *Sound
}

// Chat answers a chat completion.
func (g *Gateway) Chat(ctx context.Context, c Call) (*Answer, error) {
	r, err := readChat(c.Body)
	if err != nil {
		return nil, err
	}
	targets, err := g.route(c.Principal.Environment, r.models, catalog.Chat, r)
	if err != nil {
		return nil, err
	}
	if r.dearer && slices.ContainsFunc(targets, func(t target) bool { return t.offer.Price != catalog.Price{} }) {
		return nil, fault.Invalid("service_tier", `service_tier "priority" has prices of its own, which this server does not know; leave it out, or ask for a model that the operator sells at them`)
	}
	return g.run(ctx, c, r, targets, chat)
}

// run is the way of every model call: limits, reservation, log, provider,
// settlement. Whatever happens, what was set aside ends with the log's entry,
// and the place among the calls in flight with the answer.
func (g *Gateway) run(ctx context.Context, c Call, r *request, targets []target, ask operation) (*Answer, error) {
	ticket, err := g.admit(c, r, targets[0])
	if err != nil {
		return nil, err
	}
	g.inFlight.Add(1)
	m := &meter{record: c.Record, ticket: ticket, inFlight: &g.inFlight, later: c.Later, now: g.now, started: g.now(), target: targets[0], observe: g.observe}
	m.seen = Observation{Operation: r.operation, Environment: string(c.Principal.Environment), Requested: r.models[0], Named: g.named(r.models[0]), TraceParent: c.TraceParent}
	streams := false
	defer func() {
		if !streams { // an error, a plain answer, or a panic on its way
			m.end()
		}
	}()
	if c.UseProject != nil {
		if err := c.UseProject(ctx); err != nil {
			m.broke(err)
			return nil, err
		}
	}
	free := c.Principal.Environment == accounts.Test
	if !free {
		var output int64
		if m.hold, output, err = g.reserve(ctx, c, r, targets); err != nil {
			m.broke(err)
			return nil, err
		}
		if output > 0 {
			r.maxOutput = output
		}
	}
	first := targets[0]
	c.Record.Note(func(e *audit.Entry) {
		e.Model, e.Provider = first.offer.ID, first.provider.Name()
		if m.hold != nil {
			e.Hold, e.Accounts, e.Reserved, e.PriceVersion = m.hold, m.hold.Accounts(), m.hold.Amount, g.catalog.PriceVersion()
		}
	})
	// The intent is handed to the log at the moment the upstream call starts,
	// and whoever sends the answer's first byte waits for it. The simulator is
	// no upstream: it costs nobody anything and is faster than a disk, so its
	// intent is written together with its end.
	if !free {
		c.Record.Start(first.health.expected())
	}
	// Where the log cannot be written, as on a full disk, no provider is paid for an
	// answer that nobody gets.
	if g.strict || !free && c.Record.Doubtful() {
		if err := c.Record.Durable(recordPatience); err != nil {
			m.unlogged()
			return nil, err
		}
	}
	answer, err := g.try(ctx, c, r, targets, m, ask)
	if err == nil && r.keep != nil {
		m.target.health.worked(m.began) // whatever becomes of it here
		err = r.keep(ctx)
	}
	var shaped []byte
	if err == nil && c.Shape != nil && answer.Body != nil {
		shaped, err = c.Shape(answer.Body)
	}
	if err != nil {
		m.failed(err, r)
		return nil, err
	}
	out := &Answer{Model: m.target.offer.ID, Provider: m.target.provider.Name()}
	if from, ok := answer.Stream.(*begun); ok {
		streams = true
		out.Stream = newStream(from, m, r)
		return out, nil
	}
	if answer.Content != nil {
		streams = true
		out.Sound = &Sound{content: answer.Content, meter: m, request: r, used: answer.Usage}
		return out, nil
	}
	out.Credits = m.plain(answer, r)
	if out.Body = answer.Body; shaped != nil {
		out.Body = shaped
	}
	return out, nil
}

// admit counts the call against the limits of its key and the key's ancestors.
func (g *Gateway) admit(c Call, r *request, t target) (*limits.Ticket, error) {
	p := c.Principal
	subjects := []limits.Subject{{ID: p.KeyID, Limits: g.limitsOf(c, p.RateLimit)}}
	for _, a := range p.Ancestors {
		subjects = append(subjects, limits.Subject{ID: a.KeyID, Limits: g.limitsOf(c, a.RateLimit)})
	}
	tokens := aboutTokens(r.inputBound)
	if r.maxOutput > 0 {
		tokens += r.choices * g.outputOf(t, r)
	}
	ticket, err := g.limiter.BeginAll(subjects, tokens, g.now())
	if err != nil {
		return nil, limitFault(err, c.Header)
	}
	ticket.Headers(c.Header)
	return ticket, nil
}

// limitsOf returns the limits of a key whose own rate limit may be set.
func (g *Gateway) limitsOf(c Call, own *int64) limits.Limits {
	l := g.rates.Live
	if c.Principal.Environment == accounts.Test {
		l = g.rates.Test
	}
	if own != nil {
		l.RequestsPerMinute = *own
	}
	if c.Step {
		l.RequestsPerMinute = 0
	}
	return l
}

// InFlight is how many calls are under way.
func (g *Gateway) InFlight() int64 { return g.inFlight.Load() }

// CatalogDate is the day of the table of models.
func (g *Gateway) CatalogDate() time.Time { return g.catalog.AsOf }
