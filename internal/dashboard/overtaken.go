package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/webhooks"
)

// A form that changes something sends all its fields, also those that nobody
// touched. If the page was open while somebody else changed one of them, saving
// it would undo that: a budget, or a month's limit. So a form says which values
// it began with, by a mark of them, and is refused when they are others by now. One
// that would change nothing is not: it was sent twice.

// errOvertaken refuses such a form.
var errOvertaken = fault.New(fault.InvalidState, "this was changed since you opened the page, and nothing was saved; below is how it is now, so make your change again")

// overtaken compares the mark of how a thing was until now with the one that the
// form began with, and with that of what it becomes.
func (v *visit) overtaken(was, becomes string) error {
	if seen := v.form("seen"); seen != "" && seen != was && becomes != was {
		return errOvertaken
	}
	return nil
}

func mark(values ...any) string {
	text, _ := json.Marshal(values) // texts, numbers and times: cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

func billingMark(w *accounts.Workspace) string { return mark(w.MonthlyCredits, w.Alert) }

func settingsMark(w *accounts.Workspace) string {
	return mark(w.StrictProjects, w.DefaultProjectBudget, w.RotationGrace, w.TestTools)
}

func projectMark(p *accounts.Project) string { return mark(p.Name, p.MonthlyBudget) }

func keyMark(k *access.Key) string {
	return mark(k.Name, k.Scopes, k.Project, k.MonthlyBudget, k.RateLimit, k.ExpiresAt, k.AllowedIPs)
}

func endpointMark(e *webhooks.Endpoint) string { return mark(e.URL, e.Description, e.Events) }
