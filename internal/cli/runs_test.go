package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

const (
	testRun       = "run_01h455vb4pex5vsknk084sn02q"
	testApproval  = "appr_01h455vb4pex5vsknk084sn02q"
	otherApproval = "appr_01h455vb4pex5vsknk084sn02r"
)

// runsCommand runs the command against a test server.
func runsCommand(server *httptest.Server, args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	code = Main(append(append([]string{"runs"}, args...), "--base-url", server.URL, "--api-key", "tp_test_x"), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func runJSON(status, rest string) string {
	return fmt.Sprintf(`{"id":%q,"object":"agent.run","status":%q,"model":"m","max_steps":20,"steps_used":1,"usage":{"input_tokens":1,"output_tokens":1,"credits":0.5},"required_actions":[],"created_at":1%s}`, testRun, status, rest)
}

func eventStream(seq int, kind, data string) string {
	return fmt.Sprintf("id: %d\nevent: %s\ndata: {\"seq\":%d,\"type\":%q,\"data\":%s,\"created_at\":1767225600}\n\n", seq, kind, seq, kind, data)
}

// serveRun sends the next of the streams on every connection and closes it.
func serveRun(t *testing.T, status string, streams ...string) (server *httptest.Server, after func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			_, _ = io.WriteString(w, runJSON(status, ""))
			return
		}
		mu.Lock()
		n := len(seen)
		seen = append(seen, r.Header.Get("Last-Event-ID"))
		mu.Unlock()
		text := streams[min(n, len(streams)-1)]
		if text == "502" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	return server, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

func TestShowMarksATruncatedResult(t *testing.T) {
	t.Parallel()
	for _, truncated := range []bool{true, false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/steps") {
				_, _ = io.WriteString(w, `{"object":"list","data":[],"has_more":false}`)
				return
			}
			_, _ = io.WriteString(w, runJSON("completed", fmt.Sprintf(`,"result":{"output_text":"And so","truncated":%t,"output":null,"verified":null,"verification":null}`, truncated)))
		}))
		defer server.Close()
		code, out, errOut := runsCommand(server, "show", testRun)
		if code != 0 || !strings.Contains(out, "And so") || strings.Contains(out, "is truncated") != truncated {
			t.Errorf("exit %d\n%s%s", code, out, errOut)
		}
	}
}

func TestWatchResumesAfterADisconnect(t *testing.T) {
	t.Parallel()
	server, after := serveRun(t, "completed",
		eventStream(1, "run.queued", `{"status":"queued"}`)+eventStream(2, "step.started", `{"step":1}`)+"id: 3\nevent: step.comp",
		"502",
		": still there\n\nevent: error\ndata: {\"error\":{\"code\":\"storage_unavailable\",\"message\":\"not now\"}}\n\n",
		eventStream(2, "step.started", `{"step":1}`)+eventStream(3, "step.completed", `{"step":1,"text":"the answer","credits":0.5}`)+
			eventStream(4, "run.completed", `{"status":"completed"}`)+"data: [DONE]\n\n")
	code, out, errOut := runsCommand(server, "watch", testRun)
	if code != 0 || strings.Count(out, "step 1\n") != 1 || strings.Count(out, "step 1 completed, 0.5") != 1 || !strings.Contains(out, "    the answer\n") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	if got := fmt.Sprint(after()); got != "[ 2 2 2]" {
		t.Errorf("Last-Event-ID headers: got %s, want [ 2 2 2]", got)
	}
	if n := strings.Count(errOut, "Not connected"); n != 2 { // lost, reconnected, and lost again
		t.Errorf("reported %d times that it is not connected, want 2: %s", n, errOut)
	}
}

func TestWatchExitCodeReflectsTheRun(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]int{"completed": 0, "failed": 1, "cancelled": 1} {
		server, _ := serveRun(t, status, eventStream(1, "run."+status, fmt.Sprintf(`{"status":%q}`, status))+"data: [DONE]\n\n")
		for _, format := range []string{"--json=false", "--json"} {
			code, out, errOut := runsCommand(server, "watch", testRun, format)
			if code != want || !strings.Contains(out, status) {
				t.Errorf("%s, %s: exit %d\n%s%s", status, format, code, out, errOut)
			}
		}
	}
	server, _ := serveRun(t, "completed", eventStream(1, "a.new.thing", `{}`)+"data: [DONE]\n\n")
	if code, out, _ := runsCommand(server, "watch", testRun); code != 0 || !strings.Contains(out, "a.new.thing") {
		t.Errorf("unknown event: got exit code %d, %s", code, out)
	}
	if code, _, errOut := runsCommand(server, "watch", "imgbatch_1"); code != 2 || !strings.Contains(errOut, "run_") {
		t.Errorf("invalid ID: got exit code %d, want 2: %s", code, errOut)
	}
}

func TestWatchFailsImmediatelyIfTheServerIsDown(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	if code, _, errOut := runsCommand(server, "watch", testRun); code != 1 || !strings.Contains(errOut, "cannot connect to") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

// serveApprovals serves a run with pending approvals and records the decisions.
func serveApprovals(t *testing.T, approvals ...string) (server *httptest.Server, decisions chan map[string]string) {
	t.Helper()
	decisions = make(chan map[string]string, 1)
	list := make([]string, len(approvals))
	for i, id := range approvals {
		list[i] = fmt.Sprintf(`{"type":"approval","id":%q,"call_id":"call_1_%d","tool":"pay","arguments":"{\"amount\":%d}","arguments_hash":"hash%d","expires_at":1}`, id, i, i, i)
	}
	waiting := strings.Replace(runJSON("awaiting_approval", ""), `"required_actions":[]`, `"required_actions":[`+strings.Join(list, ",")+`]`, 1)
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, waiting)
			return
		}
		var sent map[string]any
		_ = json.NewDecoder(r.Body).Decode(&sent)
		in := map[string]string{"path": r.URL.Path}
		for name, value := range sent {
			in[name] = fmt.Sprint(value)
		}
		decisions <- in
		_, _ = io.WriteString(w, runJSON("queued", ""))
	}))
	t.Cleanup(server.Close)
	return server, decisions
}

