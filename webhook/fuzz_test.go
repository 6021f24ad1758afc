package webhook_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"turnpike/webhook"
)

// FuzzVerify signs a body, flips one bit, and sends random data. Only the unchanged
// delivery verifies.
func FuzzVerify(f *testing.F) {
	f.Add([]byte(body), "", "", uint(0))
	f.Add([]byte{}, "v1,=", "-1", uint(1))
	f.Add([]byte("\x00\xff"), strings.Repeat("é", 32), "9223372036854775807", uint(1<<20))
	f.Add([]byte(`{"type":"x"}`), strings.Repeat("0", 64), "1760000000", uint(300))
	f.Fuzz(func(t *testing.T, body []byte, signature, timestamp string, bit uint) {
		v := verifier(secretA)
		h := signed(t, now, body, secretA)
		if err := v.Verify(body, h); err != nil {
			t.Fatalf("as signed: %v", err)
		}

		good := h.Get("Service-Signature")
		parts := [][]byte{slices.Clone(body), []byte(good), []byte(h.Get("Service-Timestamp"))}
		at := bit % uint(8*len(slices.Concat(parts...)))
		for _, part := range parts {
			if at < uint(8*len(part)) {
				part[at/8] ^= 1 << (at % 8)
				break
			}
			at -= uint(8 * len(part))
		}
		flipped := http.Header{"Service-Signature": {string(parts[1])}, "Service-Timestamp": {string(parts[2])}}
		if v.Verify(parts[0], flipped) == nil {
			t.Errorf("bit %d flipped: %q with %v verifies", bit, parts[0], flipped)
		}

		nonsense := http.Header{"Service-Signature": {signature}, "Service-Timestamp": {timestamp}}
		if v.Verify(body, nonsense) == nil && (signature != good || timestamp != h.Get("Service-Timestamp")) {
			t.Errorf("%v verifies", nonsense)
		}
	})
}

// FuzzHandler sends signed bodies with random content.
func FuzzHandler(f *testing.F) {
	f.Add([]byte(body), "dlv_1")
	f.Add([]byte(`{"type":"x","type":1,"data":`), "")
	f.Add([]byte(`{"TYPE":"\ud800","created_at":1e400}`), "\x00")
	f.Fuzz(func(t *testing.T, body []byte, id string) {
		taken := false
		handler := verifier(secretA).Handler(func(_ context.Context, e *webhook.Event, deliveryID string) error {
			taken = e.Type != "" && deliveryID == id
			return nil
		})
		r := httptest.NewRequest("POST", "/", strings.NewReader(string(body)))
		if err := webhook.Sign(r.Header, id, now, body, secretA); err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != 204 && w.Code != 400 || taken != (w.Code == 204) {
			t.Errorf("%q as %q: answered %d, taken in %v", body, id, w.Code, taken)
		}
	})
}
