package nodes

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// join makes a node whose clock is ahead by so much.
func join(t *testing.T, d *db.DB, ahead time.Duration) *Node {
	t.Helper()
	n, err := Join(t.Context(), d, func() time.Time { return time.Now().Add(ahead) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// bury has one node take over from another, and reports whether it did.
func bury(t *testing.T, by *Node, id string) bool {
	t.Helper()
	taken := false
	dead, err := by.Bury(t.Context(), id, func(context.Context, *db.Tx) error {
		taken = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if taken != dead {
		t.Errorf("taken over: %t, dead: %t", taken, dead)
	}
	return dead
}

func TestBurySparesTheLiving(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a, b := join(t, d, 0), join(t, d, deadAfter-10*time.Second)
		if bury(t, b, b.ID) {
			t.Error("a node has buried itself")
		}
		// The embedded database has one server: whoever else has a row is dead.
		if dead := bury(t, b, a.ID); dead != (d.Engine() == "sqlite") {
			t.Errorf("after less than the time it takes to be dead, dead is %t", dead)
		}
		late := join(t, d, deadAfter+time.Second)
		if !bury(t, late, a.ID) {
			t.Error("a node whose heartbeat is old is not dead")
		}
		if !bury(t, late, "node_that_never_was") {
			t.Error("a node without a row is not dead")
		}
	})
}

// TestClocksOfMachinesDiffer: nobody is buried because of that, however long ago
// it seems that they were seen.
func TestClocksOfMachinesDiffer(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	var all []*Node
	for _, by := range []time.Duration{0, 2 * deadAfter, -2 * deadAfter, 40 * 24 * time.Hour} {
		local := func() time.Time { return time.Now().Round(0).Add(by) } // by the time of day alone
		d, err := db.OpenOn(t.Context(), address, local)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		n, err := Join(t.Context(), d, local)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Behind(); (got + by).Abs() > time.Second {
			t.Errorf("a clock that is %v ahead is %v behind the database's", by, got)
		}
		all = append(all, n)
	}
	for _, n := range all {
		for _, other := range all {
			if bury(t, n, other.ID) {
				t.Error("a living node was buried")
			}
		}
		if alive, err := n.Alive(t.Context(), n.db); err != nil || len(alive) != len(all) {
			t.Errorf("of %d nodes %v are alive (%v)", len(all), alive, err)
		}
	}
}

func TestANodeThatCannotBeTakenOverFromIsNotBuried(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	a, late := join(t, d, 0), join(t, d, deadAfter+time.Second)
	failure := errors.New("no")
	dead, err := late.Bury(t.Context(), a.ID, func(context.Context, *db.Tx) error { return failure })
	if dead || !errors.Is(err, failure) {
		t.Fatalf("dead is %t, with %v", dead, err)
	}
	a.OnRejoin(func(int) { t.Error("it was not declared dead, and begins anew") })
	if err := a.beat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}

// TestABuriedNodeThatLivesBeginsAnew: it gives up what it had, each time that
// it was declared dead.
func TestABuriedNodeThatLivesBeginsAnew(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	a, late := join(t, d, 0), join(t, d, deadAfter+time.Second)
	var lives []int
	a.OnRejoin(func(life int) { lives = append(lives, life) })
	beat := func() {
		t.Helper()
		if err := a.beat(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	beat()
	if len(lives) > 0 || !a.Rejoined().IsZero() {
		t.Fatalf("it was never dead, and lives for the %v", lives)
	}
	for n := 1; n <= 2; n++ {
		if !bury(t, late, a.ID) {
			t.Fatal("it was not buried")
		}
		before := time.Now()
		beat()
		if len(lives) != n || lives[n-1] != n {
			t.Fatalf("buried %d times, it lives for the %v", n, lives)
		}
		if a.Rejoined().Before(before) {
			t.Errorf("it came back at %v, before %v", a.Rejoined(), before)
		}
		beat()
		if len(lives) != n {
			t.Errorf("it begins anew with every heartbeat: %v", lives)
		}
	}
	alive, err := late.Alive(t.Context(), d)
	if err != nil || len(alive) != 1 || alive[0] != late.ID {
		t.Errorf("alive for a node that is late are %v (%v)", alive, err)
	}
}

// TestANodeGivesUpWhatItHadBeforeItIsBack: otherwise a call that has set aside
// something of its former life would be confirmed, and spend what others have.
func TestANodeGivesUpWhatItHadBeforeItIsBack(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	a, late := join(t, d, 0), join(t, d, deadAfter+time.Second)
	if !bury(t, late, a.ID) {
		t.Fatal("it was not buried")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var given time.Time
	a.OnRejoin(func(int) {
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			if alive, err := a.Confirm(t.Context(), tx); alive {
				return errors.Join(err, errors.New("it is back, and has what others took over"))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		given = time.Now()
		cancel() // it cannot say that it is back, or does not hear that it has
	})
	if err := a.beat(ctx, false); err == nil {
		t.Fatal("it could say that it is back")
	}
	if a.Life() != 1 || a.Rejoined().Before(given) || a.Sure() {
		t.Errorf("life %d since %v, sure %t; it had given up everything at %v", a.Life(), a.Rejoined(), a.Sure(), given)
	}
	if err := a.beat(t.Context(), false); err != nil || !a.Sure() {
		t.Errorf("the next heartbeat: %v, sure %t", err, a.Sure())
	}
}

// TestABuriedNodeDoesNotComeBackWhileItIsTakenOverFrom, also if it was buried
// before: its new life is not the one that is taken over.
func TestABuriedNodeDoesNotComeBackWhileItIsTakenOverFrom(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	a, late := join(t, d, 0), join(t, d, deadAfter+time.Second)
	if !bury(t, late, a.ID) {
		t.Fatal("it was not buried")
	}
	back := make(chan error, 1)
	dead, err := late.Bury(t.Context(), a.ID, func(context.Context, *db.Tx) error {
		go func() { back <- a.beat(t.Context(), false) }()
		select {
		case <-back:
			t.Error("it came back meanwhile")
		case <-time.After(200 * time.Millisecond):
		}
		return nil
	})
	if !dead || err != nil {
		t.Errorf("dead is %t, with %v", dead, err)
	}
	if err := <-back; err != nil || bury(t, join(t, d, 0), a.ID) {
		t.Errorf("it did not come back: %v", err)
	}
}

func TestANodeWithoutHeartbeatsIsNotSure(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := join(t, d, 0)
		if !n.Sure() {
			t.Error("not sure after a heartbeat")
		}
		n.beaten = n.beaten.Add(-sureFor)
		// The embedded database has nobody else who could take over.
		if sure := n.Sure(); sure != (d.Engine() == "sqlite") {
			t.Errorf("without a heartbeat sure is %t", sure)
		}
		if err := n.beat(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		if !n.Sure() {
			t.Error("not sure after another heartbeat")
		}
	})
}
