// Package keyring derives all keys from one root key, each for one purpose, and encrypts values for
// storage. The database contains the root key wrapped by the master key, and never the master key.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"sync"
)

// Size of the master key and of the root key in bytes.
const Size = 32

// Purposes are part of the derivation: changing one makes the values stored under it unreadable.
const (
	purposeSecrets     = "turnpike/secret-pepper/v1"
	purposeSeal        = "turnpike/seal/v1"
	purposeWrap        = "turnpike/wrap/v1"
	purposeFingerprint = "turnpike/fingerprint/v1"
	purposeBackups     = "turnpike/backups/v1"
)

// Ring holds the derived keys.
type Ring struct {
	macs sync.Pool // of hash.Hash with the pepper: setting the key costs as much as hashing
	seal cipher.AEAD

	backups []byte
}

// New derives a ring from a root key.
func New(root []byte) (*Ring, error) {
	pepper, err := derive(root, purposeSecrets)
	if err != nil {
		return nil, err
	}
	seal, err := newAEAD(root, purposeSeal)
	if err != nil {
		return nil, err
	}
	backups, err := derive(root, purposeBackups)
	if err != nil {
		return nil, err
	}
	r := &Ring{seal: seal, backups: backups}
	r.macs.New = func() any { return hmac.New(sha256.New, pepper) }
	return r, nil
}

func derive(key []byte, purpose string) ([]byte, error) {
	if len(key) != Size {
		return nil, fmt.Errorf("the master key must have %d bytes, got %d", Size, len(key))
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

// Hash returns the hash under which a bearer secret is stored. Without the pepper, which is not in
// the database, a stolen database can't be used to verify guesses.
func (r *Ring) Hash(secret string) [sha256.Size]byte {
	mac := r.macs.Get().(hash.Hash)
	defer r.macs.Put(mac)
	mac.Reset()
	mac.Write([]byte(secret))
	var out [sha256.Size]byte
	mac.Sum(out[:0])
	return out
}

// SignBackup returns the code that authenticates the description of a backup.
func (r *Ring) SignBackup(description []byte) []byte {
	mac := hmac.New(sha256.New, r.backups)
	mac.Write(description)
	return mac.Sum(nil)
}

// Seal encrypts plaintext and binds it to a location, such as a row, so that it can't be opened
// elsewhere.
func (r *Ring) Seal(plaintext []byte, location string) string {
	return base64.RawStdEncoding.EncodeToString(r.SealBytes(plaintext, location))
}

// SealedOverhead is how many bytes SealBytes adds.
const SealedOverhead = 12 + 16 // the nonce and the tag

// SealBytes is Seal for a place that holds any bytes.
func (r *Ring) SealBytes(plaintext []byte, location string) []byte {
	return r.seal.Seal(nil, nil, plaintext, []byte(location))
}

// Open reverses Seal.
func (r *Ring) Open(sealed, location string) ([]byte, error) {
	raw, err := base64.RawStdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, errors.New("sealed value is corrupt")
	}
	return r.OpenBytes(raw, location)
}

// OpenBytes reverses SealBytes.
func (r *Ring) OpenBytes(sealed []byte, location string) ([]byte, error) {
	plain, err := r.seal.Open(nil, nil, sealed, []byte(location))
	if err != nil {
		return nil, errors.New("sealed value cannot be decrypted with this master key")
	}
	return plain, nil
}
