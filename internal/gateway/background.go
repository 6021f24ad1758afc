package gateway

import (
	"context"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// ReservedResponse is a background response whose maximum cost is reserved.
type ReservedResponse struct {
	Prepaid
	Reservation  *spend.Reservation // nil for a test call
	Model        string             // that will most likely be called
	Provider     string
	Native       bool // that provider has the Responses API
	PriceVersion string
	InputTokens  int64         // estimated
	InputCost    credits.Micro // of those
}

// ReserveResponse checks a request for a background response, counts it toward the rate limits and
// reserves its maximum cost. The caller makes the call later, with Prepaid.
func (g *Gateway) ReserveResponse(ctx context.Context, c Call, in *responses.Request) (*ReservedResponse, error) {
	s := g.current.Load()
	r, targets, err := s.routeResponse(ctx, c, in)
	if err != nil {
		return nil, err
	}
	if err := r.priceSearch(targets); err != nil {
		return nil, err
	}
	if err := g.identifyUser(ctx, &c, nil); err != nil {
		return nil, err
	}
	first := targets[0]
	r.runsLater = true
	admitted, err := s.checkRateLimit(ctx, c, r, targets)
	if err != nil {
		return nil, err
	}
	admitted.ticket.End() // the slot in flight: background responses have their own limits
	if c.UseProject != nil {
		if err := c.UseProject(ctx); err != nil {
			return nil, err
		}
	}
	input := r.withEstimatedInput(providers.Usage{}, first)
	out := &ReservedResponse{Model: first.offer.ID, Provider: first.provider.Name(), Native: first.responder() != nil, PriceVersion: s.Catalog.PriceVersion(),
		InputTokens: input.InputTokens, InputCost: first.offer.Cost(catalog.Units{Tokens: catalog.Tokens{Input: input.InputTokens}})}
	if c.Principal.Environment == accounts.Test { // test calls are free
		return out, nil
	}
	reserved, err := s.reserve(ctx, c, r, targets)
	if err != nil {
		return nil, err
	}
	out.Reservation, out.MaxOutput, out.Amount = reserved.Reservation, reserved.maxOutput, reserved.Amount
	c.Record.Note(func(e *audit.Entry) { e.Accounts = out.Reservation.Accounts() })
	return out, nil
}

// usePrepaid is reserve for a call whose job has the reservation.
func usePrepaid(_ context.Context, c Call, _ *request, targets []target) (*reservedCall, error) {
	return &reservedCall{Reservation: &spend.Reservation{Amount: c.Prepaid.Amount}, maxOutput: c.Prepaid.MaxOutput, targets: targets}, nil
}

// SoFar returns the tokens of a stream so far and their cost, as if it ended now.
func (s *Stream) SoFar() (providers.Usage, credits.Micro) {
	u := clampUsage(s.call.request.withEstimatedInput(s.usage(), s.call.target))
	u.ToolCalls = s.call.request.toolCalls(s.call.target, u)
	return u, s.call.target.offer.Cost(unitsOf(u))
}
