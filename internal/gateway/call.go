// Package gateway makes model calls. It checks rate limits, reserves credits, writes the
// request log ahead, calls the provider and settles what the call used.
package gateway

import (
	"context"
	"math/big"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/budget"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/endusers"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/limits"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// Gateway routes model calls to providers.
type Gateway struct {
	Options
	sleep        func(context.Context, time.Duration)
	usageTimeout time.Duration // wait for the usage chunk after the client left

	inFlight atomic.Int64
	current  atomic.Pointer[snapshot]
}

// Rates are the default limits of keys.
type Rates struct{ Live, Test limits.Limits }

// BudgetsFunc returns a workspace and one of its projects, or nil if the name is empty.
type BudgetsFunc func(ctx context.Context, t accounts.Tenant, project string) (*accounts.Workspace, *accounts.Project, error)

// Options configure a gateway.
type Options struct {
	Simulator providers.Provider
	Leases    *spend.LeaseCache
	Budgets   BudgetsFunc
	Limiter   *limits.Limiter
	// ProjectModels returns the models of projects; nil if projects have no limits.
	ProjectModels ProjectModelsFunc
	// WorkspaceRoute finds routes of workspaces; nil if there are none.
	WorkspaceRoute RouteFunc
	// RouteNames returns the names of these routes.
	RouteNames func(ctx context.Context, t accounts.Tenant, project string) ([]string, error)
	EndUsers   *endusers.Directory // nil if end users have no accounts
	Now        func() time.Time
	// Observe, if set, is called after each call.
	Observe func(Observation)
}

// New creates a gateway. Apply changes its settings.
func New(o Options, s Settings) *Gateway {
	g := &Gateway{Options: o, sleep: sleep, usageTimeout: 2 * time.Second}
	g.Apply(s)
	return g
}

// logTimeout is how long a call waits for the log before it fails. A commit takes milliseconds.
const logTimeout = 4 * time.Second

// Call is one model call.
type Call struct {
	Principal *access.Principal
	Project   string
	Record    *audit.Record
	Body      []byte
	// Header is the response's header. It receives the state of the rate limits.
	Header http.Header
	// Allowance is the remaining budget of the agent run that makes this call; nil means no limit.
	Allowance *Allowance
	// Step marks a step of an agent run: only its tokens count toward the rate limits.
	Step bool
	// Prepaid is the reservation of the job that makes this call; nil reserves credits. The job counts
	// toward the rate limits and is charged, so the call itself isn't logged: Record collects its usage.
	Prepaid *Prepaid
	// Batch is set for a call that the provider's batch API makes; nil calls the provider.
	Batch *BatchCall
	// TransformBody, if set, converts the body of a plain response before the call is charged.
	TransformBody func(body []byte) ([]byte, error)
	// UseProject, if set, is called after the rate limit check, before credits are reserved.
	UseProject func(ctx context.Context) error
	// Session is the client's name of the session that the request belongs to, or empty.
	Session string
	// TraceParent is the client's traceparent header, or empty.
	TraceParent string
	// BeforeWait, if set, is called before a stream waits for the provider: see providers.ChatRequest.
	BeforeWait func() error
	// user is the end user; identifyUser sets it.
	user *endusers.Active
	// Defer schedules work for after the response was sent; nil runs it immediately.
	Defer func(func())
}

// Prepaid is a reservation that belongs to a job.
type Prepaid struct {
	Amount    credits.Micro
	MaxOutput int64 // output tokens that it pays for; 0 if it sets no limit
}

// Allowance is a budget that only one call at a time uses, so it needs no lease.
type Allowance struct{ Limit, Spent credits.Micro }

// Response is a model's response: Body of a plain call, Stream of a streamed one, Audio of speech.
type Response struct {
	Model    string // the model that ran
	Provider string
	Credits  credits.Micro // of a plain call; a stream reports them in its usage chunk
	Body     []byte
	Stream   *Stream
	Audio    *Audio
	Native   bool // Body or Stream is in the format of the Responses API

	ContentType string // of Body; JSON if empty
	// Ignored are the fields of the request that had no effect.
	Ignored []string
}

// Chat makes a chat completion.
func (g *Gateway) Chat(ctx context.Context, c Call) (*Response, error) {
	r, err := readChat(c.Body)
	if err != nil {
		return nil, c.noteRequested(err)
	}
	if err := r.measureAudio(ctx); err != nil {
		return nil, err
	}
	r.session = c.session(r)
	s := g.current.Load()
	targets, err := s.route(ctx, c.owner(), r.models, catalog.Chat, r)
	if err != nil {
		return nil, err
	}
	if r.lacksTierPrice(targets) {
		r.body = withDefaultTier(r.body)
	}
	return s.run(ctx, c, r, targets, func(ctx context.Context, t target, maxOutput int64) (*providers.Response, error) {
		return t.chat(ctx, &providers.ChatRequest{Model: t.offer.Upstream, ID: t.offer.ID, Body: r.body, Index: r.indexed, Stream: r.stream, MaxOutput: maxOutput, BeforeWait: c.BeforeWait})
	})
}

// lacksTierPrice reports whether the request asks for a tier whose prices the catalog doesn't have. It
// then gets the default tier, which OpenAI also serves if the requested one has no capacity. The
// response says so in service_tier, and in the list of ignored fields.
func (r *request) lacksTierPrice(targets []target) bool {
	if !r.priorityTier || !slices.ContainsFunc(targets, func(t target) bool { return !t.offer.Price.IsFree() }) {
		return false
	}
	r.ignored = append(r.ignored, tierField)
	return true
}

const tierField = "service_tier"

func withDefaultTier(body []byte) []byte { return jsonbody.ReplaceMember(body, tierField, `"default"`) }

// translationCopies is how many copies of a body there are while it is translated for a provider: the
// decoded request, and the body in the provider's format.
const translationCopies = 2

// reserveTranslation reserves the memory of a translation, which release returns.
func (c Call) reserveTranslation(ctx context.Context) (release func(), err error) {
	of, bytes := budget.Of(ctx), translationCopies*int64(len(c.Body))
	return func() { of.Return(bytes) }, of.Reserve(bytes)
}

// run makes a model call: rate limits, reservation, log, provider, settlement. Settling the
// log entry ends the reservation; the end of the response frees the slot in flight.
func (g *snapshot) run(ctx context.Context, c Call, r *request, targets []target, send sendFunc) (*Response, error) {
	release, err := c.reserveTranslation(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := g.identifyUser(ctx, &c, r.user); err != nil {
		return nil, err
	}
	if r.choices > 0 {
		if err := r.priceSearch(targets); err != nil {
			return nil, err
		}
	}
	if c.Batch != nil {
		var err error
		if targets, err = g.batchTarget(c.Batch, targets); err != nil {
			return nil, err
		}
		if c.Batch.Result == nil {
			return nil, g.prepareBatch(ctx, c, r, targets, send)
		}
		ctx = providers.WithTransport(ctx, resultTransport{c.Batch.Result})
	}
	admitted := &admission{call: c, ticket: &limits.Ticket{}, targets: targets}
	if c.Prepaid == nil {
		var err error
		if admitted, err = g.checkRateLimit(ctx, c, r, targets); err != nil {
			return nil, err
		}
	}
	a := g.startCall(r, admitted)
	targets = admitted.targets
	streaming := false
	defer func() {
		if !streaming { // an error, a plain response, or a panic
			a.finish()
		}
	}()
	if c.UseProject != nil {
		if err := c.UseProject(ctx); err != nil {
			a.observeFailure(err)
			return nil, err
		}
	}
	free := c.Principal.Environment == accounts.Test
	if !free {
		reserve := g.reserve
		if c.Prepaid != nil {
			reserve = usePrepaid
		}
		reserved, err := reserve(ctx, c, r, targets)
		if err != nil {
			a.observeFailure(err)
			return nil, err
		}
		a.reservation, a.budgets = reserved.Reservation, reserved.limits
		if targets = reserved.targets; reserved.maxOutput > 0 {
			r.maxOutput = reserved.maxOutput
		}
	}
	first := targets[0]
	c.Record.Note(func(e *audit.Entry) {
		e.Model, e.Provider = first.offer.ID, first.provider.Name()
		if h := a.reservation; h != nil && c.Prepaid == nil {
			e.Hold, e.Accounts, e.Reserved, e.PriceVersion = h, h.Accounts(), h.Amount, g.Catalog.PriceVersion()
		}
	})
	// The intent is queued when the upstream call starts, and the first byte of the response
	// waits for it. Simulated calls cost nothing and are faster than a disk, so their intent is
	// written together with their settlement.
	if !free && c.Prepaid == nil {
		c.Record.Start(first.health.expectedLatency(), r.stream)
	}
	// If the log is failing, as on a full disk, don't pay a provider for a response that can't be sent.
	if c.Prepaid == nil && (g.Strict || !free && c.Record.Degraded()) {
		if err := c.Record.Durable(logTimeout); err != nil {
			a.observation.Failure = string(fault.StorageUnavailable)
			return nil, err
		}
	}
	resp, err := g.attempt(ctx, a, targets, send)
	if err == nil && r.store != nil {
		a.target.health.recordSuccess(a.attemptStarted) // the provider did its part even if storing fails
		err = r.store(ctx)
	}
	var transformed []byte
	if err == nil && c.TransformBody != nil && resp.Body != nil && !resp.Native {
		transformed, err = c.TransformBody(resp.Body)
	}
	if err != nil {
		a.settleFailure(err)
		return nil, err
	}
	out := &Response{Model: a.target.offer.ID, Provider: a.target.provider.Name(), Native: resp.Native, ContentType: resp.ContentType, Ignored: merged(r.ignored, resp.Ignored)}
	if s, ok := resp.Stream.(*startedStream); ok {
		streaming = true
		out.Stream = newStream(s, a)
		out.Stream.native = resp.Native
		return out, nil
	}
	if resp.Content != nil {
		streaming = true
		out.Audio = &Audio{content: resp.Content, call: a, usage: resp.Usage}
		return out, nil
	}
	out.Credits = a.settleResponse(resp)
	if out.Body = resp.Body; transformed != nil {
		out.Body = transformed
	}
	if c.Prepaid != nil && c.Batch == nil { // its client gets no header with the credits
		out.Body = withCredits(out.Body, out.Credits)
	}
	return out, nil
}

// merged returns both lists without duplicates.
func merged(a, b []string) []string {
	if len(a) == 0 {
		return b
	}
	return slices.Concat(a, slices.DeleteFunc(slices.Clone(b), func(name string) bool { return slices.Contains(a, name) }))
}

// admission is a call that its rate limits admit.
type admission struct {
	call    Call
	ticket  *limits.Ticket
	targets []target    // that the rates of the limits admit
	limits  []callLimit // all limits of the call
}

// checkRateLimit counts the call against the rate limits of its key and the key's ancestors, and against the
// limits that apply to its first target. If one of those refuses, the call goes to targets to which it
// doesn't apply.
func (g *snapshot) checkRateLimit(ctx context.Context, c Call, r *request, targets []target) (*admission, error) {
	p := c.Principal
	list, err := g.findLimits(ctx, c)
	if err != nil {
		return nil, err
	}
	subjects := []limits.Subject{{ID: p.KeyID, Limits: g.ratesOf(c, p.RateLimit)}}
	for _, a := range p.Ancestors {
		subjects = append(subjects, limits.Subject{ID: a.KeyID, Limits: g.ratesOf(c, a.RateLimit)})
	}
	if s, found := c.userSubject(); found {
		subjects = append(subjects, s)
	}
	for own := len(subjects); ; subjects = subjects[:own] {
		likely := targets
		if !r.runsLater && len(targets) > 0 {
			likely = targets[:1]
		}
		for _, l := range list {
			if l.appliesTo(likely) {
				subjects = append(subjects, l.rates(c))
			}
		}
		ticket, err := g.Limiter.BeginAll(subjects, g.rateTokens(r, targets), g.Now())
		if err == nil {
			ticket.Headers(c.Header)
			return &admission{c, ticket, targets, list}, nil
		}
		l := refusedBy(list, err)
		if l == nil || r.runsLater || len(l.without(targets)) == 0 {
			return nil, rateLimitFault(err, list, c)
		}
		targets = l.without(targets)
	}
}

// rateTokens returns the tokens that a call to the first target counts as until its usage is known.
func (g *snapshot) rateTokens(r *request, targets []target) int64 {
	tokens := estimateTokens(r.maxInput)
	if r.maxOutput > 0 && len(targets) > 0 {
		tokens += r.choices * g.maxOutputFor(targets[0], r)
	}
	return tokens
}

// ratesOf returns the rate limits of a key, whose own may be nil.
func (g *snapshot) ratesOf(c Call, own *int64) limits.Limits {
	l := g.Rates.Live
	if c.Principal.Environment == accounts.Test {
		l = g.Rates.Test
	}
	if own != nil {
		l.RequestsPerMinute = *own
	}
	if c.Step {
		l.RequestsPerMinute = 0
	}
	return l
}

// CheckRateLimit counts a request that creates a job or a run against the key's limits. It
// takes no slot in flight. Limits for some models don't count it.
func (g *Gateway) CheckRateLimit(ctx context.Context, c Call) error {
	if err := g.identifyUser(ctx, &c, nil); err != nil {
		return err
	}
	admitted, err := g.current.Load().checkRateLimit(ctx, c, &request{}, nil)
	if err != nil {
		return err
	}
	admitted.ticket.End()
	return nil
}

// InFlight returns the number of calls in progress.
func (g *Gateway) InFlight() int64 { return g.inFlight.Load() }

// CreditUSD returns the value of a credit in dollars, or nil if the operator hasn't set it.
func (g *Gateway) CreditUSD() *big.Rat { return g.current.Load().Catalog.CreditUSD }

// CatalogDate returns the date of the model catalog.
func (g *Gateway) CatalogDate() time.Time { return g.current.Load().Catalog.AsOf }
