package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/notifications"
	"turnpike/internal/webhooks"
)

// A form sends all its fields, even unchanged ones, so saving it could undo what
// someone else changed while the page was open. Each form therefore has a
// fingerprint of the values it was opened with, and is rejected if they have
// changed. A form that changes nothing is accepted: it was sent twice.

var errEditConflict = fault.New(fault.InvalidState, "Someone changed this after you opened the page, so nothing was saved. The current values are below. Make your change again.")

// checkEditConflict compares the current fingerprint with the form's, and with the
// one after the change.
func (req *request) checkEditConflict(current, changed string) error {
	if opened := req.form("seen"); opened != "" && opened != current && changed != current {
		return errEditConflict
	}
	return nil
}

func fingerprint(values ...any) string {
	text, _ := json.Marshal(values) // strings, numbers and times: cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

func billingFingerprint(w *accounts.Workspace) string {
	return fingerprint(w.MonthlyCredits, w.Alert, w.AlertThresholds)
}

func notificationsFingerprint(s *notifications.Settings) string {
	return fingerprint(s.URL, s.Format, s.OmitArguments)
}

func settingsFingerprint(w *accounts.Workspace) string {
	return fingerprint(w.Name, w.StrictProjects, w.DefaultProjectBudget, w.RotationGrace, w.TestTools)
}

func projectFingerprint(p *accounts.Project) string {
	return fingerprint(p.Name, p.MonthlyBudget, p.AlertThresholds, p.Allowed, p.Raise, p.Limits, p.ContentDays, p.ContentOptOut)
}

func keyFingerprint(k *access.Key) string {
	return fingerprint(k.Name, k.Scopes, k.Project, k.MonthlyBudget, k.RateLimit, k.ExpiresAt, k.AllowedIPs, k.AllowedTools, k.AlertThresholds, k.AlertEmail, k.Allowed, k.Raise, k.Limits, k.ExternalID, showMetadata(k.Metadata), k.ContentDays, k.ContentOptOut)
}

func endpointFingerprint(e *webhooks.Endpoint) string {
	return fingerprint(e.URL, e.Description, e.Events, strings.Join(e.Projects, " "), e.RequestsPerSecond, e.HeaderNames())
}
