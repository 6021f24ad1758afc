//go:build browser

package browser_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"

	"turnpike/test/chaos/program"
	"turnpike/webhook"
)

// built returns the path of the program, compiled once for all tests.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "turnpike-journey-")
	if err != nil {
		return "", err
	}
	_, err = program.BuildSource("../..", dir)
	return filepath.Join(dir, "turnpike"), err
})

// journey is the way of a stranger through the pages, from the first start of the program. It follows only visible links
// and buttons. TURNPIKE_RECORDING names a directory for a screenshot of each step.
type journey struct {
	*tab
	program  string
	link     string // that the first start printed
	key      string // the test key that the first start printed
	recorded string // the directory, or empty
	name     string
	started  time.Time
	clicks   int
	typed    int // fields
	steps    int
}

func newJourney(t *testing.T, name string) *journey {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	started := time.Now()
	server := run(t, path, nil, "serve", "--data", dir, "--listen", "127.0.0.1:0")
	address := regexp.MustCompile(`listening on (http://\S+)`).FindStringSubmatch(server.line(t, "listening on"))[1]
	server.line(t, "first-run.txt")
	text, err := os.ReadFile(filepath.Join(dir, "first-run.txt"))
	if err != nil {
		t.Fatal(err)
	}
	j := &journey{tab: newTabAt(t, address), program: path, recorded: os.Getenv("TURNPIKE_RECORDING"), name: name, started: started,
		link: regexp.MustCompile(`http://\S+/dashboard/setup\S+`).FindString(string(text)), key: regexp.MustCompile(`tp_test_\w+`).FindString(string(text))}
	if j.link == "" || j.key == "" {
		t.Fatalf("the first start printed no link or no key:\n%s", text)
	}
	j.window(1440, 900)
	t.Cleanup(func() {
		t.Logf("%s: %.1f s, %d clicks, %d fields", name, time.Since(started).Seconds(), j.clicks, j.typed)
	})
	return j
}

// process is a command that runs until the test ends.
type process struct {
	lines chan string
}

// run starts the program with its own environment. It is interrupted by a cleanup, after those of tabs that were opened
// later: a page whose server is gone reports a failed request.
func run(t *testing.T, path string, env []string, args ...string) *process {
	t.Helper()
	ctx, interrupt := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, path, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TURNPIKE_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	program.EndWithParent(cmd)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{lines: make(chan string, 1000)}
	var reading sync.WaitGroup
	reading.Go(func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			p.lines <- in.Text()
		}
		close(p.lines)
	})
	t.Cleanup(func() {
		interrupt()
		reading.Wait()
		_ = cmd.Wait() // interrupted
	})
	return p
}

// line waits for a line of the output.
func (p *process) line(t *testing.T, has string) string {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if strings.Contains(line, has) {
				return line
			}
			if !ok {
				t.Fatalf("the process ended without printing %q", has)
			}
		case <-timeout:
			t.Fatalf("the process didn't print %q", has)
		}
	}
}

// click presses a visible button or link that leads to another page.
func (j *journey) click(words string) {
	j.t.Helper()
	j.clicks++
	j.press(words)
}

// enter types into a visible field.
func (j *journey) enter(label, value string) {
	j.t.Helper()
	j.typed++
	j.fill(label, value)
}

// step records what the page shows.
func (j *journey) step(name string) {
	j.t.Helper()
	j.steps++
	if j.recorded == "" {
		return
	}
	img := call(j.tab, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng}).Data
	file := fmt.Sprintf("%s-%02d-%s.png", j.name, j.steps, name)
	if err := os.WriteFile(filepath.Join(j.recorded, file), img, 0o644); err != nil {
		j.t.Fatal(err)
	}
	j.t.Logf("%6.1f s, %2d clicks: %s", time.Since(j.started).Seconds(), j.clicks, file)
}

