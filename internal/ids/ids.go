// Package ids creates and parses IDs: a prefix for the kind of record and a UUIDv7 in Crockford
// base32, which sorts by time.
package ids

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"
)

// The prefixes of records.
const (
	Workspace   = "ws_"
	User        = "usr_"
	Key         = "key_"
	Limit       = "lim_" // of a key or a project
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
	Transcript  = "transcript_"
	Run         = "run_"
	Step        = "step_"
	Approval    = "appr_"
	ToolServer  = "tsrv_"
	EndUser     = "eu_"
	Route       = "route_"

	Notification    = "ntf_"
	AdminCredential = "adm_"

	FederationRule = "fed_"

	Response     = "resp_"
	Message      = "msg_" // of Anthropic's API
	Conversation = "conv_"

	Batch        = "batch_"
	MessageBatch = "msgbatch_" // of Anthropic's API
	File         = "file-"     // as in OpenAI's API, whose clients recognize it
)

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// length of the part after the prefix: 128 bits in groups of five.
const length = 26

var defaultGenerator = &generator{now: time.Now}

// New returns a new ID. It sorts after all earlier IDs of this process, unless the clock was set back.
func New(prefix string) string {
	return prefix + encode(defaultGenerator.next())
}

// Floor returns the smallest possible ID at time t, so that a time range becomes an ID range.
func Floor(prefix string, t time.Time) string {
	return prefix + encode(uuid{hi: uint64(max(t.UnixMilli(), 0)) << 16})
}

// Derive returns an ID for a pair of IDs, with the time of the first. The same pair always gives the
// same ID. Both must be valid.
func Derive(prefix, first, second string) string {
	sum := sha256.Sum256([]byte(first + " " + second))
	b := decode(first[len(first)-length:])
	b.lo = 1<<63 | binary.BigEndian.Uint64(sum[:8])<<2>>2 // with the variant bits of a UUID
	return prefix + encode(b)
}

// shared is how many characters of the first ID Derive keeps: 63 of 64 bits.
const shared = 13

// DerivedFrom returns the smallest and the largest ID that Derive can return for a first ID, which
// must be valid.
func DerivedFrom(prefix, first string) (low, high string) {
	start := prefix + first[len(first)-length:][:shared]
	return start + strings.Repeat(alphabet[:1], length-shared), start + strings.Repeat(alphabet[len(alphabet)-1:], length-shared)
}

// Valid reports whether s is a well-formed ID with the prefix, so that invalid ones never reach the
// database.
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

func encode(b uuid) string {
	var out [length]byte
	// From the low end, five bits at a time.
	for i := length - 1; i >= 0; i-- {
		out[i] = alphabet[b.lo&31]
		b.lo = b.lo>>5 | b.hi<<59
		b.hi >>= 5
	}
	return string(out[:])
}

func decode(s string) (b uuid) {
	for i := range len(s) {
		b.hi = b.hi<<5 | b.lo>>59
		b.lo = b.lo<<5 | uint64(strings.IndexByte(alphabet, s[i]))
	}
	return b
}

// Time returns when a valid ID was created, to the millisecond.
func Time(id string) time.Time {
	b := decode(id[len(id)-length:])
	return time.UnixMilli(int64(b.hi >> 16)).UTC() //nolint:gosec // 48 bits
}
