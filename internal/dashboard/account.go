package dashboard

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

const maxSessions = 50

type accountData struct {
	Person     *people.Person
	Factor     *people.SecondFactor
	Codes      []string // recovery codes that were just created
	Passkeys   []*people.Passkey
	CanPasskey bool
	Host       string // of passkeys
	Sessions   []sessionRow
	More       int // sessions that aren't listed
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

// methods are the display names of sign-in methods.
var methods = map[people.Method]string{people.ByPassword: "password", people.ByTOTP: "authenticator app", people.ByRecoveryCode: "recovery code",
	people.ByPasskey: "passkey", people.ByOIDC: "sign-in provider", people.ByLink: "link"}

type workspaceRow struct {
	*accounts.Workspace
	Role accounts.Role
}

func accountPage(req *request) (*view, error) {
	ctx, id := req.Context(), req.session.UserID
	d := accountData{Person: req.session.Person, CanPasskey: req.canPasskey(), Host: req.hostName(), Provider: req.providerName(),
		Codes: strings.Fields(req.shownSecret(recoveryCodes))}
	var errs [5]error
	d.Factor, errs[0] = req.s.People.GetSecondFactor(ctx, req.s.DB, id)
	d.Passkeys, errs[1] = req.s.People.Passkeys(ctx, req.s.DB, id)
	d.Identities, errs[2] = req.s.People.Identities(ctx, req.s.DB, id)
	d.Sessions, d.More, errs[3] = req.sessionRows()
	d.Workspaces, errs[4] = req.workspaceRows()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	d.Linked = req.linkedHere(d.Identities)
	return &view{template: "account", title: "Your account", wide: true, data: d}, nil
}

// sessionRows returns the person's sessions, this browser first.
func (req *request) sessionRows() (rows []sessionRow, more int, err error) {
	list, err := req.s.People.Sessions(req.Context(), req.s.DB, req.session.UserID)
	list = slices.DeleteFunc(list, func(s *people.Session) bool { return s.ID == req.session.ID })
	list = slices.Insert(list, 0, req.session)
	for _, s := range list[:min(len(list), maxSessions)] {
		rows = append(rows, sessionRow{Session: s, Device: device(s.UserAgent), By: methods[s.Method], Here: s.ID == req.session.ID})
	}
	return rows, len(list) - len(rows), err
}

func (req *request) workspaceRows() ([]workspaceRow, error) {
	memberships, err := people.Memberships(req.Context(), req.s.DB, req.session.UserID)
	if err != nil {
		return nil, err
	}
	var rows []workspaceRow
	for _, m := range memberships {
		w, err := accounts.GetWorkspace(req.Context(), req.s.DB, m.WorkspaceID)
		if err != nil {
			return nil, err
		}
		rows = append(rows, workspaceRow{w, m.Role})
	}
	return rows, nil
}

// browserNames and systemNames identify user agents, the most specific first: nearly
// all browsers claim to be Safari, and Android claims to be Linux.
var browserNames = [][2]string{{"Edg", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"FxiOS/", "Firefox"}, {"Chrome/", "Chrome"}, {"CriOS/", "Chrome"}, {"Safari/", "Safari"}}
var systemNames = [][2]string{{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"CrOS", "ChromeOS"}, {"Linux", "Linux"}}

// device describes a user agent, or returns its beginning if it is unknown.
func device(agent string) string {
	var found []string
	for _, names := range [][][2]string{browserNames, systemNames} {
		if i := slices.IndexFunc(names, func(m [2]string) bool { return strings.Contains(agent, m[0]) }); i >= 0 {
			found = append(found, names[i][1])
		}
	}
	if len(found) > 0 {
		return strings.Join(found, " on ")
	}
	return cmp.Or(strings.ToValidUTF8(agent[:min(len(agent), 40)], ""), "unknown")
}

func renamePerson(req *request) (*view, error) {
	return req.save("/dashboard/account", "Name saved.", func(tx *db.Tx) error {
		return req.s.People.SetName(req.Context(), tx, req.session, req.form("name"), req.browser())
	})
}

func changePassword(req *request) (*view, error) {
	token, err := req.s.People.ChangePassword(req.Context(), req.session, req.R.PostFormValue("current"), req.R.PostFormValue("password"), req.browser())
	if f, ok := fault.As(err); ok && f.Code == fault.Authentication && f.Param == "password" {
		return nil, fault.Param(fault.Authentication, "current", "The current password is wrong.")
	}
	if err != nil {
		return nil, err
	}
	req.setSession(token)
	return req.redirect("/dashboard/account", flash{Notice: "Password changed. You are signed out everywhere else."})
}

func revokeSession(req *request) (*view, error) {
	id := req.id()
	if id == req.session.ID {
		return logout(req)
	}
	return req.save("/dashboard/account#sessions", "Session ended.", func(tx *db.Tx) error {
		return req.s.People.Revoke(req.Context(), tx, req.session, id, req.browser())
	})
}

func revokeOthers(req *request) (*view, error) {
	return req.save("/dashboard/account#sessions", "All other sessions ended.", func(tx *db.Tx) error {
		return req.s.People.RevokeOthers(req.Context(), tx, req.session, req.browser())
	})
}
