package ids_test

import (
	"slices"
	"testing"
	"time"

	"turnpike/internal/ids"
)

func TestIDsSortInTheOrderTheyWereMade(t *testing.T) {
	t.Parallel()
	made := make([]string, 10_000)
	for i := range made {
		made[i] = ids.New(ids.Request)
	}
	if !slices.IsSorted(made) {
		t.Fatal("ids made one after the other do not sort in that order")
	}
	if len(slices.Compact(made)) != 10_000 {
		t.Fatal("an id was made twice")
	}
	for _, id := range made[:10] {
		if !ids.Valid(ids.Request, id) {
			t.Fatalf("%q is not valid", id)
		}
	}
}

func TestFloorBoundsTheIDsOfAMoment(t *testing.T) {
	t.Parallel()
	before := time.Now()
	id := ids.New(ids.Request)
	after := time.Now().Add(time.Millisecond)
	if lo := ids.Floor(ids.Request, before); id < lo {
		t.Errorf("%s sorts before the floor %s of the moment before it", id, lo)
	}
	if hi := ids.Floor(ids.Request, after); id >= hi {
		t.Errorf("%s does not sort before the floor %s of the moment after it", id, hi)
	}
}

func TestValidRefusesWhatIsNoID(t *testing.T) {
	t.Parallel()
	good := ids.New(ids.Key)
	for _, bad := range []string{"", "key_", good + "0", good[:len(good)-1], "wh_" + good[4:], "key_" + "u" + good[5:], "key_8" + good[5:]} {
		if ids.Valid(ids.Key, bad) {
			t.Errorf("%q passed as a key id", bad)
		}
	}
}

func TestDerivedIDsAreTheSameForTheSameTwo(t *testing.T) {
	t.Parallel()
	made := map[string]bool{}
	for range 100 {
		first, second := ids.New(ids.Event), ids.New(ids.Endpoint)
		d := ids.Derive(ids.Delivery, first, second)
		if d != ids.Derive(ids.Delivery, first, second) || !ids.Valid(ids.Delivery, d) || made[d] {
			t.Fatalf("%q of %s and %s", d, first, second)
		}
		made[d] = true
		if other := ids.Derive(ids.Delivery, first, ids.New(ids.Endpoint)); other == d {
			t.Fatalf("%s has the same for two", first)
		}
		if low, high := ids.DerivedFrom(ids.Delivery, first); d < low || d > high || !ids.Valid(ids.Delivery, low) || !ids.Valid(ids.Delivery, high) {
			t.Errorf("%s is not between %s and %s", d, low, high)
		}
		if low, high := ids.DerivedFrom(ids.Delivery, ids.Floor(ids.Event, time.Now().Add(time.Hour))); d >= low && d <= high {
			t.Errorf("%s is between %s and %s, which another makes", d, low, high)
		}
		// Within the range of ids of its moment: what goes by time goes by id.
		if d[:len(ids.Delivery)+9] != ids.Delivery+first[len(ids.Event):len(ids.Event)+9] {
			t.Errorf("%s does not have the time of %s", d, first)
		}
	}
}

func TestTimeIsWhenAnIDWasMade(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	if got := ids.Time(ids.Floor(ids.Request, at)); !got.Equal(at) {
		t.Errorf("%s instead of %s", got, at)
	}
	if got := ids.Time(ids.New(ids.Request)); time.Since(got) > time.Minute || time.Since(got) < -time.Minute {
		t.Errorf("a fresh one was made %s", got)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		ids.New(ids.Request)
	}
}
