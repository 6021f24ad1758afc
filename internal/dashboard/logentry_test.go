package dashboard

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"turnpike/internal/audit"
)

// TestTimelineKeepsOwnWaitsApart checks what the page draws for a request that was retried.
func TestTimelineKeepsOwnWaitsApart(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	e := &audit.Entry{Provider: "one", Model: "m", Status: 200, Latency: 400 * ms, Queue: 20 * ms, Upstream: 130 * ms, FirstToken: 330 * ms,
		Attempts: json.RawMessage(`[{"provider":"one","model":"m","outcome":"rate_limited","status":429,"ms":30},{"provider":"one","model":"m","outcome":"ok","status":200,"ms":60,"wait_ms":240}]`)}
	want := []span{
		{Kind: "own", Name: "Turnpike, before the first attempt", Took: 20 * ms, At: 0, Wide: 5},
		{Kind: "bad", Name: "one, m", Took: 30 * ms, At: 5, Wide: 7.5},
		{Kind: "own", Name: "Wait for the provider's rate limit", Took: 240 * ms, At: 12.5, Wide: 60},
		{Kind: "good", Name: "one, m", Took: 100 * ms, At: 72.5, Wide: 25, Token: 82.5, TokenAt: 330 * ms},
		{Kind: "own", Name: "Turnpike, after the response", Took: 10 * ms, At: 97.5, Wide: 2.5},
	}
	got := timeSpans(e)
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("span %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	e.Attempts, e.Upstream = nil, 300*ms // the first attempt succeeded
	if got := timeSpans(e); len(got) != 3 || got[1].Took != 300*ms || got[1].Kind != "good" {
		t.Errorf("got %+v", got)
	}
	if got := timeSpans(&audit.Entry{Status: 404, ErrorCode: "model_not_found", Latency: ms}); got != nil {
		t.Errorf("a request without an attempt has %+v", got)
	}
}

// TestCurlCommandQuotesForTheShell lets a real shell read the command.
func TestCurlCommandQuotesForTheShell(t *testing.T) {
	t.Parallel()
	e := &audit.Entry{Method: "POST", Path: "/v1/chat/completions", Requested: `it's "$HOME" \ $(id)`, Project: "a'b"}
	got := curlCommand(e, "https://turnpike.example.com", "")
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `TURNPIKE_API_KEY=k; curl() { for a in "$@"; do printf '%s\n' "$a"; done; }; `+got).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"https://turnpike.example.com/v1/chat/completions", "-H", "Authorization: Bearer k", "-H", "Service-Project: a'b", "-H", "Content-Type: application/json",
		"-d", `{"model":"it's \"$HOME\" \\ $(id)","messages":[{"role":"user","content":"Hello"}]}`}
	if args := strings.Split(strings.TrimSpace(string(out)), "\n"); strings.Join(args, "\n") != strings.Join(want, "\n") {
		t.Errorf("the shell passes\n%q, want\n%q", args, want)
	}
	for path, empty := range map[string]bool{"/v1/agents/runs/run_1": true, "/v1/batches/batch_1": true, "/v1/agents/runs": false, "/v1/agents/runs/run_1/cancel": false} {
		if got := curlCommand(&audit.Entry{Method: "POST", Path: path}, "http://localhost", ""); (got == "") != empty {
			t.Errorf("%s: got %q", path, got)
		}
	}
	if got := curlCommand(&audit.Entry{Method: "GET", Path: "/v1/models"}, "http://localhost:8080", ""); got != "curl http://localhost:8080/v1/models \\\n  -H \"Authorization: Bearer $TURNPIKE_API_KEY\"" {
		t.Errorf("got %q", got)
	}
}
