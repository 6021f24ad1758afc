package spend

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// latencyBounds are the upper bounds of the buckets of Latencies, which are closest where most
// responses of models are. The last bucket has none.
var latencyBounds = [latencyBuckets - 1]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 350 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond,
	time.Second, 1500 * time.Millisecond, 2 * time.Second, 3 * time.Second, 5 * time.Second, 8 * time.Second, 13 * time.Second, 20 * time.Second, 40 * time.Second, 90 * time.Second}

const (
	latencyBuckets = 16
	// longestLatency ends the last bucket.
	longestLatency = 10 * time.Minute
)

// Latencies counts successful requests by their latency, so that quantiles of any group and time can be
// computed from rollups.
type Latencies [latencyBuckets]int64

// latenciesOf returns a single request.
func latenciesOf(d time.Duration) (l Latencies) {
	i, _ := slices.BinarySearch(latencyBounds[:], d)
	l[i] = 1
	return l
}

func (l *Latencies) add(o Latencies, sign int64) {
	for i, n := range o {
		l[i] += sign * n
	}
}

// Quantile estimates the latency that a share of the requests didn't exceed. It is 0 without requests.
func (l Latencies) Quantile(share float64) time.Duration {
	var all int64
	for i := range l {
		l[i] = max(0, l[i]) // a corrected entry that was first counted by an older version
		all += l[i]
	}
	rank := share * float64(all)
	for i, n := range l {
		if rank > float64(n) || n == 0 {
			rank -= float64(n)
			continue
		}
		var low time.Duration
		high := longestLatency
		if i > 0 {
			low = latencyBounds[i-1]
		}
		if i < len(latencyBounds) {
			high = latencyBounds[i]
		}
		return low + time.Duration(math.Round(rank/float64(n)*float64(high-low)))
	}
	return 0
}

// columns returns the values to store: null instead of 0, which takes no space.
func (l *Latencies) columns() []any {
	out := make([]any, len(l))
	for i, n := range l {
		if n != 0 {
			out[i] = n
		}
	}
	return out
}

// latencyColumns returns the names of the columns in a format with a %s, or several %[1]s.
func latencyColumns(format string) []string {
	out := make([]string, latencyBuckets)
	for i := range out {
		out[i] = fmt.Sprintf(format, fmt.Sprintf("latency_%d", i))
	}
	return out
}

// latencySum sums the columns.
var latencySum = ", " + strings.Join(latencyColumns("CAST(COALESCE(sum(%s), 0) AS BIGINT)"), ", ")
