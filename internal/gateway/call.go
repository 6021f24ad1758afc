// Package gateway makes model calls: one readable function from the caller's
// bytes to the provider's answer, with everything that must happen on the way.
package gateway

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// Gateway routes model calls to providers.
type Gateway struct {
	catalog   *catalog.Catalog
	simulator providers.Provider
	strict    bool
	now       func() time.Time
}

// Options configure a gateway.
type Options struct {
	Catalog   *catalog.Catalog
	Simulator providers.Provider
	// Strict makes the upstream call itself wait until the request is in the
	// log, so that no provider is ever called unrecorded.
	Strict bool
	Now    func() time.Time
}

// New makes a gateway.
func New(o Options) *Gateway {
	return &Gateway{catalog: o.Catalog, simulator: o.Simulator, strict: o.Strict, now: o.Now}
}

// recordPatience is how long a strict call waits for the log before it gives
// up: a commit takes milliseconds.
const recordPatience = 4 * time.Second

// Call is one model call.
type Call struct {
	Principal *access.Principal
	Record    *audit.Record
	Body      []byte
}

// Answer is what goes back: Body for a plain call, Stream for a streamed one.
type Answer struct {
	Model    string // what really ran
	Provider string
	Credits  credits.Micro // of a plain call; a stream says it in its usage chunk
	Body     []byte
	Stream   *Stream
}

// Chat answers a chat completion.
func (g *Gateway) Chat(ctx context.Context, c Call) (*Answer, error) {
	fields, err := readFields(c.Body)
	if err != nil {
		return nil, err
	}
	model, provider, err := g.route(c.Principal, fields.Model)
	if err != nil {
		return nil, err
	}

	c.Record.Note(func(e *audit.Entry) { e.Model, e.Provider = model.ID, provider.Name() })
	// The intent is handed to the log at the moment the upstream call starts,
	// and whoever sends the answer's first byte waits for it. The simulator is
	// no upstream: it costs nobody anything and is faster than a disk, so its
	// intent is written together with its end.
	if provider != g.simulator {
		c.Record.Start()
	}
	if g.strict {
		if err := c.Record.Durable(recordPatience); err != nil {
			return nil, err
		}
	}
	started := g.now()
	answer, err := provider.Chat(ctx, &providers.ChatRequest{Model: model.ID, Body: c.Body, Stream: fields.Stream})
	m := &meter{record: c.Record, price: model.Price, started: started, now: g.now}
	if err != nil {
		m.failed()
		return nil, upstreamFault(err)
	}
	out := &Answer{Model: model.ID, Provider: provider.Name()}
	if answer.Stream != nil {
		out.Stream = &Stream{from: answer.Stream, meter: m, wantUsage: fields.IncludeUsage}
		return out, nil
	}
	out.Credits = m.settle(answer.Usage, audit.UsageProvider)
	out.Body = answer.Body
	return out, nil
}

// route picks the model and its provider. Test keys are answered by the
// simulator; live keys need a provider.
func (g *Gateway) route(p *access.Principal, name string) (*catalog.Model, providers.Provider, error) {
	if p.Environment == accounts.Live {
		return nil, nil, fault.New(fault.NoProvider, "no model provider is set up for live keys on this server; test keys (tp_test_…) are answered by the simulator")
	}
	model := g.catalog.Find(name)
	if model == nil {
		return nil, nil, fault.Param(fault.ModelNotFound, "model", "there is no model %q; GET /v1/models lists those there are", name)
	}
	return model, g.simulator, nil
}

// Models lists what the principal can call.
func (g *Gateway) Models(p *access.Principal) []*catalog.Model {
	if p.Environment == accounts.Live {
		return nil
	}
	return g.catalog.Models()
}

// CatalogDate is the day of the table of models.
func (g *Gateway) CatalogDate() time.Time { return g.catalog.AsOf }

// Model returns one of them.
func (g *Gateway) Model(p *access.Principal, id string) (*catalog.Model, error) {
	if p.Environment == accounts.Test {
		if m := g.catalog.Find(id); m != nil {
			return m, nil
		}
	}
	return nil, fault.New(fault.ModelNotFound, "there is no model %q; GET /v1/models lists those there are", id)
}

// upstreamFault keeps what a provider says to itself: the caller gets a code
// of ours, the log the cause.
func upstreamFault(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.UpstreamTimeout, "the model provider did not answer in time").Because(err)
	}
	return fault.New(fault.Upstream, "the model provider failed to answer").Because(err)
}
