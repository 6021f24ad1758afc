//go:build docs

// Package docs_test follows the README, the tutorials and the guides as a reader
// would: it runs their commands and programs, in order, against a new server for
// each page, and compares what they print with what the page shows.
//
// A page controls it by HTML comments in front of a block:
//
//	<!-- not run: needs … -->   the block needs something that isn't here
//	<!-- background: NAME -->   the block keeps running, in a terminal with this name
//	<!-- output: NAME -->       the block shows what that terminal prints
//	<!-- example -->            the block doesn't show the output of the one before
//
// The commands that a page installs with npm install come from test/npm/package.json, in the versions that it has. HOME is
// the directory in which the page's commands run.
//
// A block with a title in its fence (```python title="chat.py") is saved under
// that name. A placeholder such as run_… is the last value with that prefix that
// was printed. In output, … stands for anything.
package docs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// notRun lists the blocks that were only checked, or not even that.
var notRun struct {
	sync.Mutex
	lines map[string]string // by block
	total int               // of all commands and programs
}

func listAsNotRun(b block, why string) {
	notRun.Lock()
	defer notRun.Unlock()
	if notRun.lines == nil {
		notRun.lines = map[string]string{}
	}
	notRun.lines[b.String()] = fmt.Sprintf("%s (%s): %s", b, b.language, why)
}

func TestMain(m *testing.M) {
	code := m.Run()
	lines := slices.Sorted(maps.Values(notRun.lines))
	checked := 0
	for _, line := range lines {
		if strings.Contains(line, "checked;") {
			checked++
		}
	}
	fmt.Printf("%d commands and programs: %d ran, %d were only checked, %d were neither:\n", notRun.total, notRun.total-len(lines), checked, len(lines)-checked)
	for _, line := range lines {
		fmt.Println("  " + line)
	}
	os.Exit(code)
}

// pages are those whose examples are run.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md"}
	for _, dir := range []string{"docs/tutorials", "docs/guides"} {
		found, err := filepath.Glob(root + dir + "/*.md")
		if err != nil || len(found) == 0 {
			t.Fatalf("no pages in %s: %v", dir, err)
		}
		for _, path := range found {
			all = append(all, dir+"/"+filepath.Base(path))
		}
	}
	return all
}

func TestExamplesWorkAgainstFreshServer(t *testing.T) {
	up := startUpstream(t)
	byPage := map[string][]block{}
	for _, page := range pages(t) {
		blocks, err := blocksOf(page)
		if err != nil {
			t.Fatal(err)
		}
		byPage[page] = blocks
		for _, b := range blocks {
			if slices.Contains([]string{"sh", "ts", "python", "go", "ruby"}, b.language) {
				notRun.total++
			}
			if b.title != "" && b.language != "yaml" && !isUsed(b, blocks) {
				listAsNotRun(b, "checked; no command on the page runs it")
			}
		}
	}
	compiled := compileTypeScript(t, byPage)
	for _, page := range pages(t) {
		t.Run(page, func(t *testing.T) { follow(t, byPage[page], up, compiled) })
	}
}

// isUsed reports whether a command or another program on the page names a saved program.
func isUsed(b block, blocks []block) bool {
	name := strings.TrimSuffix(b.title, filepath.Ext(b.title))
	return slices.ContainsFunc(blocks, func(other block) bool { return other.line != b.line && strings.Contains(other.text, name) })
}

// upstream stands for the model providers: a Turnpike whose simulator plays
// OpenAI, and a server that plays Ollama and vLLM.
type upstream struct {
	openAIURL, openAIKey string
	localModels          http.Handler
}

func startUpstream(t *testing.T) upstream {
	t.Helper()
	s := newSession(t, "")
	startServer(s, block{language: "sh", text: "turnpike serve\n"})
	key := s.fill(block{language: "sh", text: "tp_test_…"})
	return upstream{"http://127.0.0.1:" + s.ports["8080"] + "/v1", key, http.HandlerFunc(serveLocalModel)}
}

