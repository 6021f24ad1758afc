package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestShutdownDoesNotWaitForRunWatchers(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "watched"), accounts.Test, "*")
		run := s.Do(t, harness.Request{Method: "POST", Path: "/v1/agents/runs", Key: key, Body: map[string]any{"model": "gpt-4o",
			"input": "[[sim:script=tool:f]]", "tools": []any{map[string]any{"type": "function", "name": "f"}}}}).Want(t, 200, "")
		path := "/v1/agents/runs/" + run.Text("id")
		s.Eventually(t, func() bool {
			return s.Do(t, harness.Request{Method: "GET", Path: path, Key: key}).Text("status") == "requires_action"
		})
		last := s.Do(t, harness.Request{Method: "GET", Path: path + "/events", Key: key}).Text("last_id")

		res := s.Open(t, harness.Request{Method: "GET", Path: path + "/events?stream=true", Key: key, Header: http.Header{"Last-Event-ID": {last}}})
		if res.StatusCode != 200 {
			t.Errorf("the stream was answered with %d, want 200", res.StatusCode)
		}
		if err := s.App.Close(); err != nil {
			t.Error(err)
		}
		if rest, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(rest), `"code":"overloaded"`) {
			t.Errorf("the stream ended with %q, %v", rest, err)
		}
	})
}
