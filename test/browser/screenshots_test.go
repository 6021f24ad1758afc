//go:build browser

package browser_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"

	"turnpike/internal/accounts"
	"turnpike/test/world"
)

// maxPicture keeps the repository small.
const maxPicture = 150 << 10

// TestScreenshots takes the pictures of docs/dashboard.md: make screenshots.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("TURNPIKE_SCREENSHOTS")
	if folder == "" {
		t.Skip("pictures are taken by make screenshots")
	}
	w := world.Demo(t)
	b := newTab(t, w.Server)
	b.window(1280, 800)
	here := func(page string) string { return in(w.Workspace, accounts.Live, page) }
	shots := []struct{ name, path string }{
		{"home", here("")}, {"keys", here("keys")}, {"key", here("keys/" + w.KeyID)}, {"key-new", here("keys/new")}, {"projects", here("projects")},
		{"usage", here("usage")}, {"requests", here("requests")}, {"request", here("requests/" + w.RequestID)}, {"webhooks", here("webhooks")},
		{"webhook", here("webhooks/" + w.EndpointID)}, {"deliveries", here("deliveries")}, {"delivery", here("deliveries/" + w.DeliveryID)}, {"jobs", here("jobs/images")},
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
			picture := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng}).Data
			if len(picture) > maxPicture {
				t.Errorf("%s-%s.png has %d bytes", name, theme, len(picture))
			}
			if err := os.WriteFile(filepath.Join(folder, name+"-"+theme+".png"), picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.open("/dashboard/login")
	shoot("login")
	b.fill("E-mail address", w.Owner.Email)
	b.fill("Password", world.DemoPassword)
	b.press("Sign in")
	for _, shot := range shots {
		b.open(shot.path)
		b.until("the pictures are there", func() bool { return eval[bool](b, "[...document.images].every((i) => i.complete)") })
		shoot(shot.name)
	}
}
