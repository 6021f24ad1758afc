package scan

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// CheckGit returns an error if the targets need git and it isn't installed.
func CheckGit(targets []Target) error {
	if !slices.ContainsFunc(targets, func(t Target) bool { return t.Git != "" }) {
		return nil
	}
	if _, err := exec.LookPath("git"); err != nil {
		return errors.New("leaks.scan has Git repositories, but there is no program git on the PATH, so they aren't scanned; install git")
	}
	return nil
}

// repository updates this node's copy of the repository, and scans the commits that
// are new since the last scan. On another node, the copy may be new, too.
func (r *targetScan) repository(ctx context.Context) error {
	if err := CheckGit([]Target{r.target}); err != nil {
		return err
	}
	dir := filepath.Join(r.Dir, r.target.id()+".git")
	if err := r.fetch(ctx, dir); err != nil {
		return err
	}
	// Everything that the tips reach was scanned. A commit replaces its parents.
	tips := map[string]bool{}
	for _, tip := range r.state.Tips {
		tips[tip] = true
	}
	commits := 0
	h := &History{Dir: dir, Exclude: r.state.Tips, KeepGoing: true, Reader: r.reader, Commit: func(hash string, parents []string) error {
		for _, p := range parents {
			delete(tips, p)
		}
		tips[hash] = true
		if err := r.report(ctx); err != nil {
			return err
		}
		if commits++; commits%batch > 0 {
			return nil
		}
		r.state.Tips = slices.Sorted(maps.Keys(tips))
		return r.store(ctx, r.target, r.state)
	}}
	if err := h.Scan(ctx); err != nil {
		return err
	}
	// Deleted branches don't count anymore.
	list := Git(ctx, dir, "rev-list", "--no-walk", "--all")
	out, err := list.Output()
	r.state.Tips = strings.Fields(string(out))
	return gitError(list, err)
}

// fetch updates the copy of the branches and tags.
func (r *targetScan) fetch(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		create := Git(ctx, dir, "init", "--quiet", "--bare")
		if err := gitError(create, create.Run()); err != nil {
			return err
		}
	}
	// Git's memory is bounded, and it follows no redirect with the token.
	cmd := Git(ctx, dir, "-c", "http.followRedirects=false", "-c", "pack.threads=1", "-c", "pack.windowMemory=32m", "-c", "core.bigFileThreshold=16m",
		"-c", "gc.autoDetach=false", "fetch", "--quiet", "--prune", "--force", "--no-recurse-submodules", "--", r.target.Git, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
	cmd.Env = append(cmd.Env, "GIT_ALLOW_PROTOCOL=https:file")
	token, err := r.target.Token()
	if err != nil {
		return err
	}
	if token != "" { // not an argument, which other users can read
		login := base64.StdEncoding.EncodeToString([]byte(r.target.Username + ":" + token))
		cmd.Env = append(cmd.Env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.extraHeader", "GIT_CONFIG_VALUE_0=Authorization: Basic "+login)
	}
	if err := gitError(cmd, cmd.Run()); err != nil {
		return fmt.Errorf("fetch %s: %w", r.target.Name(), err)
	}
	return nil
}
