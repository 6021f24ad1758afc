package gateway

import (
	"context"
	"errors"

	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/spend"
)

const (
	// minOutput is the least number of output tokens for which a call is made.
	minOutput = 16
	// maxUnknownOutput limits the output of models with an unknown maximum: far more than any
	// can produce, and its cost doesn't overflow.
	maxUnknownOutput = 10_000_000
)

// maxOutputFor returns the maximum output tokens of one choice: the client's or the server's
// limit, within the model's. The server's limit leaves room for the input, because models with
// a small context window reject a limit that doesn't fit next to it. The tokens of media are
// not known well enough for that.
func (g *snapshot) maxOutputFor(t target, r *request) int64 {
	n := r.maxOutput
	if n == 0 {
		n = g.DefaultMaxOutput
		if rest := t.offer.ContextWindow - estimateTokens(r.maxInput); rest >= minOutput && !r.needs.vision && !r.needs.audio && !r.fillsWindow {
			n = min(n, rest)
		}
	}
	switch {
	case t.offer.MaxOutputTokens > 0:
		return min(n, t.offer.MaxOutputTokens)
	case t.offer.ContextWindow > 0:
		return min(n, t.offer.ContextWindow)
	}
	return min(n, maxUnknownOutput)
}

// maxTokenCost returns the maximum cost of the request's input, of so many output tokens and of the
// hosted tools.
func maxTokenCost(t target, r *request, output int64) credits.Micro {
	p := t.offer.Price
	if r.hourCache {
		p.Input = p.HighestHourInput()
	} else {
		p.Input = p.HighestInput()
	}
	return min(credits.Max, p.Cost(catalog.Tokens{Input: r.maxInputAt(t), Output: output + r.predicted})+r.maxToolCost(t))
}

func (g *snapshot) maxCost(t target, r *request) credits.Micro {
	if r.maxUnits != (catalog.Units{}) {
		return t.maxUnitCost(r.maxUnits)
	}
	return maxTokenCost(t, r, r.choices*g.maxOutputFor(t, r))
}

// reservedCall is a call whose maximum cost is reserved.
type reservedCall struct {
	*spend.Reservation
	maxOutput int64       // of one choice, or 0 for no limit
	targets   []target    // whose limits have enough left
	limits    []callLimit // that the reservation counts toward
}

// reserve reserves the maximum cost of the call at the most expensive target, under every
// budget that applies. If a budget has less left and the client set no limit, the output is
// limited to what is left. If the limit of some models has too little left, the call goes to
// targets to which it doesn't apply.
func (g *snapshot) reserve(ctx context.Context, c Call, r *request, targets []target) (*reservedCall, error) {
	for {
		caps, applied, err := g.caps(ctx, c, targets, c.Record.CreatedAt())
		if err != nil {
			return nil, err
		}
		reservation, output, err := g.reserveAt(ctx, c, r, pricedTargets{targets, caps})
		if err == nil {
			return &reservedCall{reservation, output, targets, applied}, nil
		}
		refusal, ok := errors.AsType[*spend.Refusal](err)
		if !ok {
			return nil, err
		}
		rest := withoutRefused(applied, refusal, targets)
		if r.runsLater || len(rest) == 0 {
			return nil, budgetFault(c, r, refused{refusal, applied, targets[0]})
		}
		targets = rest
	}
}

// withoutRefused returns the targets to which the limit that refused doesn't apply. It returns none if
// another budget refused.
func withoutRefused(applied []callLimit, r *spend.Refusal, targets []target) []target {
	for _, l := range applied {
		if l.account() == r.Account {
			return l.without(targets)
		}
	}
	return nil
}

type pricedTargets struct {
	targets []target
	caps    []spend.Cap
}

// reserveAt reserves under the budgets, or returns a *spend.Refusal.
func (g *snapshot) reserveAt(ctx context.Context, c Call, r *request, at pricedTargets) (*spend.Reservation, int64, error) {
	targets, caps := at.targets, at.caps
	var amount credits.Micro
	var last *spend.Refusal
	for _, t := range targets {
		amount = max(amount, g.maxCost(t, r))
	}
	least := minCost(targets, r, amount)
	output := int64(0)
	for range len(caps) + 2 { // each budget, and the allowance, can have less left than the one before
		reservation, err := g.reserveAmount(ctx, c, caps, amount)
		var refusal *spend.Refusal
		if err == nil || !errors.As(err, &refusal) {
			return reservation, output, err
		}
		left := refusal.Left()
		lower := affordableOutput(targets, r, left)
		if r.maxOutput != 0 || left >= amount || lower < minOutput {
			return nil, 0, refusal.For(least)
		}
		last, amount, output = refusal, left, lower // another budget may have even less left
	}
	return nil, 0, last.For(least)
}

// minCost returns the least amount for which the call is made: all that it can cost, unless
// its output may be limited.
func minCost(targets []target, r *request, maxCost credits.Micro) (least credits.Micro) {
	if r.maxOutput != 0 || r.choices == 0 {
		return maxCost
	}
	for _, t := range targets {
		least = max(least, maxTokenCost(t, r, r.choices*minOutput))
	}
	return min(least, maxCost)
}

// refused is a call to a target that a budget refused.
type refused struct {
	*spend.Refusal
	limits []callLimit
	target target
}

// budgetFault notes in the log which model there were no credits for.
func budgetFault(c Call, r *request, by refused) error {
	noteModel(c, by.target.offer.ID)
	if r.choices > 0 && !c.Step { // the steps of a run have no max_tokens
		return refusalFault(c, by.limits, by.Refusal, "If your program can set max_tokens, a lower value needs fewer credits.")
	}
	return refusalFault(c, by.limits, by.Refusal, requestLess)
}

func noteModel(c Call, model string) {
	c.Record.Note(func(e *audit.Entry) { e.Model = model })
}

// requestLess is the hint where no number of tokens applies.
const requestLess = "A smaller request needs fewer credits."

func (g *snapshot) reserveAmount(ctx context.Context, c Call, caps []spend.Cap, amount credits.Micro) (*spend.Reservation, error) {
	if a := c.Allowance; a != nil && (a.Limit <= 0 || amount > a.Limit-a.Spent) { // 0 blocks free calls, too
		return nil, &spend.Refusal{Account: spend.Account{Level: spend.Run}, Limit: a.Limit, Spent: a.Spent}
	}
	// The month of the log entry, to which a recovered charge belongs as well.
	return g.Leases.Reserve(ctx, caps, amount, c.Record.CreatedAt())
}

// affordableOutput returns how many output tokens per choice the amount pays for at every target.
func affordableOutput(targets []target, r *request, amount credits.Micro) int64 {
	if r.choices == 0 {
		return 0
	}
	least := int64(-1)
	for _, t := range targets {
		rest := amount - maxTokenCost(t, r, 0)
		if rest <= 0 {
			return 0
		}
		if t.offer.Price.Output == 0 {
			continue
		}
		n := min(int64(rest)/r.choices, maxTokenCount) * 1_000_000 / int64(t.offer.Price.Output)
		if least < 0 || n < least {
			least = n
		}
	}
	return least
}
