//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"turnpike/internal/app"
)

// testServer is turnpike serve with a configuration file.
type testServer struct {
	t                          *testing.T
	url, metrics, data, config string
	key                        string
	log                        *lockedBuffer
	stopped                    chan int
	blue, green                *httptest.Server // providers, which answer with their name
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// namedProvider answers every request with its name, after a moment in which a
// reload may happen.
func namedProvider(t *testing.T, name string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`, name)
	}))
	t.Cleanup(s.Close)
	return s
}

func runMain(args ...string) (code int, out string) {
	var buf bytes.Buffer
	code = Main(args, strings.NewReader(""), &buf, &buf)
	return code, buf.String()
}

// startServer starts a server whose file names the blue provider.
func startServer(t *testing.T) *testServer {
	t.Helper()
	dir := socketDirectory(t)
	s := &testServer{t: t, data: filepath.Join(dir, "data"), config: filepath.Join(dir, "turnpike.yaml"), log: new(lockedBuffer), stopped: make(chan int, 1),
		blue: namedProvider(t, "blue"), green: namedProvider(t, "green")}
	s.write(s.file("blue", s.blue))
	r, w := io.Pipe()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.metrics = free.Addr().String()
	free.Close()
	go func() {
		s.stopped <- Main([]string{"serve", "--config", s.config, "--data", s.data, "--listen", "127.0.0.1:0", "--metrics-listen", s.metrics}, strings.NewReader(""), w, s.log)
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || !strings.Contains(line, "is listening on ") {
		t.Fatal(line, err)
	}
	go io.Copy(io.Discard, r)
	s.url = strings.TrimSpace(line[strings.Index(line, "http"):])
	t.Cleanup(func() {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := <-s.stopped; code != 0 {
			t.Errorf("exit code %d; log:\n%s", code, s.log)
		}
	})
	code, out := runMain("keys", "create", "--data", s.data, "--env", "live", "--name", "load", "--scopes", "*", "--json")
	var key struct{ Value string }
	if err := json.Unmarshal([]byte(out), &key); code != 0 || err != nil || key.Value == "" {
		t.Fatal(code, out, err)
	}
	s.key = key.Value
	return s
}

func (s *testServer) file(name string, at *httptest.Server) string {
	return fmt.Sprintf("limits: {live_requests_per_minute: 0, live_tokens_per_minute: 0, workspace_reads_per_minute: 0}\n"+
		"providers:\n  - name: %s\n    type: openai\n    base_url: %s\n    local: true\n    models: [{id: m}]\n", name, at.URL)
}

func (s *testServer) write(content string) {
	s.t.Helper()
	if err := os.WriteFile(s.config, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// call returns who answered, or the error.
func (s *testServer) call() string {
	req, err := http.NewRequest(http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"Hi"}]}`))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	for _, name := range []string{"blue", "green"} {
		if resp.StatusCode == http.StatusOK && strings.Contains(string(body), `"content":"`+name+`"`) && resp.Header.Get("Service-Provider") == name {
			return name
		}
	}
	return fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("Service-Provider"), body)
}

// metric returns the labels and the value of a metric.
func (s *testServer) metric(name string) string {
	s.t.Helper()
	resp, err := http.Get("http://" + s.metrics + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
			return strings.TrimSpace(rest)
		}
	}
	s.t.Fatalf("no metric %s", name)
	return ""
}

func (s *testServer) expect(name string) {
	s.t.Helper()
	if got := s.call(); got != name {
		s.t.Errorf("answered by %q, want %q", got, name)
	}
}

// await waits until a new call is answered by name.
func (s *testServer) await(name string) {
	s.t.Helper()
	got := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got = s.call(); got == name {
			return
		}
	}
	s.t.Fatalf("answered by %q, want %q; log:\n%s", got, name, s.log)
}

// These tests aren't parallel, because signals go to the whole process.

