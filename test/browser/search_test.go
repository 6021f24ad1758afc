//go:build browser

package browser_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
	"turnpike/test/sampledata"
)

func TestSearchBoxCompletesAndRowsOpen(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	key, keyID := s.Key(t, w, accounts.Test)
	s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: key}).Want(t, 200, "")
	s.FillRequests(t, w, keyID, 30)
	b := owner(t, s, w)
	b.window(1440, 900)
	list := in(w, accounts.Test, "requests")
	b.open(list)
	b.sees("/v1/models")

	// Suggestions are chosen by keyboard.
	b.run(chromedp.SendKeys("#search", "stat"))
	b.until("fields are suggested", func() bool {
		return b.read(`document.querySelector("#search-suggestions:not([hidden]) li")?.textContent ?? ""`) == "status:4xx"
	})
	b.run(chromedp.SendKeys("#search", kb.ArrowDown+kb.Tab+"2"))
	b.until("values are suggested", func() bool {
		return b.read(`document.querySelector("#search-suggestions:not([hidden]) li")?.textContent ?? ""`) == "2xx"
	})
	b.run(chromedp.SendKeys("#search", kb.ArrowDown+kb.Tab))
	if got := b.read(`document.querySelector("#search").value`); got != "status:2xx " {
		t.Errorf("the box has %q, want the completed term", got)
	}
	b.navigates(chromedp.SendKeys("#search", kb.Enter))
	if got := b.read(`document.querySelector("#search").value`); got != "status:2xx" {
		t.Errorf("the search is %q, on %s", got, b.path())
	}

	// A click anywhere in a row opens it, and so does a bar of the histogram.
	row := b.read(`document.querySelector("[data-row]").dataset.row`)
	b.navigates(chromedp.Click(`[data-row] td:nth-child(5)`))
	if path, _, _ := strings.Cut(b.path(), "?"); path != list+"/"+row {
		t.Errorf("the row leads to %s, want %s", b.path(), row)
	}
	b.open(list)
	b.navigates(chromedp.Click(`.log-chart a.slot rect`))
	b.until("the range of the bar is searched", func() bool { return eval[bool](b, `document.querySelector("#search").value.startsWith("from:")`) })
	b.sees("POST /v1/chat/completions")
}

func TestFirstRowIsInViewOnPhones(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	_, keyID := s.Key(t, w, accounts.Test)
	s.FillRequests(t, w, keyID, 30)
	b := owner(t, s, w)
	b.window(390, 844)
	b.open(in(w, accounts.Test, "requests"))
	if y := eval[float64](b, `document.querySelector("[data-row]").getBoundingClientRect().bottom`); y > 500 {
		t.Errorf("the first row ends at %.0f px, want at most 500", y)
	}
	if wide := eval[float64](b, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("the page is %.0f px wide", wide)
	}
	b.tap("Filters")
	b.run(chromedp.SetValue(`select[name=last]`, "24h"))
	b.press("Apply")
	b.until("the filter applies", func() bool { return eval[bool](b, `document.querySelector("#search").value === "last:24h"`) })
}

func TestReplayNeedsATickedDelivery(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, sampledata.Config(t, "sqlite"), harness.NewClock())
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.open(in(w, accounts.Test, "webhooks"))
	b.press("New endpoint")
	b.fill("Address", "http://127.0.0.1:1/hooks")
	if !eval[bool](b, `document.querySelector("input[name=events][value=\"*\"]").checked`) {
		b.tick("All events, including future ones")
	}
	b.press("Create endpoint")
	b.press("Send test event")
	b.open(in(w, accounts.Test, "deliveries"))
	b.sees("Replay selected")
	disabled := func() bool { return eval[bool](b, `document.querySelector("button[data-selects]").disabled`) }
	if !disabled() {
		t.Error("the button works without a ticked delivery")
	}
	b.run(chromedp.Click(`input[name=delivery]`))
	b.until("the button works", func() bool { return !disabled() })
	b.run(chromedp.Click(`input[name=delivery]`))
	b.until("the button stops working", disabled)
}
