package keyring

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"turnpike/internal/fsync"
)

// ErrWrongMasterKey is returned for a master key that did not wrap the root key.
var ErrWrongMasterKey = errors.New("wrong master key: it does not belong to this database and cannot decrypt its values")

// NewKey returns a random key.
func NewKey() []byte {
	key := make([]byte, Size)
	rand.Read(key) // never fails: crypto/rand aborts the program instead
	return key
}

// Wrap encrypts a root key with a master key. To change the master key, wrap the root key again.
func Wrap(root, master []byte) (string, error) {
	aead, err := newAEAD(master, purposeWrap)
	if err != nil {
		return "", err
	}
	return base64.RawStdEncoding.EncodeToString(aead.Seal(nil, nil, root, nil)), nil
}

// Unwrap reverses Wrap.
func Unwrap(wrapped string, master []byte) (root []byte, err error) {
	aead, err := newAEAD(master, purposeWrap)
	if err != nil {
		return nil, err
	}
	raw, err := base64.RawStdEncoding.DecodeString(wrapped)
	if err != nil {
		return nil, errors.New("the root key in the database is corrupt")
	}
	if root, err = aead.Open(nil, nil, raw, nil); err != nil {
		return nil, ErrWrongMasterKey
	}
	return root, nil
}

// ParseMaster reads a master key: 64 hex digits, or standard or URL-safe base64. The error never
// quotes it.
func ParseMaster(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	if len(text) == hex.EncodedLen(Size) {
		if key, err := hex.DecodeString(text); err == nil {
			return key, nil
		}
	}
	raw := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	if key, err := base64.RawStdEncoding.DecodeString(raw); err == nil && len(key) == Size {
		return key, nil
	}
	return nil, fmt.Errorf("is not a master key; expected %d bytes in base64 or hex, for example from: openssl rand -base64 %d", Size, Size)
}

// LoadOrCreate reads the master key file, or creates one that only the owner can read. Like ssh, it
// rejects a file that others can read.
func LoadOrCreate(path string) (master []byte, created bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return create(path)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read master key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" { // Windows has no such modes
		return nil, false, fmt.Errorf("other users of this machine can read the master key in %s; run: chmod 600 %s", path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, false, fmt.Errorf("read master key: %w", err)
	}
	master, err = ParseMaster(string(text))
	if err != nil {
		return nil, false, fmt.Errorf("the content of %s %w", path, err)
	}
	return master, false, nil
}

const temporaryPattern = ".master-key-*"

// RemoveTemporary removes partial key files that killed processes left in a directory. No process may
// create a key concurrently.
func RemoveTemporary(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, temporaryPattern))
	for _, name := range names {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// create writes a new key to a temporary file and links it, so that processes that start concurrently
// agree on one key and a crash leaves no partial one.
func create(path string) ([]byte, bool, error) {
	master := NewKey()
	f, err := os.CreateTemp(filepath.Dir(path), temporaryPattern)
	if err != nil {
		return nil, false, fmt.Errorf("create master key: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hex.EncodeToString(master) + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return nil, false, fmt.Errorf("write master key: %w", err)
	}
	err = os.Link(f.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return LoadOrCreate(path)
	}
	if err == nil {
		err = fsync.Directory(filepath.Dir(path)) // before anything depends on it
	}
	if err != nil {
		return nil, false, fmt.Errorf("write master key: %w", err)
	}
	return master, true, nil
}

// Fingerprint identifies a master key without revealing it, so that a backup can name the key it needs.
func Fingerprint(master []byte) (string, error) {
	key, err := derive(master, purposeFingerprint)
	return hex.EncodeToString(key[:min(len(key), 8)]), err
}
