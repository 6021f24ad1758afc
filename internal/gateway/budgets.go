package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
	"turnpike/internal/spend"
)

// caps returns every account that a call to one of the targets is charged to at a time, with its budget, and
// the limits among them. Without targets, only limits for all models apply.
func (g *Gateway) caps(ctx context.Context, c Call, targets []target, at time.Time) (caps []spend.Cap, applied []callLimit, err error) {
	p := c.Principal
	workspace, project, err := g.Budgets(ctx, p.Tenant, c.Project)
	if err != nil {
		return nil, nil, err
	}
	if stop := workspace.UnbilledStop; stop != nil && stop.Period == string(spend.PeriodOf(at)) && !g.ignoresUnbilled(targets) {
		return nil, nil, unbilledFault(stop)
	}
	caps = []spend.Cap{
		{Account: spend.Account{Level: spend.Workspace, ID: p.WorkspaceID}, Limit: workspace.MonthlyCredits},
		{Account: spend.Account{Level: spend.Key, ID: p.KeyID}, Limit: p.Raise.Apply(p.MonthlyBudget, at)},
	}
	if project != nil {
		caps = append(caps, spend.Cap{Account: spend.Account{Level: spend.Project, ID: spend.ProjectID(p.WorkspaceID, c.Project)}, Limit: project.Raise.Apply(project.MonthlyBudget, at)})
	}
	for _, a := range p.Ancestors {
		caps = append(caps, spend.Cap{Account: spend.Account{Level: spend.Key, ID: a.KeyID}, Limit: a.Raise.Apply(a.MonthlyBudget, at)})
	}
	for _, l := range limitsOf(p, project) {
		if l.Budget != nil && l.appliesTo(targets) {
			caps = append(caps, spend.Cap{Account: l.account(), Window: l.Window, Limit: l.Budget})
			applied = append(applied, l)
		}
	}
	if u, found := c.userCap(); found {
		caps = append(caps, u)
	}
	return caps, applied, nil
}

// unbilledSource is the limit of unbilled credits, as limit_source shows it.
const unbilledSource = "unbilled"

func unbilledFault(stop *accounts.UnbilledStop) error {
	resets := spend.Period(stop.Period).End().Unix()
	f := fault.New(fault.InsufficientCredits, "Requests of this workspace have cost %s credits more than was reserved for them this month. The limit is %s. Ask the operator of this server to reset it.", stop.Unbilled, stop.Limit)
	f.Details = limitDetails{LimitSource: unbilledSource, Limit: stop.Limit, Spent: stop.Unbilled, ResetsAt: &resets}
	return f
}

// ignoresUnbilled reports whether the operator ignores the unbilled credits of all providers of the targets.
func (g *Gateway) ignoresUnbilled(targets []target) bool {
	return len(targets) > 0 && !slices.ContainsFunc(targets, func(t target) bool { return !g.IgnoresUnbilled(t.provider.Name()) })
}

// IgnoresUnbilled reports whether the unbilled credits of a provider don't count toward limits.
func (g *Gateway) IgnoresUnbilled(provider string) bool {
	return slices.ContainsFunc(g.current.Load().Upstreams, func(u Upstream) bool { return u.IgnoreUnbilled && u.Provider.Name() == provider })
}

// callLimit is a limit of a call's key, of an ancestor of that key, or of the call's project.
type callLimit struct {
	*accounts.Limit
	level    spend.Level // of the owner: a key or a project
	owner    string
	position int
}

// limitsOf returns all limits of a call, for any model. The project may be nil.
func limitsOf(p *access.Principal, project *accounts.Project) []callLimit {
	list := make([]callLimit, 0, len(p.Limits))
	add := func(level spend.Level, owner string, limits []accounts.Limit) {
		for i := range limits {
			list = append(list, callLimit{&limits[i], level, owner, i})
		}
	}
	add(spend.Key, p.KeyID, p.Limits)
	for _, a := range p.Ancestors {
		add(spend.Key, a.KeyID, a.Limits)
	}
	if project != nil && len(project.Limits) > 0 {
		add(spend.Project, spend.ProjectID(project.WorkspaceID, project.ID), project.Limits)
	}
	return list
}

// findLimits is limitsOf before the call's project may exist.
func (g *Gateway) findLimits(ctx context.Context, c Call) ([]callLimit, error) {
	if c.Project == "" {
		return limitsOf(c.Principal, nil), nil
	}
	_, project, err := g.Budgets(ctx, c.Principal.Tenant, c.Project)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	return limitsOf(c.Principal, project), nil
}

func (l callLimit) account() spend.Account { return spend.LimitAccount(l.level, l.owner, l.ID) }

// appliesTo reports whether the limit applies to one of the targets. A limit for all models always does.
func (l callLimit) appliesTo(targets []target) bool {
	for i := range targets {
		if l.Match(targets[i].offer) {
			return true
		}
	}
	return l.Models == nil
}

