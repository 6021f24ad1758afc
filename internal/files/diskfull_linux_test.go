package files_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"turnpike/internal/db/dbtest"
	"turnpike/internal/files"
)

// Not parallel: it limits the file size of the whole process.
func TestFullDiskLeavesNoFile(t *testing.T) {
	r := open(t, dbtest.Open(t, dbtest.Address(t, "sqlite")), "", false)
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
	_, put := r.Put(t.Context(), acme, "video_1", "video/mp4", io.LimitReader(letters{}, 9<<20))
	_, bytes := r.PutBytes(t.Context(), acme, "video_1", "video/mp4", make([]byte, 9<<20))
	if !errors.Is(put, files.ErrFull) || !errors.Is(bytes, files.ErrFull) {
		t.Errorf("got %v, and %v from memory, want ErrFull", put, bytes)
	}
	if found, err := filepath.Glob(filepath.Join(r.directory, "*", "*", "*")); err != nil || len(found) != 0 || r.spooled() != 0 {
		t.Errorf("got files %v and %d spooled files, want none (%v)", found, r.spooled(), err)
	}
	set(before)
	if f, err := r.PutBytes(t.Context(), acme, "video_1", "video/mp4", make([]byte, 9<<20)); err != nil || len(r.read(acme, f)) != 9<<20 {
		t.Errorf("with free space: got %v, want success", err)
	}
	if info, err := os.Stat(r.directory); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got directory mode %v (%v), want 0700", info.Mode(), err)
	}
}
