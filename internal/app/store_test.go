package app

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

const (
	oneMasterKey   = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	otherMasterKey = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
)

func TestSchemaErrorNamesTheOlderSide(t *testing.T) {
	t.Parallel()
	for want, versions := range map[string][2]int{
		"run: turnpike migrate": {3, 4},
		"%!s(<nil>)":            {4, 4},
		"the database is empty": {0, 4},
	} {
		if got := fmt.Sprintf("%s", compareVersions(versions[0], versions[1])); !strings.Contains(got, want) {
			t.Errorf("database %d, program %d: %q, want %q", versions[0], versions[1], got, want)
		}
	}
}

// TestSchemaIsMigratedOnlyByServersWithTheRightKey covers commands that only
// read, and a wrong key. Migrations can't be undone.
func TestSchemaIsMigratedOnlyByServersWithTheRightKey(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		cfg := config.Config{Data: t.TempDir(), MasterKey: oneMasterKey}
		if engine == "postgres" {
			cfg.DatabaseURL = config.SecretURL(dbtest.Empty(t, engine))
		}
		if _, err := OpenStoreUnmigrated(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "the database is empty") {
			t.Errorf("an empty database: %v", err)
		}
		s, err := OpenStore(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		newest := len(db.Migrations())
		err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "DELETE FROM schema_migrations WHERE version = $1", newest)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		older := func(open func() error, says string) {
			t.Helper()
			if err := open(); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("opened with %v, expected %q", err, says)
			}
			if have, _, err := s.DB.SchemaVersion(t.Context()); have != newest-1 || err != nil {
				t.Errorf("the schema is at version %d (%v)", have, err)
			}
		}
		older(func() error { return closed(OpenStoreUnmigrated(t.Context(), cfg)) }, "run: turnpike migrate")
		wrong := cfg
		wrong.MasterKey = otherMasterKey
		older(func() error { return closed(OpenStore(t.Context(), wrong)) }, "wrong master key")
		s.Close()
	}
}

// TestTooOldProgramDoesNotStart covers a rollback that is too late: to a version
// that lacks an active feature, or that uses what the schema no longer has.
func TestTooOldProgramDoesNotStart(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		cfg := config.Default()
		cfg.Data, cfg.MasterKey, cfg.Listen = t.TempDir(), oneMasterKey, "127.0.0.1:0"
		if engine == "postgres" {
			cfg.DatabaseURL = config.SecretURL(dbtest.Empty(t, engine))
		}
		start := func() error {
			a, err := Start(t.Context(), cfg, "test", time.Now)
			if err != nil {
				return err
			}
			return a.Close()
		}
		change := func(statement string) {
			t.Helper()
			d, err := OpenDatabase(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), statement)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := start(); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct{ change, want string }{
			{"INSERT INTO schema_migrations (version, name, applied_at) VALUES (8888, 'expand', 0)", ""},
			{"INSERT INTO meta (name, value) VALUES ('feature:future', '')", "features that this program lacks (future)"},
			{"DELETE FROM meta WHERE name = 'feature:future'", ""},
			{"INSERT INTO schema_migrations (version, name, applied_at, oldest_program) VALUES (9999, 'contract', 0, 8888)", "programs from schema version 8888 on"},
		} {
			change(step.change)
			if err := start(); (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
				t.Errorf("%s, after %s: got %v, want %q", engine, step.change, err, step.want)
			}
		}
	}
}

// TestNewerSchemaIsNotMoved checks that an older program doesn't copy what it
// doesn't know.
func TestNewerSchemaIsNotMoved(t *testing.T) {
	t.Parallel()
	cfg := config.Config{Data: t.TempDir(), MasterKey: oneMasterKey}
	s, err := OpenStore(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO schema_migrations (version, name, applied_at) VALUES (9999, 'expand', 0)")
		return err
	})
	s.Close()
	if err != nil {
		t.Fatal(err)
	}
	cfg.DatabaseURL = config.SecretURL(dbtest.Empty(t, "postgres"))
	if _, err := Move(t.Context(), cfg, func(int64, int64) {}); err == nil || !strings.Contains(err.Error(), "use the newer program") {
		t.Errorf("got %v, want an error", err)
	}
}

func closed(s *Store, err error) error {
	if err == nil {
		s.Close()
	}
	return err
}

// TestForgottenMoveIsRejected checks that an empty PostgreSQL isn't used while
// the data directory has a database with data.
func TestForgottenMoveIsRejected(t *testing.T) {
	t.Parallel()
	embedded := config.Default()
	embedded.Data, embedded.MasterKey, embedded.Listen = t.TempDir(), oneMasterKey, "127.0.0.1:0"
	begin := func(cfg config.Config) error {
		a, err := Start(t.Context(), cfg, "test", time.Now)
		if err != nil {
			return err
		}
		return a.Close()
	}
	if err := begin(embedded); err != nil {
		t.Fatal(err)
	}
	cluster := embedded
	cluster.DatabaseURL = config.SecretURL(dbtest.Empty(t, "postgres"))
	if err := begin(cluster); err == nil || !strings.Contains(err.Error(), "turnpike move") {
		t.Errorf("it began: %v", err)
	}
	elsewhere := cluster
	elsewhere.Data = filepath.Join(t.TempDir(), "other")
	if err := begin(elsewhere); err != nil {
		t.Errorf("with another directory: %v", err)
	}
	if err := begin(cluster); err != nil {
		t.Errorf("where there is a workspace: %v", err)
	}
	moved := embedded
	moved.DatabaseURL = config.SecretURL(dbtest.Empty(t, "postgres"))
	if _, err := Move(t.Context(), moved, func(int64, int64) {}); err != nil {
		t.Fatal(err)
	}
	if err := begin(moved); err != nil {
		t.Errorf("after the move: %v", err)
	}
}
