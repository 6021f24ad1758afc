//go:build browser

package browser_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
	"turnpike/test/sampledata"
)

func TestReplayedDeliveryUpdatesLive(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, sampledata.Config(t, "sqlite"), harness.NewClock())
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
		b.tick("All events, including future ones")
	}
	b.press("Create endpoint")
	b.sees("This is the secret that signs its deliveries")
	b.press("Send test event")
	b.open(in(w, accounts.Test, "deliveries"))
	b.sees("retrying")
	b.press(eval[string](b, `document.querySelector("[data-row] a").textContent.trim()`))
	b.sees("Next attempts", "the order could not be saved")
	repaired.Store(true)
	b.press("Replay")
	// The page must not reload, so the mark stays.
	eval[any](b, "void (window.stays = true)")
	b.sees("succeeded")
	if !eval[bool](b, "window.stays === true") {
		t.Error("the page was loaded again")
	}
	b.misses("Next attempts")
}

// mayDecide waits until the buttons accept a decision, which gives people time to read
// the call.
func (b *tab) mayDecide() {
	b.t.Helper()
	b.until("the buttons work", func() bool { return eval[bool](b, `document.querySelector("button[value=approve]:enabled") !== null`) })
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
	b.sees("Approve call of note_refund?", `{"order":"A-1042"}`)
	b.mayDecide()
	b.press("Approve")
	b.sees("Approved by", "Your code must run note_refund")
	s.Do(t, harness.Request{Method: "POST", Path: "/v1/agents/runs/" + run + "/tool_outputs", Key: key,
		Body: map[string]any{"tool_outputs": []any{map[string]string{"call_id": "call_1_0", "output": "noted"}}}}).Want(t, 200, "")
	b.sees("It is paid back.", "completed")
}

// If another person decides about a call, the next one moves up, right under the
// pointer.
func TestClickDoesNotDecideAboutUnreadCall(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	key, _ := s.Key(t, w, accounts.Test)
	for name, between := range map[string]string{"one after the other": ";", "both at once": "+"} {
		path := "/v1/agents/runs/" + s.Do(t, harness.Request{Method: "POST", Path: "/v1/agents/runs", Key: key, Body: map[string]any{"model": "gpt-4o",
			"input": "Help. [[sim:script=tool:search{}" + between + `tool:refund{"order":"A-1042"};text:Done.]]`,
			"tools": []any{map[string]any{"type": "function", "name": "search", "require_approval": "always"},
				map[string]any{"type": "function", "name": "refund", "require_approval": "always"}}}}).Want(t, 200, "").Text("id")
		b.open(in(w, accounts.Test, strings.TrimPrefix(path, "/v1/agents/")))
		b.sees("Approve call of search?")
		eval[any](b, `void (() => {
			const asks = document.getElementById("asks"), approve = "button[value=approve]", at = asks.querySelector(approve).getBoundingClientRect();
			new MutationObserver(() => {
				if (window.pressed || !asks.querySelector("h2").textContent.includes("refund")) return;
				window.pressed = true;
				document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2)?.click();
				asks.querySelector(approve).click();
			}).observe(asks, { childList: true });
		})()`)
		waits := s.Do(t, harness.Request{Method: "GET", Path: path, Key: key}).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "POST", Path: path + "/approvals/" + waits.Text("required_actions.0.id"), Key: key, Body: map[string]any{"decision": "approve"}}).Want(t, 200, "")
		if between == ";" {
			s.Do(t, harness.Request{Method: "POST", Path: path + "/tool_outputs", Key: key,
				Body: map[string]any{"tool_outputs": []any{map[string]string{"call_id": "call_1_0", "output": "found"}}}}).Want(t, 200, "")
		}
		b.until("the next call is pressed at once", func() bool { return eval[bool](b, "window.pressed === true") })
		b.sees("Approve call of refund?", "The previous call was decided elsewhere. This is the next one.")
		b.mayDecide()
		if now := s.Do(t, harness.Request{Method: "GET", Path: path, Key: key}).Want(t, 200, ""); now.Text("status") != "awaiting_approval" {
			t.Errorf("%s: the run is %s", name, now.Body)
		}
		b.press("Approve")
		b.sees("The call is approved.")
	}
}
