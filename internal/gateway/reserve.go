package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
)

// leastOutput is how many tokens of an answer a budget must have room for.
const leastOutput = 16

// mostAnswer bounds an answer where nobody has said what the model's own bound
// is: far beyond what any can say, and what it costs can still be added up.
const mostAnswer = 10_000_000

// outputOf is the most tokens of one choice: the caller's limit or the
// server's, within the model's. Ours also leaves room for the input, as models
// with a small window refuse a limit that does not fit beside it; what media
// take of that is not known well enough.
func (g *Gateway) outputOf(t target, r *request) int64 {
	n := r.maxOutput
	if n == 0 {
		n = g.defaultMaxOutput
		if rest := t.offer.ContextWindow - aboutTokens(r.inputBound); rest >= leastOutput && !r.needs.vision && !r.needs.audio {
			n = min(n, rest)
		}
	}
	switch {
	case t.offer.MaxOutputTokens > 0:
		return min(n, t.offer.MaxOutputTokens)
	case t.offer.ContextWindow > 0:
		return min(n, t.offer.ContextWindow) // an answer stands in it as well
	}
	return min(n, mostAnswer)
}

// upperBound is what a call can cost at a target.
func upperBound(t target, input, output int64) credits.Micro {
	p := t.offer.Price
	p.Input = p.Dearest()
	return p.Cost(catalog.Tokens{Input: input, Output: output})
}

// mostOf is what a call can cost at a target, with what it may make.
func (g *Gateway) mostOf(t target, r *request) credits.Micro {
	if r.media != (catalog.Units{}) {
		return t.most(r.media)
	}
	return upperBound(t, r.inputBound, r.choices*g.outputOf(t, r))
}

