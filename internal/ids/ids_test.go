package ids_test

import (
	"slices"
	"testing"
	"time"

	"turnpike/internal/ids"
)

func TestIDsSortInOrderOfCreation(t *testing.T) {
	t.Parallel()
	made := make([]string, 10_000)
	for i := range made {
		made[i] = ids.New(ids.Request)
	}
	if !slices.IsSorted(made) {
		t.Fatal("IDs are not sorted")
	}
	if len(slices.Compact(made)) != 10_000 {
		t.Fatal("duplicate ID")
	}
	for _, id := range made[:10] {
		if !ids.Valid(ids.Request, id) {
			t.Fatalf("%q is not valid", id)
		}
	}
}

func TestFloorBoundsIDsOfATime(t *testing.T) {
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

func TestValidRejectsMalformedIDs(t *testing.T) {
	t.Parallel()
	good := ids.New(ids.Key)
	for _, bad := range []string{"", "key_", good + "0", good[:len(good)-1], "wh_" + good[4:], "key_" + "u" + good[5:], "key_8" + good[5:]} {
		if ids.Valid(ids.Key, bad) {
			t.Errorf("%q is accepted as a key ID", bad)
		}
	}
}

func TestDerivedIDDependsOnlyOnItsPair(t *testing.T) {
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
			t.Fatalf("%s: same derived ID for two seconds", first)
		}
		if low, high := ids.DerivedFrom(ids.Delivery, first); d < low || d > high || !ids.Valid(ids.Delivery, low) || !ids.Valid(ids.Delivery, high) {
			t.Errorf("%s is not between %s and %s", d, low, high)
		}
		if low, high := ids.DerivedFrom(ids.Delivery, ids.Floor(ids.Event, time.Now().Add(time.Hour))); d >= low && d <= high {
			t.Errorf("%s is between %s and %s, the range of another", d, low, high)
		}
		// It keeps the time of the first.
		if d[:len(ids.Delivery)+9] != ids.Delivery+first[len(ids.Event):len(ids.Event)+9] {
			t.Errorf("%s does not have the time of %s", d, first)
		}
	}
}

func TestTimeReturnsCreationTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	if got := ids.Time(ids.Floor(ids.Request, at)); !got.Equal(at) {
		t.Errorf("got %s, want %s", got, at)
	}
	if got := ids.Time(ids.New(ids.Request)); time.Since(got) > time.Minute || time.Since(got) < -time.Minute {
		t.Errorf("new ID: got time %s", got)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		ids.New(ids.Request)
	}
}
