package api

import (
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/jsonbody"
	"turnpike/internal/web"
)

// limitsObject shows the limits and the temporary raise of a key or a project.
type limitsObject struct {
	Limits         []*limitObject `json:"limits"`
	TemporaryRaise *raiseObject   `json:"temporary_raise"`
}

type limitObject struct {
	ID                 string            `json:"id"`
	Models             *catalog.Patterns `json:"models"`
	Budget             *credits.Micro    `json:"budget"`
	Window             *string           `json:"window"`
	RequestsPerMinute  *int64            `json:"requests_per_minute"`
	TokensPerMinute    *int64            `json:"tokens_per_minute"`
	ConcurrentRequests *int64            `json:"concurrent_requests"`
	Spent              *credits.Micro    `json:"spent"` // in the current window; null without a budget
}

type raiseObject struct {
	Budget credits.Micro `json:"budget"`
	Until  int64         `json:"until"`
}

func newLimitsObject(limits []accounts.Limit, raise *accounts.Raise, now time.Time) (o limitsObject) {
	o.Limits = web.Map(limits, func(l accounts.Limit) *limitObject {
		out := &limitObject{ID: l.ID, Budget: l.Budget, Window: orNil(string(l.Window)), RequestsPerMinute: l.RequestsPerMinute,
			TokensPerMinute: l.TokensPerMinute, ConcurrentRequests: l.ConcurrentRequests}
		if l.Models != nil {
			out.Models = &l.Models
		}
		if l.Budget != nil {
			out.Spent = new(credits.Micro)
		}
		return out
	})
	if raise.IsActive(now) {
		o.TemporaryRaise = &raiseObject{raise.Budget, raise.Until.Unix()}
	}
	return o
}

// addSpent sets the spending under each limit.
func (o *limitsObject) addSpent(spent map[string]credits.Micro) {
	for _, l := range o.Limits {
		if l.Spent != nil {
			*l.Spent = spent[l.ID]
		}
	}
}

// limitFields are the limits and the raise in a request that creates or changes a key or a project.
type limitFields struct {
	Limits         jsonbody.Optional[[]limitInput] `json:"limits"`
	TemporaryRaise jsonbody.Optional[raiseObject]  `json:"temporary_raise"`
}

// limitInput is a limit in a request. The fields of responses that can't be set are ignored, so that a client
// can send back an array that it has read.
type limitInput struct {
	accounts.Limit
	Spent *credits.Micro `json:"spent"`
}

// applyLimits sets the fields that the request has.
func (c *Call) applyLimits(in limitFields, limits *[]accounts.Limit, raise **accounts.Raise) error {
	if in.Limits.Set {
		before := *limits
		*limits = web.Map(in.Limits.Value, func(l limitInput) accounts.Limit { return l.Limit })
		if err := c.s.Gateway.CheckLimits(before, *limits); err != nil {
			return err
		}
	}
	if !in.TemporaryRaise.Set {
		return nil
	}
	*raise = nil
	if r := in.TemporaryRaise.Pointer(); r != nil {
		until, err := fromUnix("temporary_raise.until", &r.Until)
		if err != nil {
			return err
		}
		*raise = &accounts.Raise{Budget: r.Budget, Until: *until}
	}
	return nil
}
