package keyring

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
)

// Kind is a kind of secret that Turnpike creates: its default prefix. Anyone who has the value is trusted, so every kind is
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

	defaultHead = "tp"
	maxHead     = 16

	// MaxSecret is the length of the longest secret.
	MaxSecret = max(maxHead-len(defaultHead)+len(SessionToken)+randomSize+checkSize, len(WebhookSecret)+webhookSize)
)

// heads are what secrets begin with instead of tp. The first one is for new secrets. Webhook secrets keep their prefix, which
// libraries of receivers expect.
type heads struct {
	list []string
	like *regexp.Regexp // matches more than secrets: what is cut off or changed isn't shown either
}

var current atomic.Pointer[heads]

var validHead = regexp.MustCompile(fmt.Sprintf(`^[a-z][a-z0-9]{1,%d}$`, maxHead-1))

// ValidHead reports whether secrets can begin with a text and an underscore.
func ValidHead(s string) bool {
	return validHead.MatchString(s) && !strings.HasPrefix(string(WebhookSecret), s+"_")
}

// UseHeads sets what secrets begin with: the first one for new secrets. The others, and tp, are recognized.
func UseHeads(list []string) {
	list = slices.DeleteFunc(slices.Clone(list), func(head string) bool { return !ValidHead(head) })
	if !slices.Contains(list, defaultHead) {
		list = append(list, defaultHead)
	}
	// Others use the prefix of webhook secrets for shorter ones.
	like := "(" + prefixPattern(list) + ")[A-Za-z0-9]+|(" + string(WebhookSecret) + ")[A-Za-z0-9+/]{24,}=*"
	current.Store(&heads{list, regexp.MustCompile(like)})
}

func init() { UseHeads(nil) }

func prefixPattern(list []string) string {
	var names []string
	for _, k := range Kinds {
		if k != WebhookSecret {
			names = append(names, strings.TrimSuffix(k.name(), "_"))
		}
	}
	return "(?:" + strings.Join(list, "|") + ")_(?:" + strings.Join(names, "|") + ")_"
}

// Pattern returns a regular expression that matches secrets of all kinds. It can't verify checksums.
func Pattern() string {
	return fmt.Sprintf("(?:%s[0-9A-Za-z]{%d}|%s[0-9A-Za-z+/]{%d}=)", prefixPattern(current.Load().list), randomSize+checkSize, WebhookSecret, webhookSize-1)
}

// Prefixes returns the prefixes of all kinds, of new secrets first.
func Prefixes() (list []string) {
	for _, head := range current.Load().list {
		for _, k := range Kinds {
			if k != WebhookSecret {
				list = append(list, head+"_"+k.name())
			}
		}
	}
	return append(list, string(WebhookSecret))
}

// name is what follows the head and an underscore.
func (k Kind) name() string { return strings.TrimPrefix(string(k), defaultHead+"_") }

// Prefix returns the prefix of new secrets.
func (k Kind) Prefix() string {
	if k == WebhookSecret {
		return string(k)
	}
	return current.Load().list[0] + "_" + k.name()
}

// KindOf returns the kind and the prefix of a text that begins like a secret, or "".
func KindOf(s string) (kind Kind, prefix string) {
	head, rest, _ := strings.Cut(s, "_")
	if strings.HasPrefix(s, string(WebhookSecret)) {
		return WebhookSecret, string(WebhookSecret)
	}
	if !slices.Contains(current.Load().list, head) {
		return "", ""
	}
	for _, k := range Kinds {
		if name := k.name(); k != WebhookSecret && strings.HasPrefix(rest, name) {
			return k, s[:len(head)+1+len(name)]
		}
	}
	return "", ""
}

// size returns the length of the kind's secrets without the prefix.
func (k Kind) size() int {
	if k == WebhookSecret {
		return webhookSize
	}
	return randomSize + checkSize
}

// NewSecret returns a secret: prefix, 32 random characters and a checksum. The checksum rejects mistyped secrets
// without a database query and lets scanners recognize secrets. Only registered kinds can be created.
func NewSecret(kind Kind) string {
	if kind == WebhookSecret || !slices.Contains(Kinds, kind) {
		panic("keyring: no secret of the kind " + string(kind))
	}
	b := append(make([]byte, 0, MaxSecret), kind.Prefix()...)
	end := len(b) + randomSize
	var buf [64]byte
	for len(b) < end {
		rand.Read(buf[:]) // never fails: crypto/rand aborts the program instead
		for _, c := range buf {
			// Bytes from 248 would make the first eight characters more likely.
			if c < 248 && len(b) < end {
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
	kind, prefix := KindOf(s)
	return kind, kind != "" && len(s) == len(prefix)+kind.size() && kind.valid(s, s[len(prefix):])
}

// valid checks what follows the prefix of a secret of the right length.
func (k Kind) valid(s, rest string) bool {
	if k == WebhookSecret {
		return rest[len(rest)-1] == '=' && strings.Trim(rest[:len(rest)-1], base62+"+/") == ""
	}
	if strings.Trim(rest, base62) != "" {
		return false
	}
	var buf [MaxSecret]byte
	return string(appendChecksum(append(buf[:0], s[:len(s)-checkSize]...))) == s
}

// FindSecret returns the position of the first secret in a text, or -1, and the secret. Its time is linear.
func FindSecret(text []byte) (at int, secret string) {
	known := append(slices.Clip(current.Load().list), strings.TrimSuffix(string(WebhookSecret), "_"))
	for at = 0; ; at++ {
		// Searching for an underscore, which is rare, is faster than for the prefixes.
		i := bytes.IndexByte(text[at:], '_')
		if i < 0 {
			return -1, ""
		}
		at += i
		for _, head := range known {
			if !bytes.HasSuffix(text[:at], []byte(head)) {
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
	s := string(text[:min(len(text), MaxSecret)])
	kind, prefix := KindOf(s)
	if kind == "" || len(s) < len(prefix)+kind.size() {
		return ""
	}
	if s = s[:len(prefix)+kind.size()]; kind.valid(s, s[len(prefix):]) {
		return s
	}
	return ""
}

// SecretHint returns the part of a well-formed secret that may be shown.
func SecretHint(secret string) string {
	if _, ok := ParseSecret(secret); !ok {
		return ""
	}
	_, prefix := KindOf(secret)
	secret = strings.TrimSuffix(secret, "=") // the padding of a webhook secret
	return prefix + "…" + secret[len(secret)-lastFour:]
}

func mayContainSecret(s string) bool {
	return strings.Contains(s, string(WebhookSecret)) ||
		slices.ContainsFunc(current.Load().list, func(head string) bool { return strings.Contains(s, head+"_") })
}

// ContainsSecret reports whether a text seems to contain one of our secrets. Such texts are never stored.
func ContainsSecret(s string) bool { return mayContainSecret(s) && current.Load().like.MatchString(s) }

// Mask removes such secrets from a text.
func Mask(s string) string {
	if !mayContainSecret(s) {
		return s
	}
	return current.Load().like.ReplaceAllString(s, "${1}${2}***")
}
