package nodes

import (
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

func TestClaimIsHeldByOneMember(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		first, second := join(t, d, time.Now), join(t, d, time.Now)
		take := func(n *Node) bool {
			t.Helper()
			taken, err := (&Claim{DB: d, Row: "test_claim", Node: n.ID, Now: time.Now}).Take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return taken
		}
		if !take(first) || take(second) {
			t.Error("want the claim of the first node only")
		}
		if err := first.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !take(second) {
			t.Error("the claim of a node that has left is not free")
		}
	})
}
