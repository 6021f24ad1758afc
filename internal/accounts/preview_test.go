package accounts_test

import (
	"strings"
	"testing"

	"turnpike/internal/accounts"
)

func TestPreviewIsOneShortLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"  A\n\tharbor \x00at dawn ": "A harbor at dawn",
		strings.Repeat("é", 140):     strings.Repeat("é", 140),
		strings.Repeat("é", 141):     strings.Repeat("é", 140) + "…",
		strings.Repeat("🚢 ", 9000):   strings.TrimSuffix(strings.Repeat("🚢 ", 70), "") + "…",
	} {
		if got := accounts.Preview(text); got != want {
			t.Errorf("the preview of %.20q is %q, want %q", text, got, want)
		}
	}
}
