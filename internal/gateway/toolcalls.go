package gateway

import (
	"context"
	"errors"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/spend"
)

// ReserveToolCall reserves the price of a tool call under every budget that applies. The call's log entry
// holds the reservation, and settling the entry charges its credits. Test calls are free.
func (g *Gateway) ReserveToolCall(ctx context.Context, c Call, price credits.Micro) error {
	if err := g.identifyUser(ctx, &c, nil); err != nil {
		return err
	}
	if c.Principal.Environment == accounts.Test {
		return nil
	}
	caps, applied, err := g.caps(ctx, c, nil, c.Record.CreatedAt())
	if err != nil {
		return err
	}
	reservation, err := g.current.Load().reserveAmount(ctx, c, caps, price)
	if refusal, ok := errors.AsType[*spend.Refusal](err); ok {
		return refusalFault(c, applied, refusal.For(price), "")
	}
	if err != nil {
		return err
	}
	c.Record.Note(func(e *audit.Entry) {
		e.Hold, e.Accounts, e.Reserved = reservation, reservation.Accounts(), reservation.Amount
	})
	return nil
}
