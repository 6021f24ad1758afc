//go:build browser

package browser_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/test/harness"
)

// point returns the middle of the element that a selector finds.
func (b *tab) point(selector string) (x, y float64) {
	b.t.Helper()
	at := eval[[2]float64](b, fmt.Sprintf(`(() => { const r = document.querySelector(%q).getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`, selector))
	return at[0], at[1]
}

// hover moves the pointer of the mouse to the element that a selector finds.
func (b *tab) hover(selector string) {
	b.t.Helper()
	x, y := b.point(selector)
	call(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: x, Y: y})
}

// touch taps the element that a selector finds with a finger.
func (b *tab) touch(selector string) {
	b.t.Helper()
	x, y := b.point(selector)
	call(b, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: input.DispatchTouchEventTypeTouchStart, TouchPoints: []*input.TouchPoint{{X: x, Y: y}}})
	call(b, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: input.DispatchTouchEventTypeTouchEnd, TouchPoints: []*input.TouchPoint{}})
}

// tip returns the text of the tooltip, or an empty string.
func (b *tab) tip() string {
	return b.read(`[...document.querySelectorAll(".tip p")].map((p) => [...p.children].map((e) => e.textContent).join("=")).join("; ")`)
}

// withRequests sends a request, which usage counts, and adds others to the log.
func (b *tab) withRequests(s *harness.Server, w *accounts.Workspace) {
	b.t.Helper()
	key, keyID := s.Key(b.t, w, accounts.Test)
	s.Do(b.t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: map[string]any{"model": "gpt-4o-mini", "messages": []any{map[string]string{"role": "user", "content": "Hi"}}}}).Want(b.t, 200, "")
	s.FillRequests(b.t, w, keyID, 30)
}

const bar = ".chart a.slot:last-of-type rect"

func TestChartTooltipByPointerAndKeyboard(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.withRequests(s, w)
	b.open(in(w, accounts.Test, "usage?range=24h"))
	b.until("the request is counted", func() bool {
		if b.read(`document.querySelector("#usage-chart h2").textContent`) == "Requests: 1" {
			return true
		}
		b.open(in(w, accounts.Test, "usage?range=24h"))
		return false
	})
	b.hover(bar)
	if got := b.tip(); !strings.HasSuffix(got, "=1") {
		t.Errorf("hovering shows %q, want the request of this hour", got)
	}
	b.hover("h1")
	if got := b.tip(); got != "" {
		t.Errorf("the tooltip stays: %q", got)
	}
	eval[any](b, `void document.querySelector(".chart .slot").focus()`)
	first := b.tip()
	if !strings.HasSuffix(first, "=0") {
		t.Errorf("the focus shows %q, want an hour without requests", first)
	}
	b.run(chromedp.KeyEvent(kb.ArrowRight))
	if second := b.tip(); second == first || second == "" {
		t.Errorf("the arrow key shows %q after %q", second, first)
	}
	b.run(chromedp.KeyEvent(kb.Escape))
	if got := b.tip(); got != "" {
		t.Errorf("Escape keeps %q", got)
	}
}

func TestFirstTouchOfABarShowsItsValuesAndTheSecondOpensIt(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.withRequests(s, w)
	b.window(390, 844)
	call(b, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true, MaxTouchPoints: 1})
	list := in(w, accounts.Test, "requests")
	b.open(list)
	eval[any](b, "void (window.stays = true)")
	b.touch(bar)
	b.until("the touch shows the values", func() bool { return strings.Contains(b.tip(), "requests") || strings.Contains(b.tip(), "failed") })
	b.touch("h1")
	b.until("a touch elsewhere hides them", func() bool { return b.tip() == "" })
	b.touch(bar)
	b.until("the touch shows the values again", func() bool { return b.tip() != "" })
	if b.path() != list || !eval[bool](b, "window.stays === true") {
		t.Fatalf("the first touch led to %s", b.path())
	}
	b.touch(bar)
	b.until("the second touch opens the bar", func() bool { return strings.Contains(b.path(), "from%3A") })
}