// reserve sets aside what the call can cost, under every budget that applies,
// at the dearest of the targets. When a budget has less left than that, and the
// caller named no limit, the answer is bounded to what is left. It returns the
// bound on the output of one choice, 0 for none but each target's own.
func (g *Gateway) reserve(ctx context.Context, c Call, r *request, targets []target) (*spend.Reservation, int64, error) {
	caps, err := g.caps(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	var amount credits.Micro
	var last *spend.Refusal
	for _, t := range targets {
		amount = max(amount, g.mostOf(t, r))
	}
	least := leastOf(targets, r, amount)
	output := int64(0)
	for range len(caps) + 2 { // each budget can have less left than the one before, and so can a run's
		hold, err := g.setAside(ctx, c, caps, amount)
		var refusal *spend.Refusal
		if err == nil || !errors.As(err, &refusal) {
			return hold, output, err
		}
		left := refusal.Left()
		lower := affordable(targets, r, left)
		if r.maxOutput != 0 || left >= amount || lower < leastOutput {
			return nil, 0, refused(c, r, targets[0], refusal.Of(least))
		}
		last, amount, output = refusal, left, lower // another budget may have less left still
	}
	return nil, 0, refused(c, r, targets[0], last.Of(least))
}

// leastOf is for how little a call is made: all that it can cost, unless its
// answer may be bounded to what is left.
func leastOf(targets []target, r *request, most credits.Micro) (least credits.Micro) {
	if r.maxOutput != 0 || r.choices == 0 {
		return most
	}
	for _, t := range targets {
		least = max(least, upperBound(t, r.inputBound, r.choices*leastOutput))
	}
	return min(least, most)
}

// refused notes in the log which model there were no credits for; nobody was
// asked for it.
func refused(c Call, r *request, t target, refusal *spend.Refusal) error {
	noteModel(c, t.offer.ID)
	if r.choices > 0 {
		return refusalFault(c.Principal, refusal, "ask for fewer tokens with max_tokens")
	}
	return refusalFault(c.Principal, refusal, askForLess)
}

func noteModel(c Call, model string) {
	c.Record.Note(func(e *audit.Entry) { e.Model = model })
}

// askForLess is what can be done about a refusal where no number of tokens can
// be named.
const askForLess = "ask for less"

func (g *Gateway) setAside(ctx context.Context, c Call, caps []spend.Cap, amount credits.Micro) (*spend.Reservation, error) {
	if a := c.Allowance; a != nil && (a.Limit <= 0 || amount > a.Limit-a.Spent) { // 0 refuses also what is free
		return nil, &spend.Refusal{Account: spend.Account{Level: spend.Run}, Limit: a.Limit, Spent: a.Spent}
	}
	// The month of the log's entry, in which a recovered charge is as well.
	return g.ledger.Reserve(ctx, caps, amount, c.Record.CreatedAt())
}

// affordable is how many tokens of one choice every target can give for the amount.
func affordable(targets []target, r *request, amount credits.Micro) int64 {
	if r.choices == 0 {
		return 0
	}
	least := int64(-1)
	for _, t := range targets {
		rest := amount - upperBound(t, r.inputBound, 0)
		if rest <= 0 {
			return 0
		}
		if t.offer.Price.Output == 0 {
			continue
		}
		n := int64(rest) / r.choices
		if n > 1<<40 {
			n = 1 << 40
		}
		n = n * 1_000_000 / int64(t.offer.Price.Output)
		if least < 0 || n < least {
			least = n
		}
	}
	return least
}

// caps returns every account that a call is charged to, with its budget.
func (g *Gateway) caps(ctx context.Context, c Call) ([]spend.Cap, error) {
	p := c.Principal
	workspace, project, err := g.budgets.Budgets(ctx, p.WorkspaceID, p.Environment, c.Project)
	if err != nil {
		return nil, err
	}
	caps := []spend.Cap{
		{Account: spend.Account{Level: spend.Workspace, ID: p.WorkspaceID}, Limit: workspace},
		{Account: spend.Account{Level: spend.Key, ID: p.KeyID}, Limit: p.MonthlyBudget},
	}
	if c.Project != "" {
		caps = append(caps, spend.Cap{Account: spend.Account{Level: spend.Project, ID: spend.ProjectID(p.WorkspaceID, c.Project)}, Limit: project})
	}
	for _, a := range p.Ancestors {
		caps = append(caps, spend.Cap{Account: spend.Account{Level: spend.Key, ID: a.KeyID}, Limit: a.MonthlyBudget})
	}
	return caps, nil
}

// Budgets knows what workspaces and projects may spend.
type Budgets interface {
	Budgets(ctx context.Context, workspaceID string, env accounts.Environment, project string) (workspace, ofProject *credits.Micro, err error)
}

var _ Budgets = (*accounts.Directory)(nil)

// limitDetails says which budget has no room.
type limitDetails struct {
	LimitSource spend.Level   `json:"limit_source"`
	Limit       credits.Micro `json:"limit"`
	Spent       credits.Micro `json:"spent"`
	Reserved    credits.Micro `json:"reserved"`  // for calls and jobs under way
	ResetsAt    *int64        `json:"resets_at"` // null for a run's, which never does
}

// ancestorDetails says as much about the budget of another key as the owner of
// this one may know.
type ancestorDetails struct {
	LimitSource string `json:"limit_source"`
	ResetsAt    int64  `json:"resets_at"`
}

func ancestorFault(r *spend.Refusal, hint string) error {
	remedy := "Raise"
	if r.Passing {
		remedy = "Retry when requests in progress have finished, raise"
	}
	f := fault.New(fault.BudgetExceeded, "A key that created this key has too little of its monthly budget left for this request. %s that budget, or %s.", remedy, hint)
	f.Details = ancestorDetails{LimitSource: "ancestor_key", ResetsAt: r.Resets.Unix()}
	return f.Because(r)
}

// refusalFault is the answer, which wraps the refusal. The hint is what to do
// beside raising a budget.
func refusalFault(p *access.Principal, r *spend.Refusal, hint string) error {
	if r.Level == spend.Key && r.ID != p.KeyID {
		return ancestorFault(r, hint)
	}
	details := limitDetails{LimitSource: r.Level, Limit: r.Limit, Spent: r.Spent, Reserved: r.Reserved}
	if !r.Resets.IsZero() {
		at := r.Resets.Unix()
		details.ResetsAt = &at
	}
	aside, wait := "", ""
	if r.Reserved > 0 {
		aside = fmt.Sprintf(", %s are set aside for calls under way", r.Reserved)
	}
	if r.Passing {
		wait = "try again when those have ended, "
	}
	var f *fault.Error
	switch r.Level {
	case spend.Workspace:
		f = fault.New(fault.InsufficientCredits, "the workspace has used %s of its %s credits this month%s, and the call could cost more than is left; %san admin can raise them with PATCH /v1/billing", r.Spent, r.Limit, aside, wait)
	case spend.Run:
		f = fault.New(fault.BudgetExceeded, "the run has used %s of the %s credits that it was given, and its next step could cost more than is left", r.Spent, r.Limit)
	default:
		f = fault.New(fault.BudgetExceeded, "the %s has used %s of its monthly budget of %s credits%s, and the call could cost more than is left; %sraise the budget, or %s", r.Level, r.Spent, r.Limit, aside, wait, hint)
	}
	f.Details = details
	return f.Because(r)
}

// Reserve sets aside what a job can cost, under every budget that applies.
func (g *Gateway) Reserve(ctx context.Context, c Call, q Quote, now time.Time) (*spend.Reservation, error) {
	caps, err := g.caps(ctx, c)
	if err != nil {
		return nil, err
	}
	hold, err := g.ledger.Reserve(ctx, caps, q.Most, now)
	var refusal *spend.Refusal
	if errors.As(err, &refusal) {
		noteModel(c, q.Model)
		return nil, refusalFault(c.Principal, refusal, askForLess)
	}
	if err != nil {
		return nil, err
	}
	c.Record.Note(func(e *audit.Entry) { e.Accounts = hold.Accounts() })
	return hold, nil
}

// Admit counts a request that makes a job against the key's limits: jobs have
// their own pace, so it takes no place among the calls in flight.
func (g *Gateway) Admit(c Call) error {
	ticket, err := g.admit(c, &request{}, target{offer: &catalog.Offer{}})
	if err != nil {
		return err
	}
	ticket.End()
	return nil
}
