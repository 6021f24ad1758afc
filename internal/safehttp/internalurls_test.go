package safehttp_test

import (
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/safehttp"
	"turnpike/test/fakes/safehttptest"
)

func TestInternalURLsAreRefusedBeforeTheDial(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, raw := range safehttptest.InternalURLs {
		if seen[raw] {
			t.Errorf("%q is there twice", raw)
		}
		seen[raw] = true
		for name, policy := range map[string]safehttp.Policy{"default": {}, "with plain HTTP": {AllowHTTP: true}} {
			guard := safehttp.New(policy)
			if u, err := guard.CheckURL("url", raw); err == nil {
				t.Errorf("%s: CheckURL(%q) = %v, want an error", name, raw, u)
			}
			// Like a URL stored by an older version.
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, raw, strings.NewReader("{}"))
			if err != nil {
				continue
			}
			if strings.Contains(raw, "example.com") {
				continue // net/http's parser extracts the public host, which the dial checks
			}
			if res, err := guard.Client(safehttp.ClientOptions{}).Do(req); err == nil {
				res.Body.Close()
				t.Errorf("%s: POST %q was answered with %s", name, raw, res.Status)
			} else if class := safehttp.Class(err); class != "refused_address" {
				t.Errorf("%s: POST %q: class %q (%v), want refused_address", name, raw, class, err)
			}
		}
	}
	if len(seen) < 69 {
		t.Errorf("there are %d forms, want at least 69", len(seen))
	}
}
