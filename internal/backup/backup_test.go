package backup_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/backup"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/files"
	"turnpike/internal/keyring"
	"turnpike/internal/nodes"
	"turnpike/test/fakes/s3"
)

// TestMain sets the credentials, which the SDK reads from the environment.
func TestMain(m *testing.M) {
	os.Setenv("AWS_ACCESS_KEY_ID", "test")
	os.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	os.Exit(m.Run())
}

const content = "the bytes of a picture"

// newOptions returns the backup of a database with one file.
func newOptions(t *testing.T, d *db.DB, to string) backup.Options {
	t.Helper()
	sum := sha256.Sum256([]byte(content))
	hash, dir := hex.EncodeToString(sum[:]), t.TempDir()
	exec(t, d, "INSERT INTO files (workspace_id, environment, sha256, bytes, content_type, created_at, expires_at) VALUES ('ws_1', 'live', $1, $2, 'image/png', 1, 2)",
		hash, int64(len(content)))
	path := filepath.Join(dir, "ws_1", "live", hash)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return backup.Options{DB: d, Files: openObjects(t, dir), To: to, Spool: t.TempDir(), Version: "test", MasterKey: func(context.Context, db.Querier) (string, string, error) { return "0123", "wrapped", nil }, Signer: signer(t, 1),
		Now: func() time.Time { now = now.Add(time.Second); return now }}
}

// signer returns the keys of a server.
func signer(t *testing.T, server byte) *keyring.Ring {
	t.Helper()
	ring, err := keyring.New(bytes.Repeat([]byte{server}, keyring.Size))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func openObjects(t *testing.T, dir string) *files.Objects {
	t.Helper()
	objects, err := files.OpenObjects("", dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func exec(t *testing.T, d *db.DB, query string, args ...any) {
	t.Helper()
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), query, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, o backup.Options) *backup.Manifest {
	t.Helper()
	m, err := backup.Create(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// eachLocation runs fn with an empty directory and an empty bucket.
func eachLocation(t *testing.T, fn func(t *testing.T, to string)) {
	t.Helper()
	t.Run("directory", func(t *testing.T) { fn(t, filepath.Join(t.TempDir(), "backups")) })
	t.Run("bucket", func(t *testing.T) { fn(t, s3.New(t).Address("prefix")) })
}

func TestBackupCanBeFetchedFromEveryLocation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		eachLocation(t, func(t *testing.T, to string) {
			exec(t, d, "DELETE FROM files")
			m := create(t, newOptions(t, d, to))
			if len(m.Members) != 2 || m.MissingFiles != 0 || m.Engine != d.Engine() {
				t.Errorf("got manifest %+v, want the database and one file", m)
			}
			src, err := backup.Open(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			into := t.TempDir()
			database, err := src.Fetch(t.Context(), into, nil)
			if err != nil {
				t.Fatal(err)
			}
			f, err := db.OpenFile(database)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			hash, err := db.Value[string](f.QueryRow(t.Context(), "SELECT sha256 FROM files"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(into, "files", "ws_1", "live", hash))
			if err != nil || string(got) != content {
				t.Errorf("got file %q (%v), want %q", got, err, content)
			}
		})
	})
}

// TestOneCorruptByteIsDetected changes single bytes all over a backup.
func TestOneCorruptByteIsDetected(t *testing.T) {
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	to := t.TempDir()
	m := create(t, newOptions(t, d, to))
	checked := 0
	err := filepath.WalkDir(filepath.Join(to, m.Name), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for at := 0; at < len(data); at += 1 + len(data)/40 {
			data[at] ^= 1
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return err
			}
			if err := openAndVerify(t.Context(), to); err == nil || !strings.Contains(err.Error(), "corrupt") && !strings.Contains(err.Error(), "missing") {
				t.Errorf("byte %d of %s: got error %v, want one that says what is corrupt", at, e.Name(), err)
			}
			data[at] ^= 1
			checked++
		}
		return os.WriteFile(path, data, 0o600)
	})
	if err != nil || checked < 100 {
		t.Fatalf("checked %d bytes (%v)", checked, err)
	}
	if err := openAndVerify(t.Context(), to); err != nil {
		t.Errorf("the intact backup: %v", err)
	}
}

func openAndVerify(ctx context.Context, from string) error {
	src, err := backup.Open(ctx, from)
	if err != nil {
		return err
	}
	return src.Verify(ctx)
}

func TestKeepRemovesTheOldestBackups(t *testing.T) {
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	eachLocation(t, func(t *testing.T, to string) {
		exec(t, d, "DELETE FROM files")
		o := newOptions(t, d, to)
		first := create(t, o)
		o.Keep = 2
		create(t, o)
		last := create(t, o)
		src, err := backup.Open(t.Context(), to)
		if err != nil || src.Manifest.Name != last.Name {
			t.Fatalf("got %+v (%v), want the newest backup", src, err)
		}
		old := strings.Replace(to, "prefix", "prefix/"+first.Name, 1)
		if !strings.Contains(to, "://") {
			old = filepath.Join(to, first.Name)
		}
		if _, err := backup.Open(t.Context(), old); err == nil {
			t.Error("the oldest backup was kept, want it removed")
		}
	})
}

// TestFailedBackupLeavesNothing cancels a backup.
func TestFailedBackupLeavesNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		o := newOptions(t, d, to)
		now := o.Now
		o.Now = func() time.Time { cancel(); return now() }
		if _, err := backup.Create(ctx, o); err == nil {
			t.Fatal("a canceled backup succeeded")
		}
		left, err := os.ReadDir(to)
		if err != nil || len(left) > 0 {
			t.Errorf("got %v (%v), want an empty directory", left, err)
		}
		if last, err := backup.ReadLast(t.Context(), d); err != nil || last != nil {
			t.Errorf("got last backup %v (%v), want none", last, err)
		}
	})
}

