// Package keyring derives every key the service uses from the one master key,
// each for one purpose, and seals what must be stored encrypted.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// Size of the master key in bytes.
const Size = 32

// The purposes. A purpose is part of the derivation: changing a word here
// makes what was stored under it unreadable.
const (
	purposeSecrets = "turnpike/secret-pepper/v1"
	purposeSeal    = "turnpike/seal/v1"
	purposeCheck   = "turnpike/check/v1"
)

// Ring holds the derived keys.
type Ring struct {
	macs  sync.Pool // of hash.Hash, keyed with the pepper: keying one costs as much as using it
	check []byte
	seal  cipher.AEAD
}

// New derives a ring from a master key.
func New(master []byte) (*Ring, error) {
	if len(master) != Size {
		return nil, fmt.Errorf("the master key must have %d bytes, this one has %d", Size, len(master))
	}
	derive := func(purpose string) ([]byte, error) {
		return hkdf.Key(sha256.New, master, nil, purpose, Size)
	}
	pepper, err := derive(purposeSecrets)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	check, err := derive(purposeCheck)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	sealKey, err := derive(purposeSeal)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := aes.NewCipher(sealKey)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	r := &Ring{check: check, seal: aead}
	r.macs.New = func() any { return hmac.New(sha256.New, pepper) }
	return r, nil
}

// Hash is what is stored of a bearer secret: without the pepper, which is not
// in the database, a stolen database cannot be tried against guesses.
func (r *Ring) Hash(secret string) [sha256.Size]byte {
	mac := r.macs.Get().(hash.Hash)
	defer r.macs.Put(mac)
	mac.Reset()
	mac.Write([]byte(secret))
	var out [sha256.Size]byte
	mac.Sum(out[:0])
	return out
}

// Check is a value that tells two master keys apart and gives neither away.
func (r *Ring) Check() string { return hex.EncodeToString(r.check) }

// Seal encrypts plaintext and binds it to its place, so that a sealed value
// moved to another row does not open.
func (r *Ring) Seal(plaintext []byte, place string) string {
	return base64.RawStdEncoding.EncodeToString(r.seal.Seal(nil, nil, plaintext, []byte(place)))
}

// Open reverses Seal.
func (r *Ring) Open(sealed, place string) ([]byte, error) {
	raw, err := base64.RawStdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, errors.New("sealed value is damaged")
	}
	plain, err := r.seal.Open(nil, nil, raw, []byte(place))
	if err != nil {
		return nil, errors.New("sealed value does not open with this master key")
	}
	return plain, nil
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

// secretLike finds our own bearer values in a text.
var secretLike = regexp.MustCompile(`tp_(live|test|scoped)_[A-Za-z0-9]+`)

// HoldsSecret reports whether a text has something in it that looks like one
// of our bearer values. Such a text is refused wherever it would be stored.
func HoldsSecret(s string) bool { return strings.Contains(s, "tp_") && secretLike.MatchString(s) }

// Mask takes such values out of a text.
func Mask(s string) string {
	if !strings.Contains(s, "tp_") {
		return s
	}
	return secretLike.ReplaceAllString(s, "tp_${1}_***")
}

// LoadOrCreate reads the master key file, or makes one that only the owner can read.
func LoadOrCreate(path string) (master []byte, created bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return create(path)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read master key: %w", err)
	}
	master, err = ParseMaster(string(text))
	if err != nil {
		return nil, false, fmt.Errorf("the content of %s %w", path, err)
	}
	return master, false, nil
}

// create writes a new key under a name of its own and links it into place, so
// that two processes starting at once agree on one key and a crash leaves none
// half-written.
func create(path string) ([]byte, bool, error) {
	master := make([]byte, Size)
	rand.Read(master) // never fails: crypto/rand aborts the program instead
	f, err := os.CreateTemp(filepath.Dir(path), ".master-key-*")
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
	if err != nil {
		return nil, false, fmt.Errorf("write master key: %w", err)
	}
	return master, true, nil
}
