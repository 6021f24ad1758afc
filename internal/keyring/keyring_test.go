package keyring_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"turnpike/internal/keyring"
)

const sample = "3q2+7wABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhs="

func TestMasterKeyIsParsedInHexAndBase64(t *testing.T) {
	t.Parallel()
	good := []string{
		sample, strings.TrimRight(sample, "="), strings.NewReplacer("+", "-", "/", "_").Replace(sample) + "\n",
		"deadbeef000102030405060708090a0b0c0d0e0f101112131415161718191a1b",
		"DEADBEEF000102030405060708090A0B0C0D0E0F101112131415161718191A1B",
	}
	want, _ := keyring.ParseMaster(good[0])
	for _, text := range good {
		key, err := keyring.ParseMaster(text)
		if err != nil || len(key) != keyring.Size || !bytes.Equal(key, want) {
			t.Errorf("%q: got %x, %v", text, key, err)
		}
	}
	for _, text := range []string{"", "x", sample[:40], sample + "AAAA", strings.Repeat("z", 64)} {
		_, err := keyring.ParseMaster(text)
		if err == nil {
			t.Errorf("%q was accepted", text)
		} else if text != "" && len(text) > 1 && strings.Contains(err.Error(), text) {
			t.Errorf("the error quotes the key")
		}
	}
}

func TestConcurrentProcessesAgreeOnOneMasterKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "master.key")
	var wg sync.WaitGroup
	keys := make([][]byte, 16)
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], _, err = keyring.LoadOrCreate(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if !bytes.Equal(k, keys[0]) {
			t.Fatal("two processes have different master keys")
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v (%v), want 0600", info.Mode(), err)
	}
}

func TestSealedValueOpensOnlyAtItsLocation(t *testing.T) {
	t.Parallel()
	ring := newRing(t, 1)
	sealed := ring.Seal([]byte("whsec_x"), "a")
	if plain, err := ring.Open(sealed, "a"); err != nil || string(plain) != "whsec_x" {
		t.Errorf("opened as %q, %v", plain, err)
	}
	if _, err := ring.Open(sealed, "b"); err == nil {
		t.Error("opened at another location")
	}
	if _, err := newRing(t, 2).Open(sealed, "a"); err == nil {
		t.Error("opened with another key")
	}
	if strings.Contains(sealed, "whsec_x") || sealed == ring.Seal([]byte("whsec_x"), "a") {
		t.Error("the sealed value reveals its content")
	}
}

func newRing(t *testing.T, seed byte) *keyring.Ring {
	t.Helper()
	r, err := keyring.New(bytes.Repeat([]byte{seed}, keyring.Size))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
