package scripts_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"turnpike/webhook"
)

// patience bounds every wait; only a failure needs it.
const patience = 20 * time.Second

// receiver is a script's webhook endpoint.
type receiver struct {
	mu      sync.Mutex
	status  int
	body    string
	answer  chan struct{} // closed unless it hangs
	got     []received
	arrived chan struct{} // closed at the next delivery
}

type received struct {
	header http.Header
	body   []byte
}

type receiverKey struct{}

// hook STATUS [BODY] or hook hang: from here on the script's receiver answers
// so, or not until the next hook. The first starts it; its address is $HOOK.
func hook(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: hook STATUS [BODY] | hook hang")
	}
	r := ts.Value(receiverKey{}).(*receiver)
	if ts.Getenv("HOOK") == "" {
		server := httptest.NewServer(r)
		ts.Setenv("HOOK", server.URL+"/hook")
		ts.Defer(func() {
			r.set(http.StatusOK, "", false)
			server.Close()
		})
	}
	if args[0] == "hang" {
		r.set(http.StatusOK, "", true)
		return
	}
	status, err := strconv.Atoi(args[0])
	ts.Check(err)
	r.set(status, append(args, "")[1], false)
}

// hooked N PATTERN [SECRET]: waits until the receiver has got N deliveries
// whose bodies match since the last hook, checks their signatures, and prints
// them.
func hooked(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: hooked N PATTERN [SECRET]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	found := ts.Value(receiverKey{}).(*receiver).wait(want, regexp.MustCompile(args[1]))
	if len(found) < want {
		ts.Fatalf("got %d deliveries like %s, expected %d", len(found), args[1], want)
	}
	for _, d := range found {
		if len(args) == 3 {
			ts.Check(webhook.Verify(d.body, d.header, args[2]))
		}
		ts.Check(d.header.Write(ts.Stdout()))
		fmt.Fprintf(ts.Stdout(), "\n%s\n", d.body)
	}
}

// await PATTERN PROGRAM ARGUMENT...: runs the program until its output matches.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await PATTERN PROGRAM ARGUMENT...")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	for deadline := time.Now().Add(patience); ; {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("the output never matched %s", args[0])
		}
		<-time.After(20 * time.Millisecond)
	}
}

func newReceiver() *receiver {
	r := &receiver{status: http.StatusOK, answer: make(chan struct{}), arrived: make(chan struct{})}
	close(r.answer)
	return r
}

func (r *receiver) set(status int, body string, hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.answer:
	default:
		close(r.answer)
	}
	if hang {
		r.answer = make(chan struct{})
	}
	r.status, r.body, r.got = status, body, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	answer, status, text := r.answer, r.status, r.body
	r.got = append(r.got, received{req.Header, body})
	close(r.arrived)
	r.arrived = make(chan struct{})
	r.mu.Unlock()
	select {
	case <-answer:
	case <-req.Context().Done():
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// wait returns the deliveries that match, at the latest when patience ends.
func (r *receiver) wait(n int, pattern *regexp.Regexp) []received {
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		var found []received
		for _, d := range r.got {
			if pattern.Match(d.body) {
				found = append(found, d)
			}
		}
		arrived := r.arrived
		r.mu.Unlock()
		if len(found) >= n {
			return found
		}
		select {
		case <-arrived:
		case <-deadline:
			return found
		}
	}
}
