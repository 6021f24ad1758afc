package accounts

import (
	"testing"

	"turnpike/internal/fault"
)

func TestNamesHoldNothingThatSteersATerminalOrTurnsText(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"\x1b[31mred", "a\nb", "a\x7f", "\u009b31mRED", "a\u0085b", "\u202egnp.exe", "a\u202ab", "\u2066a\u2069", "a\xff", " "} {
		if err := CheckName("name", bad); err == nil {
			t.Errorf("%q was taken for a name", bad)
		} else if f, ok := fault.As(err); !ok || f.Param != "name" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{"Größe ✓", "שלום\u200f!", "\u200eabc", "می\u200cخواهم", "👩\u200d💻"} {
		if err := CheckName("name", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}