func joinedNode(t *testing.T, d *db.DB) string {
	t.Helper()
	node, err := nodes.Join(t.Context(), d, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return node.ID
}

// TestScheduleRunsEachBackupOnOneNode lets two nodes run the same schedule.
func TestScheduleRunsEachBackupOnOneNode(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := d.Now()
		o := newOptions(t, d, t.TempDir())
		o.Now = func() time.Time { return now }
		a := &backup.Schedule{Options: o, Interval: time.Hour, Node: joinedNode(t, d)}
		b := &backup.Schedule{Options: o, Interval: time.Hour, Node: joinedNode(t, d)}
		runs := func(s *backup.Schedule) bool {
			t.Helper()
			m, err := s.RunDue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return m != nil
		}
		if !runs(a) || runs(b) || runs(a) {
			t.Error("want one backup by the first node")
		}
		now = now.Add(2 * time.Hour)
		if !runs(b) || runs(a) {
			t.Error("want one backup by the second node after the interval")
		}
		// A failure is recorded, and no node retries immediately.
		now = now.Add(2 * time.Hour)
		good := a.To
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		a.To = filepath.Join(file, "below")
		if _, err := a.RunDue(t.Context()); err == nil {
			t.Fatal("a backup below a file succeeded")
		}
		if f, err := backup.ReadFailure(t.Context(), d); err != nil || f == nil || !strings.Contains(f.Error, "not a directory") {
			t.Errorf("got failure %v (%v), want that it is not a directory", f, err)
		}
		if runs(b) {
			t.Error("another node retried immediately")
		}
		now, a.To = now.Add(time.Hour), good
		if !runs(a) {
			t.Error("want a retry")
		}
		if f, err := backup.ReadFailure(t.Context(), d); err != nil || f != nil {
			t.Errorf("got failure %v (%v) after a good backup, want none", f, err)
		}
	})
}
