package api

import (
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// TestRefusalsThatPassAreNotRemembered: under an Idempotency-Key the next try
// must be able to succeed.
func TestRefusalsThatPassAreNotRemembered(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{400: true, 403: true, 404: true, 402: false, 429: false, 500: false, 503: false} {
		if lasting(status) != want {
			t.Errorf("%d: %v", status, !want)
		}
	}
}

// TestFilesNobodyExpectsAreRefused: a misspelt field must not be dropped in silence.
func TestFilesNobodyExpectsAreRefused(t *testing.T) {
	t.Parallel()
	f := &form{files: map[string][]providers.Upload{"image": {{}}, "msak": {{}}}}
	if err := f.onlyFiles("image", "mask"); !fault.Is(err, fault.UnknownParameter) {
		t.Errorf("got %v", err)
	}
	if err := f.onlyFiles("image", "msak"); err != nil {
		t.Errorf("got %v", err)
	}
}
