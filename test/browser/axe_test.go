//go:build browser

package browser_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/dashboard"
	"turnpike/internal/db"
	"turnpike/internal/people"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
	"turnpike/test/npm"
	"turnpike/test/sampledata"
)

// axeRules are the rules of WCAG 2.0 to 2.2, levels A and AA, and three best practices.
const axeRules = `{runOnly: {type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]},
	rules: {"target-size": {enabled: true}, region: {enabled: true}, "heading-order": {enabled: true}, "empty-table-header": {enabled: true}}, resultTypes: ["violations"]}`

// screens are the sizes at which the pages are checked.
var screens = []struct {
	name          string
	width, height int64
}{{"desktop", 1440, 900}, {"phone", 390, 844}}

// violation is a rule of axe that a page breaks.
type violation struct {
	ID, Help string
	Nodes    []struct {
		HTML    string `json:"html"`
		Target  json.RawMessage
		Summary string `json:"failureSummary"`
	}
}

// prefer sets the color scheme of the system: light or dark.
func (b *tab) prefer(theme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

// axeSource returns the script of axe.
func axeSource(t *testing.T) string {
	t.Helper()
	modules, err := npm.Install("axe-core")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(modules, "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// isAccessible checks the page in both themes.
func (b *tab) isAccessible(axe, where string) {
	b.t.Helper()
	eval[any](b, axe+"; void 0")
	for _, theme := range []string{"light", "dark"} {
		b.prefer(theme)
		for _, v := range eval[[]violation](b, `axe.run(document, `+axeRules+`).then((r) => r.violations)`) {
			for i, n := range v.Nodes {
				if i == 3 {
					b.t.Errorf("%s, %s: %s, and %d more", where, theme, v.ID, len(v.Nodes)-i)
					break
				}
				b.t.Errorf("%s, %s: %s (%s): %s %.300s\n%s", where, theme, v.ID, v.Help, n.Target, n.HTML, n.Summary)
			}
		}
	}
}

// pages returns the paths of all pages of a workspace for people who are signed in.
func pages(t *testing.T, w *sampledata.Workspace) (out []string) {
	t.Helper()
	for _, rt := range dashboard.Routes() {
		path, _ := w.Path(t, rt, w.Workspace, accounts.Test)
		if rt.Method != http.MethodGet || !rt.SignedIn || rt.Download || rt.Data || rt.Operator || strings.HasSuffix(path, "/account/app") {
			continue
		}
		out = append(out, path)
	}
	return out
}

// link returns the path of a one-time link.
func link(t *testing.T, s *harness.Server, create func(folk *people.People, tx *db.Tx) (*people.Link, error)) string {
	t.Helper()
	var out *people.Link
	err := s.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		out, err = create(people.New(s.DB, s.Ring, people.Options{Now: s.Clock.Now}), tx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.URL("")
}

// fullServer starts a server with a filled workspace and a provider. The person who signs in owns the workspace and
// operates the server.
func fullServer(t *testing.T) (*sampledata.Workspace, *accounts.User) {
	t.Helper()
	up := upstreams.NewOpenAI(t, "sk-provider")
	up.Models = []string{"gpt-4o-mini", "brand-new"}
	cfg := sampledata.Config(t, "sqlite")
	cfg.Providers = []config.Provider{{Name: "openai", Type: config.OpenAI, Catalog: "openai", BaseURL: config.Address(up.BaseURL()), APIKey: "sk-provider", Weight: 1,
		Models: []config.ProviderModel{{ID: "gpt-4o-mini"}}}}
	s := harness.Start(t, cfg, harness.NewClock())
	w := sampledata.Fill(t, s, "acme", func(text string) string { return text })
	u := addOwner(t, s, w.Workspace)
	s.GrantOperator(t, u.ID)
	s.AllowContent(t, w.Workspace, u.ID, true)
	return w, u
}

// onEveryScreen runs a test in a tab of each size, on one server.
func onEveryScreen(t *testing.T, test func(b *tab, at visit)) {
	t.Helper()
	axe := axeSource(t)
	w, u := fullServer(t)
	for _, screen := range screens {
		t.Run(screen.name, func(t *testing.T) {
			t.Parallel()
			b := newTab(t, w.Server)
			b.window(screen.width, screen.height)
			test(b, visit{w, u, axe, screen.width < 600})
		})
	}
}

// visit is what a test in a tab works with.
type visit struct {
	of    *sampledata.Workspace
	user  *accounts.User
	axe   string
	phone bool
}

func TestEveryPageIsAccessible(t *testing.T) {
	t.Parallel()
	onEveryScreen(t, func(b *tab, v visit) {
		w := v.of
		b.signIn(v.user.Email)
		b.sees("Home")
		list := pages(b.t, w)
		for _, page := range []string{"", "keys", "keys/new", "usage", "requests", "billing", "models", "settings", "webhooks", "providers"} {
			list = append(list, in(w.Workspace, accounts.Live, page))
		}
		for _, page := range []string{"requests/" + w.FailedRequestID, "runs/" + w.DoneRunID, "requests?q=model:nothing", "usage?range=30d&group=model"} {
			list = append(list, in(w.Workspace, accounts.Test, page))
		}
		list = append(list, "/dashboard/server", "/dashboard/server/providers/new", "/dashboard/server/providers/openai", "/dashboard/server/providers/openai/models", "/dashboard/nothing", "/docs", "/docs/reference/dashboard", "/docs/reference/cli", "/docs/api", "/dashboard/server/providers/openai/edit")
		b.allow(http.StatusNotFound)
		for _, path := range list {
			b.open(path)
			b.isAccessible(v.axe, path)
		}
		if got := b.value("h1", "textContent"); got != "Edit provider" {
			b.t.Errorf("the last page is %q, want the form of a provider", got)
		}
	})
}

// What scripts and forms add to the pages.
func TestDialogsErrorsAndAnswersAreAccessible(t *testing.T) {
	t.Parallel()
	onEveryScreen(t, func(b *tab, v visit) {
		w := v.of
		b.open("/dashboard/login")
		b.isAccessible(v.axe, "sign-in")
		b.signIn(v.user.Email)
		b.sees("Home")
		b.clickOn(".palette-open")
		b.isAccessible(v.axe, "the palette")
		b.open(in(w.Workspace, accounts.Test, "requests"))
		b.tap("Filters")
		b.isAccessible(v.axe, "the filters")
		if v.phone {
			b.open(in(w.Workspace, accounts.Test, "requests"))
			b.clickOn(".drawer-open")
			b.isAccessible(v.axe, "the menu")
		}
		b.open("/dashboard/account")
		b.clickOn(".menu.right summary")
		b.isAccessible(v.axe, "the menu of the person")
		b.clickOn(".menu.right summary")
		b.press("Set up app")
		b.isAccessible(v.axe, "the authenticator app")

		b.allow(http.StatusBadRequest)
		b.open(in(w.Workspace, accounts.Test, "keys/new"))
		b.fill("Name", "backend")
		b.fill("Allowed IPs", "not-an-ip")
		b.press("Create key")
		b.isAccessible(v.axe, "a form with errors")
		b.newKey(w.Workspace, "backend")
		b.isAccessible(v.axe, "a new key")

		b.open(in(w.Workspace, accounts.Test, "playground"))
		b.until("a model is chosen", func() bool { return b.value("#pg-model", "value") != "" })
		b.write(firstMessage, "Hello")
		b.clickOn("#pg-run")
		b.sees("free (")
		b.isAccessible(v.axe, "an answer in the playground")
		b.tap("View code")
		b.isAccessible(v.axe, "the code of the playground")
	})
}

func TestSignInPagesAreAccessible(t *testing.T) {
	t.Parallel()
	axe := axeSource(t)
	s := start(t)
	w := s.Workspace(t, "acme")
	paths := map[string]string{"sign-in": "/dashboard/login", "forgot": "/dashboard/forgot"}
	setup := link(t, s, func(folk *people.People, tx *db.Tx) (*people.Link, error) {
		return folk.NewSetupLink(t.Context(), tx, w.ID, "")
	})
	b := newTab(t, s)
	b.open(setup)
	b.sees("Set up Turnpike")
	b.isAccessible(axe, "set-up")
	u := addOwner(t, s, w)
	paths["invitation"] = link(t, s, func(folk *people.People, tx *db.Tx) (*people.Link, error) {
		return folk.Invite(t.Context(), tx, people.Operator(), &people.Invitation{WorkspaceID: w.ID, Email: "ines@example.com", Role: accounts.Developer})
	})
	paths["password"] = link(t, s, func(folk *people.People, tx *db.Tx) (*people.Link, error) {
		return folk.NewPasswordLink(t.Context(), tx, u.ID, people.WelcomeLimit)
	})
	for _, screen := range screens {
		b.window(screen.width, screen.height)
		for name, path := range paths {
			b.open(path)
			b.isAccessible(axe, name)
		}
	}
	b.allow(http.StatusUnauthorized)
	b.open("/dashboard/login")
	b.fill("Email address", u.Email)
	b.fill("Password", "wrong password")
	b.press("Sign in")
	b.isAccessible(axe, "a wrong password")
	err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO totp (user_id, secret, enabled_at, last_step, created_at) VALUES ($1, '', 1, 0, 1)", u.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.signIn(u.Email)
	for _, screen := range screens {
		b.window(screen.width, screen.height)
		b.sees("Second factor")
		b.isAccessible(axe, "the code after the password")
	}
}
