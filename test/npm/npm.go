// Package npm installs the npm packages that the tests run against Turnpike. package.json has their versions;
// make clients-update updates those of the clients, which are its dependencies.
package npm

import (
	"crypto/sha256"
	_ "embed" // for package.json
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

//go:embed package.json
var manifest []byte

// Versions returns the version of each package.
var Versions = sync.OnceValues(func() (map[string]string, error) {
	var m struct {
		Dependencies    map[string]string `json:"dependencies"`    // clients
		DevDependencies map[string]string `json:"devDependencies"` // tools, which stay at their version
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil, fmt.Errorf("read package.json: %w", err)
	}
	for name, version := range m.DevDependencies {
		m.Dependencies[name] = version
	}
	return m.Dependencies, nil
})

// installing has a lock for each directory that this process installs to.
var installing sync.Map

// Install installs packages together, as a user would, and returns the path of their node_modules. It does so once, into a
// directory next to the build output.
func Install(packages ...string) (modules string, err error) {
	versions, err := Versions()
	if err != nil {
		return "", err
	}
	var pinned []string
	for _, p := range packages {
		if versions[p] == "" {
			return "", fmt.Errorf("test/npm/package.json has no version for %s", p)
		}
		pinned = append(pinned, p+"@"+versions[p])
	}
	slices.Sort(pinned)
	base, err := directory()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strings.Join(pinned, "\n")))
	dir := filepath.Join(base, strings.ReplaceAll(strings.TrimPrefix(packages[0], "@"), "/", "-")+"-"+hex.EncodeToString(sum[:6]))
	lock, _ := installing.LoadOrStore(dir, new(sync.Mutex))
	lock.(*sync.Mutex).Lock()
	defer lock.(*sync.Mutex).Unlock()
	modules = filepath.Join(dir, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
	}
	return modules, install(dir, pinned)
}

// scripted are the packages whose script puts the binary of the platform in place. No other scripts run.
var scripted = []string{"@anthropic-ai/claude-code", "opencode-ai"}

// install renames a finished installation into place, so that an interrupted one leaves no files there.
func install(dir string, packages []string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	// Without a package.json, npm would use that of a parent directory.
	if err := os.WriteFile(filepath.Join(fresh, "package.json"), []byte(`{"private": true, "type": "module"}`), 0o644); err != nil {
		return err
	}
	cmd := exec.Command("npm", append([]string{"install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefer-offline"}, packages...)...)
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install %s, which takes npm and its registry: %w\n%s", strings.Join(packages, " "), err, out)
	}
	for _, name := range scripted {
		if !slices.ContainsFunc(packages, func(p string) bool { return strings.HasPrefix(p, name+"@") }) {
			continue
		}
		cmd := exec.Command("npm", "rebuild", name)
		cmd.Dir = fresh
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run the script of %s: %w\n%s", name, err, out)
		}
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, found := os.Stat(filepath.Join(dir, "node_modules")); found != nil { // another process was faster
			return err
		}
	}
	return nil
}

// Node returns the path of the Node version that current clients need. On platforms without such a package, it is the
// node of the machine.
func Node() (string, error) {
	name := "node-" + runtime.GOOS + "-" + strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	versions, err := Versions()
	if err != nil {
		return "", err
	}
	if versions[name] == "" {
		return exec.LookPath("node")
	}
	modules, err := Install(name)
	return filepath.Join(modules, name, "bin", "node"), err
}

// Environment returns the environment of a client: that of this process, with the commands of its packages and with Node.
func Environment(modules string) ([]string, error) {
	node, err := Node()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(modules, ".bin") + string(filepath.ListSeparator) + filepath.Dir(node) + string(filepath.ListSeparator) + os.Getenv("PATH")
	return append(os.Environ(), "PATH="+path), nil
}

// directory is bin/npm at the root of the module.
func directory() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "bin", "npm"), nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod in a parent directory")
		}
	}
}
