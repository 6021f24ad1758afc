package dashboard_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const styleSheet = "../../internal/dashboard/static/styles/00-tokens.css"

var color = regexp.MustCompile(`(--[a-z0-9-]+):\s*light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)`)

// palettes returns the colors of the light and the dark theme.
func palettes(t *testing.T) map[string]map[string]string {
	t.Helper()
	css, err := os.ReadFile(styleSheet)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]string{"light": {}, "dark": {}}
	for _, m := range color.FindAllStringSubmatch(string(css), -1) {
		out["light"][m[1]], out["dark"][m[1]] = m[2], m[3]
	}
	if len(out["light"]) < 20 {
		t.Fatalf("there are only %d colors", len(out["light"]))
	}
	return out
}

// luminance and contrast are defined by WCAG.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(hex, "#"), 16, 32)
	if err != nil || len(hex) != 7 {
		t.Fatalf("%q is no color", hex)
	}
	part := func(shift int) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func TestColorsMeetContrastRequirements(t *testing.T) {
	t.Parallel()
	if got := contrast(t, "#000000", "#ffffff"); math.Abs(got-21) > 0.01 {
		t.Fatalf("black on white is %.2f", got)
	}
	type pair struct {
		front, behind string
		atLeast       float64
	}
	var pairs []pair
	grounds := []string{"--page", "--side", "--card", "--code", "--hover"}
	for _, ground := range grounds {
		for _, text := range []string{"--text", "--muted", "--accent", "--good", "--warn", "--bad", "--info"} {
			pairs = append(pairs, pair{text, ground, 4.5})
		}
	}
	for _, kind := range []string{"--good", "--warn", "--bad", "--info"} {
		pairs = append(pairs, pair{kind, kind + "-bg", 4.5}, pair{"--text", kind + "-bg", 4.5})
	}
	pairs = append(pairs, pair{"--accent-text", "--accent", 4.5})
	// Not text, but it must be visible: fields, focus outlines and chart bars.
	for _, ground := range []string{"--page", "--side", "--card"} {
		pairs = append(pairs, pair{"--field", ground, 3})
		for i := range 7 {
			pairs = append(pairs, pair{fmt.Sprintf("--s%d", i), ground, 3})
		}
	}
	for theme, colors := range palettes(t) {
		for _, p := range pairs {
			if got := contrast(t, colors[p.front], colors[p.behind]); got < p.atLeast {
				t.Errorf("%s: %s %s on %s %s has a contrast of %.2f, which must be at least %.1f", theme, p.front, colors[p.front], p.behind, colors[p.behind], got, p.atLeast)
			}
		}
	}
}
