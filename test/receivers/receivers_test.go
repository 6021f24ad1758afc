// Package receivers_test runs the receivers of docs/guides/verify-webhooks.md as real
// processes and sends them valid and invalid deliveries.
package receivers_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"turnpike/test/chaos/program"
	"turnpike/webhook"
)

// patience limits the wait for a process on a busy machine.
const patience = time.Minute

func TestReceiversFollowTheRules(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]func(t *testing.T) *exec.Cmd{
		"go":         goReceiver,
		"typescript": nodeReceiver,
		"python":     func(t *testing.T) *exec.Cmd { return optional(t, "python3", "testdata/receiver.py") },
		"ruby":       func(t *testing.T) *exec.Cmd { return optional(t, "ruby", "testdata/receiver.rb") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, fresh := webhook.NewSecret(), webhook.NewSecret()
			r := start(t, command(t), old, fresh)
			for _, c := range cases(t, old, fresh) {
				if got := r.deliver(t, c.request); got != c.want {
					t.Errorf("%s: answered %d, want %d", c.name, got, c.want)
				}
			}
			// Receivers process events in order. After the last one, all wrongly
			// accepted ones have shown up as well.
			want := []string{"dlv_first", "dlv_rotated", "dlv_early", "dlv_late", "dlv_last"}
			if got := r.processedUntil(t, "dlv_last"); !slices.Equal(got, want) {
				t.Errorf("processed %v, want %v", got, want)
			}
		})
	}
}

// TestPackageFileStandsAlone checks that a receiver in another module needs to copy
// only one file.
func TestPackageFileStandsAlone(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("go", "build", "-o", os.DevNull, "../../webhook/webhook.go").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// goReceiver builds the receiver with the race detector, so that it shares compiled
// packages with the tests.
func goReceiver(t *testing.T) *exec.Cmd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "receiver")
	args := []string{"build", "-o", path}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "./testdata/go")...).CombinedOutput(); err != nil {
		t.Fatalf("build the receiver: %v\n%s", err, out)
	}
	return exec.Command(path)
}

// nodeReceiver runs the TypeScript file as JavaScript, because Node 20 doesn't know the
// .mts extension.
func nodeReceiver(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := os.ReadFile("testdata/receiver.mts")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "receiver.mjs")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.Command("node", path)
}

// optional returns a receiver in a language that may not be installed.
func optional(t *testing.T, language, path string) *exec.Cmd {
	t.Helper()
	if err := exec.Command(language, "--version").Run(); err != nil {
		t.Skipf("%s is not installed here, so %s was not tried: %v", language, path, err)
	}
	return exec.Command(language, path)
}

type receiver struct {
	url       string
	processed <-chan string // IDs of processed events; closed when the receiver ends
}

// start runs the receiver on a free port until the test ends.
func start(t *testing.T, cmd *exec.Cmd, secrets ...string) receiver {
	t.Helper()
	var errOut bytes.Buffer
	// Not cmd.StdoutPipe: that pipe is closed when the process ends, possibly before
	// its last lines are read.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PORT=0", "WEBHOOK_SECRET="+strings.Join(secrets, " "))
	cmd.Stdout, cmd.Stderr = write, &errOut
	cmd.WaitDelay = time.Second // in case another process still has stderr open
	program.EndWithParent(cmd)
	err = cmd.Start()
	_ = write.Close() // the process has its own
	if err != nil {
		_ = read.Close()
		t.Fatal(err)
	}
	url, processed := make(chan string, 1), make(chan string, 100)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() && errOut.Len() > 0 {
			t.Logf("the receiver wrote: %s", errOut.String())
		}
	})
	go func() {
		defer close(processed)
		defer read.Close()
		for in := bufio.NewScanner(read); in.Scan(); {
			if found, ok := strings.CutPrefix(in.Text(), "listening on "); ok {
				url <- found
			} else if words := strings.Fields(in.Text()); len(words) == 3 && words[0] == "processed" {
				processed <- words[1]
			}
		}
	}()
	select {
	case found := <-url:
		return receiver{found, processed}
	case <-processed:
		t.Fatal("the receiver ended while starting")
	case <-time.After(patience):
		t.Fatalf("the receiver did not start within %v", patience)
	}
	panic("unreachable")
}

