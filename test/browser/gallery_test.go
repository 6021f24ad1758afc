//go:build browser

package browser_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestLightboxShowsImagesByKeyboard(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	key, _ := s.Key(t, w, accounts.Test)
	ask := func(id, prompt string) map[string]any {
		return map[string]any{"custom_id": id, "body": map[string]any{"prompt": prompt, "size": "64x64"}}
	}
	batch := s.Do(t, harness.Request{Method: "POST", Path: "/v1/images/batches", Key: key,
		Body: map[string]any{"requests": []any{ask("first", "a lantern"), ask("second", "a harbor")}}}).Want(t, 200, "").Text("id")
	b.open(in(w, accounts.Test, "jobs/images/"+batch))
	b.sees("2 completed", "Download all")
	shown := `document.querySelector("#lightbox[open] img")?.src ?? ""`
	link := func(i string) string {
		return eval[string](b, `document.querySelectorAll("a[data-lightbox]")[`+i+`].href`)
	}
	b.clickOn("a[data-lightbox]")
	b.sees("first 1 of 2", "a lantern")
	if got := eval[string](b, shown); got != link("0") {
		t.Errorf("the lightbox shows %q", got)
	}
	for _, want := range []string{"1", "0"} { // it starts over after the last one
		b.run(chromedp.KeyEvent(kb.ArrowRight))
		b.until("the next image is shown", func() bool { return eval[string](b, shown) == link(want) })
	}
	b.run(chromedp.KeyEvent(kb.ArrowLeft))
	b.sees("second 2 of 2", "a harbor")
	b.run(chromedp.KeyEvent(kb.Escape))
	b.until("the lightbox is closed and its image has the focus", func() bool {
		return eval[bool](b, `document.querySelector("#lightbox[open]") === null && document.activeElement.dataset.lightbox === "second"`)
	})
}

func TestStepsOfRunFold(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	key, _ := s.Key(t, w, accounts.Test)
	run := s.Do(t, harness.Request{Method: "POST", Path: "/v1/agents/runs", Key: key, Body: map[string]any{"model": "gpt-4o",
		"input": `Find it. [[sim:script=tool:search{"shelf":"poetry"};text:It is upstairs.]]`,
		"tools": []any{map[string]any{"type": "http", "name": "search", "url": "https://shop.example/search"}}}}).Want(t, 200, "").Text("id")
	s.Eventually(t, func() bool { // a step is open while it runs
		return s.Do(t, harness.Request{Method: "GET", Path: "/v1/agents/runs/" + run, Key: key}).Text("status") == "completed"
	})
	b.open(in(w, accounts.Test, "runs/"+run))
	b.sees("completed", "Step 1", "Step 2", "It is upstairs.")
	b.misses(`"shelf": "poetry"`)
	b.tap("Expand all")
	b.sees(`"shelf": "poetry"`)
	b.tap("Expand all")
	b.misses(`"shelf": "poetry"`)
}
