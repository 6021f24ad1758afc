package spend

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// Quantiles of a histogram are at most as far from the exact ones as its buckets are wide.
func TestQuantilesAreWithinABucketOfTheExactOnes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var l Latencies
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(2*time.Second))
		all = append(all, d)
		l.add(latenciesOf(d), 1)
	}
	slices.Sort(all)
	for _, share := range []float64{0.01, 0.5, 0.95, 0.999} {
		got, exact := l.Quantile(share), all[int(share*float64(len(all)))]
		i, _ := slices.BinarySearch(latencyBounds[:], exact)
		low, high := time.Duration(0), latencyBounds[i]
		if i > 0 {
			low = latencyBounds[i-1]
		}
		if got < low || got > high {
			t.Errorf("quantile %v is %s, want %s to %s", share, got, low, high)
		}
	}
	for d, bucket := range map[time.Duration]int{time.Microsecond: 0, 100 * time.Millisecond: 0, 101 * time.Millisecond: 1, time.Hour: latencyBuckets - 1} {
		if got := latenciesOf(d); got[bucket] != 1 {
			t.Errorf("%s is counted in %v, want bucket %d", d, got, bucket)
		}
	}
	if got := (Latencies{}).Quantile(0.5); got != 0 {
		t.Errorf("without requests, the median is %s", got)
	}
	if got := (Latencies{-1, 0, 1}).Quantile(0.5); got < latencyBounds[1] || got > latencyBounds[2] {
		t.Errorf("a negative count changes the median to %s", got)
	}
}

func TestLatenciesOfUsageAreStoredAndCorrected(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Now().UTC().Truncate(24 * time.Hour)
		entry := func(status int, latency time.Duration) *audit.Entry {
			return &audit.Entry{Tenant: accounts.Tenant{WorkspaceID: "ws", Environment: "live"}, KeyID: "k", Model: "m", EndUser: "eu", CreatedAt: now, Status: status, Latency: latency}
		}
		first := entry(200, 30*time.Second)
		for _, commit := range [][]audit.Settlement{
			{{Entry: entry(200, time.Second)}, {Entry: first}, {Entry: entry(500, time.Second)}},
			{{Entry: entry(200, time.Second)}, {Entry: entry(200, 4*time.Second), Previous: first}},
		} {
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return addUsage(t.Context(), tx, commit) }); err != nil {
				t.Fatal(err)
			}
		}
		want := latenciesOf(time.Second)
		want.add(latenciesOf(time.Second), 1)
		want.add(latenciesOf(4*time.Second), 1)
		for _, bucket := range Buckets {
			u := UsageQuery{Tenant: accounts.Tenant{WorkspaceID: "ws", Environment: "live"}, Start: now, End: now.Add(time.Minute), Bucket: bucket, Latencies: true}
			got, err := ReadUsage(t.Context(), d, u)
			if err != nil || len(got) != 1 || got[0].Latencies != want || got[0].Requests != 4 {
				t.Errorf("by %s: got %+v (%v), want the latencies %v", bucket, got, err, want)
			}
		}
	})
}
