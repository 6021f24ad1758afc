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

const aBatch = "imgbatch_01h455vb4pex5vsknk084sn02q"

// jobsCommand runs the command against a server of the test's own.
func jobsCommand(server *httptest.Server, args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	code = Main(append(append([]string{"jobs"}, args...), "--base-url", server.URL, "--api-key", "tp_test_x"), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// serveJob answers every look at a job with the next of the texts; the last
// one stays.
func serveJob(t *testing.T, texts ...string) (server *httptest.Server, looks *atomic.Int64) {
	t.Helper()
	looks = new(atomic.Int64)
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := looks.Add(1)
		_, _ = io.WriteString(w, texts[min(int(n), len(texts))-1])
	}))
	t.Cleanup(server.Close)
	return server, looks
}

func batchText(status, rest string) string {
	return fmt.Sprintf(`{"id":%q,"object":"image.batch","status":%q,"request_counts":{"total":2,"completed":1,"failed":0},"cost":1.5%s}`, aBatch, status, rest)
}

func TestWaitExitsByWhatCameOfTheJob(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]int{"completed": 0, "failed": 1, "cancelled": 1} {
		server, looks := serveJob(t, batchText("queued", ""), batchText("in_progress", ""), batchText(status, ""))
		code, out, errOut := jobsCommand(server, "wait", aBatch)
		if code != want || looks.Load() != 3 || !strings.Contains(out, status) {
			t.Errorf("%s: exit %d after %d looks\n%s%s", status, code, looks.Load(), out, errOut)
		}
	}
	server, _ := serveJob(t, batchText("in_progress", ""))
	code, _, errOut := jobsCommand(server, "wait", aBatch, "--timeout", "20ms")
	if code != 3 || !strings.Contains(errOut, "had not ended after 20ms") {
		t.Errorf("too late: exit %d, %s", code, errOut)
	}
	code, _, errOut = jobsCommand(server, "wait", "batch_1")
	if code != 2 || !strings.Contains(errOut, "imgbatch_") {
		t.Errorf("no id: exit %d, %s", code, errOut)
	}
}

func TestWaitLeavesAServerAloneThatAsksForIt(t *testing.T) {
	t.Parallel()
	var refusedAt, cameBack atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if refusedAt.CompareAndSwap(0, time.Now().UnixNano()) {
			w.Header().Set("Retry-After-Ms", "400")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":{"code":"rate_limit_exceeded","message":"too many requests"}}`)
			return
		}
		cameBack.CompareAndSwap(0, time.Now().UnixNano())
		_, _ = io.WriteString(w, batchText("completed", ""))
	}))
	t.Cleanup(server.Close)
	if code, _, errOut := jobsCommand(server, "wait", aBatch); code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	if waited := time.Duration(cameBack.Load() - refusedAt.Load()); waited < 400*time.Millisecond {
		t.Errorf("it came back after %v, and was asked to wait 400ms", waited)
	}
}

func TestRetryAfterIsRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ms, seconds string
		want        time.Duration
	}{{"1500", "2", 1500 * time.Millisecond}, {"", "2", 2 * time.Second}, {"", "", 0}, {"soon", "-1", 0}, {"", "Wed, 21 Oct 2026 07:28:00 GMT", 0}} {
		h := http.Header{}
		h.Set("Retry-After-Ms", c.ms)
		h.Set("Retry-After", c.seconds)
		if got := retryAfter(h); got != c.want {
			t.Errorf("%q and %q are %v, want %v", c.ms, c.seconds, got, c.want)
		}
	}
}

// download runs wait with a job of one picture whose link is served by files.
func downloadOne(t *testing.T, name, content, sum string, size int, args ...string) (folder string, code int, errOut string) {
	t.Helper()
	var key atomic.Value
	key.Store("")
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key.Store(r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, content)
	}))
	t.Cleanup(files.Close)
	picture := fmt.Sprintf(`,"results":[{"custom_id":"a","status":"completed","images":[{"url":"%s/files/x/%s?signature=1","bytes":%d,"sha256":%q}]}]`, files.URL, name, size, sum)
	server, _ := serveJob(t, batchText("completed", picture))
	folder = t.TempDir()
	code, _, errOut = jobsCommand(server, append([]string{"wait", aBatch, "--download", folder}, args...)...)
	if key.Load() != "" {
		t.Error("the key was sent to where the files are")
	}
	return folder, code, errOut
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestOnlyWholeFilesAreSaved(t *testing.T) {
	t.Parallel()
	folder, code, errOut := downloadOne(t, "one.png", "a picture", sumOf("a picture"), 9)
	if got, err := os.ReadFile(filepath.Join(folder, "one.png")); code != 0 || err != nil || string(got) != "a picture" {
		t.Errorf("exit %d, %q, %v: %s", code, got, err, errOut)
	}
	for what, c := range map[string]struct {
		content, sum string
		size         int
	}{
		"another content": {"a picturE", sumOf("a picture"), 9},
		"a part":          {"a pict", sumOf("a picture"), 9},
		"a part, unknown": {"a pict", "", 9},
	} {
		folder, code, errOut := downloadOne(t, "one.png", c.content, c.sum, c.size)
		left, err := os.ReadDir(folder)
		if code != 1 || err != nil || len(left) > 0 || !strings.Contains(errOut, "try again") {
			t.Errorf("%s: exit %d, %d files are left: %s", what, code, len(left), errOut)
		}
	}
}

func TestFilesStayInTheirFolder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"..", "..%2f..%5cevil", "a%5cb", "%1b%5b2J.png", "c:evil", "."} {
		folder, code, errOut := downloadOne(t, name, "evil", sumOf("evil"), 4)
		left, err := os.ReadDir(folder)
		if code != 1 || err != nil || len(left) > 0 || strings.Contains(errOut, "\x1b") {
			t.Errorf("%s: exit %d, %d files: %s", name, code, len(left), errOut)
		}
	}
}

func TestSizesReadWell(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 bytes", 1: "1 byte", 999: "999 bytes", 1000: "1.0 KB", 1_234_567: "1.2 MB", 5_000_000_000: "5.0 GB"} {
		if got := byteSize(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
