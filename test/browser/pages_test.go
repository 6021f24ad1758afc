//go:build browser

package browser_test

import "testing"

const (
	maxBytes = 100 << 10 // page, stylesheet and script together
	maxShift = 0.01      // cumulative layout shift
)

type measure struct {
	Width, Wide, Bytes, Titles int
	Unlabeled                  []string // cells of tables that are cards on phones
	Crooked                    []string // fields of a row that don't end at one height
	Cramped                    []string // fields and cells that are too narrow to read
	Touching                   []string // cards without a gap
	Broken                     []string // cells of tables with a word on two lines
	Shifted                    float64
}

func (b *tab) measure() measure {
	b.t.Helper()
	return eval[measure](b, `(() => {
		const box = (e) => e.getBoundingClientRect(), seen = (e) => e.checkVisibility() && e.offsetParent;
		const range = document.createRange();
		const words = (e) => [...e.childNodes].some((n) => n.nodeType !== 3 ? words(n) : [...n.data.matchAll(/(?<![\w@.])[A-Za-z]{2,14}(?![\w@.])/g)].some((word) => {
			range.setStart(n, word.index);
			range.setEnd(n, word.index + word[0].length);
			return new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1;
		}));
		const [page] = performance.getEntriesByType("navigation");
		const parts = performance.getEntriesByType("resource").filter((e) => /[.](css|js|svg)/.test(e.name));
		return {Width: innerWidth, Wide: document.documentElement.scrollWidth, Titles: document.querySelectorAll("h1").length,
			Unlabeled: [...document.querySelectorAll("table.list:has(td[data-label]) td:not([data-label], [colspan])")].filter((cell) => cell.textContent.trim() && !cell.querySelector("form, button, input, .button")).map((cell) => cell.textContent.trim()),
			Crooked: [...document.querySelectorAll(".filters, form.inline, .columns")].filter((row) => {
				const fields = [...row.querySelectorAll("label > :is(input:not([type=checkbox]), select)")].filter(seen);
				const near = (a, b) => Math.abs(box(a).top - box(b).top) < 8 || Math.abs(box(a.parentElement).top - box(b.parentElement).top) < 1;
				return fields.some((a) => fields.some((b) => near(a, b) && (Math.abs(box(a).top - box(b).top) >= 1 || Math.abs(box(a).bottom - box(b).bottom) >= 1)));
			}).map((row) => row.innerText),
			Cramped: [...document.querySelectorAll("main :is(input:not([type=checkbox], [type=radio], [type=hidden]), select)")].filter((e) => seen(e) && e.name && box(e).width < 56).map((e) => e.name)
				.concat([...document.querySelectorAll("td.log-main")].filter((e) => seen(e) && box(e).width < 120).map((e) => e.innerText)),
			Touching: [...document.querySelectorAll(".card + .card")].filter((e) => seen(e) && box(e).top > box(e.previousElementSibling).top + 1 && box(e).top - box(e.previousElementSibling).bottom < 4).map((e) => e.innerText.slice(0, 60)),
			Broken: [...document.querySelectorAll("main table.list td")].filter((cell) => seen(cell) && !cell.querySelector("pre, details") && words(cell)).map((cell) => cell.innerText),
			Bytes: page.decodedBodySize + parts.reduce((sum, e) => sum + e.encodedBodySize, 0), Shifted: window.shifted};
	})()`)
}

func TestEveryPageFitsTheScreenWithoutLayoutShift(t *testing.T) {
	t.Parallel()
	w, u := fullServer(t)
	b := newTab(t, w.Server)
	b.signIn(u.Email)
	for _, width := range []int64{360, 1280} {
		b.window(width, 800)
		for _, path := range pages(t, w) {
			b.open(path)
			m := b.measure()
			// On a busy machine the browser may paint half a table first. A real layout
			// shift happens every time.
			for range 9 {
				if m.Shifted > maxShift {
					b.open(path)
					m = b.measure()
				}
			}
			switch {
			case m.Titles != 1:
				t.Errorf("%s has %d titles", path, m.Titles)
			case m.Wide > m.Width:
				t.Errorf("%s is %d pixels wide in a window of %d", path, m.Wide, m.Width)
			case len(m.Unlabeled) > 0:
				t.Errorf("%s has values without a label on phones: %q", path, m.Unlabeled)
			case len(m.Crooked)+len(m.Cramped)+len(m.Touching)+len(m.Broken) > 0:
				t.Errorf("%s in a window of %d has fields at several heights %q, narrow fields %q, cards without a gap %q, broken words %q", path, width, m.Crooked, m.Cramped, m.Touching, m.Broken)
			case m.Bytes == 0 || m.Bytes > maxBytes:
				t.Errorf("%s has %d bytes", path, m.Bytes)
			case m.Shifted > maxShift:
				t.Errorf("%s moves by %.3f while it loads in a window of %d", path, m.Shifted, width)
			}
		}
	}
}
