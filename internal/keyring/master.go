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

	"turnpike/internal/durable"
)

// ErrOtherMaster is what a master key gets that did not wrap the root key.
var ErrOtherMaster = errors.New("this is not the master key of the database; keys and sealed values could not be read with it")

// Random makes a new key.
func Random() []byte {
	key := make([]byte, Size)
	rand.Read(key) // never fails: crypto/rand aborts the program instead
	return key
}

// Wrap encrypts a root key under a master key, so that another master key only
// means to wrap it anew.
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
		return nil, errors.New("the root key in the database is damaged")
	}
	if root, err = aead.Open(nil, nil, raw, nil); err != nil {
		return nil, ErrOtherMaster
	}
	return root, nil
}

// ParseMaster reads a master key: 64 hex digits, or base64 of either alphabet.
// The error never quotes it.
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
	return nil, fmt.Errorf("is not a master key; expected %d bytes in base64 or hex, such as openssl rand -base64 %d prints", Size, Size)
}

// LoadOrCreate reads the master key file, or makes one that only the owner can
// read. A file that others can read is refused, as ssh does.
func LoadOrCreate(path string) (master []byte, created bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return create(path)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read master key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" { // which has no such modes
		return nil, false, fmt.Errorf("the master key in %s can be read by other users of this machine; run: chmod 600 %s", path, path)
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

// unfinished is the names that a key has until it is whole.
const unfinished = ".master-key-*"

// RemoveUnfinished removes keys in a folder whose makers were killed. Nobody may
// make one meanwhile.
func RemoveUnfinished(folder string) error {
	names, err := filepath.Glob(filepath.Join(folder, unfinished))
	for _, name := range names {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// create writes a new key under a name of its own and links it into place, so
// that two processes starting at once agree on one key and a crash leaves none
// half-written.
func create(path string) ([]byte, bool, error) {
	master := Random()
	f, err := os.CreateTemp(filepath.Dir(path), unfinished)
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
		err = durable.Folder(filepath.Dir(path)) // before anything depends on it
	}
	if err != nil {
		return nil, false, fmt.Errorf("write master key: %w", err)
	}
	return master, true, nil
}
