package dashboard

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// chart is a bar chart, stacked if there are several series, or a line chart of ratios,
// which can't be stacked. A template draws it as SVG with positions in percent, so that it
// follows the theme and the width of the page, while its text keeps its size. A script
// adds the tooltip. The histograms of lists are small charts.
type chart struct {
	Title  string // for screen readers
	Lines  []chartLine
	Slots  []chartSlot
	Curves []chartCurve // of a line chart
	Legend []chartKey
	Rule   *chartLine // a budget
	Gap    float64    // width of the part at the start that isn't known
	Small  bool
	Empty  bool
}

type (
	chartLine struct {
		Y     float64 // from the top
		Label string
	}
	// chartSlot is a step of time: its bars, and an area to point at.
	chartSlot struct {
		X, W  float64
		Tick  string // its name on the axis, or empty
		Minor bool   // its name is hidden on small screens
		Bars  []chartBar
		BarX  float64
		BarW  float64
		Label string // its name and values, in lines
		At    string // its start, if the name is a time of day, which scripts show in the reader's time zone
		Link  string // what a click opens, or empty
	}
	chartBar struct {
		Y, H   float64
		Series int // selects the color
	}
	chartCurve struct {
		Lines  []string   // the points of each part without gaps
		Dots   []chartDot // points without a neighbor
		Series int
	}
	chartDot struct{ X, Y float64 }
	chartKey struct {
		Series int
		Name   string
		Link   string // or empty
		Term   string // of the search that selects its part of a slot, or empty
	}
)

// chartSeries is one value for each slot.
type chartSeries struct {
	Name   string
	Link   string
	Term   string // of the log's search, or empty
	Values []float64
}

// chartSpec is what a chart shows.
type chartSpec struct {
	Title  string
	Unit   string // of a slot's total: "1,204 requests"
	Slots  []string
	Links  []string    // of the slots, or nil
	Times  []time.Time // the starts of the slots, if they are shorter than a day
	Series []chartSeries
	Ratio  bool                 // values can't be added up: lines instead of stacked bars
	Totals []float64            // of ratios, by slot
	Sparse bool                 // 0 is no value, which is a gap in the line
	Show   func(float64) string // formats a value of the axis
	Exact  func(float64) string // formats a value of the tooltip; nil for Show
	Budget float64              // a line, if it isn't 0
	Small  bool                 // without axes, legend and empty slots
}

const (
	maxSeries = 7 // number of colors; callers merge further series
	maxTicks  = 10
	maxLines  = 5
	// minSmallBar is the height of a single row in a small chart, which must be visible.
	minSmallBar = 4
)

// newChart lays out a chart.
func newChart(spec chartSpec) *chart {
	c := &chart{Title: spec.Title, Small: spec.Small, Empty: true}
	if spec.Exact == nil {
		spec.Exact = spec.Show
	}
	n := len(spec.Slots)
	sums, most := make([]float64, n), spec.Budget
	for _, s := range spec.Series {
		for i, value := range s.Values {
			c.Empty = c.Empty && value == 0
			if spec.Ratio {
				most = max(most, value)
			} else {
				sums[i] += value
				most = max(most, sums[i])
			}
		}
	}
	if c.Empty {
		return c
	}
	if spec.Ratio {
		sums = spec.Totals
	}
	top := most * (1 + 2*minSmallBar/100.0) // leaves room for parts that are drawn higher
	if !spec.Small {
		step := axisStep(most, wholeNumbers(spec.Series))
		top = step * math.Ceil(most/step-1e-9)
		for value := 0.0; value <= top+step/2; value += step {
			c.Lines = append(c.Lines, chartLine{Y: round(100 - 100*value/top), Label: spec.Show(value)})
		}
	}
	if spec.Budget != 0 {
		c.Rule = &chartLine{Y: round(100 - 100*spec.Budget/top), Label: "Budget " + spec.Show(spec.Budget)}
	}
	width := 100 / float64(n)
	every := (n + maxTicks - 1) / maxTicks
	for i, name := range spec.Slots {
		slot := chartSlot{X: round(width * float64(i)), W: round(width), BarX: round(width * (float64(i) + 0.125)), BarW: round(width * 0.75), Label: spec.label(i, sums[i])}
		if i%every == 0 && !spec.Small {
			slot.Tick, slot.Minor = name, i/every%2 == 1
		}
		if spec.Times != nil {
			slot.At = spec.Times[i].UTC().Format(time.RFC3339)
		}
		if spec.Links != nil {
			slot.Link = spec.Links[i]
		}
		y := 100.0
		for k, s := range spec.Series {
			h := 100 * s.Values[i] / top
			if h == 0 || spec.Ratio {
				continue
			}
			if spec.Small {
				h = max(h, minSmallBar)
			}
			y -= h
			slot.Bars = append(slot.Bars, chartBar{Y: round(y), H: round(h), Series: k % maxSeries})
		}
		if len(slot.Bars) > 0 || !spec.Small {
			c.Slots = append(c.Slots, slot)
		}
	}
	for k, s := range spec.Series {
		if spec.Ratio {
			curve := spec.curve(s.Values, top)
			curve.Series = k % maxSeries
			c.Curves = append(c.Curves, curve)
		}
		if s.Name != "" && !spec.Small {
			c.Legend = append(c.Legend, chartKey{k % maxSeries, s.Name, s.Link, s.Term})
		}
	}
	return c
}

