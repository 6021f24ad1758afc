package accounts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// LimitsField is the field of keys and projects with their limits.
const LimitsField = "limits"

const (
	MaxLimits = 20
	maxRate   = 100_000_000 // requests or concurrent requests, as rate_limit of a key
	maxTokens = 1_000_000_000_000
)

// Limit is one of the limits of a key or a project. It applies to requests for its models, in addition
// to all others that do.
type Limit struct {
	ID                 string           `json:"id"`              // its spending stays when other limits change
	Models             catalog.Patterns `json:"models,omitzero"` // nil is every model
	Budget             *credits.Micro   `json:"budget,omitzero"`
	Window             Window           `json:"window,omitzero"` // of the budget
	RequestsPerMinute  *int64           `json:"requests_per_minute,omitzero"`
	TokensPerMinute    *int64           `json:"tokens_per_minute,omitzero"`
	ConcurrentRequests *int64           `json:"concurrent_requests,omitzero"`
}

// Match reports whether the limit applies to a model. A limit of a model applies to its aliases, too.
func (l *Limit) Match(o *catalog.Offer) bool {
	return l.Models.Match(o.ID) || o.AliasOf != "" && l.Models.Match(o.AliasOf)
}

// LimitParam names a field of a limit in errors: limits[2].budget.
func LimitParam(at int, field string) string { return fmt.Sprintf("%s[%d].%s", LimitsField, at, field) }

// ReplaceLimits checks the new limits of a key or a project and gives each an ID: the one that the client
// names, or that of the limit before that it replaces, or a new one.
func ReplaceLimits(before, after []Limit) error {
	if len(after) > MaxLimits {
		return fault.Invalid(LimitsField, "limits may have at most %d entries.", MaxLimits)
	}
	used := make([]bool, len(before))
	claim := func(same func(Limit) bool) string {
		for i, l := range before {
			if !used[i] && same(l) {
				used[i] = true
				return l.ID
			}
		}
		return ""
	}
	for i, l := range after {
		if err := l.check(i); err != nil {
			return err
		}
		if l.ID != "" && claim(func(b Limit) bool { return b.ID == l.ID }) == "" {
			return fault.Invalid(LimitParam(i, "id"), "Unknown or repeated limit %q. Omit id to add a limit.", l.ID)
		}
	}
	// The closest match first, so that a wider limit doesn't take the ID of one that stays.
	for _, replaces := range []func(l, b Limit) bool{
		func(l, b Limit) bool { return l.Window == b.Window && l.covers(b) && b.covers(l) },
		func(l, b Limit) bool { return (l.Budget == nil || b.Budget == nil) && l.covers(b) && b.covers(l) },
		func(l, b Limit) bool { return l.Window == b.Window && l.covers(b) },
	} {
		for i := range after {
			if l := &after[i]; l.ID == "" {
				l.ID = claim(func(b Limit) bool { return replaces(*l, b) })
			}
		}
	}
	for i := range after {
		if after[i].ID == "" {
			after[i].ID = ids.New(ids.Limit)
		}
	}
	return nil
}

// covers reports whether the limit is for at least the same models as another one.
func (l *Limit) covers(other Limit) bool {
	_, fewer := other.Models.FirstWider(l.Models)
	return !fewer
}

func (l *Limit) check(at int) error {
	if l.Models != nil && len(l.Models) == 0 {
		return fault.Invalid(LimitParam(at, "models"), "models must have at least one entry. Omit it to limit all models.")
	}
	if err := l.Models.Check(LimitParam(at, "models")); err != nil {
		return err
	}
	if slices.ContainsFunc(l.Models, func(name string) bool { return strings.HasPrefix(name, catalog.RoutePrefix) }) {
		return fault.Invalid(LimitParam(at, "models"), "A limit is for models and cannot name a route. Name the models of the route.")
	}
	if l.Budget == nil && l.RequestsPerMinute == nil && l.TokensPerMinute == nil && l.ConcurrentRequests == nil {
		return fault.Invalid(fmt.Sprintf("%s[%d]", LimitsField, at), "A limit needs a budget, requests_per_minute, tokens_per_minute or concurrent_requests.")
	}
	switch {
	case l.Budget == nil && l.Window != "":
		return fault.Invalid(LimitParam(at, "window"), "window is for a limit with a budget. Add budget, or omit window.")
	case l.Budget != nil && !slices.Contains(Windows, l.Window):
		return fault.Invalid(LimitParam(at, "window"), "window is required with budget and must be day, week, month or lifetime.")
	}
	for _, n := range []struct {
		field string
		value *int64
		most  int64
	}{{"requests_per_minute", l.RequestsPerMinute, maxRate}, {"tokens_per_minute", l.TokensPerMinute, maxTokens}, {"concurrent_requests", l.ConcurrentRequests, maxRate}} {
		if n.value != nil && (*n.value < 1 || *n.value > n.most) {
			return fault.Invalid(LimitParam(at, n.field), "%s must be from 1 to %d.", n.field, n.most)
		}
	}
	return nil
}