// becomeOwner follows the link of the first start.
func (j *journey) becomeOwner() {
	j.t.Helper()
	j.open(j.link[strings.Index(j.link, "/dashboard"):])
	j.step("set-up")
	j.enter("Your name", "Olivia Owner")
	j.enter("Email address", "olivia@example.com")
	j.enter("Password", password)
	j.click("Create owner")
	j.sees("Get started")
	j.step("home")
}

func TestFreshStartLeadsToAnAnswerInThePlayground(t *testing.T) {
	t.Parallel()
	j := newJourney(t, "answer")
	j.becomeOwner()
	j.click("Open the playground")
	j.until("a model is chosen", func() bool { return j.value("#pg-model", "value") != "" })
	j.step("playground")
	j.typed++
	j.write(firstMessage, "Hello!")
	j.clicks++
	j.clickOn("#pg-run")
	j.sees("simulated answer to: Hello!", "complete", "free (")
	j.step("answer")
}

func TestFreshStartLeadsToAVerifiedDelivery(t *testing.T) {
	t.Parallel()
	j := newJourney(t, "delivery")
	// The person's own server. It has the verification that the Webhooks page shows.
	secret, verified := make(chan string, 1), make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s := <-secret
		if err := webhook.Verify(body, r.Header, s); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		verified <- string(body)
	}))
	t.Cleanup(receiver.Close)

	j.becomeOwner()
	j.click("New endpoint")
	j.sees("Your server runs on your own machine?")
	command := j.value("#listen", "textContent")
	j.step("new-endpoint")
	j.click("new key")
	j.enter("Name", "Webhook tests")
	j.clicks++
	j.tick("Everything")
	j.step("new-key")
	j.click("Create key")
	j.sees("This is the key")
	key := j.shownKey()
	j.step("key")

	// In a terminal.
	words := strings.Fields(strings.Replace(command, "localhost:3000", strings.TrimPrefix(receiver.URL, "http://"), 1))
	tunnel := run(t, j.program, []string{"TURNPIKE_API_KEY=" + key}, words[1:]...)
	secret <- regexp.MustCompile(`whsec_\S+`).FindString(tunnel.line(t, "Signing secret"))

	j.click("Webhooks")
	j.sees("connected")
	j.step("tunnel")
	j.click(eval[string](j.tab, `document.querySelector("[data-row] a").textContent.trim()`))
	j.step("tunnel-page")
	j.click("Send test event")
	j.sees("succeeded")
	j.step("delivered")
	select {
	case body := <-verified:
		if !strings.Contains(body, `"type"`) {
			t.Errorf("the event is %s", body)
		}
	default:
		t.Error("the receiver verified no delivery")
	}
	j.click("Home")
	j.until("the step of webhooks is done", func() bool { return eval[bool](j.tab, `document.querySelector("#start-webhook .step.done") !== null`) })
	j.step("ticked")
}

func TestChecklistTicksTheFirstRequestWithoutReload(t *testing.T) {
	t.Parallel()
	j := newJourney(t, "checklist")
	j.becomeOwner()
	j.sees("Waiting for your first request…")
	eval[any](j.tab, "void (window.stays = true)")
	// The person runs the example that the page shows, in a terminal.
	curl := exec.CommandContext(t.Context(), "sh", "-c", j.value("#first-curl", "textContent"))
	curl.Env = append(os.Environ(), "TURNPIKE_API_KEY="+j.key)
	if out, err := curl.Output(); err != nil || !strings.Contains(string(out), `"choices"`) {
		t.Fatalf("the example failed: %v\n%s", err, out)
	}
	j.until("the step is done", func() bool {
		return eval[bool](j.tab, `document.querySelector("#start-request .step.done")?.textContent.includes("Received") ?? false`)
	})
	j.misses("Waiting for your first request…")
	if !eval[bool](j.tab, "window.stays === true") {
		t.Error("the page was loaded again")
	}
	j.step("ticked")
}
