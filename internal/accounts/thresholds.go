package accounts

import (
	"net/mail"
	"slices"

	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// AlertThresholds are percentages of a budget. Spending that reaches one alerts people. Nil means the
// default, and an empty list means no alerts.
type AlertThresholds []int64

// DefaultAlertThresholds are the thresholds of workspaces that set none.
var DefaultAlertThresholds = AlertThresholds{50, 80, 95}

const maxAlertThresholds = 10

// Or returns the thresholds, or the default if they are nil.
func (t AlertThresholds) Or(byDefault AlertThresholds) AlertThresholds {
	if t == nil {
		return byDefault
	}
	return t
}

// Check sorts the thresholds and checks them.
func (t AlertThresholds) Check() error {
	slices.Sort(t)
	if len(t) > maxAlertThresholds {
		return fault.Invalid("alert_thresholds", "alert_thresholds can have at most %d percentages.", maxAlertThresholds)
	}
	for i, percent := range t {
		if percent < 1 || percent > 99 {
			return fault.Invalid("alert_thresholds", "alert_thresholds must have percentages from 1 to 99, not %d. The event budget.exceeded reports 100%%.", percent)
		}
		if i > 0 && percent == t[i-1] {
			return fault.Invalid("alert_thresholds", "alert_thresholds lists %d twice.", percent)
		}
	}
	return nil
}

// Stored returns the value of the column: NULL means the default.
func (t AlertThresholds) Stored() any {
	if t == nil {
		return nil
	}
	return db.JSON(t)
}

// CheckEmail checks an optional email address.
func CheckEmail(param, email string) error {
	if email == "" {
		return nil
	}
	address, err := mail.ParseAddress(email)
	if err != nil || address.Address != email || len(email) > maxName {
		return fault.Invalid(param, "%q is not an email address.", email)
	}
	return nil
}
