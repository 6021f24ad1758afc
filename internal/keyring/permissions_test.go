//go:build unix

package keyring_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnpike/internal/keyring"
)

func TestMasterKeyReadableByOthersIsRejected(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "master.key")
	if _, created, err := keyring.LoadOrCreate(path); err != nil || !created {
		t.Fatalf("created is %t: %v", created, err)
	}
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o644: true, 0o640: true, 0o604: true, 0o602: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, _, err := keyring.LoadOrCreate(path)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "run: chmod 600 "+path) {
			t.Errorf("mode %o: got %v, want a refusal: %t", mode, err, refused)
		}
	}
}
