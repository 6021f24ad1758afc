package api

import (
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// With the same Idempotency-Key, a retry must be able to succeed.
func TestTransientRefusalsAreNotRemembered(t *testing.T) {
	t.Parallel()
	for code, want := range map[fault.Code]bool{fault.InvalidParameter: true, fault.InsufficientScope: true, fault.NotFound: true, fault.InvalidState: true,
		fault.BudgetExceeded: false, fault.RateLimitExceeded: false, fault.LimitReached: false, fault.Conflict: false, fault.Internal: false, fault.Overloaded: false} {
		if got := isPermanent(code); got != want {
			t.Errorf("%s: got %v, want %v", code, got, want)
		}
	}
}

func TestUnknownFormFilesAreRejected(t *testing.T) {
	t.Parallel()
	f := &form{files: map[string][]providers.Upload{"image": {{}}, "msak": {{}}}}
	if err := f.onlyFiles("image", "mask"); !fault.Is(err, fault.UnknownParameter) {
		t.Errorf("got %v, want unknown_parameter", err)
	}
	if err := f.onlyFiles("image", "msak"); err != nil {
		t.Errorf("got %v", err)
	}
}
