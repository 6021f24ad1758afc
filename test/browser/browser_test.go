//go:build browser

// Package browser_test uses the pages in a real Chromium, driven by the DevTools
// protocol. `make test-browser` runs it.
package browser_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/people"
	"turnpike/test/harness"
	"turnpike/test/smoke"
)

// password is the password of every test user.
const password = "a few words nobody says"

// patience is how long a page may take to show the expected content.
const patience = 30 * time.Second

// chromium is the browser of all tests. Every test has a separate profile.
var chromium context.Context

func TestMain(m *testing.M) {
	smoke.Only(TestSetupLinkCreatesOwner, TestKeyIsCreatedUsedRotatedAndRevoked, TestKeyIsCreatedWithoutJavaScript)
	path, err := findChromium()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1280, 800))
	if os.Getuid() == 0 { // the sandbox doesn't work as root
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	var end context.CancelFunc
	chromium, end = chromedp.NewContext(allocator)
	if err := chromedp.Do(chromium); err != nil {
		fmt.Fprintln(os.Stderr, "Chromium does not start:", err)
		os.Exit(1)
	}
	code := m.Run()
	end()
	stop()
	os.Exit(code)
}

func findChromium() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the tests need Chromium on PATH (as chromium, chromium-browser or google-chrome). Debian: apt-get install chromium; or run make test-browser, which does that")
}

// tab is a page in a separate profile. The test fails on console errors, policy
// violations and failed requests.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	hearing sync.WaitGroup
	mu      sync.Mutex
	allowed map[int64]bool // statuses that don't fail the test
	wrong   []string
}

// newTab opens a tab without cookies.
func newTab(t *testing.T, s *harness.Server) *tab {
	t.Helper()
	return newTabAt(t, s.URL)
}

// newTabAt opens a tab for the server at an address.
func newTabAt(t *testing.T, address string) *tab {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	// Passkeys need a host name, not an IP address.
	b := &tab{t: t, ctx: ctx, base: "http://localhost:" + u.Port(), allowed: map[int64]bool{}}
	b.listen()
	t.Cleanup(func() {
		stop()
		b.hearing.Wait()
		for _, w := range b.wrong {
			t.Error(w)
		}
	})
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watchShifts})
	return b
}

// call sends a DevTools command.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	out, err := chromedp.Call(ctx, command, params)
	if err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
	return out
}

// watchShifts adds up the layout shifts.
const watchShifts = `window.shifted = 0;
new PerformanceObserver((list) => { for (const e of list.getEntries()) if (!e.hadRecentInput) window.shifted += e.value; }).observe({type: "layout-shift", buffered: true});`

func (b *tab) complain(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
}

// listen records errors.
func (b *tab) listen() {
	hear(b, runtime.ConsoleAPICalled, func(e runtime.EventConsoleAPICalled) {
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value)+a.Description)
			}
			b.complain("console: %s", strings.Join(words, " "))
		}
	})
	hear(b, runtime.ExceptionThrown, func(e runtime.EventExceptionThrown) { b.complain("exception: %s", e.ExceptionDetails.Text) })
	hear(b, log.EntryAdded, func(e log.EventEntryAdded) {
		// Failed requests are checked below, with their status.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			b.complain("log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	})
	hear(b, network.LoadingFailed, func(e network.EventLoadingFailed) {
		// Requests that a navigation aborts are not errors.
		if !e.Canceled && e.ErrorText != "net::ERR_ABORTED" {
			b.complain("a request failed: %s %s", e.ErrorText, e.BlockedReason)
		}
	})
	hear(b, network.ResponseReceived, func(e network.EventResponseReceived) {
		b.mu.Lock()
		fine := e.Response.Status < 400 || b.allowed[e.Response.Status]
		b.mu.Unlock()
		if !fine {
			b.complain("%s answered %d", e.Response.URL, e.Response.Status)
		}
	})
	// Accept confirmation dialogs.
	hear(b, page.JavascriptDialogOpening, func(page.EventJavascriptDialogOpening) {
		_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
	})
}

func hear[E any](b *tab, event cdp.Event[E], fn func(e E)) {
	events := chromedp.Events(b.ctx, event)
	b.hearing.Go(func() {
		for e, err := range events {
			if err != nil {
				return
			}
			fn(e)
		}
	})
}

// allow keeps a status from failing the test.
func (b *tab) allow(status int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed[status] = true
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v, on %s:\n%s", err, b.path(), b.text())
	}
}

