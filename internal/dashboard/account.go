package dashboard

import (
	"errors"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// maxSessions is how many sign-ins the account page lists.
const maxSessions = 50

type accountData struct {
	Now        time.Time
	Person     *people.Person
	Factor     *people.SecondFactor
	Codes      []string // recovery codes that were just made
	Passkeys   []*people.Passkey
	CanPasskey bool
	Host       string // that passkeys are bound to
	Sessions   []sessionRow
	More       int // sessions that are not listed
	Identities []people.Identity
	Provider   string // of OpenID Connect, or empty
	Linked     bool   // an account there is linked
	Workspaces []workspaceRow
}

type sessionRow struct {
	*people.Session
	Device string
	By     string // how the person signed in
	Here   bool   // in this browser
}

// methods are how people call the ways to sign in.
var methods = map[people.Method]string{people.ByPassword: "password", people.ByTOTP: "authenticator app", people.ByRecoveryCode: "recovery code",
	people.ByPasskey: "passkey", people.ByOIDC: "sign-in provider", people.ByLink: "link"}

type workspaceRow struct {
	*accounts.Workspace
	Role accounts.Role
}

func accountPage(v *visit) (*view, error) {
	ctx, id := v.ctx(), v.session.UserID
	d := accountData{Now: v.now(), Person: v.session.Person, CanPasskey: v.canPasskey(), Host: v.hostName(), Provider: v.providerName(),
		Codes: strings.Fields(v.shownSecret(recoveryCodes))}
	var errs [5]error
	d.Factor, errs[0] = v.s.People.GetSecondFactor(ctx, v.s.DB, id)
	d.Passkeys, errs[1] = v.s.People.Passkeys(ctx, v.s.DB, id)
	d.Identities, errs[2] = v.s.People.Identities(ctx, v.s.DB, id)
	d.Sessions, d.More, errs[3] = v.sessionRows()
	d.Workspaces, errs[4] = v.workspaceRows()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	d.Linked = v.linkedHere(d.Identities)
	return &view{template: "account", title: "Your account", wide: true, data: d}, nil
}

// sessionRows are where the person is signed in, this browser first.
func (v *visit) sessionRows() (rows []sessionRow, more int, err error) {
	list, err := v.s.People.Sessions(v.ctx(), v.s.DB, v.session.UserID)
	if err != nil {
		return nil, 0, err
	}
	rows = []sessionRow{newSessionRow(v.session)}
	rows[0].Here = true
	for _, s := range list {
		if s.ID != v.session.ID && len(rows) < maxSessions {
			rows = append(rows, newSessionRow(s))
		}
	}
	return rows, max(0, len(list)-len(rows)), nil
}

func newSessionRow(s *people.Session) sessionRow {
	return sessionRow{Session: s, Device: device(s.UserAgent), By: methods[s.Method]}
}

func (v *visit) workspaceRows() ([]workspaceRow, error) {
	memberships, err := people.Memberships(v.ctx(), v.s.DB, v.session.UserID)
	if err != nil {
		return nil, err
	}
	var rows []workspaceRow
	for _, m := range memberships {
		w, err := accounts.GetWorkspace(v.ctx(), v.s.DB, m.WorkspaceID)
		if err != nil {
			return nil, err
		}
		rows = append(rows, workspaceRow{w, m.Role})
	}
	return rows, nil
}

// marks are what user agents have in them, the telling ones first: nearly all
// browsers claim to be Safari, and Android claims to be Linux.
var browserMarks = [][2]string{{"Edg", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"FxiOS/", "Firefox"}, {"Chrome/", "Chrome"}, {"CriOS/", "Chrome"}, {"Safari/", "Safari"}}
var systemMarks = [][2]string{{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"CrOS", "ChromeOS"}, {"Linux", "Linux"}}

// device is what a user agent means, or the beginning of what it says.
func device(agent string) string {
	find := func(marks [][2]string) string {
		for _, m := range marks {
			if strings.Contains(agent, m[0]) {
				return m[1]
			}
		}
		return ""
	}
	browser, system := find(browserMarks), find(systemMarks)
	switch {
	case browser != "" && system != "":
		return browser + " on " + system
	case browser+system != "":
		return browser + system
	case agent == "":
		return "unknown"
	}
	return strings.ToValidUTF8(agent[:min(len(agent), 40)], "")
}

func renamePerson(v *visit) (*view, error) {
	err := v.write(func(tx *db.Tx) error { return v.s.People.SetName(v.ctx(), tx, v.session, v.form("name"), v.browser()) })
	if err != nil {
		return nil, err
	}
	v.redirect("/dashboard/account", flash{Notice: "Your name is saved."})
	return nil, nil
}

func changePassword(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	token, err := v.s.People.ChangePassword(v.ctx(), v.session, v.r.PostFormValue("current"), v.r.PostFormValue("password"), v.browser())
	if f, ok := fault.As(err); ok && f.Code == fault.Authentication && f.Param == "password" {
		return nil, fault.Param(fault.Authentication, "current", "the current password is wrong")
	}
	if err != nil {
		return nil, err
	}
	v.keepSession(token)
	v.redirect("/dashboard/account", flash{Notice: "Your password is changed. Everywhere else you are signed out."})
	return nil, nil
}

func revokeSession(v *visit) (*view, error) {
	id, err := v.pathID(people.SessionID, "session")
	if err != nil {
		return nil, err
	}
	if id == v.session.ID {
		return logout(v)
	}
	if err := v.write(func(tx *db.Tx) error { return v.s.People.Revoke(v.ctx(), tx, v.session, id, v.browser()) }); err != nil {
		return nil, err
	}
	v.redirect("/dashboard/account#sessions", flash{Notice: "That browser is signed out."})
	return nil, nil
}

func revokeOthers(v *visit) (*view, error) {
	if err := v.write(func(tx *db.Tx) error { return v.s.People.RevokeOthers(v.ctx(), tx, v.session, v.browser()) }); err != nil {
		return nil, err
	}
	v.redirect("/dashboard/account#sessions", flash{Notice: "All other browsers are signed out."})
	return nil, nil
}
