package dashboard

import (
	"math"
	"strconv"
	"testing"
)

// TestChartLinesOfCountsAreWholeNumbers: there is no quarter of a call. Amounts may have any.
func TestChartLinesOfCountsAreWholeNumbers(t *testing.T) {
	t.Parallel()
	lines := func(most float64) (values []float64) {
		c := newChart("Calls", []string{"1", "2"}, []chartSeries{{Values: []float64{0, most}}}, func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) })
		for _, l := range c.Lines {
			v, err := strconv.ParseFloat(l.Label, 64)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, v)
		}
		return values
	}
	for most := 1.0; most < 2000; most++ {
		drawn := lines(most)
		for _, v := range drawn {
			if v != math.Trunc(v) {
				t.Fatalf("of %v there is a line at %v", most, v)
			}
		}
		if top := drawn[len(drawn)-1]; top < most || top > max(4, 2*most) {
			t.Errorf("of %v the highest line is %v", most, top)
		}
	}
	if drawn := lines(0.5); drawn[len(drawn)-1] > 1 {
		t.Errorf("of half a credit there are lines at %v", drawn)
	}
}
