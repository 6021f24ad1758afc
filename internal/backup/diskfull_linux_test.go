package backup_test

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"turnpike/internal/backup"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/test/fakes/s3"
)

// smallDisk is the environment variable with a directory that has a file system of 8 MiB for each engine.
const smallDisk = "TURNPIKE_TEST_SMALL_DISK"

// TestFullDiskLeavesNoBackup runs itself in a namespace with a small disk.
func TestFullDiskLeavesNoBackup(t *testing.T) {
	if disk := os.Getenv(smallDisk); disk != "" {
		dbtest.Each(t, func(t *testing.T, d *db.DB) {
			testFullDisk(t, d, filepath.Join(disk, d.Engine()))
		})
		return
	}
	t.Parallel()
	disk := t.TempDir()
	for _, engine := range []string{"sqlite", "postgres"} {
		if err := os.Mkdir(filepath.Join(disk, engine), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	isolated := func(args ...string) *osexec.Cmd {
		mount := []string{"--user", "--map-root-user", "--mount", "sh", "-c", `mount -t tmpfs -o size=8m tmpfs "$0/sqlite" && mount -t tmpfs -o size=8m tmpfs "$0/postgres" && exec "$@"`, disk}
		return osexec.Command("unshare", append(mount, args...)...)
	}
	if out, err := isolated("true").CombinedOutput(); err != nil {
		t.Skipf("this machine permits no mount in a namespace: this guarantee is not checked here (%v: %s)", err, out)
	}
	cmd := isolated(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), smallDisk+"="+disk)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func testFullDisk(t *testing.T, d *db.DB, disk string) {
	const large = 9 << 20
	o := newOptions(t, d, "")
	try := func(name string) {
		t.Helper()
		for to, spool := range map[string]string{disk: t.TempDir(), s3.New(t).Address("prefix"): disk} {
			o.To, o.Spool = to, spool
			_, err := backup.Create(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), "the disk is full: free some space") {
				t.Errorf("%s to %s: got error %v, want that the disk is full", name, to, err)
			}
			if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
				t.Errorf("%s to %s: got %v (%v) on the disk, want nothing", name, to, left, err)
			}
			if last, err := backup.ReadLast(t.Context(), d); err != nil || last != nil {
				t.Errorf("%s to %s: got last backup %v (%v), want none", name, to, last, err)
			}
		}
	}
	source := t.TempDir()
	o.Files = openObjects(t, source)
	exec(t, d, "UPDATE files SET environment = 'test', sha256 = 'large'")
	if err := os.MkdirAll(filepath.Join(source, "ws_1", "test"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "ws_1", "test", "large"), make([]byte, large), 0o600); err != nil {
		t.Fatal(err)
	}
	try("a large file")
	exec(t, d, "INSERT INTO meta (name, value) VALUES ('large', $1)", strings.Repeat("x", large))
	try("a large database")
	o.To, o.Spool = t.TempDir(), t.TempDir()
	if m := create(t, o); m.MissingFiles != 0 || len(m.Members) != 2 {
		t.Errorf("with free space: got %+v, want the database and the file", m)
	}
}
