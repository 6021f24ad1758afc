//go:build browser

package browser_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db/dbtest"
	"turnpike/test/harness"
)

// shownKey returns the secret that the page shows once.
func (b *tab) shownKey() string {
	b.t.Helper()
	return eval[string](b, `document.querySelector("#secret")?.textContent ?? ""`)
}

func models(key string) harness.Request {
	return harness.Request{Method: "GET", Path: "/v1/models", Key: key}
}

// newKey creates a key with the form.
func (b *tab) newKey(w *accounts.Workspace, name string) string {
	b.t.Helper()
	b.open(in(w, accounts.Test, "keys"))
	b.press("New key")
	b.fill("Name", name)
	b.tick("Read only")
	b.press("Create key")
	b.sees("This is the key", name)
	value := b.shownKey()
	if !strings.HasPrefix(value, "tp_test_") {
		b.t.Fatalf("the key is shown as %q", value)
	}
	return value
}

func TestKeyIsCreatedUsedRotatedAndRevoked(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := harness.Start(t, harness.Config(t, engine), harness.NewClock())
			w := s.Workspace(t, "acme")
			b := owner(t, s, w)
			value := b.newKey(w, "backend")
			b.copies("#secret", value)
			s.Do(t, models(value)).Want(t, 200, "")
			page := b.path()
			b.open(page)
			b.misses(value)
			// The live page shows the request without a reload.
			b.sees("GET /v1/models")

			b.press("Rotate")
			b.press("Rotate")
			b.sees("The old secret")
			next := b.shownKey()
			for _, key := range []string{value, next} {
				s.Do(t, models(key)).Want(t, 200, "")
			}
			b.tap("End grace period…")
			b.press("End grace period")
			b.misses("The old secret …")
			s.Do(t, models(value)).Want(t, 401, "authentication_error")
			s.Do(t, models(next)).Want(t, 200, "")

			b.tap("Revoke key…")
			b.clickOn("#ask-revoke [popovertargetaction=hide]")
			s.Do(t, models(next)).Want(t, 200, "")
			b.tap("Revoke key…")
			b.press("Revoke key")
			b.sees("revoked")
			s.Do(t, models(next)).Want(t, 401, "authentication_error")
		})
	}
}

// grant grants the page a browser permission.
func (b *tab) grant(name string) {
	b.t.Helper()
	c := chromedp.FromContext(b.ctx)
	_, err := chromedp.CallBrowser(b.ctx, browser.SetPermission, browser.SetPermissionParams{Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted,
		Origin: b.base, BrowserContextID: c.BrowserContextID})
	if err != nil {
		b.t.Fatal(err)
	}
}

// clipboard is held from a copy to its check: the tabs of a browser share one
// clipboard.
var clipboard sync.Mutex

// copies presses the copy button of the selector and checks the clipboard.
func (b *tab) copies(selector, want string) {
	b.t.Helper()
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		b.grant(name)
	}
	clipboard.Lock()
	defer clipboard.Unlock()
	b.run(chromedp.Click(chromedp.CSS(`[data-copy="` + selector + `"]`)))
	b.sees("Copied")
	got := eval[string](b, "navigator.clipboard.readText()")
	if got != want {
		b.t.Errorf("%q was copied, not %q", got, want)
	}
}

func TestCopyingFallsBackToSelecting(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	value := b.newKey(w, "backend")
	eval[any](b, `void Object.defineProperty(navigator, "clipboard", {value: {writeText: () => Promise.reject(new Error("not allowed"))}})`)
	b.run(chromedp.Click(chromedp.CSS(`[data-copy="#secret"]`)))
	b.sees("Press Ctrl+C")
	if got := eval[string](b, "getSelection().toString()"); got != value {
		t.Errorf("%q is selected, not the key", got)
	}
}

func TestKeyIsCreatedWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := newTab(t, s)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	u := addOwner(t, s, w)
	b.signIn(u.Email)
	s.Do(t, models(b.newKey(w, "backend"))).Want(t, 200, "")
	if eval[int](b, `[...document.querySelectorAll("[data-needs-script], [data-copy]")].filter((e) => e.checkVisibility()).length`) != 0 {
		t.Error("something is offered that needs JavaScript")
	}
}

func TestEnvironmentsLookDifferent(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.newKey(w, "only for tests")
	for _, width := range []int64{1280, 360} {
		b.window(width, 800)
		b.open(in(w, accounts.Test, "keys"))
		b.sees("only for tests")
		test := b.looks()
		b.press("Live")
		if path := b.path(); path != in(w, accounts.Live, "keys") {
			t.Errorf("the switch leads to %s", path)
		}
		b.sees("No live keys yet")
		b.misses("only for tests")
		if live := b.looks(); live == test {
			t.Errorf("at %d pixels both look like %s", width, live)
		}
		b.press("Test")
		b.sees("only for tests")
	}
}

// looks returns the color of the page's frame and the selected environment.
func (b *tab) looks() string {
	b.t.Helper()
	return eval[string](b, `(() => { const now = document.querySelector(".switch [aria-current]"); return now.textContent + " " + getComputedStyle(now).backgroundColor; })()`)
}

func TestLiveKeyIsRevokedInADialogAfterTypingItsName(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	w := s.Workspace(t, "acme")
	value, id := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "Shop", Scopes: []string{"*"}})
	b := owner(t, s, w)
	page := in(w, accounts.Live, "keys/"+id)
	modal := func() bool { return eval[bool](b, `document.querySelector("#ask-revoke:modal") !== null`) }
	b.open(page)
	b.tap("Revoke key…")
	if !modal() {
		t.Error("the question isn't a modal dialog")
	}
	if !eval[bool](b, `document.activeElement.name === "confirm_name"`) {
		t.Error("the name isn't focused")
	}
	b.fill("Type", "Shap")
	b.tap("Revoke key")
	if !modal() || eval[bool](b, `document.querySelector("#ask-revoke input").checkValidity()`) {
		t.Error("another name is accepted")
	}
	s.Do(t, models(value)).Want(t, 200, "")
	b.run(chromedp.SendKeys(`#ask-revoke input`, "\b\b\bhop"))
	b.press("Revoke key")
	b.sees("revoked")
	s.Do(t, models(value)).Want(t, 401, "authentication_error")
}

func TestLiveKeyIsRevokedWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	w := s.Workspace(t, "acme")
	value, id := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "Shop", Scopes: []string{"*"}})
	b := owner(t, s, w)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open(in(w, accounts.Live, "keys/"+id))
	b.allow(400)
	b.tap("Revoke key…")
	b.fill("Type", "Shap")
	b.press("Revoke key")
	b.sees("Type \"Shop\" to confirm.")
	s.Do(t, models(value)).Want(t, 200, "")
	eval[string](b, `document.querySelector("#ask-revoke input").value = "Shop"`)
	b.press("Revoke key")
	b.sees("revoked")
	s.Do(t, models(value)).Want(t, 401, "authentication_error")
}
