//go:build clients

package sdk_test

import (
	"bytes"
	"strings"
	"testing"

	"turnpike/internal/accounts"
)

// TestToolRunnerContinuesThreads: F1. The tool runner of Anthropic's SDK works with every model, and no provider gets a
// thread.
func TestToolRunnerContinuesThreads(t *testing.T) {
	t.Parallel()
	s, list := startUpstreams(t, "sqlite")
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)
	for _, u := range list {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			u.queue([]step{{"", false}, {"", false}, {spoken, false}, {"", true}, {"", true}, {spoken, true}})
			wantOutput(t, runThreads(t, connection{url: s.URL, key: key, model: u.model}), "ok: tool runner")
			seen := u.bodies()
			if bytes.Contains(seen, []byte("thread")) || bytes.Contains(seen, []byte("msg_")) {
				t.Errorf("the provider got a thread: %s", seen)
			}
			if n := bytes.Count(seen, []byte("Be brief.")); n != 6 {
				t.Errorf("%d of 6 requests have the system prompt: %s", n, seen)
			}
		})
	}
	simulated := connection{url: s.URL, model: "claude-sonnet-5", simulated: true}
	t.Run("test key", func(t *testing.T) {
		t.Parallel()
		to := simulated
		to.key, _ = s.Key(t, s.Workspace(t, "test"), accounts.Test)
		wantOutput(t, runThreads(t, to), "ok: tool runner\nok: errors")
	})
	t.Run("nothing is stored", func(t *testing.T) {
		t.Parallel()
		w := s.Workspace(t, "unstored")
		s.ChangeWorkspace(t, w.ID, func(w *accounts.Workspace) { w.ResponseRetention = 0 })
		to := simulated
		to.key, _ = s.Key(t, w, accounts.Test)
		wantOutput(t, runThreads(t, to, "UNSTORED=1"), "ok: tool runner")
	})
}

func runThreads(t *testing.T, to connection, env ...string) string {
	t.Helper()
	return runScript(t, "threads.mjs", []string{"@anthropic-ai/sdk"}, append(to.env(), env...)...)
}

func wantOutput(t *testing.T, got, want string) {
	t.Helper()
	if !strings.HasSuffix(strings.TrimSpace(got), want) { // the library may have printed a warning before
		t.Errorf("got %s, want %s", got, want)
	}
}
