package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Keys that never existed. They are split, so that a scan of this repository
// finds nothing.
const (
	scanKey   = "tp_live_" + "NobodyHasEverBeenGivenThisSecret2XK4HZ"
	scanHint  = "tp_live_…K4HZ"
	scanOther = "tp_test_" + "NobodyHasEverBeenGivenThisSecret14neia"
)

// scanCommand runs the command and checks that it never prints a key.
func scanCommand(t *testing.T, in string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = Main(append([]string{"scan"}, args...), strings.NewReader(in), &stdout, &stderr)
	if all := stdout.String() + stderr.String(); strings.Contains(all, scanKey[8:]) || strings.Contains(all, scanOther[8:]) {
		t.Errorf("the output contains a key:\n%s", all)
	}
	return code, stdout.String(), stderr.String()
}

// put creates a file and its directories.
func put(t *testing.T, content string, parts ...string) {
	t.Helper()
	path := filepath.Join(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestScanExitCodes(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TURNPIKE_BASE_URL", "")
	put(t, "nothing here, tp_live_abc", dir, "clean", "a.txt")
	put(t, "a\nb\nKEY="+scanKey+"\n", dir, "leaky", "deep", ".env")
	put(t, "x"+scanKey+"y"+scanOther, dir, "leaky", "b.txt")
	leaky := filepath.Join(dir, "leaky")
	env, text := filepath.Join(leaky, "deep", ".env"), filepath.Join(leaky, "b.txt")

	if code, out, errOut := scanCommand(t, "", filepath.Join(dir, "clean")); code != 0 || out != "" || errOut != "" {
		t.Errorf("clean directory: %d, %q, %q", code, out, errOut)
	}
	code, out, errOut := scanCommand(t, "", leaky)
	want := text + ":1: " + scanHint + "\n" + text + ":1: tp_test_…neia\n" + env + ":3: " + scanHint + "\n"
	if code != 1 || out != want || !strings.Contains(errOut, "found 2 keys in 3 places") || !strings.Contains(errOut, "reported nothing") {
		t.Errorf("directory with keys: %d\n%swant\n%s%s", code, out, want, errOut)
	}
	if code, out, _ := scanCommand(t, "one\n"+scanKey, "-"); code != 1 || out != "-:2: "+scanHint+"\n" {
		t.Errorf("a stream: %d, %q", code, out)
	}
	if code, out, _ := scanCommand(t, "", "--json", filepath.Join(dir, "clean")); code != 0 || strings.TrimSpace(out) != "[]" {
		t.Errorf("clean directory as JSON: %d, %q", code, out)
	}
	var list []map[string]any
	if code, out, _ := scanCommand(t, "", "--json", env); code != 1 || json.Unmarshal([]byte(out), &list) != nil ||
		len(list) != 1 || list[0]["path"] != env || list[0]["line"] != 3.0 || list[0]["key"] != scanHint || len(list[0]) != 3 {
		t.Errorf("as JSON: %d, %s", code, out)
	}
	missing := filepath.Join(dir, "missing")
	if code, _, errOut := scanCommand(t, "", missing); code != 2 || !strings.Contains(errOut, "missing") {
		t.Errorf("missing directory: %d, %q", code, errOut)
	}
	// An error does not hide keys, nor keys an error.
	if code, out, errOut := scanCommand(t, "", missing, env); code != 1 || !strings.Contains(out, scanHint) || !strings.Contains(errOut, "missing") {
		t.Errorf("partial scan: %d, %q, %q", code, out, errOut)
	}
	for name, args := range map[string][]string{"nothing": {}, "two things": {"--git", ".", "a"}, "a stream and a file": {"-", "a"},
		"since when": {"--since", "x", "a"}, "an option as revision": {"--git", ".", "--since", "--all"}, "contradiction": {"--offline", "--report", "a"}} {
		if code, _, errOut := scanCommand(t, "", args...); code != 2 || !strings.Contains(errOut, "--help") {
			t.Errorf("%s: %d, %q", name, code, errOut)
		}
	}
}

func TestScanSkipsLargeBinariesByDefault(t *testing.T) {
	t.Setenv("TURNPIKE_BASE_URL", "")
	dir := t.TempDir()
	filler := strings.Repeat("\x00filler", 1<<18)
	put(t, filler+scanKey, dir, "large.bin")
	if code, out, errOut := scanCommand(t, "", dir); code != 0 || out != "" || !strings.Contains(errOut, "Skipped 1 binary file") {
		t.Errorf("large binary: %d, %q, %q", code, out, errOut)
	}
	if code, out, _ := scanCommand(t, "", "--binary", dir); code != 1 || !strings.Contains(out, "large.bin:1: ") {
		t.Errorf("with --binary: %d, %q", code, out)
	}
	put(t, "\x00"+scanKey, dir, "small.bin")
	put(t, strings.ReplaceAll(filler, "\x00", "\n")+scanKey, dir, "large.txt")
	put(t, scanKey, dir, ".git", "objects", "ab")
	put(t, scanKey, dir, ".git", "config")
	code, out, _ := scanCommand(t, "", dir)
	for _, want := range []string{"small.bin:1: ", "large.txt:262145: ", "config:1: "} {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("the output lacks %q: %d, %s", want, code, out)
		}
	}
	if strings.Count(out, "\n") != 3 {
		t.Errorf("got more than 3 keys:\n%s", out)
	}
}

// reports is a server that records reports.
type reports struct {
	*httptest.Server
	mu   sync.Mutex
	got  []map[string]any
	auth []string
}

func serveReports(t *testing.T, status int) *reports {
	t.Helper()
	r := &reports{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		var in map[string]any
		if req.Method != "POST" || req.URL.Path != "/leaks/report" || json.Unmarshal(body, &in) != nil {
			t.Errorf("%s %s with %s", req.Method, req.URL, body)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, in)
		r.auth = append(r.auth, req.Header.Values("Authorization")...)
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func TestScanReportsToTheConfiguredServer(t *testing.T) {
	dir := t.TempDir()
	put(t, scanKey+"\n"+scanKey, dir, "a")
	server := serveReports(t, http.StatusAccepted)
	t.Setenv("TURNPIKE_BASE_URL", server.URL+"/v1/")
	t.Setenv("TURNPIKE_API_KEY", "tp_live_x")
	code, _, errOut := scanCommand(t, "", "--url", "https://ci.example.com/1", dir)
	if code != 1 || !strings.Contains(errOut, "found 1 key in 2 places and reported them to "+server.URL) {
		t.Errorf("%d, %s", code, errOut)
	}
	if len(server.got) != 1 || server.got[0]["source"] != "scan" || server.got[0]["url"] != "https://ci.example.com/1" ||
		!slices.Equal(server.got[0]["keys"].([]any), []any{any(scanKey)}) || len(server.auth) != 0 {
		t.Errorf("the server received %v, with Authorization %v", server.got, server.auth)
	}
	if code, _, errOut := scanCommand(t, "", "--offline", dir); code != 1 || len(server.got) != 1 || !strings.Contains(errOut, "reported nothing") {
		t.Errorf("offline: %d, %s, and the server got %d", code, errOut, len(server.got))
	}
	down := serveReports(t, http.StatusServiceUnavailable)
	if code, out, errOut := scanCommand(t, "", "--base-url", down.URL, dir); code != 1 || !strings.Contains(out, scanHint) || !strings.Contains(errOut, "may still work") {
		t.Errorf("without a server: %d, %s, %s", code, out, errOut)
	}
}

func TestScanFindsKeysInTheHistory(t *testing.T) {
	t.Setenv("TURNPIKE_BASE_URL", "")
	repo := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", repo, "-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	commit := func(message string) string {
		t.Helper()
		run("add", "-A")
		run("commit", "-q", "--allow-empty", "-m", message)
		return run("rev-parse", "HEAD")[:12]
	}
	run("init", "-q", "-b", "main")
	if code, _, errOut := scanCommand(t, "", "--git", repo); code != 0 {
		t.Errorf("an empty repository: %d, %s", code, errOut)
	}
	put(t, "harmless", repo, "readme")
	clean := commit("begin")
	put(t, "a\n"+scanKey+"\n", repo, "conf", "app env.yaml")
	leaked := commit("oops")
	put(t, "a\n", repo, "conf", "app env.yaml")
	gone := commit("remove it")
	said := commit("the key was " + scanOther)

	code, out, errOut := scanCommand(t, "", "--git", repo)
	want := said + ":(message):" // which line depends on git's headers
	if code != 1 || !strings.Contains(out, leaked+":conf/app env.yaml:2: "+scanHint+"\n") || !strings.Contains(out, want) || strings.Count(out, "\n") != 2 {
		t.Errorf("the history: %d\n%s%s", code, out, errOut)
	}
	if code, out, _ := scanCommand(t, "", "--git", repo, "--since", gone); code != 1 || strings.Count(out, "\n") != 1 || !strings.Contains(out, want) {
		t.Errorf("since the key was removed: %d\n%s", code, out)
	}
	if code, out, _ := scanCommand(t, "", "--git", repo, "--since", clean); code != 1 || strings.Count(out, "\n") != 2 {
		t.Errorf("since before: %d\n%s", code, out)
	}
	if code, out, _ := scanCommand(t, "", repo); code != 1 || strings.Contains(out, "app env") {
		t.Errorf("the files as they are: %d\n%s", code, out) // the last message is a file, too
	}
	if code, _, errOut := scanCommand(t, "", "--git", repo, "--since", "nonsense"); code != 2 || !strings.Contains(errOut, "nonsense") {
		t.Errorf("an unknown revision: %d, %s", code, errOut)
	}
	if code, _, errOut := scanCommand(t, "", "--git", t.TempDir()); code != 2 || !strings.Contains(errOut, "git") {
		t.Errorf("no repository: %d, %s", code, errOut)
	}
}
