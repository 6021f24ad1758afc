package gateway

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// phase is how far a call has come.
//
//	waiting ──startAttempt──▶ sent ──settle──▶ settled
//	   ▲                       │
//	   └─────failAttempt───────┘        finish, from any phase ──▶ finished
type phase int

const (
	phaseWaiting  phase = iota // no provider is working on the call
	phaseSent                  // a provider has the call and has not failed
	phaseSettled               // the usage is recorded; settle may correct it
	phaseFinished              // the slot in flight is free
)

// activeCall is a model call in progress. It records in the log what the call used, and owns
// the call's rate limit ticket and its slot in flight.
type activeCall struct {
	gateway     *snapshot
	request     *request
	record      *audit.Record
	admitted    *admission
	ticket      *limits.Ticket
	deferWork   func(func())       // nil runs it immediately
	reservation *spend.Reservation // nil for a test call
	budgets     []callLimit        // limits that the reservation counts toward
	phase       phase
	started     time.Time
	observation Observation

	// The current or last attempt.
	target         target
	maxOutput      int64 // output tokens per choice
	attemptStarted time.Time

	upstream time.Duration // of the attempts that failed
	ended    time.Time     // when the last of them did
	waited   time.Duration // between that and the current attempt
}

func (g *snapshot) startCall(r *request, admitted *admission) *activeCall {
	g.inFlight.Add(1)
	c := admitted.call
	return &activeCall{gateway: g, request: r, record: c.Record, admitted: admitted, ticket: admitted.ticket, deferWork: c.Defer, started: g.Now(), target: admitted.targets[0],
		observation: Observation{Operation: r.operation, Environment: string(c.Principal.Environment), Requested: r.models[0], RequestedKnown: g.isKnownName(r.models[0]), TraceParent: c.TraceParent}}
}

// admit counts an attempt at a fallback toward the limits that apply to it and have not counted the call yet.
func (a *activeCall) admit(t target) error {
	var subjects []limits.Subject
	for _, l := range a.admitted.limits {
		if l.Models != nil && l.Match(t.offer) && !a.ticket.Includes(l.ID) {
			subjects = append(subjects, l.rates(a.admitted.call))
		}
	}
	if len(subjects) == 0 {
		return nil
	}
	if err := a.ticket.Extend(subjects, a.gateway.rateTokens(a.request, []target{t}), a.gateway.Now()); err != nil {
		return rateLimitFault(err, a.admitted.limits, a.admitted.call)
	}
	return nil
}

func (a *activeCall) startAttempt(t target) {
	now := a.gateway.Now()
	a.phase, a.target, a.maxOutput, a.attemptStarted = phaseSent, t, a.gateway.maxOutputFor(t, a.request), now
	if !a.ended.IsZero() {
		a.waited = now.Sub(a.ended)
		return
	}
	// A batch at its provider and a job were created long before.
	if c := a.admitted.call; c.Prepaid == nil && c.Batch == nil {
		a.record.Note(func(e *audit.Entry) { e.Queue = now.Sub(e.CreatedAt) })
	}
}

// failAttempt notes that the provider failed or rejected the call: it costs nothing there.
func (a *activeCall) failAttempt(took time.Duration) {
	a.phase = phaseWaiting
	a.upstream += took
	a.ended = a.attemptStarted.Add(took)
}

// upstreamTime returns how long providers have worked on the call, without the waits between attempts.
func (a *activeCall) upstreamTime(now time.Time) time.Duration {
	if a.phase == phaseWaiting {
		return a.upstream
	}
	return a.upstream + now.Sub(a.attemptStarted)
}

// settle records what the call used and returns what it is charged. It may be called again
// with better figures. Test calls are free; the log shows what they would have cost.
func (a *activeCall) settle(u providers.Usage, source string) (charged credits.Micro) {
	a.phase = phaseSettled
	u = clampUsage(u)
	if source != audit.UsageProvider {
		u = a.request.withEstimatedInput(u, a.target)
	}
	u.ToolCalls = a.request.toolCalls(a.target, u)
	cost := a.target.offer.Cost(unitsOf(u))
	var unbilled credits.Micro
	a.dropOtherLimits()
	if a.reservation != nil {
		charged = min(cost, a.reservation.Amount)
		unbilled = cost - charged
	}
	a.observation.Input, a.observation.Output, a.observation.Credits = u.InputTokens, u.OutputTokens, charged
	now := a.gateway.Now()
	// A provider that reports absurd usage must not lock the key out.
	a.ticket.Adjust(min(u.InputTokens+u.OutputTokens, a.request.maxInputAt(a.target)+a.request.choices*a.maxOutput), now)
	a.record.Note(func(e *audit.Entry) {
		e.InputTokens, e.OutputTokens, e.CachedTokens = &u.InputTokens, &u.OutputTokens, nil
		if u.CachedInput > 0 {
			e.CachedTokens = &u.CachedInput
		}
		e.UsageSource = source
		e.Upstream = a.upstreamTime(now)
		e.Credits, e.UnbilledCredits = charged, unbilled
		if a.reservation == nil {
			e.SimulatedCredits = cost
		}
	})
	return charged
}

// dropOtherLimits charges the call only to the limits of the model that ran. Those of fallbacks were reserved
// as well.
func (a *activeCall) dropOtherLimits() {
	var others []spend.Account
	for _, l := range a.budgets {
		if !l.appliesTo([]target{a.target}) {
			others = append(others, l.account())
		}
	}
	if a.budgets = nil; len(others) > 0 {
		a.reservation.Drop(others)
		a.record.Note(func(e *audit.Entry) { e.Accounts = a.reservation.Accounts() })
	}
}

