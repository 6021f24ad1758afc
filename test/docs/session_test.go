//go:build docs

package docs_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"turnpike/test/freeport"
	"turnpike/test/npm"
)

// blockTimeout bounds a block on a loaded machine.
const blockTimeout = 2 * time.Minute

// httpErrors is the file with the statuses of failed requests.
const httpErrors = ".http-errors"

// session is the terminal of a reader who follows a page: one shell in a new
// directory, with further terminals for what keeps running.
type session struct {
	t      *testing.T
	dir    string
	stdin  io.Writer
	lines  chan string // what the shell itself writes; closed when it ends
	count  int
	seen   strings.Builder // everything that was printed so far
	ports  map[string]string
	values map[string]string // by prefix, such as sk-: what a placeholder stands for
	jobs   map[string]string // by terminal: the file with its output
	openAI string            // the URL that stands for OpenAI's
}

// newSession starts a shell that also finds the commands in a directory. The page's ports become free ones.
func newSession(t *testing.T, bin string) *session {
	t.Helper()
	s := &session{t: t, dir: t.TempDir(), lines: make(chan string, 100), ports: map[string]string{}, values: map[string]string{}, jobs: map[string]string{}}
	for _, port := range []string{"8080", "3000", "11434", "8000"} {
		_, s.ports[port], _ = strings.Cut(freeport.Address(t), ":")
	}
	cmd := exec.Command("bash", "--noprofile", "--norc")
	cmd.Dir = s.dir
	node, err := npm.Node()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cleanEnv(t), "HOME="+s.dir, "PATH="+strings.Join([]string{commands(t), bin, filepath.Dir(node), os.Getenv("PATH")}, ":"), "TURNPIKE_LISTEN=127.0.0.1:"+s.ports["8080"], "PORT="+s.ports["3000"], "HTTP_ERRORS="+filepath.Join(s.dir, httpErrors))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its background processes are ended with it
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.stdin = stdin
	go func() {
		defer close(s.lines)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			s.lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	s.save(httpErrors, "")
	s.send("set -eu -o pipefail")
	return s
}

// cleanEnv is the environment without what would reach Turnpike or a client. Go keeps its caches.
func cleanEnv(t *testing.T) []string {
	t.Helper()
	var env []string
	for _, v := range os.Environ() {
		if !slices.ContainsFunc([]string{"TURNPIKE_", "OPENAI_", "ANTHROPIC_", "CLAUDE", "CODEX_", "XDG_", "PG", "PATH=", "HOME="}, func(prefix string) bool { return strings.HasPrefix(v, prefix) }) {
			env = append(env, v)
		}
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

// commands returns a directory with turnpike, with a make whose only target is run, with an npm that has nothing to do, because
// installPackages has installed the page's packages, and with a curl that also saves the status of errors.
func commands(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(turnpike(t), filepath.Join(dir, "turnpike")); err != nil {
		t.Fatal(err)
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"make": "#!/bin/sh\ntest \"$*\" = run || { echo \"make $*: only make run is tested\"; exit 1; }\nexec turnpike serve\n",
		"npm":  "#!/bin/sh\ntest \"$1\" = install || { echo \"npm $*: only npm install is tested\"; exit 1; }\n",
		"curl": "#!/bin/sh\nheaders=$(mktemp)\n" + curl + " -D \"$headers\" \"$@\"\nstatus=$?\ngrep -a '^HTTP/[0-9.]* [45]' \"$headers\" >>\"$HTTP_ERRORS\"\nrm \"$headers\"\nexit $status\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// turnpike returns the binary that is tested.
func turnpike(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TURNPIKE_BINARY")
	if path == "" {
		path = root + "bin/turnpike"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("run make docs-test, or set TURNPIKE_BINARY: %v", err)
	}
	return path
}

func (s *session) send(command string) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.stdin, command); err != nil {
		s.t.Fatal(err)
	}
}

// run runs a block in the page's shell and returns what it printed.
func (s *session) run(b block) string {
	s.t.Helper()
	script, out := s.write(b)
	s.send(fmt.Sprintf(". ./%s >%s 2>&1 </dev/null; echo done", script, out))
	timeout := time.After(blockTimeout)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("%s failed:\n%s", b, s.read(out))
			}
			if line == "done" {
				printed := s.read(out)
				s.seen.WriteString(printed)
				return printed
			}
		case <-timeout:
			s.t.Fatalf("%s did not end within %v:\n%s", b, blockTimeout, s.read(out))
		}
	}
}

// checkErrors reports failed requests of the block that ran last, unless the block after it shows the status or the error.
func (s *session) checkErrors(b block, next string) {
	s.t.Helper()
	for line := range strings.Lines(s.read(httpErrors)) {
		if status := strings.Fields(line)[1]; !strings.Contains(next, status) && !strings.Contains(next, `"error"`) {
			s.t.Errorf("%s: a request failed with %s, and the page doesn't show it", b, status)
		}
	}
	s.save(httpErrors, "")
}

