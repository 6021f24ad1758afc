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

func TestMissingWorkspaceErrorNamesAFew(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		created := 0
		for _, c := range []struct {
			count         int
			want, omitted string
		}{
			{2, "There are 2 workspaces. Choose one: w1, w2", "turnpike"},
			{5, "There are 5 workspaces. Choose one: w1, w2, w3, w4, w5", "turnpike"},
			{8, "There are 8 workspaces. Choose one: w1, w2, w3, w4, w5 … and 3 more; see: turnpike workspaces list", "w6"},
		} {
			for ; created < c.count; created++ {
				err := d.Write(t.Context(), func(tx *db.Tx) error {
					return CreateWorkspace(t.Context(), tx, &Workspace{Name: fmt.Sprintf("w%d", created+1)}, time.Now())
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			_, err := FindWorkspace(t.Context(), d, "")
			if f, ok := fault.As(err); !ok || f.Message != c.want || strings.Contains(f.Message, c.omitted) {
				t.Errorf("%d workspaces: got %v", c.count, err)
			}
		}
		if w, err := FindWorkspace(t.Context(), d, "w3"); err != nil || w.Name != "w3" {
			t.Errorf("by name: got %+v (%v)", w, err)
		}
	})
}

func TestNamesWithControlOrDirectionCharactersAreRejected(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"\x1b[31mred", "a\nb", "a\x7f", "\u009b31mRED", "a\u0085b", "\u202egnp.exe", "a\u202ab", "\u2066a\u2069", "a\xff", " "} {
		if err := CheckName("name", bad); err == nil {
			t.Errorf("%q is accepted", bad)
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
