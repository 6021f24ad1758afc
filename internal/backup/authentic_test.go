package backup_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"turnpike/internal/audit"
	"turnpike/internal/backup"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/visibility"
)

// Anyone who could write to the location could plant a database in which a member was an owner (N15).
func TestBackupOfAnotherServerIsNotAuthentic(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	to := t.TempDir()
	m := create(t, newOptions(t, d, to))
	src, err := backup.Open(t.Context(), to)
	if err != nil || !src.Signed() || !src.IsSignedBy(signer(t, 1)) || src.IsSignedBy(signer(t, 2)) {
		t.Fatalf("signed %t, by this server %t, by another %t (%v)", src.Signed(), src.IsSignedBy(signer(t, 1)), src.IsSignedBy(signer(t, 2)), err)
	}
	// A planted manifest has a right checksum, and the old signature or none.
	name := filepath.Join(to, m.Name, "manifest.json")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		HMAC   string          `json:"hmac_sha256"`
		Backup json.RawMessage `json:"backup"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	body := bytes.Replace(read.Backup, []byte(m.Members[0].SHA256), bytes.Repeat([]byte("0"), 64), 1)
	old, err := hex.DecodeString(read.HMAC)
	if err != nil {
		t.Fatal(err)
	}
	for _, signature := range [][]byte{nil, old} {
		signed := ""
		if signature != nil {
			signed = fmt.Sprintf("  \"hmac_sha256\": \"%x\",\n", signature)
		}
		sum := sha256.Sum256(slices.Concat(signature, body))
		planted := fmt.Appendf(nil, "{\n  \"sha256\": \"%s\",\n%s  \"backup\": %s\n}\n", hex.EncodeToString(sum[:]), signed, body)
		if err := os.WriteFile(name, planted, 0o600); err != nil {
			t.Fatal(err)
		}
		if src, err = backup.Open(t.Context(), to); err != nil || src.IsSignedBy(signer(t, 1)) || src.Signed() != (signed != "") {
			t.Errorf("a planted manifest with the signature %q: %v", signed, err)
		}
	}
}

func TestEncryptedBackupHasNothingInClear(t *testing.T) {
	t.Parallel()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := t.TempDir()
		o := newOptions(t, d, to)
		o.Recipients = []age.Recipient{identity.Recipient()}
		create(t, o)
		err := filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if bytes.Contains(text, []byte(content)) || bytes.Contains(text, []byte("SQLite format 3")) {
				t.Errorf("%s is in clear", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		src, err := backup.Open(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		if err := src.Verify(t.Context()); err != nil {
			t.Errorf("it can't be verified without the key: %v", err)
		}
		src.Identities = []age.Identity{other}
		if _, err := src.Fetch(t.Context(), t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "--identity") {
			t.Errorf("with another key: %v", err)
		}
		src.Identities = []age.Identity{other, identity}
		into := t.TempDir()
		if _, err := src.Fetch(t.Context(), into, nil); err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(into, "files", "*", "*", "*"))
		if err != nil || len(found) != 1 {
			t.Fatalf("got files %v (%v)", found, err)
		}
		if text, err := os.ReadFile(found[0]); err != nil || string(text) != content {
			t.Errorf("got %q (%v), want %q", text, err, content)
		}
		left, err := os.ReadDir(o.Spool)
		if err != nil || len(left) > 0 {
			t.Errorf("the spool directory has %v (%v)", left, err)
		}
	})
}

func TestRestoreKnowsWhatWasRevokedSinceTheBackup(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		eachLocation(t, func(t *testing.T, to string) {
			exec(t, d, "DELETE FROM admin_actions")
			exec(t, d, "DELETE FROM files")
			o := newOptions(t, d, to)
			now := time.Now()
			o.Now = func() time.Time { return now }
			log := func(action, target string) {
				t.Helper()
				if err := d.Write(t.Context(), func(tx *db.Tx) error {
					return audit.Operator.Log(t.Context(), tx, audit.Action{Tenant: visibility.Tenant{WorkspaceID: "ws_1"}, Action: action, Target: target}, nil, now)
				}); err != nil {
					t.Fatal(err)
				}
			}
			s := &backup.Schedule{Options: o, Interval: time.Hour}
			var list backup.RevocationList
			update := func() {
				t.Helper()
				if err := list.Update(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			log("key.revoked", "key_before")
			update()
			now = now.Add(time.Minute)
			create(t, o)
			now = now.Add(time.Minute)
			log("key.revoked", "key_1")
			log("key.updated", "key_2")
			log("member.removed", "usr_3")
			update()
			// A restored server has lost these entries, and keeps the list.
			exec(t, d, "DELETE FROM admin_actions")
			list = backup.RevocationList{}
			log("key.auto_revoked", "key_4")
			update()
			src, err := backup.Open(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			targets := func(server byte) (out []string) {
				t.Helper()
				revoked, err := src.Revoked(t.Context(), signer(t, server))
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range revoked {
					out = append(out, r.Target)
				}
				return out
			}
			if got := fmt.Sprint(targets(1)); got != "[key_1 usr_3 key_4]" {
				t.Errorf("got %s, want [key_1 usr_3 key_4]", got)
			}
			if got := targets(2); got != nil {
				t.Errorf("a list that another server signed: got %v", got)
			}
		})
	})
}
