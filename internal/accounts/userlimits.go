package accounts

import (
	"cmp"
	"context"
	"slices"

	"turnpike/internal/credits"
	"turnpike/internal/fault"
)

const maxUserRate = 100_000_000

// UserLimits are limits of an end user. Nil or empty fields are not set.
type UserLimits struct {
	Budget            *credits.Micro `json:"budget,omitzero"`
	Window            Window         `json:"window,omitzero"`
	RequestsPerMinute *int64         `json:"requests_per_minute,omitzero"`
}

// Or returns the limits with the fields that aren't set taken from others.
func (l UserLimits) Or(others UserLimits) UserLimits {
	return UserLimits{cmp.Or(l.Budget, others.Budget), cmp.Or(l.Window, others.Window), cmp.Or(l.RequestsPerMinute, others.RequestsPerMinute)}
}

// Equal reports whether the limits are the same.
func (l UserLimits) Equal(o UserLimits) bool {
	return equal(l.Budget, o.Budget) && l.Window == o.Window && equal(l.RequestsPerMinute, o.RequestsPerMinute)
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// Check checks the limits. prefix is the path of the object that has them, such as "user_limits.".
func (l UserLimits) Check(prefix string) error {
	if l.Budget != nil && *l.Budget < 0 {
		return fault.Invalid(prefix+"budget", "%sbudget must be an amount of credits.", prefix)
	}
	if l.Window != "" && !slices.Contains(Windows, l.Window) {
		return fault.Invalid(prefix+"window", "%swindow must be day, week, month or lifetime.", prefix)
	}
	if n := l.RequestsPerMinute; n != nil && (*n < 1 || *n > maxUserRate) {
		return fault.Invalid(prefix+"requests_per_minute", "%srequests_per_minute must be from 1 to %d.", prefix, maxUserRate)
	}
	return nil
}

// UserSettings are a workspace's settings of end users.
type UserSettings struct {
	// FromRequests means that the user in a request's body has an account, too.
	FromRequests bool
	Default      UserLimits
	// AlertThresholds are those of users' budgets. If they are nil, the workspace's apply, and there are only events.
	AlertThresholds AlertThresholds
}

// UserSettings returns a workspace's settings of end users. It is usually served from memory.
func (d *Directory) UserSettings(ctx context.Context, workspaceID string) (UserSettings, error) {
	w, _, err := d.budgets(ctx, projectKey{Tenant: Tenant{WorkspaceID: workspaceID}})
	if err != nil {
		return UserSettings{}, err
	}
	return w.Users, nil
}
