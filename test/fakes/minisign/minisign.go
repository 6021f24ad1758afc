// Package minisign signs like the tool minisign.
package minisign

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"slices"
)

// Signer has a secret key. All signers have the same key ID.
type Signer struct{ key ed25519.PrivateKey }

const header = "Ed12345678" // the algorithm and the key ID

// NewSigner returns the signer of a seed.
func NewSigner(seed byte) Signer {
	return Signer{ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))}
}

// PublicKey returns the second line of minisign.pub.
func (s Signer) PublicKey() string {
	return base64.StdEncoding.EncodeToString(append([]byte(header), s.key.Public().(ed25519.PublicKey)...))
}

// Sign returns the content of a .minisig file.
func (s Signer) Sign(content []byte) []byte {
	const comment = "timestamp:1"
	sum := ed25519.Sign(s.key, content)
	global := ed25519.Sign(s.key, slices.Concat(sum, []byte(comment)))
	return []byte("untrusted comment: signature\n" + base64.StdEncoding.EncodeToString(slices.Concat([]byte(header), sum)) +
		"\ntrusted comment: " + comment + "\n" + base64.StdEncoding.EncodeToString(global) + "\n")
}
