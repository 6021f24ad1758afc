package credentials

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"turnpike/internal/providers"
)

const (
	// rejectedCooldown is how long a key that the provider rejects isn't used: someone has to fix it.
	rejectedCooldown = time.Minute
	// limitedCooldown is how long a key isn't used after it has reached a rate limit, most of which are
	// per minute.
	limitedCooldown = 10 * time.Second
)

// Key is one of several keys of a provider.
type Key struct {
	Value  string
	Weight int // its share of the requests
}

// Keys is a credential of several keys of one account. A request gets one of them by weight. If the provider rejects
// the key or limits its rate, the request is sent again with another one.
type Keys struct {
	set  providers.SetKey
	keys []Key
	now  func() time.Time

	mu         sync.Mutex
	coolsUntil []time.Time
}

var _ providers.Renewer = (*Keys)(nil)

// NewKeys returns a credential of at least one key.
func NewKeys(set providers.SetKey, keys []Key) *Keys {
	return &Keys{set: set, keys: keys, now: time.Now, coolsUntil: make([]time.Time, len(keys))}
}

// Authenticate adds a key.
func (k *Keys) Authenticate(req *http.Request, _ []byte) error {
	k.set(req.Header, k.choose())
	return nil
}

// choose returns a key by weight, among all of them if none is usable.
func (k *Keys) choose() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, total := k.now(), 0
	weights := make([]int, len(k.keys))
	for i, key := range k.keys {
		if !now.Before(k.coolsUntil[i]) {
			weights[i] = key.Weight
			total += key.Weight
		}
	}
	if total == 0 {
		for i, key := range k.keys {
			weights[i] = key.Weight
			total += key.Weight
		}
	}
	n := rand.IntN(total) //nolint:gosec // balances load
	for i, weight := range weights {
		if n -= weight; n < 0 {
			return k.keys[i].Value
		}
	}
	return k.keys[0].Value
}

// Secrets returns all keys.
func (k *Keys) Secrets() []string {
	list := make([]string, len(k.keys))
	for i, key := range k.keys {
		list[i] = key.Value
	}
	return list
}

// Renew stops using the rejected key for a while. It reports whether there is another one.
func (k *Keys) Renew(rejected *http.Request, status int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, others := k.now(), false
	wait := rejectedCooldown
	if status == http.StatusTooManyRequests {
		wait = limitedCooldown
	}
	for i, key := range k.keys {
		if k.hasKey(rejected.Header, key.Value) {
			k.coolsUntil[i] = now.Add(wait)
		}
		others = others || !now.Before(k.coolsUntil[i])
	}
	return others
}

// hasKey reports whether a header has the key.
func (k *Keys) hasKey(h http.Header, key string) bool {
	with := http.Header{}
	k.set(with, key)
	for name := range with {
		if h.Get(name) != with.Get(name) {
			return false
		}
	}
	return true
}
