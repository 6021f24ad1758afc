package credentials

import (
	"net/http"
	"testing"
	"time"

	"turnpike/internal/providers"
)

func TestSeveralKeysShareRequestsAndRejectedOnesRest(t *testing.T) {
	t.Parallel()
	k := NewKeys(providers.BearerKey, []Key{{"one", 3}, {"two", 1}})
	now := time.Unix(1_800_000_000, 0)
	k.now = func() time.Time { return now }
	use := func() *http.Request {
		req := &http.Request{Header: http.Header{}}
		if err := k.Authenticate(req, nil); err != nil {
			t.Fatal(err)
		}
		return req
	}
	counts := map[string]int{}
	for range 4000 {
		counts[use().Header.Get("Authorization")]++
	}
	if one := counts["Bearer one"]; one < 2700 || one > 3300 {
		t.Errorf("got %v, want three of four requests with the first key", counts)
	}
	with := func(key string) *http.Request {
		return &http.Request{Header: http.Header{"Authorization": {"Bearer " + key}}}
	}
	if !k.Renew(with("one"), http.StatusUnauthorized) {
		t.Error("the second key was not offered")
	}
	for range 50 {
		if got := use().Header.Get("Authorization"); got != "Bearer two" {
			t.Fatalf("got %s after the first key was rejected", got)
		}
	}
	if k.Renew(with("two"), http.StatusTooManyRequests) {
		t.Error("a request may be sent again without a usable key")
	}
	use() // all rest: one of them is used anyway
	now = now.Add(limitedCooldown)
	if got := use().Header.Get("Authorization"); got != "Bearer two" {
		t.Errorf("got %s after the rate limit of the second key ended", got)
	}
}
