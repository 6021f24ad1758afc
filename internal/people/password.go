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

// The length of a password in bytes.
const (
	minPassword = 10
	maxPassword = 256
)

// Cost is the cost of a hash: memory in KiB, passes and lanes.
type Cost struct {
	Memory uint32
	Passes uint32
	Lanes  uint8
}

// DefaultCost is the minimum of OWASP's password storage cheat sheet for argon2id. Less memory per hash
// lets more people sign in concurrently.
var DefaultCost = Cost{Memory: 19 << 10, Passes: 2, Lanes: 1}

// maxCost keeps a corrupt row from exhausting memory.
var maxCost = Cost{Memory: 1 << 20, Passes: 16, Lanes: 16}

const (
	saltBytes = 16
	keyBytes  = 32
	// maxWaiting limits the queue. At 20 ms per hash, the last one waits about a second on one core.
	maxWaiting = 64
)

// hasher hashes a few passwords at a time, so that many logins can't exhaust memory.
type hasher struct {
	cost    Cost
	slots   chan struct{}
	waiting atomic.Int64
	decoy   string       // compared for unknown accounts
	hashed  atomic.Int64 // number of hashes, for tests
}

func newHasher(cost Cost) *hasher {
	h := &hasher{cost: cost, slots: make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))}
	// Random bytes: only the cost matters.
	salt, key := make([]byte, saltBytes), make([]byte, keyBytes)
	rand.Read(salt)
	rand.Read(key)
	h.decoy = encode(cost, salt, key)
	return h
}

// derive computes a hash when a slot is free.
func (h *hasher) derive(ctx context.Context, password string, salt []byte, c Cost, length int) ([]byte, error) {
	if h.waiting.Add(1) > maxWaiting {
		h.waiting.Add(-1)
		return nil, fault.New(fault.Overloaded, "Too many people are signing in right now. Retry in a few seconds.")
	}
	defer h.waiting.Add(-1)
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-h.slots }()
	h.hashed.Add(1)
	return argon2.IDKey([]byte(password), salt, c.Passes, c.Memory, c.Lanes, uint32(length)), nil
}

func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, saltBytes)
	rand.Read(salt)
	key, err := h.derive(ctx, password, salt, h.cost, keyBytes)
	if err != nil {
		return "", err
	}
	return encode(h.cost, salt, key), nil
}

// verify compares a password with a stored hash. An empty hash costs as much, so that the time doesn't
// reveal who has an account.
func (h *hasher) verify(ctx context.Context, password, stored string) (bool, error) {
	known := stored != "" && len(password) <= maxPassword
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

// outdated reports whether a hash has another cost than the current one.
func (h *hasher) outdated(stored string) bool {
	c, _, _, err := decode(stored)
	return err == nil && c != h.cost
}

// encode returns a hash in PHC string format.
func encode(c Cost, salt, key []byte) string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, c.Memory, c.Passes, c.Lanes, b64(salt), b64(key))
}

var errCorruptHash = errors.New("corrupt password hash")

func decode(stored string) (c Cost, salt, key []byte, err error) {
	parts := strings.Split(stored, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return c, nil, nil, errCorruptHash
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &c.Memory, &c.Passes, &c.Lanes); err != nil {
		return c, nil, nil, errCorruptHash
	}
	salt, saltErr := base64.RawStdEncoding.DecodeString(parts[4])
	key, keyErr := base64.RawStdEncoding.DecodeString(parts[5])
	valid := c.Memory > 0 && c.Passes > 0 && c.Lanes > 0 && c.Memory <= maxCost.Memory && c.Passes <= maxCost.Passes && c.Lanes <= maxCost.Lanes
	if saltErr != nil || keyErr != nil || !valid || len(key) < 16 || len(key) > 64 {
		return c, nil, nil, errCorruptHash
	}
	return c, salt, key, nil
}
