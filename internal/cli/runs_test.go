package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	aRun      = "run_01h455vb4pex5vsknk084sn02q"
	anAppr    = "appr_01h455vb4pex5vsknk084sn02q"
	otherAppr = "appr_01h455vb4pex5vsknk084sn02r"
)

// runsCommand runs the command against a server of the test's own.
func runsCommand(server *httptest.Server, args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	code = Main(append(append([]string{"runs"}, args...), "--base-url", server.URL, "--api-key", "tp_test_x"), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func runText(status, rest string) string {
	return fmt.Sprintf(`{"id":%q,"object":"agent.run","status":%q,"model":"m","max_steps":20,"steps_used":1,"usage":{"input_tokens":1,"output_tokens":1,"credits":0.5},"required_actions":[]%s}`, aRun, status, rest)
}

func runEventText(seq int, kind, data string) string {
	return fmt.Sprintf("id: %d\nevent: %s\ndata: {\"seq\":%d,\"type\":%q,\"data\":%s,\"created_at\":1767225600}\n\n", seq, kind, seq, kind, data)
}

// serveRun streams the next of the texts on every connection, and breaks off.
func serveRun(t *testing.T, status string, texts ...string) (server *httptest.Server, after func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			_, _ = io.WriteString(w, runText(status, ""))
			return
		}
		mu.Lock()
		n := len(seen)
		seen = append(seen, r.Header.Get("Last-Event-ID"))
		mu.Unlock()
		text := texts[min(n, len(texts)-1)]
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

func TestShownResultThatBreaksOffSaysSo(t *testing.T) {
	t.Parallel()
	for _, truncated := range []bool{true, false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/steps") {
				_, _ = io.WriteString(w, `{"object":"list","data":[],"has_more":false}`)
				return
			}
			_, _ = io.WriteString(w, runText("completed", fmt.Sprintf(`,"result":{"output_text":"And so","truncated":%t,"output":null,"verified":null,"verification":null}`, truncated)))
		}))
		defer server.Close()
		code, out, errOut := runsCommand(server, "show", aRun)
		if code != 0 || !strings.Contains(out, "And so") || strings.Contains(out, "breaks off") != truncated {
			t.Errorf("exit %d\n%s%s", code, out, errOut)
		}
	}
}

func TestWatchGoesOnWhereItWasCutOff(t *testing.T) {
	t.Parallel()
	server, after := serveRun(t, "completed",
		runEventText(1, "run.queued", `{"status":"queued"}`)+runEventText(2, "step.started", `{"step":1}`)+"id: 3\nevent: step.comp",
		"502",
		": still there\n\nevent: error\ndata: {\"error\":{\"code\":\"storage_unavailable\",\"message\":\"not now\"}}\n\n",
		runEventText(2, "step.started", `{"step":1}`)+runEventText(3, "step.completed", `{"step":1,"text":"the answer","credits":0.5}`)+
			runEventText(4, "run.completed", `{"status":"completed"}`)+"data: [DONE]\n\n")
	code, out, errOut := runsCommand(server, "watch", aRun)
	if code != 0 || strings.Count(out, "step 1\n") != 1 || strings.Count(out, "step 1 completed, 0.5") != 1 || !strings.Contains(out, "    the answer\n") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	if got := fmt.Sprint(after()); got != "[ 2 2 2]" {
		t.Errorf("asked for what came after %s", got)
	}
	if n := strings.Count(errOut, "Not connected"); n != 2 { // lost, found, and lost again
		t.Errorf("said %d times that it is not connected: %s", n, errOut)
	}
}

func TestWatchExitsByWhatCameOfTheRun(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]int{"completed": 0, "failed": 1, "cancelled": 1} {
		server, _ := serveRun(t, status, runEventText(1, "run."+status, fmt.Sprintf(`{"status":%q}`, status))+"data: [DONE]\n\n")
		for _, format := range []string{"--json=false", "--json"} {
			code, out, errOut := runsCommand(server, "watch", aRun, format)
			if code != want || !strings.Contains(out, status) {
				t.Errorf("%s, %s: exit %d\n%s%s", status, format, code, out, errOut)
			}
		}
	}
	server, _ := serveRun(t, "completed", runEventText(1, "a.new.thing", `{}`)+"data: [DONE]\n\n")
	if code, out, _ := runsCommand(server, "watch", aRun); code != 0 || !strings.Contains(out, "a.new.thing") {
		t.Errorf("what is not known: exit %d, %s", code, out)
	}
	if code, _, errOut := runsCommand(server, "watch", "imgbatch_1"); code != 2 || !strings.Contains(errOut, "run_") {
		t.Errorf("no id: exit %d, %s", code, errOut)
	}
}

func TestWatchDoesNotWaitForAServerThatWasNeverThere(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	if code, _, errOut := runsCommand(server, "watch", aRun); code != 1 || !strings.Contains(errOut, "no server can be reached") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

// serveApprovals has a run that waits for the given approvals, and notes what
// is decided.
func serveApprovals(t *testing.T, approvals ...string) (server *httptest.Server, decisions chan map[string]string) {
	t.Helper()
	decisions = make(chan map[string]string, 1)
	list := make([]string, len(approvals))
	for i, id := range approvals {
		list[i] = fmt.Sprintf(`{"type":"approval","id":%q,"call_id":"call_1_%d","tool":"pay","arguments":"{\"amount\":%d}","arguments_hash":"hash%d","expires_at":1}`, id, i, i, i)
	}
	waiting := strings.Replace(runText("awaiting_approval", ""), `"required_actions":[]`, `"required_actions":[`+strings.Join(list, ",")+`]`, 1)
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			var in map[string]string
			_ = json.NewDecoder(r.Body).Decode(&in)
			in["path"] = r.URL.Path
			decisions <- in
			_, _ = io.WriteString(w, runText("queued", ""))
		case strings.HasSuffix(r.URL.Path, "/steps"):
			_, _ = io.WriteString(w, `{"data":[{"number":1,"tool_calls":[{"id":"call_1_0","tool":"pay","arguments":"{\"amount\":7}","arguments_hash":"earlier","approval":{"id":"`+otherAppr+`","decision":"approve"}}]}],"has_more":false}`)
		default:
			_, _ = io.WriteString(w, waiting)
		}
	}))
	t.Cleanup(server.Close)
	return server, decisions
}

