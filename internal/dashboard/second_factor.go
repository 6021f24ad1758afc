package dashboard

import (
	"net/http"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// askForSecondFactor leads to the page where somebody proves a second factor, or
// sets one up, and back.
func (v *visit) askForSecondFactor() {
	var f flash
	if v.r.Method == http.MethodPost {
		f.Notice = "Nothing was changed. This workspace requires a second factor."
	}
	v.redirect("/dashboard/second-factor"+v.comeBack(), f)
}

// secondFactorPage asks for the second factors that the person has.
func secondFactorPage(v *visit) (*view, error) {
	if v.session.SecondFactorAt != nil {
		v.redirect(ownPath(v.query("next")), flash{})
		return nil, nil
	}
	shown, err := v.confirmView(v.query("next"))
	if err != nil {
		return nil, err
	}
	shown.template, shown.title = "second_factor", "Second factor required"
	return shown, nil
}

// setRequireSecondFactor has every member prove a second factor, or no longer.
// Only someone who has just proved one can turn it on: others would lock
// themselves out.
func setRequireSecondFactor(v *visit) (*view, error) {
	required := v.form("require_second_factor") == "yes"
	if required && v.session.SecondFactorAt == nil {
		return nil, fault.Invalid("require_second_factor",
			"You signed in without a second factor, so this would lock you out. Set up an authenticator app under Your account, or sign in with a passkey. Then try again.")
	}
	err := v.write(func(tx *db.Tx) error {
		if err := accounts.SetRequireSecondFactor(v.ctx(), tx, v.workspace.ID, required); err != nil {
			return err
		}
		return v.logWorkspace(tx, map[string]any{"require_second_factor": required})
	})
	if err != nil {
		return nil, err
	}
	notice := "Second factor no longer required."
	if required {
		notice = "Second factor required. Members without one set it up before they can open this workspace."
	}
	v.redirect(v.to("settings"), flash{Notice: notice})
	return nil, nil
}
