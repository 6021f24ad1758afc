package dashboard

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
	"turnpike/internal/mail"
	"turnpike/internal/nodes"
	"turnpike/internal/notifications"
	"turnpike/internal/web"
)

type settingsData struct {
	Seen       string // the fingerprint of the form's values
	GraceHours string
	Retentions []retentionChoice // of stored responses
	Strict     bool              // current value, or that of a rejected form
	Facts      Facts
	PublicURL  string
	Schedule   string       // of webhook retries
	Mails      []*mail.Mail // recent ones, for owners and admins
	Differ     bool         // nodes have different settings
	Notify     *notifications.Settings
	NotifySeen string
}

const lastMails = 10

func settingsPage(req *request) (*view, error) {
	d := settingsData{Seen: settingsFingerprint(req.workspace), Facts: req.s.Facts(), PublicURL: req.s.PublicURL,
		Schedule:   strings.Join(web.Map(req.s.Facts().RetryAfter, countdown), ", "),
		GraceHours: strconv.FormatFloat(req.workspace.RotationGrace.Hours(), 'f', -1, 64)}
	d.Retentions = retentionChoices(req.workspace.ResponseRetention)
	d.Strict = req.workspace.StrictProjects
	if req.problem != nil && req.R.PostForm.Has("rotation_grace") {
		d.Strict = req.form("strict_projects") != ""
	}
	var err error
	if d.Notify, err = req.s.Notifications.ReadSettings(req.Context(), req.s.DB, req.workspace.ID); err != nil {
		return nil, err
	}
	d.NotifySeen = notificationsFingerprint(d.Notify)
	hashes, err := nodes.ConfigHashes(req.Context(), req.s.DB, req.s.DB.Now())
	if err != nil {
		return nil, err
	}
	for _, hash := range hashes {
		d.Differ = d.Differ || hash != d.Facts.ConfigHash
	}
	if access.ManagesMembers(req.role) {
		if d.Mails, err = mail.List(req.Context(), req.s.DB, req.workspace.ID, lastMails); err != nil {
			return nil, err
		}
	}
	return &view{template: "settings", title: "Settings", data: d}, nil
}

func updateSettings(req *request) (*view, error) {
	name, invalid := req.workspace.Name, error(nil)
	if req.R.PostForm.Has("name") {
		name = req.form("name")
		invalid = accounts.CheckName("name", name)
	}
	budget, err := req.formCredits("default_project_budget")
	invalid = errors.Join(invalid, err)
	hours, err := strconv.ParseFloat(req.form("rotation_grace"), 64)
	if err != nil || math.IsNaN(hours) || hours < 0 || hours > accounts.MaxRotationGrace.Hours() {
		invalid = errors.Join(invalid, fault.Invalid("rotation_grace", "Enter a grace period from 0 to %.0f hours.", accounts.MaxRotationGrace.Hours()))
	}
	if invalid != nil {
		return nil, invalid
	}
	return req.changeWorkspace("settings", "Settings saved.", func(w *accounts.Workspace) error {
		before := settingsFingerprint(w)
		w.Name, w.StrictProjects, w.DefaultProjectBudget = name, req.form("strict_projects") != "", budget
		w.RotationGrace = time.Duration(math.Round(hours*3600)) * time.Second
		w.TestTools = accounts.ToolMode(req.form("test_tools"))
		return req.checkEditConflict(before, settingsFingerprint(w))
	})
}

// changeWorkspace changes the person's workspace and redirects to a page.
func (req *request) changeWorkspace(page, notice string, apply func(*accounts.Workspace) error) (*view, error) {
	return req.save(req.to(page), notice, func(tx *db.Tx) error {
		_, err := accounts.ChangeWorkspace(req.Context(), tx, req.workspace.ID, accounts.Change[accounts.Workspace]{By: req.actor(), At: req.now(), Apply: apply})
		return err
	})
}

type retentionChoice struct {
	Hours    int64
	Label    string
	Selected bool
}

// retentionChoices returns the choices for stored responses, which include the current value.
func retentionChoices(current time.Duration) (out []retentionChoice) {
	list := []time.Duration{0, accounts.MinResponseRetention, 24 * time.Hour, 3 * 24 * time.Hour, accounts.DefaultResponseRetention, 14 * 24 * time.Hour, accounts.MaxResponseRetention}
	if !slices.Contains(list, current) {
		list = append(list, current)
		slices.Sort(list)
	}
	for _, d := range list {
		c := retentionChoice{Hours: int64(d / time.Hour), Label: countdown(d), Selected: d == current}
		if d == 0 {
			c.Label = "Off: responses aren't stored"
		}
		out = append(out, c)
	}
	return out
}

// setResponseRetention changes how long responses are stored. Stored ones that are older are purged.
func setResponseRetention(req *request) (*view, error) {
	hours, err := strconv.ParseInt(req.form("response_retention"), 10, 32)
	if err != nil {
		return nil, fault.Invalid("response_retention", "Choose how long responses are stored.")
	}
	kept := time.Duration(hours) * time.Hour
	return req.changeWorkspace("settings", "Settings saved.", func(w *accounts.Workspace) error {
		w.ResponseRetention = kept
		return nil
	})
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
	return req.changeWorkspace("settings", notice, func(w *accounts.Workspace) error {
		w.RequireSecondFactor = required
		return nil
	})
}

// sendTestMail sends an email while the person waits, and shows the result.
func sendTestMail(req *request) (*view, error) {
	if err := req.limitAnonymous(); err != nil {
		return nil, err
	}
	to := req.session.Person.Email
	err := req.s.Outbox.SendNow(req.Context(), to, mail.Test{Workspace: req.workspace.Name, AskedBy: req.displayName(), At: req.now()})
	if err != nil {
		return nil, fault.New(fault.InvalidState, "The mail server did not accept the email: %s", keyring.Mask(err.Error())).Because(err)
	}
	return req.redirect(req.to("settings"), flash{Notice: "The mail server accepted the email to " + to + ". Check whether it arrives."})
}
