package app

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/backup"
	"turnpike/internal/config"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/keyring"
)

// eachKeyed runs a test with a fresh database of each engine and a master key
// in the settings.
func eachKeyed(t *testing.T, test func(t *testing.T, cfg config.Config)) {
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg := config.Config{Data: t.TempDir(), MasterKey: oneMasterKey}
			if engine == "postgres" {
				cfg.DatabaseURL = config.SecretURL(dbtest.Empty(t, engine))
			}
			test(t, cfg)
		})
	}
}

// opened seals a value with a store's keys and opens it again.
func opened(t *testing.T, cfg config.Config) (hash [32]byte, open func(sealed string) error, sealed string) {
	t.Helper()
	s, err := OpenStore(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	return s.Ring.Hash("secret"), func(sealed string) error { _, err := s.Ring.Open(sealed, "here"); return err }, s.Ring.Seal([]byte("value"), "here")
}

func parsed(t *testing.T, text string) []byte {
	t.Helper()
	key, err := keyring.ParseMaster(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestChangedMasterKeyOpensExistingSecrets checks that hashes and sealed values
// stay valid, with the new key only.
func TestChangedMasterKeyOpensExistingSecrets(t *testing.T) {
	t.Parallel()
	eachKeyed(t, func(t *testing.T, cfg config.Config) {
		hash, _, sealed := opened(t, cfg)
		next := parsed(t, otherMasterKey)
		if _, err := ChangeMasterKey(t.Context(), cfg, parsed(t, oneMasterKey)); err == nil || !strings.Contains(err.Error(), "equals the current one") {
			t.Errorf("to the same key: %v", err)
		}
		done, err := ChangeMasterKey(t.Context(), cfg, next)
		if err != nil || done.Already || done.File != "" {
			t.Fatalf("%+v, %v", done, err)
		}
		if err := closed(OpenStore(t.Context(), cfg)); !errors.Is(err, keyring.ErrWrongMasterKey) {
			t.Errorf("with the old key: %v", err)
		}
		if done, err := ChangeMasterKey(t.Context(), cfg, next); err != nil || !done.Already {
			t.Errorf("once more: %+v, %v", done, err)
		}
		if _, err := ChangeMasterKey(t.Context(), cfg, keyring.NewKey()); !errors.Is(err, keyring.ErrWrongMasterKey) {
			t.Errorf("from a key that it does not have: %v", err)
		}
		cfg.MasterKey = otherMasterKey
		again, open, _ := opened(t, cfg)
		if err := open(sealed); again != hash || err != nil {
			t.Errorf("what was stored is not readable (%v)", err)
		}
	})
}

// TestBackupNamesTheMasterKeyItNeeds checks that a server that was started with the old master key makes backups that
// can be restored with the new one, and that no other server's are.
func TestBackupNamesTheMasterKeyItNeeds(t *testing.T) {
	t.Parallel()
	eachKeyed(t, func(t *testing.T, cfg config.Config) {
		cfg.Backup.To = config.SecretURL(t.TempDir())
		running, err := OpenStore(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer running.Close()
		for _, key := range []string{oneMasterKey, otherMasterKey} {
			if key != oneMasterKey {
				if _, err := ChangeMasterKey(t.Context(), cfg, parsed(t, key)); err != nil {
					t.Fatal(err)
				}
			}
			m, err := Backup(t.Context(), running, cfg, "test")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := RestoreKey(config.Config{Data: t.TempDir(), MasterKey: config.Secret(key)}, m); err != nil {
				t.Error(err)
			}
			if err := authenticate(t, cfg, key); err != nil {
				t.Errorf("a backup of this server: %v", err)
			}
			// Someone who can write to the location has the encrypted root key of another backup, and can't use it.
			cfg.Backup.To = config.SecretURL(t.TempDir())
			o, err := backupOptions(running, cfg, "test", time.Now)
			if err != nil {
				t.Fatal(err)
			}
			if o.Signer, err = keyring.New(keyring.NewKey()); err != nil {
				t.Fatal(err)
			}
			if _, err := backup.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if err := authenticate(t, cfg, key); err == nil || !strings.Contains(err.Error(), "signature of the backup is wrong") {
				t.Errorf("a planted backup: %v", err)
			}
			cfg.Backup.To = config.SecretURL(t.TempDir())
		}
	})
}

// authenticate authenticates the backup in backup.to with a master key.
func authenticate(t *testing.T, cfg config.Config, master string) error {
	t.Helper()
	src, err := backup.Open(t.Context(), string(cfg.Backup.To))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Authenticate(src, parsed(t, master))
	return err
}

// TestConcurrentMasterKeyChangesHaveOneWinner checks that the other change
// reports that its key isn't used.
func TestConcurrentMasterKeyChangesHaveOneWinner(t *testing.T) {
	t.Parallel()
	eachKeyed(t, func(t *testing.T, cfg config.Config) {
		opened(t, cfg)
		keys := [][]byte{keyring.NewKey(), keyring.NewKey(), keyring.NewKey()}
		errs := make([]error, len(keys))
		var all sync.WaitGroup
		for i := range keys {
			all.Go(func() { _, errs[i] = ChangeMasterKey(t.Context(), cfg, keys[i]) })
		}
		all.Wait()
		d, err := OpenDatabase(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for i := range keys {
			if _, err := openRoot(t.Context(), d, keys[i]); (err == nil) != (errs[i] == nil) {
				t.Errorf("it was told %v, and opens with %v", errs[i], err)
			}
		}
	})
}

func TestNodesThatStartConcurrentlyShareOneRootKey(t *testing.T) {
	t.Parallel()
	eachKeyed(t, func(t *testing.T, cfg config.Config) {
		hashes := make([][32]byte, 4)
		var all sync.WaitGroup
		for i := range hashes {
			all.Go(func() {
				s, err := OpenStore(t.Context(), cfg)
				if err != nil {
					t.Error(err)
					return
				}
				hashes[i] = s.Ring.Hash("secret")
				s.Close()
			})
		}
		all.Wait()
		for _, h := range hashes {
			if h != hashes[0] {
				t.Fatal("two nodes have different keys")
			}
		}
		other := cfg
		other.MasterKey = otherMasterKey
		if err := closed(OpenStore(t.Context(), other)); !errors.Is(err, keyring.ErrWrongMasterKey) {
			t.Errorf("with another master key: %v", err)
		}
	})
}

// TestMasterKeyFileIsReplacedDespiteInterruptions interrupts the change at each
// critical moment.
func TestMasterKeyFileIsReplacedDespiteInterruptions(t *testing.T) {
	t.Parallel()
	cfg := config.Config{Data: t.TempDir()}
	hash, _, _ := opened(t, cfg)
	path := filepath.Join(cfg.Data, masterKeyFile)
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := read()
	done, err := ChangeMasterKey(t.Context(), cfg, nil)
	if err != nil || done.File != path || read() == first {
		t.Fatalf("%+v, %v", done, err)
	}
	if again, _, _ := opened(t, cfg); again != hash {
		t.Error("what was stored is not readable")
	}
	if _, err := os.Stat(path + newKeySuffix); err == nil {
		t.Error("the new key lies about twice")
	}

	// The database already has the next key, the directory doesn't.
	second := read()
	if _, err := ChangeMasterKey(t.Context(), cfg, nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(path, path+newKeySuffix), os.WriteFile(path, []byte(second), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := closed(OpenStore(t.Context(), cfg)); err == nil || !strings.Contains(err.Error(), "run: turnpike rekey") {
		t.Errorf("it was interrupted: %v", err)
	}
	if done, err := ChangeMasterKey(t.Context(), cfg, nil); err != nil || !done.Already || read() == second {
		t.Errorf("once more: %+v, %v", done, err)
	}
	if again, _, _ := opened(t, cfg); again != hash {
		t.Error("what was stored is not readable")
	}

	// The directory already has the next key, the database doesn't.
	if err := os.WriteFile(path+newKeySuffix, []byte(strings.Repeat("0", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, _, _ := opened(t, cfg); again != hash {
		t.Error("a key that nothing was done with is in the way")
	}
	if _, err := ChangeMasterKey(t.Context(), cfg, nil); err != nil || !bytes.Equal(parsed(t, read()), make([]byte, keyring.Size)) {
		t.Errorf("it was not used: %v", err)
	}
	if again, _, _ := opened(t, cfg); again != hash {
		t.Error("what was stored is not readable")
	}
}

// TestMasterKeyFileHasOneConcurrentChange covers two concurrent changes. One
// could otherwise replace the other's new key, which the database uses.
func TestMasterKeyFileHasOneConcurrentChange(t *testing.T) {
	t.Parallel()
	cfg := config.Config{Data: t.TempDir()}
	opened(t, cfg)
	unlock, err := lockRekey(cfg.Data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ChangeMasterKey(t.Context(), cfg, nil); err == nil || !strings.Contains(err.Error(), "another turnpike rekey") {
		t.Errorf("beside another: %v", err)
	}
	unlock()
	left := filepath.Join(cfg.Data, ".master-key-1") // left by a killed process
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ChangeMasterKey(t.Context(), cfg, nil); err != nil {
		t.Errorf("after it: %v", err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("an unfinished key still lies about")
	}
}

// TestWrongMasterKeyFileIsNotReplaced also checks that no file remains that
// looks like an interrupted change.
func TestWrongMasterKeyFileIsNotReplaced(t *testing.T) {
	t.Parallel()
	cfg := config.Config{Data: t.TempDir()}
	opened(t, cfg)
	path := filepath.Join(cfg.Data, masterKeyFile)
	if err := os.WriteFile(path, []byte(oneMasterKey), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ChangeMasterKey(t.Context(), cfg, nil); !errors.Is(err, keyring.ErrWrongMasterKey) {
		t.Errorf("it was changed: %v", err)
	}
	if _, err := os.Stat(path + newKeySuffix); err == nil {
		t.Error("a new key was made")
	}
	if err := os.WriteFile(path+newKeySuffix, []byte(otherMasterKey), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ChangeMasterKey(t.Context(), cfg, nil); !errors.Is(err, keyring.ErrWrongMasterKey) || !strings.Contains(err.Error(), "neither") {
		t.Errorf("with two that are wrong: %v", err)
	}
}
