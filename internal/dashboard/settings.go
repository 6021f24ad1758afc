package dashboard

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
	"turnpike/internal/mail"
)

type settingsData struct {
	Seen       string // the mark of what the form begins with
	Now        time.Time
	GraceHours string
	Strict     bool // as it is, or as it was ticked in a form that was refused
	Facts      Facts
	PublicURL  string
	Schedule   string       // of webhooks' retries
	Mails      []*mail.Mail // the last ones, for those who manage
}

// lastMails is how many mails the page shows.
const lastMails = 10

func settingsPage(v *visit) (*view, error) {
	var waits []string
	for _, d := range v.s.Facts.RetryAfter {
		waits = append(waits, span(d))
	}
	d := settingsData{Seen: settingsMark(v.workspace), Now: v.now(), Facts: v.s.Facts, PublicURL: v.s.PublicURL, Schedule: strings.Join(waits, ", "),
		GraceHours: strconv.FormatFloat(v.workspace.RotationGrace.Hours(), 'f', -1, 64)}
	d.Strict = v.workspace.StrictProjects
	if v.problem != nil && v.r.PostForm.Has("rotation_grace") {
		d.Strict = v.form("strict_projects") != ""
	}
	if access.ManagesMembers(v.role) {
		var err error
		if d.Mails, _, err = mail.List(v.ctx(), v.s.DB, v.workspace.ID, db.Page{Limit: lastMails}); err != nil {
			return nil, err
		}
	}
	return &view{template: "settings", title: "Settings", data: d}, nil
}

func updateSettings(v *visit) (*view, error) {
	budget, err := v.formCredits("default_project_budget")
	if err != nil {
		return nil, err
	}
	hours, err := strconv.ParseFloat(v.form("rotation_grace"), 64)
	if err != nil || math.IsNaN(hours) || hours < 0 || hours > accounts.MaxRotationGrace.Hours() {
		return nil, fault.Invalid("rotation_grace", "the rotation grace is a number of hours from 0 to %.0f", accounts.MaxRotationGrace.Hours())
	}
	err = v.write(func(tx *db.Tx) error {
		w, err := accounts.GetWorkspaceLocked(v.ctx(), tx, v.workspace.ID)
		if err != nil {
			return err
		}
		was := settingsMark(w)
		w.StrictProjects, w.DefaultProjectBudget = v.form("strict_projects") != "", budget
		w.RotationGrace = time.Duration(math.Round(hours*3600)) * time.Second
		if v.r.PostForm.Has("test_tools") { // a form from before it was there has none
			w.TestTools = accounts.ToolMode(v.form("test_tools"))
		}
		if err := v.overtaken(was, settingsMark(w)); err != nil {
			return err
		}
		if err := accounts.UpdateWorkspace(v.ctx(), tx, w); err != nil {
			return err
		}
		return v.logWorkspace(tx, map[string]any{"strict_projects": w.StrictProjects, "default_project_budget": w.DefaultProjectBudget,
			"rotation_grace_seconds": int64(w.RotationGrace / time.Second), "test_tools": testTools(w)})
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("settings"), flash{Notice: "The settings are saved."})
	return nil, nil
}

// testTools is the workspace's setting as the admin log shows it.
func testTools(w *accounts.Workspace) accounts.ToolMode { return cmp.Or(w.TestTools, "default") }

func (v *visit) logWorkspace(tx *db.Tx, detail map[string]any) error {
	return audit.LogAction(v.ctx(), tx, v.actor(), audit.Action{WorkspaceID: v.workspace.ID, Action: "workspace.updated", Target: v.workspace.ID}, detail, v.now())
}

// sendTestMail has a conversation with the mail server while the person waits,
// and shows what came of it.
func sendTestMail(v *visit) (*view, error) {
	if err := v.greetStranger(); err != nil {
		return nil, err
	}
	to := v.session.Person.Email
	err := v.s.Outbox.SendNow(v.ctx(), to, mail.Test{Workspace: v.workspace.Name, AskedBy: v.called(), At: v.now()})
	if err != nil {
		return nil, fault.New(fault.InvalidState, "The mail server has not taken the mail: %s", keyring.Mask(err.Error())).Because(err)
	}
	v.redirect(v.to("settings"), flash{Notice: "The mail server has taken the mail to " + to + ". Look whether it arrives."})
	return nil, nil
}
