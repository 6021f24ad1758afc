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
	"turnpike/test/world"
)

// maxImage keeps the repository small.
const maxImage = 150 << 10

// TestScreenshots creates the images of docs/reference/dashboard.md. `make screenshots`
// runs it.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("TURNPIKE_SCREENSHOTS")
	if folder == "" {
		t.Skip("make screenshots creates the images")
	}
	w := world.Demo(t)
	b := newTab(t, w.Server)
	b.window(1280, 800)
	here := func(page string) string { return in(w.Workspace, accounts.Live, page) }
	shots := []struct{ name, path string }{
		{"home", here("")}, {"keys", here("keys")}, {"key", here("keys/" + w.KeyID)}, {"key-new", here("keys/new")},
		{"key-rotate", here("keys/" + w.KeyID + "/rotate")}, {"projects", here("projects")}, {"project", here("projects/shop")},
		{"usage", here("usage?group=model&range=30d")}, {"requests", here("requests")}, {"request", here("requests/" + w.RequestID)}, {"webhooks", here("webhooks")},
		{"webhook", here("webhooks/" + w.EndpointID)}, {"webhook-new", here("webhooks/new")}, {"replay", here("webhooks/" + w.EndpointID + "/replay")},
		{"events", here("events")}, {"deliveries", here("deliveries")}, {"delivery", here("deliveries/" + w.DeliveryID)}, {"jobs", here("jobs/images")},
		{"job", here("jobs/images/" + w.BatchID)}, {"runs", here("runs")}, {"run", here("runs/" + w.RunID)}, {"billing", here("billing")}, {"security", here("security")},
		{"log", here("log")}, {"team", here("team")}, {"settings", here("settings")}, {"account", "/dashboard/account"}, {"test-mode", in(w.Workspace, accounts.Test, "")},
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	shoot := func(name string) {
		for _, theme := range []string{"light", "dark"} {
			call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
			eval[bool](b, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
			img := smaller(t, call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng}).Data)
			if len(img) > maxImage {
				t.Errorf("%s-%s.png has %d bytes, want at most %d", name, theme, len(img), maxImage)
			}
			if err := os.WriteFile(filepath.Join(folder, name+"-"+theme+".png"), img, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.open("/dashboard/login")
	shoot("login")
	b.fill("Email address", w.Owner.Email)
	b.fill("Password", world.DemoPassword)
	b.press("Sign in")
	for _, shot := range shots {
		b.open(shot.path)
		b.until("the images are loaded", func() bool { return eval[bool](b, "[...document.images].every((i) => i.complete)") })
		shoot(shot.name)
	}
}

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
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	to := image.NewPaletted(area, colours[:min(len(colours), 256)])
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
