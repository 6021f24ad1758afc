//go:build unix

package app

import "testing"

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