func TestNoRequestFailsDuringReloads(t *testing.T) {
	s := startServer(t)
	var calls atomic.Int64
	var load sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := s.call(); got != "blue" && got != "green" {
					t.Errorf("a request failed: %s", got)
					return
				}
				calls.Add(1)
			}
		})
	}
	files := map[string]string{"blue": s.file("blue", s.blue), "green": s.file("green", s.green)}
	for n := range 20 {
		name := []string{"green", "blue"}[n%2]
		s.write(files[name])
		for before := calls.Load(); calls.Load() < before+10 && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
		// The watcher may have been faster.
		if code, out := runMain("reload", "--data", s.data); code != 0 || !strings.Contains(out, "Applied providers.") && !strings.Contains(out, "has changed") {
			t.Fatalf("exit code %d: %s", code, out)
		}
		s.expect(name)
	}
	close(stop)
	load.Wait()
	if n := calls.Load(); n < 200 {
		t.Errorf("only %d requests were made", n)
	}
}

func TestInvalidFileChangesNothing(t *testing.T) {
	s := startServer(t)
	for name, c := range map[string]struct{ content, want string }{
		"an unknown setting":  {s.file("green", s.green) + "routse: []\n", s.config + ":8"},
		"a bad value":         {s.file("green", s.green) + "limits.keys: many\n", s.config + ":8"},
		"a bad provider":      {s.file("green", s.green) + "  - name: green\n    type: openai\n    base_url: nowhere\n", s.config + ":10"},
		"a bad value, merged": {s.file("green", s.green) + "public_url: nowhere\n", s.config + ":8"},
		"not YAML":            {"providers: [", "line 1"},
	} {
		s.write(c.content)
		// Without the file, the data directory comes from the flag.
		code, out := runMain("reload", "--config", s.config, "--data", s.data)
		if code != 1 || !strings.Contains(out, c.want) || !strings.Contains(out, "changed nothing") {
			t.Errorf("%s: exit code %d: %s; want 1 and %q", name, code, out, c.want)
		}
		s.expect("blue")
		if got := s.metric("turnpike_config_reload_failed"); got != "1" {
			t.Errorf("%s: turnpike_config_reload_failed is %s, want 1", name, got)
		}
	}
}

func TestSIGHUPReloads(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored")
	}
	s := startServer(t)
	s.expect("blue")
	s.write(s.file("green", s.green))
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.await("green")
}

func TestChangedFileIsApplied(t *testing.T) {
	s := startServer(t)
	s.write(s.file("green", s.green))
	s.await("green")
	if err := os.Remove(s.config); err != nil {
		t.Fatal(err)
	}
	s.await("green") // a missing file changes nothing
	s.write(s.file("blue", s.blue))
	s.await("blue")
}

func TestReloadNamesSettingsThatNeedARestart(t *testing.T) {
	s := startServer(t)
	before := s.metric("turnpike_config_info")
	s.write(s.file("blue", s.blue) + "log.level: debug\nmarkup_percent: 5\nshutdown_timeout: 9s\n")
	code, out := runMain("reload", "--data", s.data, "--json")
	var got app.Reloaded
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if !slices.Equal(got.Applied, []string{"markup_percent", "log.level"}) || !slices.Equal(got.Restart, []string{"shutdown_timeout"}) {
		t.Errorf("got %+v", got)
	}
	after := s.metric("turnpike_config_info")
	if before == after || !strings.Contains(after, got.Hash) {
		t.Errorf("turnpike_config_info was %s and is %s; the hash is %s", before, after, got.Hash)
	}
	if _, out := runMain("doctor", "--data", s.data, "--config", s.config); !strings.Contains(out, "1 running") {
		t.Error(out)
	}
}

func TestReloadWithoutServerFails(t *testing.T) {
	data := t.TempDir()
	if code, out := runMain("reload", "--data", data); code != 1 || !strings.Contains(out, "no running server found") || !strings.Contains(out, "--data") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestLogLevelIsReloaded(t *testing.T) {
	e := &env{err: io.Discard}
	cmd := newServe(e)
	config := filepath.Join(t.TempDir(), "turnpike.yaml")
	data := t.TempDir()
	if err := os.WriteFile(config, []byte("log.level: error\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.ParseFlags([]string{"--config", config, "--data", data, "--listen", "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	if err := e.loadValidConfig(cmd); err != nil {
		t.Fatal(err)
	}
	a, err := app.Start(t.Context(), e.loaded.Config, "test", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	r := newReloader(e, cmd)
	r.app = a
	if err := os.WriteFile(config, []byte("log.level: debug\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slog.Default().Enabled(t.Context(), slog.LevelDebug) {
		t.Error("the level has not changed")
	}
}
