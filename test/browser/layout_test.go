//go:build browser

package browser_test

import (
	"math"
	"regexp"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
	"turnpike/test/sampledata"
)

// sizes are a desktop and a phone.
var sizes = [][2]int64{{1440, 900}, {390, 844}}

func filled(t *testing.T) (*tab, *accounts.Workspace) {
	t.Helper()
	s := harness.Start(t, sampledata.Config(t, "sqlite"), harness.NewClock())
	w := sampledata.Fill(t, s, "acme", func(text string) string { return text })
	return owner(t, s, w.Workspace), w.Workspace
}

func TestChartTextHasOneSizeAndBarsFillTheChart(t *testing.T) {
	t.Parallel()
	b, w := filled(t)
	for _, size := range sizes {
		b.window(size[0], size[1])
		b.open(in(w, accounts.Test, "usage?metric=requests"))
		texts := eval[[]float64](b, `[...document.querySelectorAll(".chart .axis")].map((e) => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a)`)
		if len(texts) == 0 {
			t.Fatal("the chart has no axis")
		}
		for _, px := range texts {
			if math.Abs(px-12) > 1 {
				t.Errorf("at %d pixels, the axis has text of %.1f pixels, want 12", size[0], px)
			}
		}
		// The name of a slot is centered below it.
		if off := eval[float64](b, `Math.max(...[...document.querySelectorAll(".chart .axis[text-anchor=middle]")].filter((e) => e.getBoundingClientRect().width).map((e) => {
			const middle = (r) => r.left + r.width / 2, text = middle(e.getBoundingClientRect());
			return Math.min(...[...document.querySelectorAll(".chart .slot rect")].map((s) => Math.abs(middle(s.getBoundingClientRect()) - text)));
		}))`); off > 2 {
			t.Errorf("at %d pixels, a name on the axis is %.0f pixels off its bar's center", size[0], off)
		}
		// The axis ends at most half a step above the highest bar.
		filled := eval[float64](b, `(() => {
			const plot = document.querySelector(".chart .drawing").getBoundingClientRect();
			const top = Math.min(...[...document.querySelectorAll(".chart .bar")].map((e) => e.getBoundingClientRect().top));
			return (plot.bottom - top) / plot.height;
		})()`)
		if filled < 0.7 {
			t.Errorf("at %d pixels, the highest bar fills %.0f%% of the chart", size[0], 100*filled)
		}
	}
}

func TestMenuOnPhonesShowsTheCurrentPage(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.window(390, 844)
	for _, page := range []string{"requests", "log", "settings"} {
		b.open(in(w, accounts.Test, page))
		b.clickOn(".drawer-open")
		b.until("the menu shows "+page, func() bool {
			return eval[bool](b, `(() => {
				const e = document.querySelector(".side a[aria-current=page]");
				const r = e.getBoundingClientRect();
				const at = document.elementFromPoint(r.left + r.width / 2, r.top + r.height / 2);
				return r.top >= 0 && r.bottom <= innerHeight && r.left >= 0 && r.right <= innerWidth && (at === e || e.contains(at));
			})()`)
		})
		b.clickOn(".drawer-close")
		b.until("the menu is closed", func() bool { return eval[bool](b, `!document.getElementById("menu").matches(":popover-open")`) })
	}
}

func TestAdminLogIsReadableOnPhones(t *testing.T) {
	t.Parallel()
	b, w := filled(t)
	b.window(390, 844)
	b.open(in(w, accounts.Test, "log"))
	// No word is on two lines. IDs may be.
	broken := eval[[]string](b, `[...document.querySelectorAll("main table.list tbody tr:not([hidden]) td")].filter((cell) => {
		if (!cell.offsetParent || cell.querySelector("pre, details")) return false;
		const range = document.createRange();
		for (const node of (function* walk(n) { if (n.nodeType === 3) yield n; else for (const c of n.childNodes) yield* walk(c); })(cell)) {
			for (const word of node.data.matchAll(/(?<!\w)[A-Za-z]{2,16}(?!\w)/g)) {
				range.setStart(node, word.index);
				range.setEnd(node, word.index + word[0].length);
				if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1) return true;
			}
		}
		return false;
	}).map((cell) => cell.innerText)`)
	if len(broken) > 0 {
		t.Errorf("words are broken in %q", broken)
	}
	if eval[int](b, `document.querySelectorAll("main table.list tbody tr").length`) == 0 {
		t.Error("the log has no rows")
	}
}

func TestEventsIDsAndCodeTabsFitOnPhones(t *testing.T) {
	t.Parallel()
	w, u := fullServer(t)
	b := newTab(t, w.Server)
	b.window(390, 844)
	b.signIn(u.Email)
	b.open(in(w.Workspace, accounts.Test, "events"))
	if cut := eval[[]string](b, `[...document.querySelectorAll("td.log-main:has(.badge)")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.innerText)`); len(cut) > 0 {
		t.Errorf("the events %q are cut", cut)
	}
	const wrapped = `[...document.querySelectorAll("dl.facts dd > code:only-child")].filter((e) => e.getClientRects().length > 1 && /^[a-z]+_\w+$/.test(e.textContent)).map((e) => e.textContent)`
	ids := regexp.MustCompile(`/(keys|routes|users|events|jobs/[a-z-]+)/[a-z]+_\w+$`)
	looked := 0
	for _, path := range pages(t, w) {
		if !ids.MatchString(path) {
			continue
		}
		looked++
		b.open(path)
		if list := eval[[]string](b, wrapped); len(list) > 0 {
			t.Errorf("%s has %q on two lines", path, list)
		}
	}
	if looked < 8 {
		t.Errorf("looked at %d pages, want at least 8", looked)
	}
	b.newKey(w.Workspace, "backend")
	if hidden := eval[int](b, `(() => { const e = document.querySelector(".code-tabs .languages"); return e.scrollWidth - e.clientWidth; })()`); hidden > 0 {
		t.Errorf("%d pixels of the languages are out of view", hidden)
	}
}

func TestFieldsOfANewProjectAreAligned(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	for _, width := range []int64{1440, 800} {
		b.window(width, 900)
		b.open(in(w, accounts.Test, "projects"))
		b.clickOn("#new-project summary")
		tops := eval[[][2]float64](b, `[...document.querySelectorAll("#new-project label > input")].map((e) => [e.parentElement.getBoundingClientRect().top, e.getBoundingClientRect().top])`)
		if len(tops) < 3 {
			t.Fatalf("got %d fields, want 3", len(tops))
		}
		for _, field := range tops[1:] {
			if math.Abs(field[0]-tops[0][0]) < 1 && math.Abs(field[1]-tops[0][1]) >= 1 {
				t.Errorf("at %d pixels, fields of one row are at %v", width, tops)
			}
		}
	}
}

func TestModelListCompletesItsLastName(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.open(in(w, accounts.Test, "keys/new"))
	b.write("input[name=allowed_models]", "claude-*, gpt-4")
	if !eval[bool](b, `[...document.getElementById("known-models").options].some((o) => o.value === "claude-*, gpt-4o-mini")`) {
		t.Error("the second name isn't completed")
	}
}
