package backup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"turnpike/internal/backup"
	"turnpike/internal/db/dbtest"
)

// Not parallel: it limits the file size of the whole process.
func TestFullDiskLeavesNoBackup(t *testing.T) {
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	to, source := t.TempDir(), t.TempDir()
	o := newOptions(t, d, to)
	exec(t, d, "INSERT INTO files (workspace_id, environment, sha256, bytes, content_type, created_at, expires_at) VALUES ('ws_1', 'test', 'big', 1, 'video/mp4', 1, 2)")
	o.Files = openObjects(t, source)
	if err := os.MkdirAll(filepath.Join(source, "ws_1", "test"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "ws_1", "test", "big"), make([]byte, 9<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_FSIZE, nil, &before); err != nil {
		t.Fatal(err)
	}
	set := func(l unix.Rlimit) {
		if err := unix.Prlimit(0, unix.RLIMIT_FSIZE, &l, nil); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.Rlimit{Cur: 8 << 20, Max: before.Max})
	defer set(before)
	_, err := backup.Create(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "the disk is full: free some space") {
		t.Errorf("got error %v, want that the disk is full", err)
	}
	if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
		t.Errorf("got %v (%v), want an empty directory", left, err)
	}
	set(before)
	if m := create(t, o); m.MissingFiles != 1 || len(m.Members) != 2 {
		t.Errorf("with free space: got %+v, want the database and the large file", m)
	}
}