func TestADecisionIsAboutWhatWasShown(t *testing.T) {
	t.Parallel()
	server, decisions := serveApprovals(t, anAppr)
	code, out, errOut := runsCommand(server, "deny", aRun, "--reason", "too dear")
	if code != 0 || !strings.Contains(out, `Arguments  {"amount":0}`) || !strings.Contains(out, "denied") {
		t.Fatalf("exit %d\n%s%s", code, out, errOut)
	}
	d := <-decisions
	if d["decision"] != "deny" || d["arguments_hash"] != "hash0" || d["reason"] != "too dear" || !strings.HasSuffix(d["path"], "/approvals/"+anAppr) {
		t.Errorf("decided %v", d)
	}
	// A second time, when it does not wait any more.
	code, out, errOut = runsCommand(server, "approve", aRun, otherAppr, "--json")
	if d := <-decisions; code != 0 || d["arguments_hash"] != "earlier" || !strings.Contains(errOut, `{"amount":7}`) || !json.Valid([]byte(out)) {
		t.Errorf("exit %d, decided %v\n%s%s", code, d, out, errOut)
	}
	code, _, errOut = runsCommand(server, "approve", aRun, "appr_01h455vb4pex5vsknk084sn02s")
	if code != 1 || !strings.Contains(errOut, "has no approval") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

func TestOfSeveralApprovalsOneMustBeNamed(t *testing.T) {
	t.Parallel()
	server, decisions := serveApprovals(t, anAppr, otherAppr)
	code, _, errOut := runsCommand(server, "approve", aRun)
	if code != 1 || !strings.Contains(errOut, anAppr+`  pay  {"amount":0}`) || !strings.Contains(errOut, otherAppr+`  pay  {"amount":1}`) {
		t.Errorf("exit %d, %s", code, errOut)
	}
	code, _, errOut = runsCommand(server, "approve", aRun, otherAppr)
	if code != 0 {
		t.Fatalf("exit %d, %s", code, errOut)
	}
	if d := <-decisions; d["arguments_hash"] != "hash1" {
		t.Errorf("decided %v", d)
	}
	none, _ := serveApprovals(t)
	if code, _, errOut := runsCommand(none, "approve", aRun); code != 1 || !strings.Contains(errOut, "waits for no approval") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

// TestAKeyThatMayOnlyApproveDecidesUnseen, if it is told to and which call.
func TestAKeyThatMayOnlyApproveDecidesUnseen(t *testing.T) {
	t.Parallel()
	decisions := make(chan map[string]string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error":{"code":"insufficient_scope","message":"this needs the scope agents.runs:read"}}`)
			return
		}
		var in map[string]string
		_ = json.NewDecoder(r.Body).Decode(&in)
		in["path"] = r.URL.Path
		decisions <- in
		_, _ = io.WriteString(w, runText("queued", ""))
	}))
	defer server.Close()
	for _, args := range [][]string{{"approve", aRun}, {"approve", aRun, "--yes"}, {"approve", aRun, anAppr}} {
		if code, _, errOut := runsCommand(server, args...); code != 1 || !strings.Contains(errOut, "agents.runs:read") || !strings.Contains(errOut, "--yes") {
			t.Errorf("%v: exit %d, %s", args, code, errOut)
		}
	}
	code, out, errOut := runsCommand(server, "approve", aRun, anAppr, "--yes")
	if code != 0 || !strings.Contains(out, "approved") {
		t.Fatalf("exit %d\n%s%s", code, out, errOut)
	}
	if d := <-decisions; d["decision"] != "approve" || !strings.HasSuffix(d["path"], "/approvals/"+anAppr) {
		t.Errorf("decided %v", d)
	}
}

func TestOnlyYesIsYes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"y\n": true, "YES\n": true, " y": true, "\n": false, "": false, "n\n": false, "yeah\n": false} {
		var out bytes.Buffer
		e := &env{in: strings.NewReader(text), err: &out}
		if got := e.agreed(t.Context(), "approve this? [y/N] "); got != want || !strings.Contains(out.String(), "[y/N]") {
			t.Errorf("%q is %v, after %q", text, got, out.String())
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	never, _ := io.Pipe()
	if (&env{in: never, err: io.Discard}).agreed(over, "?") {
		t.Error("an end is no yes")
	}
}

func TestStrangersWordsStayIndented(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	(&env{out: &out}).printIndented("Arguments  ", "{\n\"a\":\n\x1b[2J1}")
	if want := "Arguments  {\n           \"a\":\n           \uFFFD[2J1}\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestTheStateLineMakesRoom(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &stateLine{bar: &progress{out: &out, width: func() int { return 20 }}}
	var e runEvent
	e.Data.Status, e.Data.Step, e.CreatedAt = "in_progress", 3, time.Now().Add(time.Hour).Unix()
	s.aside(func() { fmt.Fprintln(&out, "one") })
	s.set(&e)
	s.aside(func() { fmt.Fprintln(&out, "two") })
	s.aside(func() { fmt.Fprintln(&out, "three") })
	if want := "one\ntwo\nin progress, step 3\r\x1b[Jthree\nin progress, step 3"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
