// Package keyring derives every key the service uses from one root key, each
// for one purpose, and seals what must be stored encrypted. The root key is in
// the database, wrapped under the master key, which is not.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"regexp"
	"strings"
	"sync"
)

// Size of the master key and of the root key in bytes.
const Size = 32

// The purposes. A purpose is part of the derivation: changing a word here
// makes what was stored under it unreadable.
const (
	purposeSecrets = "turnpike/secret-pepper/v1"
	purposeSeal    = "turnpike/seal/v1"
	purposeCheck   = "turnpike/check/v1"
	purposeWrap    = "turnpike/wrap/v1"
)

// Ring holds the derived keys.
type Ring struct {
	macs  sync.Pool // of hash.Hash, keyed with the pepper: keying one costs as much as using it
	check []byte
	seal  cipher.AEAD
}

// New derives a ring from a root key.
func New(root []byte) (*Ring, error) {
	pepper, err := derive(root, purposeSecrets)
	if err != nil {
		return nil, err
	}
	check, err := derive(root, purposeCheck)
	if err != nil {
		return nil, err
	}
	seal, err := newAEAD(root, purposeSeal)
	if err != nil {
		return nil, err
	}
	r := &Ring{check: check, seal: seal}
	r.macs.New = func() any { return hmac.New(sha256.New, pepper) }
	return r, nil
}

func derive(key []byte, purpose string) ([]byte, error) {
	if len(key) != Size {
		return nil, fmt.Errorf("the master key must have %d bytes, this one has %d", Size, len(key))
	}
	derived, err := hkdf.Key(sha256.New, key, nil, purpose, Size)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	return derived, nil
}

func newAEAD(key []byte, purpose string) (cipher.AEAD, error) {
	derived, err := derive(key, purpose)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	return aead, nil
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

// Check is a value that tells two root keys apart and gives neither away.
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
