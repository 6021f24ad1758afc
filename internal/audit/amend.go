package audit

import (
	"context"
	"errors"
	"fmt"

	"turnpike/internal/credits"
	"turnpike/internal/db"
)

// Amend changes the entry of a request whose work continued after its response,
// in the transaction that ends the work. It returns the changed entry, or nil
// if the log no longer has it.
func Amend(ctx context.Context, tx *db.Tx, requestID string, change func(*Entry)) (*Entry, error) {
	e, err := scanEntry(tx.QueryRow(ctx, "SELECT "+entryColumns+" FROM requests WHERE id = $1"+tx.Lock("requests"), requestID))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("request log: %w", err)
	}
	change(e)
	_, err = tx.Exec(ctx, `UPDATE requests SET model = $2, provider = $3, credits = $4, simulated_credits = $5, unbilled_credits = $6,
		usage_source = $7, price_version = $8 WHERE id = $1`, requestID, db.OrNull(e.Model), db.OrNull(e.Provider), int64(e.Credits), int64(e.SimulatedCredits),
		int64(e.UnbilledCredits), db.OrNull(e.UsageSource), db.OrNull(e.PriceVersion))
	if err != nil {
		return nil, fmt.Errorf("request log: %w", err)
	}
	return e, nil
}

// Tokens returns the token usage of a settled record, as far as it is known.
func (r *Record) Tokens() (input, output int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.entry.InputTokens; n != nil {
		input = *n
	}
	if n := r.entry.OutputTokens; n != nil {
		output = *n
	}
	return input, output
}

// Charged returns the cost of a settled record.
func (r *Record) Charged() credits.Micro {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entry.Credits
}
