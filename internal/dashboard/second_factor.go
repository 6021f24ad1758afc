package dashboard

import (
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// secondFactorPage asks for one of the person's second factors.
func secondFactorPage(req *request) (*view, error) {
	if req.session.SecondFactorAt != nil {
		return req.redirect(dashboardPath(req.query("next")), flash{})
	}
	shown, err := req.confirmView(req.query("next"))
	if err != nil {
		return nil, err
	}
	shown.template, shown.title = "second_factor", "Second factor required"
	return shown, nil
}

// setRequireSecondFactor changes whether members must prove a second factor. Only
// someone who has just proved one can turn it on, so that no one locks themselves out.
func setRequireSecondFactor(req *request) (*view, error) {
	required := req.form("require_second_factor") == "yes"
	if required && req.session.SecondFactorAt == nil {
		return nil, fault.Invalid("require_second_factor",
			"You signed in without a second factor, so this would lock you out. Set up an authenticator app under Your account, or sign in with a passkey. Then try again.")
	}
	notice := "Second factor no longer required."
	if required {
		notice = "Second factor required. Members without one set it up before they can open this workspace."
	}
	return req.save(req.to("settings"), notice, func(tx *db.Tx) error {
		if err := accounts.SetRequireSecondFactor(req.Context(), tx, req.workspace.ID, required); err != nil {
			return err
		}
		return req.logWorkspace(tx, map[string]any{"require_second_factor": required})
	})
}