func TestSingleLatencyIsDrawn(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.withRequests(s, w)
	b.until("the latency is drawn", func() bool {
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error { // the clock of the tests stands still
			_, err := tx.Exec(t.Context(), "UPDATE usage_hours SET latency_5 = 1 WHERE workspace_id = $1", w.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		b.open(in(w, accounts.Test, "usage?range=24h&metric=latency_p50"))
		return eval[bool](b, `(() => { const dot = document.querySelector(".chart .dot"); return dot !== null && dot.getBoundingClientRect().width >= 4 && getComputedStyle(dot).fill !== "rgb(0, 0, 0)"; })()`)
	})
	b.hover(bar)
	if got := b.tip(); !strings.Contains(got, "ms") {
		t.Errorf("the tooltip says %q", got)
	}
	b.hover(".chart a.slot:nth-of-type(3) rect")
	if got := b.tip(); !strings.HasSuffix(got, "=no data") {
		t.Errorf("the tooltip of an hour without requests says %q", got)
	}
}

func TestTimesAreLocal(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.withRequests(s, w)
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	b.open(in(w, accounts.Test, "requests"))
	shown := eval[[]string](b, `(() => {
		const time = document.querySelector("[data-row] time[data-local]"), slot = document.querySelector(".chart .slot");
		const local = (at, parts) => new Intl.DateTimeFormat("en-US", {...parts, timeZone: "Asia/Kolkata", hourCycle: "h23"}).format(new Date(at));
		const clock = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };
		return [time.textContent, local(time.dateTime, {...clock, second: "2-digit"}), time.title, slot.getAttribute("aria-label"), slot.dataset.at ?? "", local(document.querySelector(".log-chart .edge time").dateTime, clock)];
	})()`)
	if shown[0] != shown[1] || !strings.HasSuffix(shown[2], " UTC") {
		t.Errorf("a time is shown as %q with the title %q, want %q and UTC", shown[0], shown[2], shown[1])
	}
	// Half an hour off UTC, so no bar can be right by chance.
	if strings.Contains(shown[3], "UTC") || !strings.Contains(shown[3], ":30: ") && !strings.Contains(shown[3], ":45: ") {
		t.Errorf("a bar says %q, want local time", shown[3])
	}
	b.open(in(w, accounts.Test, "usage?range=24h"))
	b.until("the axis is local", func() bool {
		ticks := b.read(`[...document.querySelectorAll(".chart .axis[data-at], .chart .axis")].map((e) => e.textContent).join("|")`)
		if strings.Contains(ticks, ":30") && !strings.Contains(ticks, ":00") {
			return true
		}
		b.open(in(w, accounts.Test, "usage?range=24h"))
		return false
	})
}

func TestTooltipStaysWhileTheListChanges(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	key, keyID := s.Key(t, w, accounts.Test)
	s.FillRequests(t, w, keyID, 30)
	b.open(in(w, accounts.Test, "requests"))
	b.hover(bar)
	if b.tip() == "" {
		t.Fatal("there is no tooltip")
	}
	s.Do(t, models(key)).Want(t, 200, "")
	b.until("the server has sent the new row", func() bool { return eval[bool](b, `latest?.includes("/v1/models") === true`) })
	if b.tip() == "" || strings.Contains(b.text(), "/v1/models") {
		t.Errorf("an update has removed the tooltip %q", b.tip())
	}
	b.hover("h1")
	b.sees("/v1/models")
}

func TestPartOfABarOpensItsGroup(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.withRequests(s, w)
	b.until("the request is drawn", func() bool {
		b.open(in(w, accounts.Test, "usage?range=24h&group=model"))
		return eval[bool](b, `document.querySelector(".chart .bar") !== null`)
	})
	x, y := b.point(".chart .bar")
	b.navigates(chromedp.MouseClickXY(x, y))
	if got := b.value("#search", "value"); !strings.HasSuffix(got, " model:gpt-4o-mini") || !strings.HasPrefix(got, "from:") {
		t.Errorf("the part of a bar opens %q, want the model's requests of its time", got)
	}
}

func TestThemeIsChosen(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	color := func() string { return eval[string](b, `getComputedStyle(document.body).backgroundColor`) }
	b.prefer("light")
	b.open(in(w, accounts.Test, "keys"))
	light := color()
	b.clickOn(".menu.right summary")
	b.navigates(chromedp.Click(`.theme button[value=dark]`, chromedp.NodeVisible))
	if dark := color(); dark == light || b.path() != in(w, accounts.Test, "keys") {
		t.Errorf("the background is %s on %s after choosing dark, and was %s", dark, b.path(), light)
	}
	b.prefer("dark")
	b.clickOn(".menu.right summary")
	if got := b.value(`.theme [aria-pressed="true"]`, "value"); got != "dark" {
		t.Errorf("%q is marked as the theme, want dark", got)
	}
	b.navigates(chromedp.Click(`.theme button[value=light]`, chromedp.NodeVisible))
	if got := color(); got != light {
		t.Errorf("the background is %s in a dark system after choosing light, want %s", got, light)
	}
	b.clickOn(".menu.right summary")
	b.navigates(chromedp.Click(`.theme button[value=system]`, chromedp.NodeVisible))
	if got := color(); got == light {
		t.Error("the page doesn't follow the dark system again")
	}
}

func TestFirstWrongFieldHasTheFocus(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.allow(400)
	b.open(in(w, accounts.Test, "keys/new"))
	b.fill("Name", "backend")
	b.fill("Allowed IPs", "not-an-ip")
	b.fill("Budget per month", "lots")
	b.press("Create key")
	b.until("a wrong field has the focus", func() bool { return eval[bool](b, `document.activeElement.getAttribute("aria-invalid") === "true"`) })
	wrong := eval[[]string](b, `[...document.querySelectorAll("[aria-invalid=true]")].map((e) => e.name + (e === document.activeElement ? ", focused" : "") + ": " + document.getElementById(e.getAttribute("aria-describedby"))?.textContent)`)
	if len(wrong) != 2 || !strings.Contains(wrong[0], ", focused: ") || strings.Contains(wrong[1], "focused") || strings.Contains(strings.Join(wrong, ""), "undefined") {
		t.Errorf("the wrong fields are %q", wrong)
	}
	if got := b.value("input[name=name]", "value"); got != "backend" {
		t.Errorf("the name is %q, want what was typed", got)
	}
}
