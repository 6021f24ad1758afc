package dashboard

import (
	"strconv"
	"strings"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/notifications"
	"turnpike/internal/spend"
)

// noAlerts is what the form shows for thresholds that are turned off. An empty field means the default.
const noAlerts = "none"

func showThresholds(t accounts.AlertThresholds) string {
	if t != nil && len(t) == 0 {
		return noAlerts
	}
	list := make([]string, len(t))
	for i, percent := range t {
		list[i] = strconv.FormatInt(percent, 10)
	}
	return strings.Join(list, ", ")
}

// formThresholds reads percentages such as "50, 80%".
func (req *request) formThresholds() (accounts.AlertThresholds, error) {
	list := words(req.form("alert_thresholds"))
	if len(list) == 0 {
		return nil, nil
	}
	if len(list) == 1 && list[0] == noAlerts {
		return accounts.AlertThresholds{}, nil
	}
	out := make(accounts.AlertThresholds, len(list))
	for i, s := range list {
		n, err := strconv.ParseInt(strings.TrimSuffix(s, "%"), 10, 64)
		if err != nil {
			return nil, fault.Invalid("alert_thresholds", "Enter percentages such as 50, 80, 95, or none.")
		}
		out[i] = n
	}
	return out, out.Check()
}

// Forecast says what the month's spending leads to, or is empty if it is too early to tell.
func (s *shell) Forecast(spent credits.Micro, limit *credits.Micro) string {
	f := spend.ForecastOf(spent, limit, spend.PeriodOf(s.Now), s.Now)
	switch {
	case f == nil || limit != nil && spent >= *limit:
		return ""
	case f.ExhaustedAt != nil:
		return "At this pace, exhausted on " + f.ExhaustedAt.UTC().Format("January 2") + "."
	}
	return "At this pace, " + showRounded(f.Total) + " by the end of the month" + s.req.inDollars(f.Total) + "."
}

// updateNotifications changes the incoming webhook. An empty URL keeps the stored one, which the form doesn't contain.
func updateNotifications(req *request) (*view, error) {
	return req.save(req.to("settings"), "Notifications saved.", func(tx *db.Tx) error {
		_, err := req.s.Notifications.Update(req.Context(), tx, req.workspace.ID, notifications.Change{By: req.actor(), Apply: func(s *notifications.Settings) error {
			before := notificationsFingerprint(s)
			if given := strings.TrimSpace(req.form("webhook.url")); given != "" {
				s.URL = given
			}
			if req.form("remove") != "" {
				s.URL = ""
			}
			s.Format, s.OmitArguments = notifications.Format(req.form("webhook.format")), req.form("omit_arguments") != ""
			return req.checkEditConflict(before, notificationsFingerprint(s))
		}})
		return err
	})
}

// testNotifications sends a test message while the person waits, and shows the result.
func testNotifications(req *request) (*view, error) {
	if err := req.limitAnonymous(); err != nil {
		return nil, err
	}
	if err := req.s.Notifications.SendTest(req.Context(), req.workspace, req.displayName()); err != nil {
		return nil, err
	}
	return req.redirect(req.to("settings"), flash{Notice: "The incoming webhook accepted the test message."})
}
