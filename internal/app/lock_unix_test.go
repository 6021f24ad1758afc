//go:build unix

package app

import (
	"strings"
	"testing"

	"turnpike/internal/config"
)

func TestFolderIsUsedByManyOrOwnedByOne(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	take := func(lock func(string) (func(), error), want bool) func() {
		t.Helper()
		release, err := lock(folder)
		if (err == nil) != want {
			t.Errorf("got %v", err)
		}
		return release
	}
	one, two := take(useFolder, true), take(useFolder, true)
	take(ownFolder, false)
	one()
	take(ownFolder, false)
	two()
	owner := take(ownFolder, true)
	take(useFolder, false)
	take(ownFolder, false)
	owner()
	take(useFolder, true)()
}

func TestMoveWaitsForNoCommandAndNoCommandForIt(t *testing.T) {
	t.Parallel()
	cfg := config.Config{Data: t.TempDir()}
	s, err := OpenStore(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(int64, int64) {}
	if _, err := Move(t.Context(), cfg, nothing); err == nil || !strings.Contains(err.Error(), "a turnpike command is at work") {
		t.Errorf("beside a command: %v", err)
	}
	s.Close()
	release, err := ownFolder(cfg.Data) // as a move does
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := OpenStore(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "a turnpike move is at work") {
		t.Errorf("beside a move: %v", err)
	}
}
