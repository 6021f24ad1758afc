package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const testBatch = "imgbatch_01h455vb4pex5vsknk084sn02q"

// jobsCommand runs the command against a test server.
func jobsCommand(server *httptest.Server, args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	code = Main(append(append([]string{"jobs"}, args...), "--base-url", server.URL, "--api-key", "tp_test_x"), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// serveJob returns the next of the responses to each request, and then the last one.
func serveJob(t *testing.T, responses ...string) (server *httptest.Server, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := requests.Add(1)
		_, _ = io.WriteString(w, responses[min(int(n), len(responses))-1])
	}))
	t.Cleanup(server.Close)
	return server, requests
}

func batchJSON(status, rest string) string {
	return fmt.Sprintf(`{"id":%q,"object":"image.batch","status":%q,"request_counts":{"total":2,"completed":1,"failed":0},"cost":1.5,"created_at":1%s}`, testBatch, status, rest)
}

func TestWaitExitCodeReflectsTheJob(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]int{"completed": 0, "failed": 1, "cancelled": 1} {
		server, requests := serveJob(t, batchJSON("queued", ""), batchJSON("in_progress", ""), batchJSON(status, ""))
		code, out, errOut := jobsCommand(server, "wait", testBatch)
		if code != want || requests.Load() != 3 || !strings.Contains(out, status) {
			t.Errorf("%s: got exit code %d after %d requests, want %d after 3\n%s%s", status, code, requests.Load(), want, out, errOut)
		}
	}
	server, _ := serveJob(t, batchJSON("in_progress", ""))
	code, _, errOut := jobsCommand(server, "wait", testBatch, "--timeout", "20ms")
	if code != 3 || !strings.Contains(errOut, "not finished after 20ms") {
		t.Errorf("timeout: got exit code %d, want 3: %s", code, errOut)
	}
	code, _, errOut = jobsCommand(server, "wait", "batch_1")
	if code != 2 || !strings.Contains(errOut, "imgbatch_") {
		t.Errorf("invalid ID: got exit code %d, want 2: %s", code, errOut)
	}
}

func TestWaitHonorsRetryAfter(t *testing.T) {
	t.Parallel()
	var limitedAt, retriedAt atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if limitedAt.CompareAndSwap(0, time.Now().UnixNano()) {
			w.Header().Set("Retry-After-Ms", "400")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":{"code":"rate_limit_exceeded","message":"too many requests"}}`)
			return
		}
		retriedAt.CompareAndSwap(0, time.Now().UnixNano())
		_, _ = io.WriteString(w, batchJSON("completed", ""))
	}))
	t.Cleanup(server.Close)
	if code, _, errOut := jobsCommand(server, "wait", testBatch); code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	if waited := time.Duration(retriedAt.Load() - limitedAt.Load()); waited < 400*time.Millisecond {
		t.Errorf("retried after %v, want at least 400ms", waited)
	}
}

func TestRetryAfterHeaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ms, seconds string
		want        time.Duration
	}{{"1500", "2", 1500 * time.Millisecond}, {"", "2", 2 * time.Second}, {"", "", 0}, {"soon", "-1", 0}, {"", "Wed, 21 Oct 2026 07:28:00 GMT", 0}} {
		h := http.Header{}
		h.Set("Retry-After-Ms", c.ms)
		h.Set("Retry-After", c.seconds)
		if got := retryAfter(h); got != c.want {
			t.Errorf("headers %q and %q: got %v, want %v", c.ms, c.seconds, got, c.want)
		}
	}
}

// downloadOne waits for a job with one image and saves it.
func downloadOne(t *testing.T, name, content, sum string, size int) (directory string, code int, errOut string) {
	t.Helper()
	var key atomic.Value
	key.Store("")
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key.Store(r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, content)
	}))
	t.Cleanup(files.Close)
	image := fmt.Sprintf(`,"results":[{"custom_id":"a","status":"completed","images":[{"url":"%s/files/x/%s?signature=1","bytes":%d,"sha256":%q}]}]`, files.URL, name, size, sum)
	server, _ := serveJob(t, batchJSON("completed", image))
	directory = t.TempDir()
	code, _, errOut = jobsCommand(server, "wait", testBatch, "--download", directory)
	if key.Load() != "" {
		t.Error("the API key was sent to the file server")
	}
	return directory, code, errOut
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestOnlyVerifiedFilesAreSaved(t *testing.T) {
	t.Parallel()
	directory, code, errOut := downloadOne(t, "one.png", "an image", sumOf("an image"), 8)
	if got, err := os.ReadFile(filepath.Join(directory, "one.png")); code != 0 || err != nil || string(got) != "an image" {
		t.Errorf("got exit code %d, content %q, error %v: %s", code, got, err, errOut)
	}
	for what, c := range map[string]struct {
		content, sum string
		size         int
	}{
		"other content": {"an imagE", sumOf("an image"), 8},
		"truncated":     {"an im", sumOf("an image"), 8},
		"no checksum":   {"an im", "", 8},
	} {
		directory, code, errOut := downloadOne(t, "one.png", c.content, c.sum, c.size)
		left, err := os.ReadDir(directory)
		if code != 1 || err != nil || len(left) > 0 || !strings.Contains(errOut, "try again") {
			t.Errorf("%s: got exit code %d and %d files, want 1 and none: %s", what, code, len(left), errOut)
		}
	}
}

func TestDownloadRejectsUnsafeFileNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"..", "..%2f..%5cevil", "a%5cb", "%1b%5b2J.png", "c:evil", "."} {
		directory, code, errOut := downloadOne(t, name, "evil", sumOf("evil"), 4)
		left, err := os.ReadDir(directory)
		if code != 1 || err != nil || len(left) > 0 || strings.Contains(errOut, "\x1b") {
			t.Errorf("%s: got exit code %d and %d files, want 1 and none: %s", name, code, len(left), errOut)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 bytes", 1: "1 byte", 999: "999 bytes", 1000: "1.0 KB", 1_234_567: "1.2 MB", 5_000_000_000: "5.0 GB"} {
		if got := formatBytes(n); got != want {
			t.Errorf("formatBytes(%d): got %q, want %q", n, got, want)
		}
	}
}