// client uses each connection once, as the smaller receivers do.
var client = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// deliver sends a request and returns the status of the response.
func (r receiver) deliver(t *testing.T, c request) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.url, bytes.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = c.header
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// processedUntil returns the IDs of the processed events up to the given one.
func (r receiver) processedUntil(t *testing.T, id string) []string {
	t.Helper()
	timeout := time.After(patience)
	var all []string
	for {
		select {
		case got, ok := <-r.processed:
			if !ok {
				t.Fatalf("the receiver ended, after %v", all)
			}
			all = append(all, got)
			if got == id {
				return all
			}
		case <-timeout:
			t.Fatalf("waited for %s, got %v", id, all)
		}
	}
}

type request struct {
	header http.Header
	body   []byte
}

type testCase struct {
	name string
	request
	want int
}

// event has multi-byte characters, so receivers that sign strings instead of bytes
// fail.
var event = []byte(`{"id":"evt_1","object":"event","type":"image.batch.completed","created_at":1760000000,"environment":"test",` +
	`"workspace":"ws_1","project":null,"data":{"id":"imgbatch_1","prompt":"é 😀 <&> \u2028"}}`)

// cases returns the deliveries to a receiver with two secrets, in order.
func cases(t *testing.T, old, fresh string) []testCase {
	t.Helper()
	now := time.Now()
	sign := func(id string, at time.Time, body []byte, secrets ...string) request {
		h := http.Header{"Content-Type": {"application/json"}}
		if err := webhook.Sign(h, id, at, body, secrets...); err != nil {
			t.Fatal(err)
		}
		return request{header: h, body: body}
	}
	with := func(name, value string) request {
		r := sign("dlv_bad", now, event, old)
		r.header.Set(name, value)
		return r
	}
	without := func(name string) request {
		r := sign("dlv_bad", now, event, old)
		r.header.Del(name)
		return r
	}
	good := sign("dlv_bad", now, event, old).header.Get("Service-Signature")
	last := "0"
	if strings.HasSuffix(good, last) {
		last = "1"
	}
	altered := sign("dlv_bad", now, event, old)
	altered.body = bytes.Replace(event, []byte("imgbatch_1"), []byte("imgbatch_2"), 1)

	return []testCase{
		{"a good delivery", sign("dlv_first", now, event, old), 204},
		{"the same delivery again", sign("dlv_first", now, event, old), 204},
		{"a retry, signed anew", sign("dlv_first", now.Add(2*time.Second), event, old), 204},
		{"the other secret of a rotation", sign("dlv_rotated", now, event, fresh), 204},
		{"a timestamp within the tolerance", sign("dlv_early", now.Add(-200*time.Second), event, old), 204},
		{"a clock that is ahead", sign("dlv_late", now.Add(200*time.Second), event, old), 204},

		{"a stale timestamp", sign("dlv_bad", now.Add(-301*time.Second), event, old), 400},
		{"a timestamp from the future", sign("dlv_bad", now.Add(2*patience+301*time.Second), event, old), 400},
		{"no timestamp", without("Service-Timestamp"), 400},
		{"a timestamp in words", with("Service-Timestamp", "yesterday"), 400},
		{"an enormous timestamp", with("Service-Timestamp", strings.Repeat("9", 400)), 400},

		{"no signature", without("Service-Signature"), 401},
		{"a wrong signature", with("Service-Signature", good[:63]+last), 401},
		{"a signature that is too short", with("Service-Signature", good[:63]), 401},
		{"a signature that is too long", with("Service-Signature", good+"0"), 401},
		{"a signature of other letters", with("Service-Signature", strings.Repeat("\xe9", 64)), 401},
		{"an altered body", altered, 401},
		{"another timestamp", with("Service-Timestamp", strconv.FormatInt(now.Unix()+1, 10)), 401},
		{"a secret of somebody else", sign("dlv_bad", now, event, webhook.NewSecret()), 401},

		{"no delivery id", without("Service-Event-Id"), 400},
		{"a body that is not JSON", sign("dlv_bad", now, []byte("\xff{"), old), 400},
		{"a body that is no event", sign("dlv_bad", now, []byte("[]"), old), 400},
		{"an empty body", sign("dlv_bad", now, nil, old), 400},

		{"a good delivery after all that", sign("dlv_last", now, event, old), 204},
	}
}
