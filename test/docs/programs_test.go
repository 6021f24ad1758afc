//go:build docs

package docs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"turnpike/test/npm"
)

// packages are what the TypeScript examples import on pages that don't install packages, and the compiler.
var packages = []string{"openai", "typescript", "@types/node", "express", "@types/express", "fastify", "hono"}

// installation finds the packages that a page installs.
var installation = regexp.MustCompile(`(?m)^npm install (?:-g )?(.+)$`)

// installPackages installs what the page's commands install, in the versions of test/npm, and returns the directory. Pages
// without such a command get the default packages.
func installPackages(blocks []block) (modules string, err error) {
	var wanted []string
	for _, b := range blocks {
		if b.language == "sh" && b.notRun == "" {
			for _, m := range installation.FindAllStringSubmatch(b.text, -1) {
				wanted = append(wanted, strings.Fields(m[1])...)
			}
		}
	}
	if len(wanted) == 0 {
		wanted = packages
	}
	return npm.Install(wanted...)
}

// compileTypeScript checks all TypeScript blocks in strict mode and returns the
// JavaScript of each, by block. Each page has the packages that it installs.
func compileTypeScript(t *testing.T, byPage map[string][]block) map[string]string {
	t.Helper()
	dir := t.TempDir()
	modules, err := npm.Install(packages...)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	settings, err := json.Marshal(map[string]any{
		"compilerOptions": map[string]any{
			"strict": true, "target": "es2022", "module": "nodenext", "outDir": "out", "rootDir": ".", "skipLibCheck": true,
			"rewriteRelativeImportExtensions": true, "types": []string{"node"}, "lib": []string{"es2022", "dom", "dom.iterable"},
		},
		"include": []string{"src"},
	})
	if err != nil {
		t.Fatal(err)
	}
	write("tsconfig.json", string(settings))
	sources := map[string]block{}
	for page, blocks := range byPage {
		to := filepath.Join("src", strings.ReplaceAll(page, "/", "_"))
		for _, b := range blocks {
			if b.language != "ts" || b.notRun != "" {
				continue
			}
			name := b.title
			if name == "" {
				name = fmt.Sprintf("block-%d.mts", b.line)
			}
			name = filepath.Join(to, name)
			write(name, b.text)
			sources[name] = b
		}
		if modules, err = installPackages(blocks); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(modules, filepath.Join(dir, to, "node_modules")); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("node", "node_modules/typescript/bin/tsc")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the TypeScript examples don't compile: %v\n%s", err, out)
	}
	compiled := map[string]string{}
	for name, b := range sources {
		js := strings.TrimSuffix(strings.TrimSuffix(filepath.Join(dir, "out", name), ".mts"), ".ts")
		text, err := os.ReadFile(js + ".mjs")
		if errors.Is(err, os.ErrNotExist) {
			text, err = os.ReadFile(js + ".js")
		}
		if err != nil {
			t.Fatal(err)
		}
		compiled[b.String()] = string(text)
	}
	return compiled
}

// importStatement finds the modules that a Python program imports.
var importStatement = regexp.MustCompile(`(?m)^(?:from|import) ([a-z_]+)`)

// missingModule returns a module that a Python program imports and that this
// machine doesn't have, or "".
func missingModule(text, dir string) string {
	for _, m := range importStatement.FindAllStringSubmatch(text, -1) {
		cmd := exec.Command("python3", "-c", "import "+m[1])
		cmd.Dir = dir
		if cmd.Run() != nil {
			return m[1]
		}
	}
	return ""
}

// checkSyntax compiles a Python or Go program.
func checkSyntax(t *testing.T, b block, path string) {
	t.Helper()
	var cmd *exec.Cmd
	switch b.language {
	case "python":
		cmd = exec.Command("python3", "-m", "py_compile", path)
	case "go":
		cmd = exec.Command("go", "vet", path)
		cmd.Dir = root // whose module has the packages
	case "ruby":
		cmd = exec.Command("ruby", "-c", path)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", b, err, out)
	}
}
