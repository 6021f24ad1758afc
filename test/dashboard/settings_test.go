package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
)

func TestSettingsTakeEffect(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme <script>alert(1)</script>")
		b := member(t, s, w, accounts.Admin)
		key, _ := s.Key(t, w, accounts.Test)
		settings := b.in(accounts.Test, "settings")
		b.get(t, settings).harmless(t).shows(t, w.ID, `name="rotation_grace" inputmode="decimal" required value="24"`)
		named := func(project string) *harness.Response {
			t.Helper()
			return s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: key, Header: http.Header{"Service-Project": {project}}})
		}
		named("first").Want(t, 200, "")
		b.post(t, settings, url.Values{"strict_projects": {"yes"}, "default_project_budget": {"1,250.5"}, "rotation_grace": {"1.5"}}).redirectsTo(t, settings)
		b.get(t, settings).shows(t, "Settings saved.", `value="yes" checked`, `value="1250.5"`, `value="1.5"`)
		named("second").Want(t, 400, "unknown_project")
		got, err := accounts.GetWorkspace(t.Context(), s.DB, w.ID)
		if err != nil || !got.StrictProjects || got.RotationGrace != 90*time.Minute {
			t.Errorf("the workspace is %+v: %v", got, err)
		}
		b.post(t, settings, url.Values{"rotation_grace": {"24"}}).redirectsTo(t, settings)
		named("second").Want(t, 200, "")
		if n := actions(t, s, w, "workspace.updated"); n != 2 {
			t.Errorf("the admin log has %d entries", n)
		}

		for _, grace := range []string{"", "-1", "169", "NaN", "a day"} {
			b.post(t, settings, url.Values{"rotation_grace": {grace}}).rejects(t, http.StatusBadRequest, "from 0 to 168 hours")
		}
		b.post(t, settings, url.Values{"rotation_grace": {"24"}, "default_project_budget": {"much"}}).rejects(t, http.StatusBadRequest, "Enter a number of credits")
		for _, role := range []accounts.Role{accounts.Developer, accounts.Viewer} {
			other := member(t, s, w, role)
			other.get(t, settings).shows(t, "are created on first use", "24 h after a rotation").hides(t, "<form method=\"post\" action=\""+settings)
			other.post(t, settings, url.Values{"rotation_grace": {"1"}}).rejects(t, http.StatusForbidden, "only owners and admins")
			other.post(t, settings+"/mail", url.Values{}).rejects(t, http.StatusForbidden, "only owners and admins")
		}
	})
}

func TestManagersChangeHowLongResponsesAreStored(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Admin)
		key, _ := s.Key(t, w, accounts.Test)
		settings := b.in(accounts.Test, "settings")
		b.get(t, settings).shows(t, "Stored encrypted for 7 days", `value="168" selected`)
		respond := func() *harness.Response {
			return s.Do(t, harness.Request{Method: "POST", Path: "/v1/responses", Key: key, Body: map[string]any{"model": "gpt-4o-mini", "input": "Hi."}}).Want(t, 200, "")
		}
		stored := respond()
		b.post(t, settings+"/responses", url.Values{"response_retention": {"0"}}).redirectsTo(t, settings)
		b.get(t, settings).shows(t, "Settings saved.", "Not stored.")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/responses/" + stored.Text("id"), Key: key}).Want(t, 404, "not_found")
		s.Eventually(t, func() bool { return respond().At("store") == false })
		for _, hours := range []string{"", "x", "721", "-1"} {
			b.post(t, settings+"/responses", url.Values{"response_retention": {hours}}).rejects(t, http.StatusBadRequest, "")
		}
		other := member(t, s, w, accounts.Developer)
		other.get(t, settings).shows(t, "Not stored.").hides(t, `name="response_retention"`)
		other.post(t, settings+"/responses", url.Values{"response_retention": {"24"}}).rejects(t, http.StatusForbidden, "only owners and admins")
	})
}

