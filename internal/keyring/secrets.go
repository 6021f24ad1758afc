package keyring

import (
	"bytes"
	"crypto/rand"
	"hash/crc32"
	"regexp"
	"slices"
	"strings"
)

// Kind is a kind of secret that Turnpike creates: its prefix. Anyone who has the value is trusted, so every kind is
// recognized in text, masked in logs, and handled if it leaks.
type Kind string

// The kinds. The database has only hashes of their values, except that it has webhook secrets encrypted.
const (
	LiveKey       Kind = "tp_live_"
	TestKey       Kind = "tp_test_"
	ScopedToken   Kind = "tp_scoped_"
	AdminKey      Kind = "tp_admin_"   // of the admin API, which belongs to no workspace
	SessionToken  Kind = "tp_session_" // of a person who is signed in to the dashboard
	LinkToken     Kind = "tp_link_"    // of a one-time link: setup, password or invitation
	WebhookSecret Kind = "whsec_"      // signs deliveries; package webhook creates it
)

// Kinds lists every kind.
var Kinds = []Kind{LiveKey, TestKey, ScopedToken, AdminKey, SessionToken, LinkToken, WebhookSecret}

const (
	base62      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	randomSize  = 32
	checkSize   = 6  // 62⁶ > 2³²
	webhookSize = 44 // 32 bytes in base64, with padding
	lastFour    = 4

	// MaxSecret is the length of the longest secret.
	MaxSecret = max(len(SessionToken)+randomSize+checkSize, len(WebhookSecret)+webhookSize)
)

// size returns the length of the kind's secrets.
func (k Kind) size() int {
	if k == WebhookSecret {
		return len(k) + webhookSize
	}
	return len(k) + randomSize + checkSize
}

// NewSecret returns a secret: prefix, 32 random characters and a checksum. The checksum rejects mistyped secrets
// without a database query and lets scanners recognize secrets. Only registered kinds can be created.
func NewSecret(kind Kind) string {
	if kind == WebhookSecret || !slices.Contains(Kinds, kind) {
		panic("keyring: no secret of the kind " + string(kind))
	}
	b := append(make([]byte, 0, kind.size()), kind...)
	var buf [64]byte
	for len(b) < len(kind)+randomSize {
		rand.Read(buf[:]) // never fails: crypto/rand aborts the program instead
		for _, c := range buf {
			// Bytes from 248 would make the first eight characters more likely.
			if c < 248 && len(b) < len(kind)+randomSize {
				b = append(b, base62[c%62])
			}
		}
	}
	return string(appendChecksum(b))
}

func appendChecksum(b []byte) []byte {
	sum := crc32.ChecksumIEEE(b)
	var digits [checkSize]byte
	for i := checkSize - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return append(b, digits[:]...)
}

// ParseSecret returns the kind of a well-formed secret. It verifies the checksum, which webhook secrets don't have.
func ParseSecret(s string) (kind Kind, ok bool) {
	for _, k := range Kinds {
		if strings.HasPrefix(s, string(k)) {
			return k, len(s) == k.size() && k.valid(s)
		}
	}
	return "", false
}

// valid checks what follows the prefix of a secret of the right length.
func (k Kind) valid(s string) bool {
	if k == WebhookSecret {
		return s[len(s)-1] == '=' && strings.Trim(s[len(k):len(s)-1], base62+"+/") == ""
	}
	if strings.Trim(s[len(k):], base62) != "" {
		return false
	}
	var buf [MaxSecret]byte
	return string(appendChecksum(append(buf[:0], s[:len(s)-checkSize]...))) == s
}

// heads are what precedes the first underscore of a secret.
var heads = func() (list [][]byte) {
	for _, k := range Kinds {
		head, _, _ := strings.Cut(string(k), "_")
		if !slices.ContainsFunc(list, func(h []byte) bool { return string(h) == head }) {
			list = append(list, []byte(head))
		}
	}
	return list
}()

// FindSecret returns the position of the first secret in a text, or -1, and the secret. Its time is linear.
func FindSecret(text []byte) (at int, secret string) {
	for at = 0; ; at++ {
		// Searching for an underscore, which is rare, is faster than for the prefixes.
		i := bytes.IndexByte(text[at:], '_')
		if i < 0 {
			return -1, ""
		}
		at += i
		for _, head := range heads {
			if !bytes.HasSuffix(text[:at], head) {
				continue
			}
			if secret := secretAt(text[at-len(head):]); secret != "" {
				return at - len(head), secret
			}
		}
	}
}

// secretAt returns the secret with which a text begins, or "".
func secretAt(text []byte) string {
	for _, k := range Kinds {
		if !bytes.HasPrefix(text, []byte(k)) || len(text) < k.size() {
			continue
		}
		if s := string(text[:k.size()]); k.valid(s) {
			return s
		}
	}
	return ""
}

// SecretHint returns the part of a well-formed secret that may be shown.
func SecretHint(secret string) string {
	kind, ok := ParseSecret(secret)
	if !ok {
		return ""
	}
	secret = strings.TrimSuffix(secret, "=") // the padding of a webhook secret
	return string(kind) + "…" + secret[len(secret)-lastFour:]
}

// secretLike matches more than secrets: what is cut off or changed isn't shown either.
var secretLike = func() *regexp.Regexp {
	prefixes := make([]string, 0, len(Kinds))
	for _, k := range Kinds {
		if k != WebhookSecret {
			prefixes = append(prefixes, string(k))
		}
	}
	// Others use the prefix of webhook secrets for shorter ones.
	return regexp.MustCompile(`(` + strings.Join(prefixes, "|") + `)[A-Za-z0-9]+|(` + string(WebhookSecret) + `)[A-Za-z0-9+/]{24,}=*`)
}()

func mayContainSecret(s string) bool {
	return strings.Contains(s, "tp_") || strings.Contains(s, string(WebhookSecret))
}

// ContainsSecret reports whether a text seems to contain one of our secrets. Such texts are never stored.
func ContainsSecret(s string) bool { return mayContainSecret(s) && secretLike.MatchString(s) }

// Mask removes such secrets from a text.
func Mask(s string) string {
	if !mayContainSecret(s) {
		return s
	}
	return secretLike.ReplaceAllString(s, "${1}${2}***")
}
