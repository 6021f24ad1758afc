//go:build browser

// Package browser_test uses the pages in a real browser: Chromium, driven by
// its own protocol. `make test-browser` runs it.
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
)

// password is everybody's here.
const password = "a few words nobody says"

// patience is how long a page may take to come to what is waited for.
const patience = 30 * time.Second

// chromium is the one browser; every test has a profile of its own in it.
var chromium context.Context

func TestMain(m *testing.M) {
	path, err := findChromium()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1280, 800))
	if os.Getuid() == 0 { // the sandbox needs another user
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

// tab is a page in a profile of its own. The test fails of whatever goes wrong
// in it: errors on the console, violations of the policy, requests that fail.
type tab struct {
	t    *testing.T
	ctx  context.Context
	s    *harness.Server
	base string

	hearing sync.WaitGroup
	mu      sync.Mutex
	allowed map[int64]bool // statuses that are no fault
	wrong   []string
}

// newTab opens one that keeps no cookies of others.
func newTab(t *testing.T, s *harness.Server) *tab {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	// Passkeys belong to a name, not to an address.
	b := &tab{t: t, ctx: ctx, s: s, base: "http://localhost:" + u.Port(), allowed: map[int64]bool{}}
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

// call sends a command of the browser's protocol.
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

// watchShifts adds up how far things move by themselves.
const watchShifts = `window.shifted = 0;
new PerformanceObserver((list) => { for (const e of list.getEntries()) if (!e.hadRecentInput) window.shifted += e.value; }).observe({type: "layout-shift", buffered: true});`

func (b *tab) complain(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
}

// listen notes what goes wrong.
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
		// Requests that fail are seen below, with their status.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			b.complain("log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	})
	hear(b, network.LoadingFailed, func(e network.EventLoadingFailed) {
		// What a page leaves behind when another one is opened is no fault.
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
	// A question before what cannot be undone: yes.
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

// allow has a status not be a fault.
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

// navigates does what leads to another page, and waits for that.
func (b *tab) navigates(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, actions...); err != nil {
		b.t.Fatalf("%v, on %s:\n%s", err, b.path(), b.text())
	}
}

// open goes to a page.
func (b *tab) open(path string) {
	b.t.Helper()
	b.navigates(chromedp.Navigate(b.base + path))
}

// eval is the value of an expression in the page.
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

// quoted is a text inside of an XPath expression; the tests have no quotes in theirs.
func quoted(s string) string { return `"` + s + `"` }

// press clicks a button, a link or a summary by its words, and waits for the page that it leads to.
func (b *tab) press(words string) {
	b.t.Helper()
	b.navigates(b.clicking(words))
}

// tap is press for what leads to no other page.
func (b *tab) tap(words string) {
	b.t.Helper()
	b.run(b.clicking(words))
}

func (b *tab) clicking(words string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(chromedp.Search(fmt.Sprintf("//*[self::button or self::a or self::summary][normalize-space()=%s]", quoted(words))), chromedp.NodeVisible)
}

// fill types into the field with the label, which is empty.
func (b *tab) fill(label, value string) {
	b.t.Helper()
	field := chromedp.Search(fmt.Sprintf("//label[starts-with(normalize-space(), %s)]//*[self::input or self::textarea]", quoted(label)))
	b.run(chromedp.SendKeys(field, value, chromedp.NodeVisible))
}

// tick chooses the box with the label.
func (b *tab) tick(label string) {
	b.t.Helper()
	b.run(chromedp.Click(chromedp.Search(fmt.Sprintf("//label[starts-with(normalize-space(), %s)]//input", quoted(label))), chromedp.NodeVisible))
}

// sees waits until the page shows all of the texts.
func (b *tab) sees(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until("the page shows "+text, func() bool { return strings.Contains(b.text(), text) })
	}
}

// misses checks that the page shows none of the texts.
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

// window gives the page a size, as a phone or a desktop has it.
func (b *tab) window(width, height int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
}

// member makes a person with a password in a workspace.
func member(t *testing.T, s *harness.Server, w *accounts.Workspace, name, email string, role accounts.Role) *accounts.User {
	t.Helper()
	u := &accounts.User{Email: email, Name: name, WorkspaceID: w.ID, Role: role}
	folk := people.New(s.DB, s.Ring, people.Options{Now: s.Clock.Now})
	var link *people.Link
	err := s.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		if err := accounts.CreateUser(t.Context(), tx, u, s.Clock.Now()); err != nil {
			return err
		}
		if err := audit.LogAction(t.Context(), tx, audit.Operator, audit.Action{WorkspaceID: w.ID, Action: "member.added", Target: u.ID}, nil, s.Clock.Now()); err != nil {
			return err
		}
		link, err = folk.NewPasswordLink(t.Context(), tx, u.ID, people.WelcomeLimit)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := folk.ResetPassword(t.Context(), link.Token, password, people.Browser{}); err != nil {
		t.Fatal(err)
	}
	return u
}

// signIn signs in with the password.
func (b *tab) signIn(email string) {
	b.t.Helper()
	b.open("/dashboard/login")
	b.fill("E-mail address", email)
	b.fill("Password", password)
	b.press("Sign in")
}

// owner is a signed-in owner of a workspace.
func owner(t *testing.T, s *harness.Server, w *accounts.Workspace) *tab {
	t.Helper()
	u := member(t, s, w, "Olivia Owner", "olivia@example.com", accounts.Owner)
	b := newTab(t, s)
	b.signIn(u.Email)
	b.sees("Home")
	return b
}

// in is the path of a page of the workspace.
func in(w *accounts.Workspace, env accounts.Environment, page string) string {
	return "/dashboard/w/" + w.ID + "/" + string(env) + "/" + page
}