func TestDecisionIncludesTheHashOfTheShownArguments(t *testing.T) {
	t.Parallel()
	server, decisions := serveApprovals(t, testApproval)
	code, out, errOut := runsCommand(server, "deny", testRun, "--reason", "too dear")
	if code != 0 || !strings.Contains(out, `Arguments  {"amount":0}`) || !strings.Contains(out, "Denied") {
		t.Fatalf("exit %d\n%s%s", code, out, errOut)
	}
	d := <-decisions
	if d["decision"] != "deny" || d["arguments_hash"] != "hash0" || d["reason"] != "too dear" || !strings.HasSuffix(d["path"], "/approvals/"+testApproval) {
		t.Errorf("got decision %v", d)
	}
	code, out, errOut = runsCommand(server, "approve", testRun, testApproval, "--json")
	if <-decisions; code != 0 || !strings.Contains(errOut, `{"amount":0}`) || !json.Valid([]byte(out)) {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	code, _, errOut = runsCommand(server, "approve", testRun, otherApproval)
	if code != 1 || !strings.Contains(errOut, "has no pending approval") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

func TestCallsAreEditedAndAnswered(t *testing.T) {
	t.Parallel()
	server, decisions := serveApprovals(t, testApproval)
	code, out, errOut := runsCommand(server, "edit", testRun, "--arguments", `{"amount": 7}`)
	if code != 0 || !strings.Contains(out, "Edited and approved") {
		t.Fatalf("exit %d\n%s%s", code, out, errOut)
	}
	if d := <-decisions; d["decision"] != "edit" || d["arguments_hash"] != "hash0" || d["arguments"] != "map[amount:7]" {
		t.Errorf("got decision %v", d)
	}
	code, out, errOut = runsCommand(server, "respond", testRun, "--response", "not today")
	if code != 0 || !strings.Contains(out, "Answered") {
		t.Fatalf("exit %d\n%s%s", code, out, errOut)
	}
	if d := <-decisions; d["decision"] != "respond" || d["response"] != "not today" {
		t.Errorf("got decision %v", d)
	}
	for _, args := range [][]string{{"edit", testRun}, {"respond", testRun}, {"edit", testRun, "--arguments", "[1]"}, {"edit", testRun, "--arguments", "{"}} {
		if code, _, errOut := runsCommand(server, args...); code == 0 {
			t.Errorf("%v: accepted: %s", args, errOut)
		}
	}
}

func TestSeveralPendingApprovalsNeedAnID(t *testing.T) {
	t.Parallel()
	server, decisions := serveApprovals(t, testApproval, otherApproval)
	code, _, errOut := runsCommand(server, "approve", testRun)
	if code != 1 || !strings.Contains(errOut, testApproval+`  pay  {"amount":0}`) || !strings.Contains(errOut, otherApproval+`  pay  {"amount":1}`) {
		t.Errorf("exit %d, %s", code, errOut)
	}
	code, _, errOut = runsCommand(server, "approve", testRun, otherApproval)
	if code != 0 {
		t.Fatalf("exit %d, %s", code, errOut)
	}
	if d := <-decisions; d["arguments_hash"] != "hash1" {
		t.Errorf("got decision %v", d)
	}
	none, _ := serveApprovals(t)
	if code, _, errOut := runsCommand(none, "approve", testRun); code != 1 || !strings.Contains(errOut, "has no pending approval") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

func TestKeyWithoutReadScopeDecidesOnlyWithIDAndYes(t *testing.T) {
	t.Parallel()
	decisions := make(chan map[string]string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error":{"code":"insufficient_scope","message":"this needs the scope agents.runs:read"}}`)
			return
		}
		var sent map[string]any
		_ = json.NewDecoder(r.Body).Decode(&sent)
		in := map[string]string{"path": r.URL.Path}
		for name, value := range sent {
			in[name] = fmt.Sprint(value)
		}
		decisions <- in
		_, _ = io.WriteString(w, runJSON("queued", ""))
	}))
	defer server.Close()
	for _, args := range [][]string{{"approve", testRun}, {"approve", testRun, "--yes"}, {"approve", testRun, testApproval}} {
		if code, _, errOut := runsCommand(server, args...); code != 1 || !strings.Contains(errOut, "agents.runs:read") || !strings.Contains(errOut, "--yes") {
			t.Errorf("%v: exit %d, %s", args, code, errOut)
		}
	}
	code, out, errOut := runsCommand(server, "approve", testRun, testApproval, "--yes")
	if code != 0 || !strings.Contains(out, "Approved") {
		t.Fatalf("exit %d\n%s%s", code, out, errOut)
	}
	if d := <-decisions; d["decision"] != "approve" || !strings.HasSuffix(d["path"], "/approvals/"+testApproval) {
		t.Errorf("got decision %v", d)
	}
}

func TestStatusLineIsRedrawnBelowTheOutput(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := &runWatcher{env: &env{err: &out}, terminal: true}
	w.printAbove(func() { fmt.Fprintln(&out, "one") })
	w.updateStatus(object{"data": object{"status": "in_progress", "step": int64(3)}})
	w.printAbove(func() { fmt.Fprintln(&out, "two") })
	w.printAbove(func() { fmt.Fprintln(&out, "three") })
	if want := eraseLine + "one\n" + eraseLine + "two\nin progress, step 3" + eraseLine + "three\nin progress, step 3"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