// start runs a block in another terminal. A block that ran there before is
// ended as by Ctrl-C.
func (s *session) start(b block) {
	s.t.Helper()
	if _, running := s.jobs[b.background]; running {
		s.run(block{page: b.page, line: b.line, text: fmt.Sprintf("kill $terminal_%s; wait $terminal_%[1]s || true", b.background)})
	}
	script, out := s.write(b)
	s.jobs[b.background] = out
	s.send(fmt.Sprintf("( . ./%s ) >%s 2>&1 </dev/null & terminal_%s=$!; echo started", script, out, b.background))
	for line := range s.lines {
		if line == "started" {
			return
		}
	}
	s.t.Fatalf("%s did not start", b)
}

// write saves the block as a script, and returns its name and that of its output.
func (s *session) write(b block) (script, out string) {
	s.t.Helper()
	s.count++
	script, out = fmt.Sprintf(".block-%d.sh", s.count), fmt.Sprintf(".output-%d", s.count)
	text := s.fill(b)
	if b.background != "" {
		text = lastCommand.ReplaceAllString(text, "exec env $0") // so that a signal reaches the program and not a shell around it
	}
	s.save(script, text)
	s.save(out, "")
	return script, out
}

// lastCommand is the program that a background block ends with.
var lastCommand = regexp.MustCompile(`(?m)^(?:[A-Z_]+=\S+ )*(?:make|turnpike|python3|node) .*\n?\z`)

func (s *session) save(name, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(s.dir, name)), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

var (
	address     = regexp.MustCompile(`\b(127\.0\.0\.1|localhost):(8080|3000|11434|8000)\b`)
	placeholder = regexp.MustCompile(`\b([a-z]+(?:_[a-z]+)*_|sk-)…`)
	typescript  = regexp.MustCompile(`\bnode ([a-z-]+)\.m?ts\b`)
)

// fill puts values in place of what stands for them: addresses, and in commands
// placeholders such as run_…, which is the last run ID that was printed.
func (s *session) fill(b block) string {
	s.t.Helper()
	text := s.localize(b.text)
	if b.language != "sh" {
		return text
	}
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		prefix := strings.TrimSuffix(found, "…")
		if value, ok := s.values[prefix]; ok {
			return value
		}
		all := regexp.MustCompile(`\b`+prefix+`[A-Za-z0-9+/_=-]{12,}`).FindAllString(s.printed(), -1)
		if len(all) == 0 {
			s.t.Fatalf("%s has %s, and nothing like it was printed before", b, found)
		}
		return all[len(all)-1]
	})
}

// localize replaces the addresses in a text by those that the session uses.
func (s *session) localize(text string) string {
	text = address.ReplaceAllStringFunc(text, func(found string) string {
		host, port, _ := strings.Cut(found, ":")
		return host + ":" + s.ports[port]
	})
	return typescript.ReplaceAllString(text, "node $1.mjs") // Node 20 runs no TypeScript
}

// printed is what all terminals have shown so far.
func (s *session) printed() string {
	var all strings.Builder
	for _, out := range s.jobs {
		all.WriteString(s.read(out))
	}
	if first, err := os.ReadFile(filepath.Join(s.dir, "turnpike-data/first-run.txt")); err == nil {
		all.Write(first)
	}
	return all.String() + s.seen.String()
}

// waitFor waits until a terminal has shown what the pattern matches.
func (s *session) waitFor(b block, terminal string, pattern *regexp.Regexp) {
	s.t.Helper()
	out, ok := s.jobs[terminal]
	if !ok {
		s.t.Fatalf("%s is about the terminal %q, which no block has started", b, terminal)
	}
	for deadline := time.Now().Add(blockTimeout); ; time.Sleep(50 * time.Millisecond) {
		shown := s.read(out)
		if pattern.MatchString(normalize(shown)) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: terminal %s shows\n%s\nwant\n%s", b, terminal, shown, b.text)
		}
	}
}

// expected is the pattern of an output block: … stands for anything, and white
// space, IDs and times don't count.
func (s *session) expected(b block) *regexp.Regexp {
	parts := strings.Split(normalize(s.localize(b.text)), "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile(`(?s)` + strings.Join(parts, ".*?"))
}

var variable = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\b([a-z]+)_01[0-9a-hjkmnp-tv-z]{24}\b`), "${1}_ID"},
	{regexp.MustCompile(`\b1[789]\d{8}\b`), "TIME"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "TIME"},
	{regexp.MustCompile(`\b\d+ ms\b`), "DURATION"},
	{regexp.MustCompile(`\s+`), ""},
}

func normalize(text string) string {
	for _, v := range variable {
		text = v.pattern.ReplaceAllString(text, v.with)
	}
	return text
}
