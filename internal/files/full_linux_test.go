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

// Not parallel: the whole process can write no more than that.
func TestFullDiskLeavesNothing(t *testing.T) {
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
		t.Errorf("a full disk: %v, from memory %v", put, bytes)
	}
	if found, err := filepath.Glob(filepath.Join(r.folder, "*", "*", "*")); err != nil || len(found) != 0 || r.spooled() != 0 {
		t.Errorf("left are %v and %d spooled files (%v)", found, r.spooled(), err)
	}
	set(before)
	if f, err := r.PutBytes(t.Context(), acme, "video_1", "video/mp4", make([]byte, 9<<20)); err != nil || len(r.read(acme, f)) != 9<<20 {
		t.Errorf("with room again: %v", err)
	}
	if info, err := os.Stat(r.folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others may read the folder: %v, %v", info.Mode(), err)
	}
}
