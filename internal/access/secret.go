package access

import (
	"crypto/rand"
	"hash/crc32"
	"strings"

	"turnpike/internal/accounts"
)

// The prefixes of bearer secrets.
const (
	PrefixLive   = "tp_live_"
	PrefixTest   = "tp_test_"
	PrefixScoped = "tp_scoped_"
	PrefixAdmin  = "tp_admin_" // of the admin API, which belongs to no workspace
)

const (
	base62      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	randomSize  = 32
	checkSize   = 6 // 62⁶ > 2³²
	lastFourLen = 4
)

// PrefixOf returns the key prefix of an environment.
func PrefixOf(env accounts.Environment) string {
	if env == accounts.Live {
		return PrefixLive
	}
	return PrefixTest
}

// newSecret returns a bearer secret: prefix, 32 random characters and a checksum. The checksum rejects
// mistyped secrets without a database query and lets scanners recognize keys.
func newSecret(prefix string) string {
	b := make([]byte, 0, len(prefix)+randomSize+checkSize)
	b = append(b, prefix...)
	var buf [64]byte
	for len(b) < len(prefix)+randomSize {
		rand.Read(buf[:]) // never fails: crypto/rand aborts the program instead
		for _, c := range buf {
			// Bytes from 248 would make the first eight characters more likely.
			if c < 248 && len(b) < len(prefix)+randomSize {
				b = append(b, base62[c%62])
			}
		}
	}
	return string(appendChecksum(b))
}

// NewAdminSecret returns a new credential of the admin API.
func NewAdminSecret() string { return newSecret(PrefixAdmin) }

func appendChecksum(b []byte) []byte {
	sum := crc32.ChecksumIEEE(b)
	var digits [checkSize]byte
	for i := checkSize - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return append(b, digits[:]...)
}

// ParseSecret checks the format and checksum of a bearer secret and returns its prefix.
func ParseSecret(s string) (prefix string, ok bool) {
	for _, p := range []string{PrefixLive, PrefixTest, PrefixScoped, PrefixAdmin} {
		if strings.HasPrefix(s, p) {
			prefix = p
		}
	}
	if prefix == "" || len(s) != len(prefix)+randomSize+checkSize || strings.TrimLeft(s[len(prefix):], base62) != "" {
		return "", false
	}
	var buf [len(PrefixScoped) + randomSize + checkSize]byte
	body := len(s) - checkSize
	want := appendChecksum(append(buf[:0], s[:body]...))
	return prefix, string(want) == s
}

func lastFour(secret string) string { return secret[len(secret)-lastFourLen:] }
