// Package ids makes and reads the service's identifiers: a prefix that says
// what the thing is, and a UUIDv7 in Crockford base32 that sorts by time.
package ids

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"
)

// The prefixes of every kind of record.
const (
	Workspace   = "ws_"
	User        = "usr_"
	Key         = "key_"
	ScopedToken = "st_"
	Request     = "req_"
	Endpoint    = "wh_"
	Event       = "evt_"
	Delivery    = "dlv_"
	Attempt     = "att_"
	Replay      = "rpl_"
	AdminAction = "act_"
	Node        = "node_"
	Mail        = "mail_"
	ImageBatch  = "imgbatch_"
	Video       = "video_"
	Voice       = "voice_"
	Run         = "run_"
	Step        = "step_"
	Approval    = "appr_"
)

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// length of the part behind the prefix: 128 bits in groups of five.
const length = 26

var made = &maker{now: time.Now}

// New returns a fresh identifier with the prefix. It sorts behind those that the
// process has made before, unless the clock was set back meanwhile.
func New(prefix string) string {
	return prefix + encode(made.make())
}

// Floor returns the smallest identifier with the prefix that could be made at
// or after t, so that a time range becomes an id range.
func Floor(prefix string, t time.Time) string {
	return prefix + encode(bits{hi: uint64(max(t.UnixMilli(), 0)) << 16})
}

// Derive returns the identifier of what one thing is to another: always the
// same for the same two, with the time of the first. Both must be valid.
func Derive(prefix, first, second string) string {
	sum := sha256.Sum256([]byte(first + " " + second))
	b := decode(first[len(first)-length:])
	b.lo = 1<<63 | binary.BigEndian.Uint64(sum[:8])<<2>>2 // with the variant's bits, as in any other
	return prefix + encode(b)
}

// shared is how many characters of an identifier Derive always keeps: 63 of the
// 64 bits that it takes over.
const shared = 13

// DerivedFrom returns the smallest and the largest identifier that Derive can
// make of the first thing and any second. The first must be valid.
func DerivedFrom(prefix, first string) (low, high string) {
	start := prefix + first[len(first)-length:][:shared]
	return start + strings.Repeat(alphabet[:1], length-shared), start + strings.Repeat(alphabet[len(alphabet)-1:], length-shared)
}

// Valid reports whether s is an identifier of the kind. It says nothing about
// whether the thing exists; it keeps nonsense away from the store.
func Valid(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || len(rest) != length {
		return false
	}
	for i := range len(rest) {
		if strings.IndexByte(alphabet, rest[i]) < 0 {
			return false
		}
	}
	return rest[0] <= '7' // 26 × 5 = 130 bits: the top two are always zero
}

func encode(b bits) string {
	var out [length]byte
	// Walk from the low end, five bits at a time.
	for i := length - 1; i >= 0; i-- {
		out[i] = alphabet[b.lo&31]
		b.lo = b.lo>>5 | b.hi<<59
		b.hi >>= 5
	}
	return string(out[:])
}

func decode(s string) (b bits) {
	for i := range len(s) {
		b.hi = b.hi<<5 | b.lo>>59
		b.lo = b.lo<<5 | uint64(strings.IndexByte(alphabet, s[i]))
	}
	return b
}

// Time is when an identifier was made, to the millisecond. It must be valid.
func Time(id string) time.Time {
	b := decode(id[len(id)-length:])
	return time.UnixMilli(int64(b.hi >> 16)).UTC() //nolint:gosec // 48 bits
}
