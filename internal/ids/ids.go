// Package ids makes and reads the service's identifiers: a prefix that says
// what the thing is, and a UUIDv7 in Crockford base32 that sorts by time.
package ids

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"github.com/google/uuid"
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

func init() {
	// One read of the kernel's randomness per 16 ids instead of one each:
	// ids are made on the hot path, and are names, not secrets.
	uuid.EnableRandPool()
}

// New returns a fresh identifier with the prefix.
func New(prefix string) string {
	return prefix + encode(uuid.Must(uuid.NewV7()))
}

// Floor returns the smallest identifier with the prefix that could be made at
// or after t, so that a time range becomes an id range.
func Floor(prefix string, t time.Time) string {
	var u uuid.UUID
	ms := uint64(max(t.UnixMilli(), 0))
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i))
	}
	return prefix + encode(u)
}

// Derive returns the identifier of what one thing is to another: always the
// same for the same two, with the time of the first. Both must be valid.
func Derive(prefix, first, second string) string {
	sum := sha256.Sum256([]byte(first + " " + second))
	u := decode(first[len(first)-length:])
	copy(u[8:], sum[:8])
	u[8] = u[8]&0x3f | 0x80 // the variant's bits, as in any other
	return prefix + encode(u)
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

func encode(u uuid.UUID) string {
	var out [length]byte
	// Walk from the low end, five bits at a time, over a two-word integer.
	hi := binary.BigEndian.Uint64(u[:8])
	lo := binary.BigEndian.Uint64(u[8:])
	for i := length - 1; i >= 0; i-- {
		out[i] = alphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:])
}

func decode(s string) (u uuid.UUID) {
	var hi, lo uint64
	for i := range len(s) {
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(strings.IndexByte(alphabet, s[i]))
	}
	binary.BigEndian.PutUint64(u[:8], hi)
	binary.BigEndian.PutUint64(u[8:], lo)
	return u
}

// Time is when an identifier was made, to the millisecond. It must be valid.
func Time(id string) time.Time {
	u := decode(id[len(id)-length:])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(u[:8]) >> 16)).UTC() //nolint:gosec // 48 bits
}
