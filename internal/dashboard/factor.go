package dashboard

import "turnpike/internal/people"

type factorData struct{ Next string }

// factorPage asks for the second factor of somebody whose password was right.
func factorPage(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	if v.cookie(halfCookie) == "" {
		v.redirect("/dashboard/login"+v.nextQuery(), flash{})
		return nil, nil
	}
	return &view{template: "factor", title: "Second factor", data: factorData{Next: v.query("next")}}, nil
}

func finishLogin(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	in, err := v.s.People.FinishLogin(v.ctx(), v.cookie(halfCookie), v.form("code"), v.cookie(sessionCookie), v.browser())
	if err != nil {
		return nil, err
	}
	if in.Session.Method == people.ByRecoveryCode {
		v.signedInWith(in, v.query("next"), flash{Notice: "You have used up a recovery code. Your account page says how many are left."})
		return nil, nil
	}
	v.signedIn(in, v.query("next"))
	return nil, nil
}
