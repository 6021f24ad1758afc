//go:build clients

package sdk_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// execute runs a program that must succeed.
func execute(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%.8000s", strings.Join(cmd.Args, " "), err, out)
	}
	return out
}

// installSDK builds the TypeScript package from a copy of its source, installs the packed archive like a user would,
// and returns the directory with node_modules. The generated types must be those in the repository.
func installSDK(t *testing.T) string {
	t.Helper()
	source, project := t.TempDir(), t.TempDir()
	copied := filepath.Join(source, "sdk", "typescript")
	for _, name := range []string{"package.json", "package-lock.json", "tsconfig.json", "generate.mjs", "README.md", "src"} {
		if err := os.MkdirAll(copied, 0o755); err != nil {
			t.Fatal(err)
		}
		execute(t, exec.CommandContext(t.Context(), "cp", "-R", "../../sdk/typescript/"+name, copied))
	}
	execute(t, exec.CommandContext(t.Context(), "cp", "../../sdk/openapi.json", filepath.Dir(copied)))
	run := func(dir, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		execute(t, cmd)
	}
	run(copied, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	run(copied, "npm", "run", "generate")
	sameFile(t, "../../sdk/typescript/src/schema.ts", filepath.Join(copied, "src", "schema.ts"))
	run(copied, "npm", "run", "build")
	run(copied, "npm", "pack", "--ignore-scripts", "--pack-destination", project)
	archives, err := filepath.Glob(filepath.Join(project, "*.tgz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("npm packed %v, %v", archives, err)
	}
	if err := os.WriteFile(filepath.Join(project, "package.json"), []byte(`{"private": true}`), 0o644); err != nil {
		t.Fatal(err)
	}
	run(project, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", archives[0])
	execute(t, exec.CommandContext(t.Context(), "cp", "testdata/turnpike-types.ts", project))
	run(project, filepath.Join(copied, "node_modules", ".bin", "tsc"), "--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "turnpike-types.ts")
	return project
}

func sameFile(t *testing.T, path, generated string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(generated)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s doesn't match sdk/openapi.json. Run make sdk.", path)
	}
}

// TestTypeScriptSDK uses every part of the package against the program, and runs the example.
func TestTypeScriptSDK(t *testing.T) {
	t.Parallel()
	project := installSDK(t)
	s := startProgram(t)
	t.Run("API", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "node", "testdata/turnpike.mjs")
		cmd.Env = append(os.Environ(), "PACKAGE="+filepath.Join(project, "node_modules", "turnpike-sdk", "dist", "index.js"), "BASE_URL="+s.URL, "KEY="+s.key)
		execute(t, cmd)
	})
	t.Run("browser chat", func(t *testing.T) {
		execute(t, exec.CommandContext(t.Context(), "cp", "-R", "../../sdk/typescript/examples/browser-chat", project))
		backend := exec.CommandContext(t.Context(), "node", "server.mjs")
		backend.Dir = filepath.Join(project, "browser-chat")
		backend.Env = append(os.Environ(), "PORT=0", "TURNPIKE_BASE_URL="+s.URL, "TURNPIKE_API_KEY="+s.key)
		out, err := backend.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := backend.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		page := strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
		chat := exec.CommandContext(t.Context(), "node", "chat-test.mjs")
		chat.Dir = backend.Dir
		chat.Env = append(os.Environ(), "PAGE="+page)
		execute(t, exec.CommandContext(t.Context(), "cp", "testdata/browser-chat.mjs", filepath.Join(chat.Dir, "chat-test.mjs")))
		execute(t, chat)
		if answer := askInChromium(t, page, "Hello from Chromium"); answer != "This is a simulated answer to: Hello from Chromium" {
			t.Errorf("the page shows %q", answer)
		}
	})
}

// askInChromium opens the page of the example, asks a question, and returns what the page shows when it is answered.
func askInChromium(t *testing.T, address, question string) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("the test needs Chromium, which make clients installs: %v", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path))
	if os.Getuid() == 0 { // the sandbox doesn't work as root
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	defer stop()
	ctx, end := chromedp.NewContext(allocator)
	defer end()
	if _, err := chromedp.RunResponse(ctx, chromedp.Navigate(address)); err != nil {
		t.Fatal(err)
	}
	answer, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf(`new Promise((resolve) => {
		new MutationObserver(() => {
			const shown = document.querySelector("[data-state=complete], [data-role=error]");
			if (shown) resolve(shown.textContent);
		}).observe(document.querySelector("main"), { subtree: true, childList: true, attributes: true });
		document.forms[0].question.value = %q;
		document.forms[0].requestSubmit();
	})`, question), chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestGoSDK checks the generated code, and runs the tests and examples of the module against the program.
func TestGoSDK(t *testing.T) {
	t.Parallel()
	copied := filepath.Join(t.TempDir(), "sdk", "go", "api")
	if err := os.MkdirAll(copied, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"doc.go", "oapi-codegen.yaml", "overlay.yaml"} {
		execute(t, exec.CommandContext(t.Context(), "cp", "../../sdk/go/api/"+name, copied))
	}
	execute(t, exec.CommandContext(t.Context(), "cp", "../../sdk/openapi.json", filepath.Join(copied, "..", "..")))
	generate := exec.CommandContext(t.Context(), "go", "generate", "doc.go")
	generate.Dir = copied
	execute(t, generate)
	sameFile(t, "../../sdk/go/api/api.gen.go", filepath.Join(copied, "api.gen.go"))

	s := startProgram(t)
	test := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-tags", "clients", "./...")
	test.Dir = "../../sdk/go"
	test.Env = append(os.Environ(), "TURNPIKE_BASE_URL="+s.URL, "TURNPIKE_API_KEY="+s.key)
	execute(t, test)
}
