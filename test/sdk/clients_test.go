//go:build clients

package sdk_test

import (
	"bufio"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
	"turnpike/test/npm"
)

// libraries are the clients in the table of docs/reference/clients.md.
var libraries = []library{
	{name: "openai", run: script("openai.mjs", "openai")},
	{name: "openai-go", run: openAIGo},
	{name: "@anthropic-ai/sdk", run: script("anthropic.mjs", "@anthropic-ai/sdk")},
	{name: "anthropic-sdk-go", run: goProgram("anthropic")},
	{name: "@ai-sdk/openai", run: script("ai.mjs", "ai", "@ai-sdk/openai", "zod")},
	{name: "@ai-sdk/anthropic", run: script("ai.mjs", "ai", "@ai-sdk/anthropic", "zod")},
	{name: "@ai-sdk/open-responses", run: script("ai.mjs", "ai", "@ai-sdk/open-responses", "zod")},
	{name: "@ai-sdk/openai-compatible", run: script("ai.mjs", "ai", "@ai-sdk/openai-compatible", "zod")},
	{name: "@openai/agents", run: script("agents.mjs", "@openai/agents", "openai", "zod")},
	{name: "@langchain/openai", run: script("langchain.mjs", "@langchain/openai", "@langchain/core")},
	{name: "llamaindex", run: script("llamaindex.mjs", "llamaindex", "@llamaindex/openai", "@llamaindex/workflow", "zod")},
}

// library is a client library with the program that uses it.
type library struct {
	name string
	run  func(t *testing.T, c connection) (output string)
}

// connection is what a program needs to reach a model.
type connection struct {
	url, key, model, embeddings string
	simulated                   bool
}

// env has the connection, and the responses that the program expects.
func (c connection) env() []string {
	return []string{"BASE_URL=" + c.url, "KEY=" + c.key, "MODEL=" + c.model, "EMBEDDINGS=" + c.embeddings, "SIMULATED=" + yes(c.simulated),
		"SPOKEN=" + spoken, "TOOL=" + toolName, "ARGS=" + toolArgs, "PERSON=" + person, "PIXEL=" + pixel, "LANGSMITH_TRACING=false"}
}

// script returns a function that runs a program of testdata with some packages. The program gets the name of the package
// that decides how it connects.
func script(file string, packages ...string) func(t *testing.T, c connection) string {
	return func(t *testing.T, c connection) string {
		t.Helper()
		return runScript(t, file, packages, append(c.env(), "PACKAGES="+strings.Join(packages, " "))...)
	}
}

// runScript runs a program of testdata in a directory that has the packages installed.
func runScript(t *testing.T, file string, packages []string, env ...string) (output string) {
	t.Helper()
	modules, err := npm.Install(packages...)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), program, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(dir, file))
	if cmd.Env, err = npm.Environment(modules); err != nil {
		t.Fatal(err)
	}
	if cmd.Path, err = npm.Node(); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", file, err, out)
	}
	return string(out)
}

// withProviders runs a client with a mock of each provider.
func withProviders(t *testing.T, name string) {
	t.Helper()
	i := slices.IndexFunc(libraries, func(l library) bool { return l.name == name })
	withUpstreams(t, "sqlite", func(t *testing.T, s *harness.Server, key string, u upstream) {
		libraries[i].run(t, connection{url: s.URL, key: key, model: u.model, embeddings: u.embeddings})
	})
}

func TestNodeSDKWithEveryProvider(t *testing.T) { t.Parallel(); withProviders(t, "openai") }
func TestAISDKWithEveryProvider(t *testing.T)   { t.Parallel(); withProviders(t, "@ai-sdk/openai") }
func TestAISDKWithAnthropicFormat(t *testing.T) { t.Parallel(); withProviders(t, "@ai-sdk/anthropic") }
func TestLangChainWithEveryProvider(t *testing.T) {
	t.Parallel()
	withProviders(t, "@langchain/openai")
}
func TestAnthropicNodeSDKWithEveryProvider(t *testing.T) {
	t.Parallel()
	withProviders(t, "@anthropic-ai/sdk")
}
func TestAnthropicGoSDKWithEveryProvider(t *testing.T) {
	t.Parallel()
	withProviders(t, "anthropic-sdk-go")
}

// TestClientsCanDoWhatTheirTableSays runs each client with a test key. Its program prints "ok: NAME" after each
// capability, which must be those in the table of docs/reference/clients.md.
func TestClientsCanDoWhatTheirTableSays(t *testing.T) {
	t.Parallel()
	documented := documentedCapabilities(t)
	for _, l := range libraries {
		want := documented[l.name]
		delete(documented, l.name)
		t.Run(strings.ReplaceAll(l.name, "/", "-"), func(t *testing.T) {
			t.Parallel()
			s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
			key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
			output := l.run(t, connection{url: s.URL, key: key, model: "claude-sonnet-5", embeddings: "text-embedding-3-small", simulated: true})
			shown := map[string]bool{}
			for lines := bufio.NewScanner(strings.NewReader(output)); lines.Scan(); {
				if name, ok := strings.CutPrefix(lines.Text(), "ok: "); ok {
					shown[name] = true
				}
			}
			if !maps.Equal(shown, want) {
				t.Errorf("the client shows %v, and the table says %v\n%s", slices.Sorted(maps.Keys(shown)), slices.Sorted(maps.Keys(want)), output)
			}
		})
	}
	for name := range documented {
		t.Errorf("docs/reference/clients.md has %s, which no test runs", name)
	}
}

// TestClientsOfOtherGateways runs libraries for other gateways and providers with a test key.
func TestClientsOfOtherGateways(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	to := connection{url: s.URL, key: key, model: "gpt-4o-mini", embeddings: "text-embedding-3-small", simulated: true}
	goProgram("goopenai")(t, to)
	others := []string{"@instructor-ai/instructor", "@mistralai/mistralai", "together-ai", "@openrouter/ai-sdk-provider", "portkey-ai"}
	run := script("others.mjs", append([]string{"openai", "ai", "zod"}, others...)...)
	output := run(t, to)
	for _, name := range others {
		if !strings.Contains(output, "ok: "+name+"\n") {
			t.Errorf("%s doesn't work:\n%s", name, output)
		}
	}
}

var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)`[^|]*\\|[^|]*\\|(.+)\\|$")

// documentedCapabilities returns the capabilities of each client that the first table of docs/reference/clients.md has.
func documentedCapabilities(t *testing.T) map[string]map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Libraries\n")
	section, _, _ = strings.Cut(section, "\n## ")
	names := []string{"text", "streaming", "tools", "structured output", "images", "errors", "cancel"}
	all := map[string]map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(section, -1) {
		cells := strings.Split(row[2], "|")
		if len(cells) != len(names) {
			t.Fatalf("the row of %s has %d capabilities, want %d", row[1], len(cells), len(names))
		}
		all[row[1]] = map[string]bool{}
		for i, cell := range cells {
			if strings.TrimSpace(cell) == "yes" {
				all[row[1]][names[i]] = true
			}
		}
	}
	return all
}