// TestOnlyManagersChangeTestTools: other roles and keys can't.
func TestOnlyManagersChangeTestTools(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		mode := func() accounts.ToolMode {
			t.Helper()
			got, err := accounts.GetWorkspace(t.Context(), s.DB, w.ID)
			if err != nil {
				t.Fatal(err)
			}
			return got.TestTools
		}
		form := func(mode string) url.Values { return url.Values{"rotation_grace": {"24"}, "test_tools": {mode}} }
		settings := ""
		for _, role := range []accounts.Role{accounts.Owner, accounts.Admin} {
			b := member(t, s, w, role)
			settings = b.in(accounts.Test, "settings")
			b.get(t, settings).shows(t, `<option value="" selected>Server default (simulated)</option>`)
			b.post(t, settings, form("real")).redirectsTo(t, settings)
			b.get(t, settings).shows(t, `<option value="real" selected>`)
			if got := mode(); got != accounts.ToolsReal {
				t.Errorf("test_tools is %q, want real", got)
			}
			b.post(t, settings, form("sometimes")).rejects(t, http.StatusBadRequest, "must be simulated or real")
			b.post(t, settings, form("")).redirectsTo(t, settings)
			if got := mode(); got != "" {
				t.Errorf("test_tools is %q, want the default", got)
			}
		}
		for _, role := range []accounts.Role{accounts.Developer, accounts.Viewer} {
			other := member(t, s, w, role)
			other.get(t, settings).shows(t, "simulated (server default)").hides(t, `name="test_tools"`)
			other.post(t, settings, form("real")).rejects(t, http.StatusForbidden, "only owners and admins")
		}
		s.Do(t, harness.Request{Method: "POST", Path: settings, Key: key, Body: form("real").Encode(), Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}})
		if got := mode(); got != "" {
			t.Errorf("test_tools is %q, want it unchanged", got)
		}
		if n := actions(t, s, w, "workspace.updated"); n != 4 {
			t.Errorf("the admin log has %d entries, want 4", n)
		}
	})
}

// actions counts the admin log entries of an action.
func actions(t testing.TB, s *harness.Server, w *accounts.Workspace, action string) (n int64) {
	t.Helper()
	if err := s.DB.QueryRow(t.Context(), "SELECT count(*) FROM admin_actions WHERE workspace_id = $1 AND action = $2", w.ID, action).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTestEmailReportsMailServerResult(t *testing.T) {
	t.Parallel()
	mails := smtp.Start(t, smtp.WithLogin("postmaster", "the mail password", "PLAIN"))
	cfg := harness.Config(t, "sqlite")
	withMail(mails)(t, &cfg)
	s := harness.Start(t, cfg, harness.NewClock())
	b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
	settings := b.in(accounts.Live, "settings")
	host := strings.TrimPrefix(mails.URL()[strings.Index(mails.URL(), "@")+1:], "smtp://")
	b.get(t, settings).shows(t, host, "turnpike@example.com").hides(t, "the mail password", "the%20mail%20password", "postmaster")
	b.post(t, settings+"/mail", url.Values{}).redirectsTo(t, settings)
	b.get(t, settings).shows(t, "The mail server accepted the email to "+b.person.Email)
	sent := mails.Wait(t, 1)[0]
	if sent.To[0] != b.person.Email || !strings.Contains(string(sent.Data), "Subject: Test email from ") || !strings.Contains(string(sent.Data), "acme") {
		t.Errorf("the mail to %v is\n%s", sent.To, sent.Data)
	}
	mails.Reject(1, 550, "we do not like <b>you</b>")
	b.post(t, settings+"/mail", url.Values{}).rejects(t, http.StatusConflict, "did not accept the email").contains(t, "550", "we do not like &lt;b&gt;you").hides(t, "<b>you")
	// A rejected form doesn't change the other forms of the page.
	b.post(t, settings, url.Values{"strict_projects": {"yes"}, "rotation_grace": {"24"}}).redirectsTo(t, settings)
	mails.HangUp(smtp.Connect, 1)
	b.post(t, settings+"/mail", url.Values{}).rejects(t, http.StatusConflict, "EOF").contains(t, `value="yes" checked`)
	b.post(t, settings+"/mail", url.Values{}).redirectsTo(t, settings)
}

// contains is shows for any status.
func (a *response) contains(t testing.TB, texts ...string) *response {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			t.Errorf("%s does not show %q:\n%s", a.path, text, a.main())
		}
	}
	return a
}

func TestSettingsShowOperatorConfiguration(t *testing.T) {
	t.Parallel()
	onSQLiteWith(t, func(_ *testing.T, cfg *config.Config) {
		cfg.Webhooks.RetrySchedule, cfg.Webhooks.Timeout = []time.Duration{90 * time.Second, 50 * time.Hour}, 7*time.Second
		cfg.Audit.RetentionDays, cfg.Files.Retention, cfg.Limits.LiveTokensPerMinute = 123, 72*time.Hour, 0
		cfg.Providers = []config.Provider{{Name: "house-llm", Type: "openai", BaseURL: "http://127.0.0.1:1", APIKey: "sk-very-secret", Weight: 1, Local: true}}
	}, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Viewer)
		b.get(t, b.in(accounts.Test, "settings")).shows(t, "after 1 min 30 s, 2 days 2 h, then the endpoint is paused", "7 s", "kept for 123 days", "kept for 3 days",
			"no limit a minute", "1,000 a minute", "house-llm", "emails aren't sent", "<dd>test</dd>").hides(t, "sk-very-secret", "Send test email")
		owner := member(t, s, b.workspace, accounts.Owner)
		owner.get(t, owner.in(accounts.Test, "settings")).hides(t, "Send test email")
		owner.post(t, owner.in(accounts.Test, "settings/mail"), url.Values{}).rejects(t, http.StatusConflict, "no mail server is configured")
	})
}
