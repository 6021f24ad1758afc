//go:build clients

package sdk_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"turnpike/test/harness"
)

// npmOpenAI is the tested version of the npm package "openai".
const npmOpenAI = "6.49.0"

// TestNodeSDKWithEveryProvider runs the published npm package through the same
// conversation as the Go SDK.
func TestNodeSDKWithEveryProvider(t *testing.T) {
	t.Parallel()
	pkg, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	withUpstreams(t, "sqlite", func(t *testing.T, s *harness.Server, key string, u upstream) {
		cmd := exec.CommandContext(t.Context(), "node", "testdata/openai.mjs")
		cmd.Env = append(os.Environ(), "PACKAGE="+pkg, "BASE_URL="+s.URL+"/v1", "KEY="+key, "MODEL="+u.model, "EMBEDDINGS="+u.embeddings,
			"SPOKEN="+spoken, "TOOL="+toolName, "ARGS="+toolArgs, "PERSON="+person, "PIXEL="+pixel)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// installed returns the path of the package's entry point.
var installed = sync.OnceValues(func() (string, error) {
	modules, err := npmInstall("openai-"+npmOpenAI, "openai@"+npmOpenAI)
	return filepath.Join(modules, "openai", "index.mjs"), err
})

// npmInstall installs packages once, into a directory next to the build output, and
// returns its path. It renames a finished installation into place, so an interrupted
// one leaves no files there.
func npmInstall(name string, packages ...string) (string, error) {
	dir, err := filepath.Abs("../../bin/npm/" + name)
	if err != nil {
		return "", err
	}
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	alone, err := json.Marshal(map[string]any{"private": true}) // keeps npm from using a parent project
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(fresh, "package.json"), alone, 0o644); err != nil {
		return "", err
	}
	args := append([]string{"install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--omit=peer"}, packages...)
	cmd := exec.Command("npm", args...)
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install the npm package %s, which takes npm and its registry: %w\n%s", packages[0], err, out)
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, found := os.Stat(modules); found != nil { // another run was faster
			return "", err
		}
	}
	return modules, nil
}