// label returns the text of a slot's tooltip: its name and total, and the series with a
// value.
func (spec chartSpec) label(i int, total float64) string {
	if spec.Sparse && total == 0 {
		return spec.Slots[i] + ": no data"
	}
	lines := []string{spec.Slots[i] + ": " + spec.Exact(total) + spec.Unit}
	named := slices.DeleteFunc(slices.Clone(spec.Series), func(s chartSeries) bool { return s.Name == "" || s.Values[i] == 0 })
	for _, s := range named {
		lines = append(lines, s.Name+": "+spec.Exact(s.Values[i]))
	}
	return strings.Join(lines, "\n")
}

// curve returns a line in a square of 1,000, and its dots in percent.
func (spec chartSpec) curve(values []float64, top float64) (out chartCurve) {
	width := 1000 / float64(len(values))
	for _, run := range runs(values, spec.Sparse) {
		var points []string
		for i := run.from; i < run.to; i++ {
			points = append(points, showPoint(round(width*(float64(i)+0.5)), round(1000-1000*values[i]/top)))
		}
		if len(points) > 1 {
			out.Lines = append(out.Lines, strings.Join(points, " "))
			continue
		}
		out.Dots = append(out.Dots, chartDot{round(width * (float64(run.from) + 0.5) / 10), round(100 - 100*values[run.from]/top)})
	}
	return out
}

// valueRun is a part of a line without gaps.
type valueRun struct{ from, to int }

// runs divides values where they have gaps. If they have none, all of them are one run.
func runs(values []float64, sparse bool) (out []valueRun) {
	for i, value := range values {
		switch {
		case sparse && value == 0:
		case len(out) > 0 && out[len(out)-1].to == i:
			out[len(out)-1].to++
		default:
			out = append(out, valueRun{i, i + 1})
		}
	}
	return out
}

func showPoint(x, y float64) string {
	return strconv.FormatFloat(x, 'f', -1, 64) + "," + strconv.FormatFloat(y, 'f', -1, 64)
}

// Middle returns where the name of a slot is on the axis.
func (s chartSlot) Middle() float64 { return round(s.BarX + s.BarW/2) }

func wholeNumbers(series []chartSeries) bool {
	return !slices.ContainsFunc(series, func(s chartSeries) bool {
		return slices.ContainsFunc(s.Values, func(v float64) bool { return v != math.Trunc(v) })
	})
}

// axisStep returns the distance of the axis's lines: the smallest round number with which
// there are few of them. Whole numbers have no lines between them.
func axisStep(most float64, whole bool) float64 {
	for scale := math.Pow(10, math.Floor(math.Log10(most))-1); ; scale *= 10 {
		for _, digit := range []float64{1, 2, 2.5, 5} {
			step := digit * scale
			if most/step <= maxLines && (!whole || step == math.Trunc(step)) {
				return step
			}
		}
	}
}

func round(v float64) float64 { return math.Round(v*100) / 100 }

// shortNumber formats a number for an axis: 1.2k, 3M.
func shortNumber(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= unit.size {
			return strconv.FormatFloat(math.Round(v/unit.size*100)/100, 'f', -1, 64) + unit.name
		}
	}
	if v < 10 {
		return strconv.FormatFloat(math.Round(v*10000)/10000, 'f', -1, 64)
	}
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}
