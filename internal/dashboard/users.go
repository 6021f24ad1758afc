package dashboard

import (
	"errors"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
	"turnpike/internal/ids"
	"turnpike/internal/spend"
)

type usersData struct {
	Top      []userRow // by their spending this month
	Users    []userRow
	Settings userSettingsForm
	Search   string
	Blocked  bool
	Next     pager
}

type userSettingsForm struct {
	accounts.UserSettings
	Seen    string // the fingerprint of the form's values
	Windows []accounts.Window
}

// userRow is a user with the limits that apply.
type userRow struct {
	*endusers.User
	accounts.UserLimits
	Spent   credits.Micro // in the current window
	Windows []accounts.Window
}

// Seen returns the fingerprint of the form's values.
func (r userRow) Seen() string { return userFingerprint(r.User) }

func userFingerprint(u *endusers.User) string {
	return fingerprint(u.Override.Budget, u.Override.Window, u.Override.RequestsPerMinute)
}

func userSettingsFingerprint(s accounts.UserSettings) string {
	return fingerprint(s.FromRequests, s.Default.Budget, s.Default.Window, s.Default.RequestsPerMinute, s.AlertThresholds)
}

func (req *request) userRows(list []*endusers.User) ([]userRow, error) {
	byDefault := req.workspace.Users.Default
	spent, err := spend.SpentByUsers(req.Context(), req.ledger(), list, byDefault, req.now())
	if err != nil {
		return nil, err
	}
	rows := make([]userRow, len(list))
	for i, u := range list {
		rows[i] = userRow{u, u.Limits(byDefault), spent[u.ID], accounts.Windows}
	}
	return rows, nil
}

func usersPage(req *request) (*view, error) {
	t := req.workspace.In(req.env)
	d := usersData{Search: req.query("user"), Blocked: req.query("blocked") == "yes",
		Settings: userSettingsForm{req.workspace.Users, userSettingsFingerprint(req.workspace.Users), accounts.Windows}}
	page := req.page(ids.EndUser)
	list, more, err := endusers.List(req.Context(), req.s.DB, t, endusers.Filter{Name: d.Search, Blocked: d.Blocked}, page)
	if err != nil {
		return nil, err
	}
	d.Next = req.pager(page, more, func() string { return list[len(list)-1].ID })
	if d.Users, err = req.userRows(list); err != nil {
		return nil, err
	}
	if d.Search == "" && !d.Blocked && page.After == "" {
		top, err := spend.TopUsers(req.Context(), req.ledger(), t, req.now(), spendersShown)
		if err != nil {
			return nil, err
		}
		if d.Top, err = req.userRows(top); err != nil {
			return nil, err
		}
	}
	return &view{template: "users", title: "Users", data: d}, nil
}

func userPage(req *request) (*view, error) {
	u, err := endusers.Get(req.Context(), req.s.DB, req.workspace.In(req.env), req.id())
	if err != nil {
		return nil, err
	}
	rows, err := req.userRows([]*endusers.User{u})
	if err != nil {
		return nil, err
	}
	return &view{template: "user", title: u.Name, data: rows[0]}, nil
}

// readUserLimits reads limits. Empty fields are not set.
func (req *request) readUserLimits() (l accounts.UserLimits, err error) {
	var invalid [2]error
	l.Budget, invalid[0] = req.formCredits("budget")
	l.Window = accounts.Window(req.form("window"))
	l.RequestsPerMinute, invalid[1] = req.formNumber("requests_per_minute")
	return l, errors.Join(invalid[:]...)
}

func updateUserSettings(req *request) (*view, error) {
	limits, invalid := req.readUserLimits()
	thresholds, err := req.formThresholds()
	if err := errors.Join(invalid, err); err != nil {
		return nil, err
	}
	return req.changeWorkspace("users", "Settings saved.", func(w *accounts.Workspace) error {
		before := userSettingsFingerprint(w.Users)
		w.Users = accounts.UserSettings{FromRequests: req.form("from_requests") != "", Default: limits, AlertThresholds: thresholds}
		return req.checkEditConflict(before, userSettingsFingerprint(w.Users))
	})
}

func updateUser(req *request) (*view, error) {
	limits, err := req.readUserLimits()
	if err != nil {
		return nil, err
	}
	return req.changeUser("Limits saved.", func(u *endusers.User) error {
		before := userFingerprint(u)
		u.Override = limits
		return req.checkEditConflict(before, userFingerprint(u))
	})
}

// changeUser changes the end user in the path and redirects to its page.
func (req *request) changeUser(notice string, apply func(*endusers.User) error) (*view, error) {
	return req.save(req.to("users/"+req.id()), notice, func(tx *db.Tx) error {
		_, err := endusers.Change(req.Context(), tx, endusers.UserChange{Tenant: req.workspace.In(req.env), ID: req.id(),
			Change: accounts.Change[endusers.User]{By: req.actor(), At: req.now(), Apply: apply}})
		return err
	})
}

// blockUser returns the action that blocks or unblocks a user.
func blockUser(blocked bool, notice string) func(*request) (*view, error) {
	return func(req *request) (*view, error) {
		return req.changeUser(notice, func(u *endusers.User) error {
			u.Block(blocked, req.now())
			return nil
		})
	}
}

func deleteUser(req *request) (*view, error) {
	return req.save(req.to("users"), "User deleted.", func(tx *db.Tx) error {
		u, err := endusers.GetLocked(req.Context(), tx, req.workspace.In(req.env), req.id())
		if err != nil {
			return err
		}
		return endusers.Delete(req.Context(), tx, req.actor(), u, req.now())
	})
}
