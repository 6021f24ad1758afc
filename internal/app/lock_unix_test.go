//go:build unix

package app

import (
	"strings"
	"testing"

	"turnpike/internal/config"
)

func TestDirectoryLockIsSharedOrExclusive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	take := func(lock func(string) (func(), error), want bool) func() {
		t.Helper()
		release, err := lock(dir)
		if (err == nil) != want {
			t.Errorf("got %v", err)
		}
		return release
	}
	one, two := take(shareDirectory, true), take(shareDirectory, true)
	take(claimDirectory, false)
	one()
	take(claimDirectory, false)
	two()
	owner := take(claimDirectory, true)
	take(shareDirectory, false)
	take(claimDirectory, false)
	owner()
	take(shareDirectory, true)()
}

func TestMoveAndCommandsExcludeEachOther(t *testing.T) {
	t.Parallel()
	cfg := config.Config{Data: t.TempDir()}
	s, err := OpenStore(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(int64, int64) {}
	if _, err := Move(t.Context(), cfg, nothing); err == nil || !strings.Contains(err.Error(), "a turnpike command is running") {
		t.Errorf("beside a command: %v", err)
	}
	s.Close()
	release, err := claimDirectory(cfg.Data) // like a move
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := OpenStore(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "a turnpike move is running") {
		t.Errorf("beside a move: %v", err)
	}
}
