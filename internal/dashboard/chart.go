package dashboard

import (
	"math"
	"slices"
	"strconv"
)

// chart is a bar chart, stacked if there are several series. A template draws it as
// SVG, so that it follows the theme and needs no script. It scales with the page.
type chart struct {
	Title         string // for screen readers
	Width, Height int
	Left, Bottom  int // positions of the axes
	Lines         []chartLine
	Ticks         []chartTick
	Bars          []chartBar
	Legend        []chartKey
	Empty         bool
}

type (
	chartLine struct {
		Y     float64
		Label string
	}
	chartTick struct {
		X     float64
		Label string
	}
	chartBar struct {
		X, Y, W, H float64
		Series     int // selects the color
		Tip        string
	}
	chartKey struct {
		Series int
		Name   string
	}
)

// chartSeries is one value for each slot.
type chartSeries struct {
	Name   string
	Values []float64
}

const (
	chartWidth, chartHeight       = 720, 220
	chartLeft, chartTop           = 64, 10
	chartRight, chartBottomMargin = 8, 26
	maxSeries                     = 7 // number of colors; callers merge further series
	maxTicks                      = 10
)

// newChart returns a chart of series over slots. show formats a value.
func newChart(title string, slots []string, series []chartSeries, show func(float64) string) *chart {
	c := &chart{Title: title, Width: chartWidth, Height: chartHeight, Left: chartLeft, Bottom: chartHeight - chartBottomMargin, Empty: true}
	sums := make([]float64, len(slots))
	for _, s := range series {
		for i, value := range s.Values {
			sums[i] += value
			c.Empty = c.Empty && value == 0
		}
	}
	if c.Empty || len(slots) == 0 {
		c.Empty = true
		return c
	}
	top := niceCeiling(slices.Max(sums))
	if top < 20 && !slices.ContainsFunc(sums, func(v float64) bool { return v != math.Trunc(v) }) {
		top = 4 * math.Ceil(slices.Max(sums)/4) // whole numbers at each line
	}
	room := float64(c.Bottom - chartTop)
	for i := range 5 {
		value := top * float64(i) / 4
		c.Lines = append(c.Lines, chartLine{Y: float64(c.Bottom) - room*float64(i)/4, Label: show(value)})
	}
	slot := float64(chartWidth-chartLeft-chartRight) / float64(len(slots))
	gap := min(slot*0.25, 6)
	every := (len(slots) + maxTicks - 1) / maxTicks
	for i, name := range slots {
		x := chartLeft + slot*float64(i)
		if i%every == 0 {
			c.Ticks = append(c.Ticks, chartTick{X: x + slot/2, Label: name})
		}
		y := float64(c.Bottom)
		for n, s := range series {
			h := room * s.Values[i] / top
			if h == 0 {
				continue
			}
			y -= h
			tip := name + ": " + show(s.Values[i])
			if s.Name != "" {
				tip = name + ", " + s.Name + ": " + show(s.Values[i])
			}
			c.Bars = append(c.Bars, chartBar{X: round(x + gap/2), Y: round(y), W: round(slot - gap), H: round(h), Series: n % maxSeries, Tip: tip})
		}
	}
	if len(series) > 1 || len(series) == 1 && series[0].Name != "" {
		for n, s := range series {
			c.Legend = append(c.Legend, chartKey{Series: n % maxSeries, Name: s.Name})
		}
	}
	return c
}

// niceCeiling returns the next number whose quarters are easy to read.
func niceCeiling(v float64) float64 {
	scale := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 4, 6, 8, 10} {
		if v <= step*scale {
			return step * scale
		}
	}
	return 10 * scale
}

func round(v float64) float64 { return math.Round(v*100) / 100 }

// shortNumber formats a number for an axis: 1.2k, 3M.
func shortNumber(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= unit.size {
			return strconv.FormatFloat(math.Round(v/unit.size*10)/10, 'f', -1, 64) + unit.name
		}
	}
	if v < 10 {
		return strconv.FormatFloat(math.Round(v*10000)/10000, 'f', -1, 64)
	}
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}
