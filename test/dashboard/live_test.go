package dashboard_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// watch opens a page as an EventSource does. next returns the name and data of the
// next event, or "" if the stream has ended.
func (b *browser) watch(t *testing.T, path string) (status int, next func() (name, data string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", b.s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := b.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return resp.StatusCode, func() (name, data string) {
		for lines.Scan() {
			switch line := lines.Text(); {
			case line == "" && name != "":
				return name, data
			case strings.HasPrefix(line, "event: "):
				name = line[len("event: "):]
			case strings.HasPrefix(line, "data: "):
				data += line[len("data: "):] + "\n"
			}
		}
		return "", ""
	}
}

func newKey(name string) url.Values { return url.Values{"name": {name}, "scopes": {"models:read"}} }

func TestLivePageSendsChangesAndEndsWithSession(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		status, next := b.watch(t, b.in(accounts.Test, "keys"))
		if name, data := next(); status != 200 || name != "page" || !strings.Contains(data, "No test keys yet") {
			t.Fatalf("%d, %s: %s", status, name, data)
		}
		b.post(t, b.in(accounts.Test, "keys/new"), newKey("backend")).is(t, http.StatusSeeOther)
		if name, data := next(); name != "page" || !strings.Contains(data, "backend") {
			t.Fatalf("%s: %s", name, data)
		}
		b.post(t, "/dashboard/logout", url.Values{}).is(t, http.StatusSeeOther)
		if name, data := next(); name != "gone" {
			t.Fatalf("%s: %s", name, data)
		}
	})
}

func TestOnlyLivePagesStreamAndSessionsHaveALimit(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	b := member(t, s, s.Workspace(t, "acme"), accounts.Viewer)
	// A page that isn't live now may have been live when the browser opened it.
	_, next := b.watch(t, b.in(accounts.Test, "settings"))
	for _, want := range []string{"page", "end", ""} {
		if name, _ := next(); name != want {
			t.Errorf("a page that is not live is told %q, not %q", name, want)
		}
	}
	_, next = newBrowser(t, s).watch(t, b.in(accounts.Test, "keys"))
	if name, _ := next(); name != "gone" {
		t.Errorf("a stranger is told %q", name)
	}
	const tabs = 4
	for i := range tabs {
		_, next := b.watch(t, b.in(accounts.Test, "keys"))
		if name, _ := next(); name != "page" {
			t.Fatalf("tab %d is told %q", i+1, name)
		}
	}
	if status, _ := b.watch(t, b.in(accounts.Test, "keys")); status != http.StatusServiceUnavailable {
		t.Errorf("one tab too many: %d", status)
	}
	_, next = member(t, s, b.workspace, accounts.Developer).watch(t, b.in(accounts.Test, "keys"))
	if name, _ := next(); name != "page" {
		t.Errorf("somebody else is told %q", name)
	}
	// Open streams don't keep the server from stopping: Close fails when it has
	// to cut requests off.
	if err := s.App.Close(); err != nil {
		t.Error(err)
	}
}

// TestSlowFormIsAuthorizedAfterItArrived: a form changes nothing if its sender was
// removed while it arrived.
func TestSlowFormIsAuthorizedAfterItArrived(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		owner, leaver := member(t, s, w, accounts.Owner), member(t, s, w, accounts.Admin)
		body, rest := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+leaver.in(accounts.Live, "keys/new"), body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answered := make(chan string, 1)
		go func() {
			resp, err := leaver.client.Do(req)
			if err != nil {
				answered <- err.Error()
				return
			}
			resp.Body.Close()
			answered <- resp.Header.Get("Location")
		}()
		form := newKey("overdue").Encode()
		_, _ = io.WriteString(rest, form[:8]) // returns when the server reads it
		owner.post(t, owner.in(accounts.Live, "team/members/"+leaver.person.ID+"/remove"), url.Values{}).is(t, http.StatusSeeOther)
		_, _ = io.WriteString(rest, form[8:])
		rest.Close()
		if to := <-answered; !strings.HasPrefix(to, "/dashboard/login") {
			t.Errorf("it leads to %q", to)
		}
		owner.get(t, owner.in(accounts.Live, "keys")).hides(t, "overdue")
	})
}

func TestLivePageDoesNotExtendSession(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Viewer)
		_, next := b.watch(t, b.in(accounts.Test, "keys"))
		if name, _ := next(); name != "page" {
			t.Fatal(name)
		}
		// The person is away for twice seven hours.
		s.Clock.Turn(7 * time.Hour)
		s.Key(t, b.workspace, accounts.Test)
		if name, _ := next(); name != "page" {
			t.Fatal(name)
		}
		s.Clock.Turn(7 * time.Hour)
		if name, data := next(); name != "gone" {
			t.Errorf("%q: %s", name, data)
		}
	})
}
