package people

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/crypto/argon2"

	"turnpike/internal/fault"
)

// The bounds of a password, in bytes.
const (
	MinPassword = 10
	MaxPassword = 256
)

// Cost is what one hash takes: memory in KiB, passes, and lanes.
type Cost struct {
	Memory uint32
	Passes uint32
	Lanes  uint8
}

// DefaultCost is the least that OWASP's password storage cheat sheet asks of
// argon2id. Little memory for each lets more people sign in at once.
var DefaultCost = Cost{Memory: 19 << 10, Passes: 2, Lanes: 1}

// maxCost keeps a damaged row from taking the machine's memory.
var maxCost = Cost{Memory: 1 << 20, Passes: 16, Lanes: 16}

const (
	saltBytes = 16
	keyBytes  = 32
	// maxWaiting bounds who waits for a turn. At 20 ms a hash the last of them
	// waits about a second on one core.
	maxWaiting = 64
)

// hasher hashes passwords, a few at a time: a storm of logins waits, it does not
// take all memory.
type hasher struct {
	cost    Cost
	turns   chan struct{}
	waiting atomic.Int64
	decoy   string       // what the password of nobody is compared with
	hashed  atomic.Int64 // how many there were, for the test that unknown people cost as much
}

func newHasher(cost Cost) *hasher {
	h := &hasher{cost: cost, turns: make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))}
	// Not a hash of anything: only its cost matters.
	salt, key := make([]byte, saltBytes), make([]byte, keyBytes)
	rand.Read(salt)
	rand.Read(key)
	h.decoy = encode(cost, salt, key)
	return h
}

// derive takes a turn and computes.
func (h *hasher) derive(ctx context.Context, password string, salt []byte, c Cost, length int) ([]byte, error) {
	if h.waiting.Add(1) > maxWaiting {
		h.waiting.Add(-1)
		return nil, fault.New(fault.Overloaded, "too many people are signing in at this moment; try again in a few seconds")
	}
	defer h.waiting.Add(-1)
	select {
	case h.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-h.turns }()
	h.hashed.Add(1)
	return argon2.IDKey([]byte(password), salt, c.Passes, c.Memory, c.Lanes, uint32(length)), nil
}

// hash returns what to store of a password.
func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, saltBytes)
	rand.Read(salt)
	key, err := h.derive(ctx, password, salt, h.cost, keyBytes)
	if err != nil {
		return "", err
	}
	return encode(h.cost, salt, key), nil
}

// verify compares a password with what is stored. Nothing stored costs as much
// as something, so that time does not tell who exists.
func (h *hasher) verify(ctx context.Context, password, stored string) (bool, error) {
	known := stored != "" && len(password) <= MaxPassword
	if !known {
		password, stored = "", h.decoy
	}
	c, salt, want, err := decode(stored)
	if err != nil {
		return false, err
	}
	got, err := h.derive(ctx, password, salt, c, len(want))
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(got, want) == 1 && known, nil
}

// outdated reports whether a hash was made at another cost than today's.
func (h *hasher) outdated(stored string) bool {
	c, _, _, err := decode(stored)
	return err == nil && c != h.cost
}

// encode writes the form that other programs know too (PHC).
func encode(c Cost, salt, key []byte) string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, c.Memory, c.Passes, c.Lanes, b64(salt), b64(key))
}

var errDamagedHash = errors.New("a stored password hash is damaged")

func decode(stored string) (c Cost, salt, key []byte, err error) {
	parts := strings.Split(stored, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return c, nil, nil, errDamagedHash
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &c.Memory, &c.Passes, &c.Lanes); err != nil {
		return c, nil, nil, errDamagedHash
	}
	salt, saltErr := base64.RawStdEncoding.DecodeString(parts[4])
	key, keyErr := base64.RawStdEncoding.DecodeString(parts[5])
	sane := c.Memory > 0 && c.Passes > 0 && c.Lanes > 0 && c.Memory <= maxCost.Memory && c.Passes <= maxCost.Passes && c.Lanes <= maxCost.Lanes
	if saltErr != nil || keyErr != nil || !sane || len(key) < 16 || len(key) > 64 {
		return c, nil, nil, errDamagedHash
	}
	return c, salt, key, nil
}