// FirstMissingLimit returns the position of the first of the owner's limits that the list lacks: it must have
// one for at least the same models, with the same values or lower ones. It returns -1 if there is none.
func FirstMissingLimit(list, owner []Limit) int {
	return slices.IndexFunc(owner, func(own Limit) bool {
		return !slices.ContainsFunc(list, func(l Limit) bool { return l.isWithin(&own) })
	})
}

// FirstDroppedLimit returns the ID of a limit before that was within one of the owner's limits, and no longer
// is: what was spent under it would no longer count. It returns an empty string if there is none.
func FirstDroppedLimit(before, after, owner []Limit) string {
	for _, own := range owner {
		for _, b := range before {
			if b.isWithin(&own) && !slices.ContainsFunc(after, func(l Limit) bool { return l.ID == b.ID && l.isWithin(&own) }) {
				return b.ID
			}
		}
	}
	return ""
}

func (l *Limit) isWithin(own *Limit) bool {
	return l.covers(*own) && (own.Budget == nil || l.Budget != nil && l.Window == own.Window && *l.Budget <= *own.Budget) &&
		isNoHigher(l.RequestsPerMinute, own.RequestsPerMinute) && isNoHigher(l.TokensPerMinute, own.TokensPerMinute) &&
		isNoHigher(l.ConcurrentRequests, own.ConcurrentRequests)
}

func isNoHigher(n, own *int64) bool { return own == nil || n != nil && *n <= *own }

// Raise raises a monthly budget for a time. It ends without a job.
type Raise struct {
	Budget credits.Micro `json:"budget"` // instead of the monthly budget, if that is lower
	Until  time.Time     `json:"until"`
}

// IsActive reports whether the raise still applies.
func (r *Raise) IsActive(at time.Time) bool { return r != nil && at.Before(r.Until) }

// Equal reports whether two raises are the same.
func (r *Raise) Equal(other *Raise) bool {
	return r == other || r != nil && other != nil && r.Budget == other.Budget && r.Until.Equal(other.Until)
}

// IsWithin reports whether another raise includes this one: it is at least as high and as long.
func (r *Raise) IsWithin(other *Raise) bool {
	return other != nil && r.Budget <= other.Budget && !r.Until.After(other.Until)
}

// StoredLimits returns limits for a database column.
func StoredLimits(list []Limit) any {
	if len(list) == 0 {
		return nil
	}
	return db.JSON(list)
}

// Apply returns the monthly budget at a time; nil is unlimited.
func (r *Raise) Apply(monthly *credits.Micro, at time.Time) *credits.Micro {
	if monthly == nil || !r.IsActive(at) || r.Budget <= *monthly {
		return monthly
	}
	return &r.Budget
}

// Check checks a new raise of a monthly budget.
func (r *Raise) Check(monthly *credits.Micro, now time.Time) error {
	switch {
	case r == nil:
		return nil
	case monthly == nil:
		return fault.Invalid("temporary_raise", "There is no monthly_budget to raise. Set one, or omit temporary_raise.")
	case r.Budget <= *monthly:
		return fault.Invalid("temporary_raise.budget", "temporary_raise.budget must be more than the monthly_budget, which is %s.", monthly)
	case !r.IsActive(now):
		return fault.Invalid("temporary_raise.until", "temporary_raise.until must be a Unix time in the future.")
	}
	return nil
}
