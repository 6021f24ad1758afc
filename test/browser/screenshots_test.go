//go:build browser

package browser_test

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"

	"turnpike/internal/accounts"
	"turnpike/test/sampledata"
)

// maxImage keeps the repository small.
const maxImage = 150 << 10

// TestScreenshots takes the screenshot of the README. `make screenshots` runs it.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("TURNPIKE_SCREENSHOTS")
	if dir == "" {
		t.Skip("make screenshots takes the screenshot")
	}
	w := sampledata.Demo(t)
	b := newTab(t, w.Server)
	b.window(1280, 800)
	b.open("/dashboard/login")
	b.fill("Email address", w.Owner.Email)
	b.fill("Password", sampledata.DemoPassword)
	b.press("Sign in")
	b.open(in(w.Workspace, accounts.Live, ""))
	b.press("Dismiss")
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}})
	if !eval[bool](b, useInter) {
		t.Fatal("the font Inter is missing; Debian: apt-get install fonts-inter")
	}
	eval[bool](b, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
	img := smaller(t, call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng}).Data)
	if len(img) > maxImage {
		t.Errorf("the screenshot has %d bytes, want at most %d", len(img), maxImage)
	}
	if err := os.WriteFile(filepath.Join(dir, "home-light.png"), img, 0o644); err != nil {
		t.Fatal(err)
	}
}

// useInter sets the font of the page, and reports whether it is installed.
const useInter = `(() => {
  const text = document.createElement("canvas").getContext("2d");
  const width = (font) => { text.font = font; return text.measureText("mmmiii").width; };
  document.body.style.fontFamily = "Inter, sans-serif";
  return width("16px Inter, monospace") !== width("16px monospace");
})()`

// smaller reduces an image to its 256 most frequent colors. Pages without photographs
// have no more, except at the edges of letters.
func smaller(t *testing.T, img []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(img))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[color.Color]int{}
	area := from.Bounds()
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			counts[from.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	to := image.NewPaletted(area, colors[:min(len(colors), 256)])
	nearest := map[color.Color]uint8{}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			c := from.At(x, y)
			i, known := nearest[c]
			if !known {
				i = uint8(to.Palette.Index(c)) //nolint:gosec // 256 at most
				nearest[c] = i
			}
			to.SetColorIndex(x, y, i)
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
