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
		c := newChart(chartSpec{Title: "Requests", Slots: []string{"1", "2"}, Series: []chartSeries{{Values: []float64{0, most}}}, Show: func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }})
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
		if top := drawn[len(drawn)-1]; top < most || top > max(1, 1.5*most) || len(drawn) > maxLines+1 {
			t.Errorf("of %v the highest line is %v", most, top)
		}
	}
	if drawn := lines(0.5); drawn[len(drawn)-1] > 1 {
		t.Errorf("of half a credit there are lines at %v", drawn)
	}
}

func TestChartSlotsHaveTheirValuesAndTheBudgetHasALine(t *testing.T) {
	t.Parallel()
	c := newChart(chartSpec{Slots: []string{"Mon", "Tue"}, Links: []string{"/mon", "/tue"}, Show: shortNumber, Unit: " credits", Budget: 8,
		Series: []chartSeries{{Name: "shop", Values: []float64{3, 0}}, {Name: "blog", Values: []float64{1, 2}}}})
	if got, want := c.Slots[0].Label, "Mon: 4 credits\nshop: 3\nblog: 1"; got != want {
		t.Errorf("the first slot says %q, want %q", got, want)
	}
	if got, want := c.Slots[1].Label, "Tue: 2 credits\nblog: 2"; got != want || c.Slots[1].Link != "/tue" {
		t.Errorf("the second slot says %q and leads to %q, want %q", got, c.Slots[1].Link, want)
	}
	if c.Rule == nil || c.Rule.Y != 0 || c.Lines[len(c.Lines)-1].Label != "8" {
		t.Errorf("the budget is at %+v, the lines are %+v", c.Rule, c.Lines)
	}
}

func TestChartOfRatiosAddsNothingUp(t *testing.T) {
	t.Parallel()
	c := newChart(chartSpec{Slots: []string{"Mon"}, Show: shortNumber, Ratio: true, Totals: []float64{60}, Series: []chartSeries{{Name: "a", Values: []float64{50}}, {Name: "b", Values: []float64{90}}}})
	if top := c.Lines[len(c.Lines)-1].Label; top != "100" || len(c.Slots[0].Bars) != 0 || len(c.Curves) != 2 || c.Slots[0].Label != "Mon: 60\na: 50\nb: 90" {
		t.Errorf("the axis ends at %s, with %d curves and the label %q", top, len(c.Curves), c.Slots[0].Label)
	}
}

func TestSparseLinesHaveGapsAndDots(t *testing.T) {
	t.Parallel()
	latencies := func(values ...float64) *chart {
		return newChart(chartSpec{Slots: make([]string, len(values)), Show: shortNumber, Ratio: true, Sparse: true, Totals: values, Series: []chartSeries{{Values: values}}})
	}
	c := latencies(100, 0, 50, 100)
	curve := c.Curves[0]
	if len(curve.Lines) != 1 || curve.Lines[0] != "625,500 875,0" || len(curve.Dots) != 1 || curve.Dots[0] != (chartDot{12.5, 0}) {
		t.Errorf("the line is %+v, want a dot, a gap and a line", curve)
	}
	if got := c.Slots[1].Label; got != ": no data" {
		t.Errorf("a gap says %q", got)
	}
	if curve := latencies(70).Curves[0]; len(curve.Dots) != 1 || len(curve.Lines) != 0 {
		t.Errorf("a single value is drawn as %+v, want a dot", curve)
	}
	ratio := newChart(chartSpec{Slots: make([]string, 3), Show: shortNumber, Ratio: true, Totals: make([]float64, 3), Series: []chartSeries{{Values: []float64{1, 0, 1}}}})
	if curve := ratio.Curves[0]; len(curve.Lines) != 1 || len(curve.Dots) != 0 {
		t.Errorf("a line with a rate of 0 is %+v, want no gaps", curve)
	}
}

func TestSparklineOfLatencyLeavesGaps(t *testing.T) {
	t.Parallel()
	lines := sparkline([]float64{10, 0, 0, 10, 20}, true)
	if len(lines) != 2 || lines[0] != (sparkLine{"0,525 0,525", 0, 0}) || lines[1] != (sparkLine{"750,525 1000,50", 750, 1000}) {
		t.Errorf("the line is %+v", lines)
	}
	if lines := sparkline([]float64{10, 0, 10}, false); len(lines) != 1 {
		t.Errorf("a line of counts is %+v, want no gaps", lines)
	}
}