// navigates runs actions that open another page, and waits for that page.
func (b *tab) navigates(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, actions...)
	if err != nil && strings.Contains(err.Error(), "Could not find node") {
		_, err = chromedp.RunResponse(ctx, actions...) // a live part replaced it just before the click
	}
	if err != nil {
		b.t.Fatalf("%v, on %s:\n%s", err, b.path(), b.text())
	}
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.navigates(chromedp.Navigate(b.base + path))
}

// eval evaluates an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Errorf("%s: %v", expression, err)
	}
	return out
}

func (b *tab) path() string { return b.read("location.pathname + location.search") }
func (b *tab) text() string { return b.read("document.body?.innerText ?? ''") }

// read returns the value of an expression without side effects. If the tab
// navigates during the evaluation, read evaluates it on the next page.
func (b *tab) read(expression string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		out, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression))
		var protocol *cdproto.Error
		if errors.As(err, &protocol) && protocol.Code == navigated && ctx.Err() == nil {
			continue
		}
		if err != nil {
			b.t.Errorf("%s: %v", expression, err)
		}
		return out
	}
}

// navigated is DevTools' error code for an evaluation that a navigation ended.
const navigated = -32000

// quoted quotes a string for XPath. The strings of the tests have no quotes.
func quoted(s string) string { return `"` + s + `"` }

// press clicks a button, a link or a summary by its text, and waits for the next page.
func (b *tab) press(words string) {
	b.t.Helper()
	b.navigates(b.clicking(words))
}

// tap is press without a navigation.
func (b *tab) tap(words string) {
	b.t.Helper()
	b.run(b.clicking(words))
}

func (b *tab) clicking(words string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(chromedp.Search(fmt.Sprintf("//*[self::button or self::a or self::summary][normalize-space()=%s]", quoted(words))), chromedp.NodeVisible)
}

// fill types into the empty field with the label.
func (b *tab) fill(label, value string) {
	b.t.Helper()
	field := chromedp.Search(fmt.Sprintf("//label[starts-with(normalize-space(), %s)]//*[self::input or self::textarea]", quoted(label)))
	b.run(chromedp.SendKeys(field, value, chromedp.NodeVisible))
}

// tick checks the box with the label.
func (b *tab) tick(label string) {
	b.t.Helper()
	b.run(chromedp.Click(chromedp.Search(fmt.Sprintf("//label[starts-with(normalize-space(), %s)]//input", quoted(label))), chromedp.NodeVisible))
}

// sees waits until the page shows all the strings.
func (b *tab) sees(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until("the page shows "+text, func() bool { return strings.Contains(b.text(), text) })
	}
}

// misses checks that the page shows none of the strings.
func (b *tab) misses(texts ...string) {
	b.t.Helper()
	shown := b.text()
	for _, text := range texts {
		if strings.Contains(shown, text) {
			b.t.Errorf("%s shows %q:\n%s", b.path(), text, shown)
		}
	}
}

func (b *tab) until(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			b.t.Fatalf("it is waited in vain that %s, on %s:\n%s", what, b.path(), b.text())
		}
		time.Sleep(50 * time.Millisecond) // the browser is another process
	}
}

// window sets the size of the viewport.
func (b *tab) window(width, height int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
}

func addOwner(t *testing.T, s *harness.Server, w *accounts.Workspace) *accounts.User {
	t.Helper()
	u := &accounts.User{Email: "olivia@example.com", Name: "Olivia Owner", WorkspaceID: w.ID, Role: accounts.Owner}
	service := people.New(s.DB, s.Ring, people.Options{Now: s.Clock.Now})
	var link *people.Link
	err := s.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		if err := accounts.CreateUser(t.Context(), tx, u, s.Clock.Now()); err != nil {
			return err
		}
		if err := audit.Operator.Log(t.Context(), tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: w.ID}, Action: "member.added", Target: u.ID}, nil, s.Clock.Now()); err != nil {
			return err
		}
		link, err = service.NewPasswordLink(t.Context(), tx, u.ID, people.WelcomeLimit)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := service.ResetPassword(t.Context(), link.Token, password, people.Browser{}); err != nil {
		t.Fatal(err)
	}
	return u
}

func (b *tab) signIn(email string) {
	b.t.Helper()
	b.open("/dashboard/login")
	b.fill("Email address", email)
	b.fill("Password", password)
	b.press("Sign in")
}

// owner returns a tab in which an owner of the workspace is signed in.
func owner(t *testing.T, s *harness.Server, w *accounts.Workspace) *tab {
	t.Helper()
	u := addOwner(t, s, w)
	b := newTab(t, s)
	b.signIn(u.Email)
	b.sees("Home")
	return b
}

// in returns the path of a page of the workspace.
func in(w *accounts.Workspace, env accounts.Environment, page string) string {
	return "/dashboard/w/" + w.In(env).Path() + "/" + page
}
