package spend

import (
	"cmp"
	"context"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
)

// AssignUser gives a new token an end user, whose account gets the limits.
func AssignUser(ctx context.Context, tx *db.Tx, t *access.Token, use endusers.Use) (*endusers.User, error) {
	if err := cmp.Or(endusers.CheckName("user", use.Name), use.Limits.Check("user_limits.")); err != nil {
		return nil, err
	}
	u, err := endusers.Ensure(ctx, tx, use)
	if err != nil {
		return nil, err
	}
	t.EndUserID = u.ID
	if use.Limits == (accounts.UserLimits{}) || u.Environment != accounts.Live {
		return u, nil
	}
	return u, BudgetChanged(ctx, tx, Account{Level: EndUser, ID: u.ID}, use.At)
}
