//go:build browser

package browser_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
	"turnpike/test/world"
)

func TestFailedDeliveryIsReplayedAndTurnsGreenByItself(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, world.Config(t, "sqlite"), harness.NewClock())
	w := s.Workspace(t, "acme")
	var repaired atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if !repaired.Load() {
			http.Error(rw, "the order could not be saved", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(receiver.Close)
	b := owner(t, s, w)
	b.open(in(w, accounts.Test, "webhooks"))
	b.press("New endpoint")
	b.fill("Address", receiver.URL+"/hooks")
	if !eval[bool](b, `document.querySelector("input[name=events][value=\"*\"]").checked`) {
		b.tick("Everything")
	}
	b.press("Create endpoint")
	b.sees("This is the secret that signs its deliveries")
	b.press("Send test event")
	b.open(in(w, accounts.Test, "deliveries"))
	b.sees("retrying")
	b.press(eval[string](b, `document.querySelector("[data-row] a").textContent.trim()`))
	b.sees("What comes next", "the order could not be saved")
	repaired.Store(true)
	b.press("Replay")
	// No reload: what marks the page must stay.
	eval[any](b, "void (window.stays = true)")
	b.sees("succeeded")
	if !eval[bool](b, "window.stays === true") {
		t.Error("the page was loaded again")
	}
	b.misses("What comes next")
}

func TestAgentRunIsApproved(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	key, _ := s.Key(t, w, accounts.Test)
	run := s.Do(t, harness.Request{Method: "POST", Path: "/v1/agents/runs", Key: key, Body: map[string]any{"model": "gpt-4o",
		"input": `Order A-1042 never came. [[sim:script=tool:note_refund{"order":"A-1042"};text:It is paid back.]]`,
		"tools": []any{map[string]any{"type": "function", "name": "note_refund", "require_approval": "always"}}}}).Want(t, 200, "").Text("id")
	b.open(in(w, accounts.Test, "runs/"+run))
	b.sees("Approve the call of note_refund?", `{"order":"A-1042"}`)
	b.press("Approve")
	b.sees("Approved by", "Your code has to run note_refund")
	s.Do(t, harness.Request{Method: "POST", Path: "/v1/agents/runs/" + run + "/tool_outputs", Key: key,
		Body: map[string]any{"tool_outputs": []any{map[string]string{"call_id": "call_1_0", "output": "noted"}}}}).Want(t, 200, "")
	b.sees("It is paid back.", "completed")
}
