// Package minisign verifies signatures of the tool minisign.
package minisign

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// The algorithms in keys and signatures. Minisign signs the hash of a file since version 0.8, and the file itself before.
const (
	plain     = "Ed"
	prehashed = "ED"
)

const (
	algorithmSize = 2
	idSize        = 8
)

// PublicKey verifies signatures.
type PublicKey struct {
	id  string
	key ed25519.PublicKey
}

var errPublicKey = errors.New("is not a minisign public key; expected the second line of minisign.pub, which begins with RW")

// ParsePublicKey reads a public key as minisign prints it, such as RWQ….
func ParsePublicKey(text string) (PublicKey, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(raw) != algorithmSize+idSize+ed25519.PublicKeySize || string(raw[:algorithmSize]) != plain {
		return PublicKey{}, errPublicKey
	}
	return PublicKey{string(raw[algorithmSize : algorithmSize+idSize]), raw[algorithmSize+idSize:]}, nil
}

// Errors of Verify.
var (
	ErrMalformed = errors.New("the signature is not in the format of minisign")
	ErrOtherKey  = errors.New("the signature is of another key")
	ErrInvalid   = errors.New("the signature does not match the content")
)

const trustedComment = "trusted comment: "

// Verify checks the content of a .minisig file, including its trusted comment.
func (k PublicKey) Verify(content, signature []byte) error {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(string(signature), "\r\n", "\n"), "\n"), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "untrusted comment: ") || !strings.HasPrefix(lines[2], trustedComment) {
		return ErrMalformed
	}
	raw, err := base64.StdEncoding.DecodeString(lines[1])
	if err != nil || len(raw) != algorithmSize+idSize+ed25519.SignatureSize {
		return ErrMalformed
	}
	global, err := base64.StdEncoding.DecodeString(lines[3])
	if err != nil || len(global) != ed25519.SignatureSize {
		return ErrMalformed
	}
	algorithm, id, sum := string(raw[:algorithmSize]), string(raw[algorithmSize:algorithmSize+idSize]), raw[algorithmSize+idSize:]
	switch {
	case algorithm == prehashed:
		hash := blake2b.Sum512(content)
		content = hash[:]
	case algorithm != plain:
		return ErrMalformed
	}
	if id != k.id {
		return ErrOtherKey
	}
	comment := []byte(strings.TrimPrefix(lines[2], trustedComment))
	if !ed25519.Verify(k.key, content, sum) || !ed25519.Verify(k.key, bytes.Join([][]byte{sum, comment}, nil), global) {
		return ErrInvalid
	}
	return nil
}