// serveLocalModel answers as Ollama and vLLM do.
func serveLocalModel(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/v1/models" {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"llama3.2","object":"model","created":1760000000,"owned_by":"library"}]}`)
		return
	}
	var body struct{ Model string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/chat/completions" {
		http.Error(w, `{"error":{"message":"not found"}}`, http.StatusNotFound)
		return
	}
	fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1760000000,"model":%q,"choices":[{"index":0,`+
		`"message":{"role":"assistant","content":"Hello from a local model."},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":12,"completion_tokens":6,"total_tokens":18}}`, body.Model)
}

// follow does what a page says.
func follow(t *testing.T, blocks []block, up upstream, compiled map[string]string) {
	modules, err := installPackages(blocks)
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t, filepath.Join(modules, ".bin"))
	s.values["sk-"], s.openAI = up.openAIKey, up.openAIURL
	local := httptest.NewServer(up.localModels)
	t.Cleanup(local.Close)
	for _, port := range []string{"11434", "8000"} {
		s.ports[port] = local.URL[strings.LastIndex(local.URL, ":")+1:]
	}
	if err := os.Symlink(modules, filepath.Join(s.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(blocks, block.startsServer) {
		startServer(s, block{page: blocks[0].page, language: "sh", text: "OPENAI_API_KEY=" + up.openAIKey + " turnpike serve\n"})
	}
	var last block // the last one that ran
	var printed string
	for i, b := range blocks {
		switch {
		case b.notRun != "":
			listAsNotRun(b, b.notRun)
			last = block{}
		case b.background == "server":
			startServer(s, b)
			last = b
		case b.background != "":
			s.start(b)
			last = b
		case b.outputOf != "":
			s.waitFor(b, b.outputOf, s.expected(b))
		case b.isOutput() && last.background != "":
			s.waitFor(b, last.background, s.expected(b))
		case b.isOutput() && last.page != "":
			if !s.expected(b).MatchString(normalize(printed)) {
				t.Errorf("%s: the block before prints\n%s\nand the page shows\n%s", b, printed, b.text)
			}
		case b.title != "":
			saveProgram(s, b, compiled)
		case b.language == "sh":
			printed, last = s.run(b), b
			next := ""
			if i+1 < len(blocks) && blocks[i+1].isOutput() {
				next = blocks[i+1].text
			}
			s.checkErrors(b, next)
		case b.language == "ts" || b.language == "python" || b.language == "go":
			printed, last = runProgram(s, b, compiled), b
		}
	}
}

// startServer starts a server in its terminal and waits until it is ready.
// OpenAI is the upstream.
func startServer(s *session, b block) {
	s.t.Helper()
	b.text = "export OPENAI_BASE_URL=" + s.openAI + "\n" + b.text
	b.background = "server"
	s.start(b)
	for deadline := time.Now().Add(blockTimeout); ; time.Sleep(50 * time.Millisecond) {
		response, err := http.Get(s.localize("http://127.0.0.1:8080/readyz"))
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: the server isn't ready:\n%s", b, s.read(s.jobs["server"]))
		}
	}
}

// saveProgram saves a block under its title, and checks it as far as that goes.
func saveProgram(s *session, b block, compiled map[string]string) {
	s.t.Helper()
	s.save(b.title, s.fill(b))
	switch b.language {
	case "yaml": // OpenAI is the upstream
		s.save(b.title, strings.ReplaceAll(s.fill(b), "api_key_env: OPENAI_API_KEY", "api_key_env: OPENAI_API_KEY\n    base_url: "+s.openAI))
	case "ts":
		name := strings.TrimSuffix(strings.TrimSuffix(b.title, ".mts"), ".ts")
		b.text = compiled[b.String()]
		s.save(name+".mjs", s.fill(b))
	case "python", "go", "ruby":
		if _, err := exec.LookPath(strings.Replace(b.language, "python", "python3", 1)); err != nil {
			listAsNotRun(b, b.language+" isn't installed")
			return
		}
		checkSyntax(s.t, b, filepath.Join(s.dir, b.title))
		if b.language == "python" {
			if module := missingModule(b.text, s.dir); module != "" {
				listAsNotRun(b, "syntax checked; needs the package "+module)
			}
		}
	}
}

// runProgram runs a block that is a whole program and returns what it printed.
func runProgram(s *session, b block, compiled map[string]string) string {
	s.t.Helper()
	name := fmt.Sprintf("program-%d", b.line)
	var command string
	switch b.language {
	case "ts":
		b.title, command = name+".mts", "node "+name+".mjs"
	case "python":
		b.title, command = name+".py", "python3 "+name+".py"
		if module := missingModule(b.text, s.dir); module != "" {
			saveProgram(s, b, compiled)
			return ""
		}
	case "go":
		b.title, command = name+".go", fmt.Sprintf("(dir=$PWD; cd %s; go run $dir/%s.go)", mustAbs(s.t, root), name)
	}
	saveProgram(s, b, compiled)
	return s.run(block{page: b.page, line: b.line, language: "sh", text: command + "\n"})
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}
