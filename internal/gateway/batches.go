package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// BatchCall is a call that a provider's batch API makes, at its batch price. Preparing it without a
// Result reserves its maximum cost and returns the request. With a Result, the call ends as if the
// provider had just sent that response.
type BatchCall struct {
	Provider string
	Result   *providers.RawResponse

	// Set by preparing.

	Reservation  *spend.Reservation // nil if the call is prepaid
	MaxOutput    int64              // output tokens that the reservation pays for; 0 if it sets no limit
	Model        string
	PriceVersion string
	Request      *providers.RawRequest
}

// BatchProvider returns the name of a provider whose batch API can make requests to all of the models,
// or an empty string.
func (g *Gateway) BatchProvider(models []string, kind catalog.Kind) string {
	s := g.current.Load()
	if slices.ContainsFunc(models, g.isRouterValue) {
		return ""
	}
	for _, u := range s.Upstreams {
		maker := u.batchMaker()
		if maker == nil || maker.OneModelPerBatch() && len(models) > 1 || !supportsKind(u.Provider, kind) {
			continue
		}
		if !slices.ContainsFunc(models, func(model string) bool {
			return !slices.ContainsFunc(s.targetsFor(accounts.Live, model, kind), func(t target) bool { return t.provider == u.Provider && t.offer.Priced })
		}) {
			return u.Provider.Name()
		}
	}
	return ""
}

// BatchMaker returns the batch API of a provider, or nil.
func (g *Gateway) BatchMaker(provider string) providers.BatchMaker {
	for _, u := range g.current.Load().Upstreams {
		if u.Provider.Name() == provider {
			return u.batchMaker()
		}
	}
	return nil
}

// batchMaker returns the provider's batch API, if the operator has set its price.
func (u Upstream) batchMaker() providers.BatchMaker {
	if m, ok := u.Provider.(providers.BatchMaker); ok && u.BatchPercent > 0 && m.HasBatches() {
		return m
	}
	return nil
}

// batchTarget returns the target at the batch's provider, with its batch price. The batch API says
// nothing about the health of other calls.
func (g *snapshot) batchTarget(b *BatchCall, targets []target) ([]target, error) {
	for _, u := range g.Upstreams {
		if u.Provider.Name() != b.Provider || u.batchMaker() == nil {
			continue
		}
		for _, t := range targets {
			if t.provider == u.Provider {
				offer := *t.offer
				offer.Price = offer.Price.Percent(u.BatchPercent)
				t.offer, t.health = &offer, &health{listed: t.health.listed}
				return []target{t}, nil
			}
		}
	}
	return nil, fault.Param(fault.ModelNotFound, "model", "The provider %q of this batch no longer offers the model. Create another batch.", b.Provider)
}

// prepareBatch reserves the maximum cost of a call and returns its request in the BatchCall.
func (g *snapshot) prepareBatch(ctx context.Context, c Call, r *request, targets []target, send sendFunc) (err error) {
	b, t := c.Batch, targets[0]
	b.Model, b.PriceVersion = t.offer.ID, g.Catalog.PriceVersion()
	if c.Prepaid != nil {
		b.MaxOutput = c.Prepaid.MaxOutput
	} else {
		reserved, err := g.reserve(ctx, c, r, targets)
		if err != nil {
			return err
		}
		b.Reservation, b.MaxOutput = reserved.Reservation, reserved.maxOutput
	}
	if b.MaxOutput > 0 {
		r.maxOutput = b.MaxOutput
	}
	var recorded requestRecorder
	_, err = send(providers.WithTransport(ctx, &recorded), t, outputLimitFor(t, r, g.maxOutputFor(t, r)))
	if b.Request = recorded.request; b.Request != nil {
		c.Record.Note(func(e *audit.Entry) { e.Model, e.Provider = t.offer.ID, t.provider.Name() })
		return nil
	}
	if b.Reservation != nil {
		b.Reservation.Release()
	}
	return upstreamFault(err) // the provider's format can't express it
}

// requestRecorder keeps a request instead of sending it.
type requestRecorder struct{ request *providers.RawRequest }

func (r *requestRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body) //budget:own it is written here
	if err != nil {
		return nil, err
	}
	r.request = &providers.RawRequest{Path: req.URL.Path, Header: req.Header, Body: body}
	return newResponse(req, http.StatusTeapot, nil), nil
}

// resultTransport returns the same response to every request.
type resultTransport struct{ result *providers.RawResponse }

func (t resultTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return newResponse(req, t.result.Status, t.result.Body), nil
}

func newResponse(req *http.Request, status int, body []byte) *http.Response {
	return &http.Response{Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}
}