// without returns the targets to which the limit doesn't apply.
func (l callLimit) without(targets []target) []target {
	if l.Models == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return l.Match(t.offer) })
}

// rates returns the limits of requests. The steps of an agent run don't count as requests.
func (l callLimit) rates(c Call) limits.Subject {
	s := limits.Subject{ID: l.ID}
	set := func(field, value *int64) {
		if value != nil {
			*field = *value
		}
	}
	if !c.Step {
		set(&s.Limits.RequestsPerMinute, l.RequestsPerMinute)
	}
	set(&s.Limits.TokensPerMinute, l.TokensPerMinute)
	set(&s.Limits.InFlight, l.ConcurrentRequests)
	return s
}

// name describes the limit in messages.
func (l callLimit) name() string {
	if l.Models == nil {
		return fmt.Sprintf("limit %s of the %s", l.ID, l.level)
	}
	return fmt.Sprintf("limit %s of the %s for %s", l.ID, l.level, strings.Join(l.Models, ", "))
}

// isAncestors reports whether the limit belongs to a key that created the principal's.
func (l callLimit) isAncestors(p *access.Principal) bool {
	return l.level == spend.Key && l.owner != p.KeyID
}

// source is who set the limit, as limit_source shows it.
func (l callLimit) source() spend.Level {
	if l.Models != nil {
		return "model"
	}
	return l.level
}

// limitDetails are the details of an error by a budget.
type limitDetails struct {
	LimitSource spend.Level     `json:"limit_source"`
	Level       spend.Level     `json:"level,omitzero"`    // the owner of one of its limits; empty for its monthly budget
	LimitID     string          `json:"limit_id,omitzero"` // of that limit
	Window      accounts.Window `json:"window,omitzero"`   // of that limit
	Limit       credits.Micro   `json:"limit"`
	Spent       credits.Micro   `json:"spent"`
	Reserved    credits.Micro   `json:"reserved"`  // for calls and jobs in progress
	ResetsAt    *int64          `json:"resets_at"` // null for a budget that never starts again, such as that of a run
}

// rateDetails are the details of an error by a rate of a limit.
type rateDetails struct {
	LimitSource spend.Level `json:"limit_source"`
	Level       spend.Level `json:"level"`
	LimitID     string      `json:"limit_id,omitzero"`
}

// ancestorDetails are what the owner of this key may know about an ancestor's budget.
type ancestorDetails struct {
	LimitSource string `json:"limit_source"`
	ResetsAt    *int64 `json:"resets_at"`
}

const ancestorSource = "ancestor_key"

func ancestorFault(r *spend.Refusal, hint string) *fault.Error {
	budget := "monthly budget"
	if r.Level != spend.Key {
		budget = "budget for this model"
	}
	f := fault.New(fault.BudgetExceeded, "This request needs up to %s credits, more than a key that created this key has left of its %s.%s The owner of that key can raise it. %s", r.Needs, budget, whenRefilled(r), hint)
	f.Details = ancestorDetails{LimitSource: ancestorSource, ResetsAt: resetsAt(r)}
	return f
}

// whenRefilled is a sentence about the time when the budget has more.
func whenRefilled(r *spend.Refusal) string {
	switch {
	case r.Transient:
		return " Retry when requests in progress have finished."
	case !r.Resets.IsZero():
		return r.Resets.UTC().Format(" It resets on January 2, 2006 at 15:04 UTC.")
	}
	return ""
}

func resetsAt(r *spend.Refusal) *int64 {
	if r.Resets.IsZero() {
		return nil
	}
	at := r.Resets.Unix()
	return &at
}

// inWindow says in messages when a budget was used.
var inWindow = map[accounts.Window]string{accounts.WindowDay: "today", accounts.WindowWeek: "this week", accounts.WindowMonth: "this month", accounts.WindowLifetime: "so far"}

