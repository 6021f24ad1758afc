//go:build browser

package browser_test

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
	"turnpike/test/sampledata"
)

// maxImage keeps the repository small.
const maxImage = 150 << 10

// settled waits until the fonts and images of the page are drawn.
const settled = `Promise.all([document.fonts.ready, ...[...document.images].map((i) => i.decode().catch(() => 0))])
	.then(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true)))))`

func (b *tab) screenshot() image.Image {
	b.t.Helper()
	eval[bool](b, settled)
	img, err := png.Decode(bytes.NewReader(call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng}).Data))
	if err != nil {
		b.t.Fatal(err)
	}
	return img
}

// album writes screenshots into a directory, each in both themes.
type album struct {
	t   *testing.T
	dir string
}

func (a *album) take(name string, b *tab) {
	a.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		b.prefer(theme)
		a.write(name+"-"+theme, b.screenshot())
	}
}

func (a *album) write(name string, img image.Image) {
	a.t.Helper()
	out := smaller(a.t, img)
	if len(out) > maxImage {
		a.t.Errorf("%s has %d bytes, want at most %d", name, len(out), maxImage)
	}
	if err := os.WriteFile(filepath.Join(a.dir, name+".png"), out, 0o644); err != nil {
		a.t.Fatal(err)
	}
}

// TestScreenshots takes the screenshots in docs/images. `make screenshots` runs it.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("TURNPIKE_SCREENSHOTS")
	if dir == "" {
		t.Skip("make screenshots takes the screenshots")
	}
	a := &album{t, dir}
	t.Run("first steps", func(t *testing.T) { // of a server without a provider
		cfg := harness.Config(t, "sqlite")
		cfg.PublicURL = "https://turnpike.example.com"
		s := harness.Start(t, cfg, harness.NewClock())
		w := s.Workspace(t, "Lantern Books")
		b := owner(t, s, w)
		b.window(1440, 900)
		b.open(in(w, accounts.Live, ""))
		a.take("first-steps", b)
	})
	w := sampledata.Demo(t)
	failed := w.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: w.Key, Header: http.Header{"User-Agent": {"lantern-shop/4.2"}}, Body: map[string]any{"model": "gpt-nonexistent", "messages": []any{map[string]string{"role": "user", "content": "Hi."}}}}).Header.Get("X-Request-Id")
	b := newTab(t, w.Server)
	b.window(1440, 900)
	b.open("/dashboard/login")
	b.fill("Email address", w.Owner.Email)
	b.fill("Password", sampledata.DemoPassword)
	b.press("Sign in")
	at := func(page string) string { return in(w.Workspace, accounts.Live, page) }
	b.open(at(""))
	b.press("Dismiss")
	a.take("home", b)
	for _, shot := range [][2]string{{"requests", "requests"}, {"request-failed", "requests/" + failed}, {"usage", "usage?range=30d&group=model"}, {"delivery", "deliveries/" + w.DeliveryID},
		{"run-approval", "runs/" + w.RunID}, {"image-batch", "jobs/images/" + w.BatchID}} {
		b.open(at(shot[1]))
		if shot[0] == "run-approval" {
			b.mayDecide()
		}
		a.take(shot[0], b)
	}
	b.allow(http.StatusBadRequest)
	b.open(at("keys/new"))
	b.fill("Name", "Checkout service")
	b.fill("Budget per month", "lots")
	b.fill("Allowed IPs", "not-an-ip")
	b.press("Create key")
	a.take("key-form-errors", b)
	b.open(at("keys/new"))
	b.fill("Name", "Checkout service")
	b.press("Create key")
	a.take("key-created", b)

	w.Clock.Turn(31 * time.Minute) // the password has to be confirmed again
	b.open(at("team"))
	b.fill("Email address", "grace@lanternbooks.example")
	b.press("Invite")
	a.take("confirm", b)
	b.fill("Password", sampledata.DemoPassword)
	b.press("Confirm")
	b.sees("Invited grace@lanternbooks.example")
	a.take("confirmed", b)

	b.window(390, 844)
	for _, theme := range []string{"light", "dark"} {
		b.prefer(theme)
		const gap = 20
		row := image.NewRGBA(image.Rect(0, 0, 6*(390+gap)-gap, 844))
		draw.Draw(row, row.Bounds(), image.NewUniform(color.Gray{128}), image.Point{}, draw.Src)
		for i, path := range []string{"", "requests", "log", "usage", "deliveries", "runs/" + w.RunID} {
			b.open(at(path))
			draw.Draw(row, image.Rect(i*(390+gap), 0, i*(390+gap)+390, 844), b.screenshot(), image.Point{}, draw.Src)
		}
		a.write("phone-"+theme, row)
	}
}

// smaller reduces an image to 256 colors: the most frequent ones that differ visibly, so that a gradient leaves room for
// the colors of text and buttons.
func smaller(t *testing.T, from image.Image) []byte {
	t.Helper()
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
	to := image.NewPaletted(area, palette(colors))
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

// palette chooses from colors, the most frequent first.
func palette(colors []color.Color) (out color.Palette) {
	const visible = 3 << 8 // a difference of three of 255 steps
	for _, c := range colors {
		r, g, b, _ := c.RGBA()
		near := slices.ContainsFunc(out, func(o color.Color) bool {
			r2, g2, b2, _ := o.RGBA()
			return max(r, r2)-min(r, r2) <= visible && max(g, g2)-min(g, g2) <= visible && max(b, b2)-min(b, b2) <= visible
		})
		if !near {
			if out = append(out, c); len(out) == 256 {
				break
			}
		}
	}
	return out
}
