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
	"sync"
	"testing"
)

// packages are what the TypeScript examples import, and the compiler.
var packages = []string{"openai@6.49.0", "typescript@5.9.3", "@types/node@20.19.41", "express@5.1.0", "@types/express@5.0.3", "fastify@5.6.1", "hono@4.10.3"}

// npmInstall installs the packages once, next to what is built, and returns
// the directory. It is renamed into place, so a failed installation leaves nothing.
var npmInstall = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(root + "bin/npm/docs-" + regexp.MustCompile(`[^0-9]+`).ReplaceAllString(strings.Join(packages, "-"), "-"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if err := os.WriteFile(filepath.Join(fresh, "package.json"), []byte(`{"private": true, "type": "module"}`), 0o644); err != nil {
		return "", err
	}
	cmd := exec.Command("npm", append([]string{"install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts"}, packages...)...)
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install the packages of the TypeScript examples: %w\n%s", err, out)
	}
	return dir, os.Rename(fresh, dir)
})

// compileTypeScript checks all TypeScript blocks in strict mode and returns the
// JavaScript of each, by block.
func compileTypeScript(t *testing.T, blocks []block) map[string]string {
	t.Helper()
	dir := t.TempDir()
	modules, err := npmInstall()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(modules, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
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
	for _, b := range blocks {
		name := b.title
		if name == "" {
			name = fmt.Sprintf("block-%d.mts", b.line)
		}
		name = filepath.Join("src", strings.ReplaceAll(b.page, "/", "_"), name)
		write(name, b.text)
		sources[name] = b
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