// refusalFault converts the refusal of a budget, which may be one of the limits. The hint is what to do other
// than raising it. The settlement of the log entry publishes the event about the refusal.
func refusalFault(c Call, of []callLimit, r *spend.Refusal, hint string) error {
	p := c.Principal
	i := slices.IndexFunc(of, func(l callLimit) bool { return l.account() == r.Account })
	by := &audit.Refuser{Kind: audit.RefusedByBudget, Level: string(r.Level), ID: ownerID(r.Level, r.ID)}
	if i >= 0 {
		by = of[i].refuser(audit.RefusedByBudget)
	}
	c.Record.Note(func(e *audit.Entry) { e.Hold, e.RefusedBy = r, by })
	if r.Level == spend.Key && r.ID != p.KeyID || i >= 0 && of[i].isAncestors(p) {
		return refusedBudget(ancestorFault(r, hint), r)
	}
	details := limitDetails{LimitSource: r.Level, Limit: r.Limit, Spent: r.Spent, Reserved: r.Reserved, ResetsAt: resetsAt(r)}
	code, param, who, budget, remedy := fault.BudgetExceeded, "", "The "+string(r.Level), "its monthly budget", "An owner or admin of the workspace can raise it."
	switch {
	case i >= 0:
		l := of[i]
		details.LimitSource, details.Level, details.LimitID, details.Window = l.source(), l.level, l.ID, l.Window
		param = accounts.LimitParam(l.position, "budget")
		who, budget = fmt.Sprintf("The %s (%s)", l.name(), param), "its budget "+inWindow[l.Window]
	case r.Level == spend.Workspace:
		code, budget = fault.InsufficientCredits, "its monthly credits"
		remedy = "An owner or admin can raise them on the page Billing or with PATCH /v1/billing."
	case r.Level == spend.EndUser:
		details.Window = r.Window
		budget, remedy = "its budget "+inWindow[r.Window], "An owner or admin of the workspace can raise it with PATCH /v1/users/"+r.ID+"."
	case r.Level == spend.Run:
		budget, remedy, hint = "its budget", "Create the run with a larger budget.", ""
	}
	reserved := ""
	if r.Reserved > 0 {
		reserved = fmt.Sprintf(", with %s reserved for requests in progress", r.Reserved)
	}
	f := fault.Param(code, param, "This request needs up to %s credits. %s has %s left of %s (%s)%s.%s %s %s",
		r.Needs, who, max(0, r.Left()), budget, r.Limit, reserved, whenRefilled(r), remedy, hint)
	f.Message = strings.TrimSpace(f.Message)
	f.Details = details
	return refusedBudget(f, r)
}

// refusedBudget completes the error of a refusal.
func refusedBudget(f *fault.Error, r *spend.Refusal) error {
	if r.Transient {
		f.Retry = fault.RetryCanHelp
	}
	return f.Because(r)
}

// refuser describes the limit for the log.
func (l callLimit) refuser(kind string) *audit.Refuser {
	return &audit.Refuser{Kind: kind, Level: string(l.level), ID: ownerID(l.level, l.owner), LimitID: l.ID}
}

// ownerID returns the ID of an account's owner. Accounts qualify that of a project by its workspace.
func ownerID(level spend.Level, id string) string {
	if level == spend.Project {
		_, id, _ = strings.Cut(id, "/")
	}
	return id
}

// rateFields are the fields of a limit by the kind of a refusal.
var rateFields = map[limits.Kind]string{limits.Requests: "requests_per_minute", limits.Tokens: "tokens_per_minute", limits.InFlight: "concurrent_requests"}

// rateLimitFault converts the refusal of a rate limit, which may be one of the limits.
func rateLimitFault(err error, of []callLimit, c Call) error {
	var r *limits.Refusal
	if !errors.As(err, &r) {
		return err
	}
	r.Headers(c.Header)
	f := fault.New(fault.RateLimitExceeded, "%s", r.Error())
	l := refusedBy(of, err)
	by := &audit.Refuser{Kind: rateFields[r.Kind], Level: string(spend.Key), ID: r.ID}
	switch {
	case l != nil:
		by = l.refuser(rateFields[r.Kind])
	case c.user != nil && r.ID == c.user.ID:
		by.Level = string(spend.EndUser)
	}
	if c.Record != nil {
		c.Record.Note(func(e *audit.Entry) { e.RefusedBy = by })
	}
	if l != nil && l.isAncestors(c.Principal) {
		f.Message = "A limit of a key that created this key refuses this request: " + f.Message
	} else if l != nil {
		f.Param = accounts.LimitParam(l.position, rateFields[r.Kind])
		f.Message = fmt.Sprintf("The %s refuses this request: %s", l.name(), f.Message)
		f.Details = rateDetails{LimitSource: l.source(), Level: l.level, LimitID: l.ID}
	} else if c.user != nil && r.ID == c.user.ID {
		f.Message = "The rate limit of the user refuses this request: " + f.Message
		f.Details = rateDetails{LimitSource: spend.EndUser, Level: spend.EndUser}
	}
	f.RetryAfter = r.RetryAfter
	return f.Because(r)
}

// refusedBy returns the limit whose rate refused a call, or nil.
func refusedBy(of []callLimit, err error) *callLimit {
	r, _ := errors.AsType[*limits.Refusal](err)
	i := slices.IndexFunc(of, func(l callLimit) bool { return r != nil && l.ID == r.ID })
	if i < 0 {
		return nil
	}
	return &of[i]
}

// CheckLimits checks that the models of new limits exist. Those of the limits before may have been removed since.
func (g *Gateway) CheckLimits(before, after []accounts.Limit) error {
	s := g.current.Load()
	for i, l := range after {
		for _, pattern := range l.Models {
			isOld := slices.ContainsFunc(before, func(b accounts.Limit) bool { return slices.Contains(b.Models, pattern) })
			if !isOld && !s.knowsPattern(pattern) {
				param := accounts.LimitParam(i, "models")
				return fault.Invalid(param, "%s has %q, but no model of this server has that name. List the names with GET /v1/models.", param, pattern)
			}
		}
	}
	return nil
}