func (a *activeCall) settleResponse(resp *providers.Response) credits.Micro {
	a.target.health.recordSuccess(a.attemptStarted)
	u, source := a.withSearches(a.withAudio(a.target.withImageTokens(resp.Usage))), audit.UsageProvider
	if u.InputTokens <= 0 || u.Estimated { // every call has input
		source = audit.UsageEstimated
	}
	return a.settle(u, source)
}

// settleStream settles a stream by the provider's usage chunk. If that reports no output although
// some was sent, the estimate counts.
func (a *activeCall) settleStream(u, sent providers.Usage) credits.Micro {
	u, source := a.withAudio(u), audit.UsageProvider
	if u.OutputTokens <= 0 && sent.OutputTokens > 0 {
		u.OutputTokens, source = sent.OutputTokens, audit.UsageEstimated
	}
	if u.InputTokens <= 0 || u.Estimated {
		source = audit.UsageEstimated
	}
	return a.settle(u, source)
}

// settleFailure records a call without a response. If the client left while a provider was
// working on the call, its input is charged: the output is unknown.
func (a *activeCall) settleFailure(err error) {
	a.observeFailure(err)
	if a.phase == phaseSent && a.reservation != nil && errors.Is(err, context.Canceled) {
		a.settle(providers.Usage{}, audit.UsagePartial)
		return
	}
	a.record.Note(func(e *audit.Entry) { e.Upstream = a.upstreamTime(a.gateway.Now()) })
}

func (a *activeCall) observeFailure(err error) {
	a.observation.Failure = "client_left"
	if f, ok := fault.As(err); ok {
		a.observation.Failure = string(f.Code)
	}
}

// recordBrokenResponse records that a provider's response ended too early. The attempt had counted as a success.
func (a *activeCall) recordBrokenResponse(f *providers.Failure) {
	now := a.gateway.Now()
	a.target.health.recordFailure(f, now)
	if list := a.observation.Attempts; len(list) > 0 && list[len(list)-1].Outcome == AttemptOK {
		a.observation.Attempts = list[:len(list)-1]
	}
	a.addAttempt(string(f.Kind), f.Status, now.Sub(a.attemptStarted))
	a.noteAttempts()
}

// finish frees the call's slot in flight, and returns the rate limit tokens of a call that used none.
func (a *activeCall) finish() {
	if a.phase != phaseSettled {
		a.ticket.Adjust(0, a.gateway.Now())
	}
	a.phase = phaseFinished
	a.ticket.End()
	a.observation.Duration = a.gateway.Now().Sub(a.started)
	if a.deferWork != nil {
		a.deferWork(a.reportObservation)
		return
	}
	a.reportObservation()
}

func (a *activeCall) reportObservation() {
	defer a.gateway.inFlight.Add(-1)
	if a.gateway.Observe == nil {
		return
	}
	o := a.observation
	o.Provider, o.Model, o.Started = a.target.provider.Name(), a.target.offer.ID, a.started
	o.ModelKnown = a.target.offer.Kind != "" || a.target.health.listed
	a.gateway.Observe(o)
}

// streamOutputLimit returns after how many output tokens a stream has used up its reservation
// and is cut; 0 means never. It is twice the limit that the provider got, because our count may
// be an estimate: only a provider that ignores the limit is cut.
func (a *activeCall) streamOutputLimit() int64 {
	if a.reservation == nil || a.target.offer.Price.Output == 0 || a.request.audio != nil { // the audio limits a transcript
		return 0
	}
	rest := max(0, a.reservation.Amount-maxTokenCost(a.target, a.request, 0))
	return 2 * max(1, int64(min(rest, maxTokenCount))*1_000_000/int64(a.target.offer.Price.Output))
}

// maxTokenCount keeps token counts small enough to be multiplied and added up.
const maxTokenCount = 1 << 40

// clampUsage keeps absurd token counts out of the log and its sums.
func clampUsage(u providers.Usage) providers.Usage {
	for _, n := range []*int64{&u.InputTokens, &u.OutputTokens, &u.CachedInput, &u.CacheWrite, &u.HourWrite} {
		*n = min(max(0, *n), maxTokenCount)
	}
	return u
}

// typicalImageTokens is the usual number of tokens of a one-megapixel image.
const typicalImageTokens = 1_290

// withImageTokens estimates the tokens of images that are priced by token, if the provider
// didn't count them.
func (t target) withImageTokens(u providers.Usage) providers.Usage {
	if u.Images > 0 && u.OutputTokens <= 0 && t.offer.Price.PerImage == 0 {
		u.OutputTokens, u.Estimated = u.Images*typicalImageTokens, true
	}
	return u
}

// Observation describes a finished model call for telemetry. It holds no secrets and no content.
type Observation struct {
	Operation      string // such as "chat" or "embeddings"
	Environment    string
	Provider       string
	Requested      string // the model as the client named it
	RequestedKnown bool   // the name belongs to the router, the catalog or the operator
	Model          string // the model that ran, or was tried last
	ModelKnown     bool   // the catalog or the operator lists it, so clients didn't invent its name
	Started        time.Time
	FirstByte      time.Duration // zero without a response
	Duration       time.Duration
	Input          int64
	Output         int64
	Credits        credits.Micro
	Failure        string // a fault's code, or empty
	Attempts       []Attempt
	TraceParent    string // the client's traceparent header
}
