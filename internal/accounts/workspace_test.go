package accounts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
)

// TestWhoNamesNoWorkspaceIsToldOfAFew: a server may have thousands of them.
func TestWhoNamesNoWorkspaceIsToldOfAFew(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		had := 0
		for _, c := range []struct {
			there      int
			says, hush string
		}{
			{2, "there are 2 workspaces, so say which: w1, w2", "turnpike"},
			{5, "there are 5 workspaces, so say which: w1, w2, w3, w4, w5", "turnpike"},
			{8, "there are 8 workspaces, so say which: w1, w2, w3, w4, w5 … and 3 more; see: turnpike workspaces list", "w6"},
		} {
			for ; had < c.there; had++ {
				err := d.Write(t.Context(), func(tx *db.Tx) error {
					return CreateWorkspace(t.Context(), tx, &Workspace{Name: fmt.Sprintf("w%d", had+1)}, time.Now())
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			_, err := FindWorkspace(t.Context(), d, "")
			if f, ok := fault.As(err); !ok || f.Message != c.says || strings.Contains(f.Message, c.hush) {
				t.Errorf("of %d: %v", c.there, err)
			}
		}
	})
}

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
