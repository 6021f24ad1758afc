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
	Shifted                    float64
}

func (b *tab) measure() measure {
	b.t.Helper()
	return eval[measure](b, `(() => {
		const [page] = performance.getEntriesByType("navigation");
		const parts = performance.getEntriesByType("resource").filter((e) => /[.](css|js|svg)/.test(e.name));
		return {Width: innerWidth, Wide: document.documentElement.scrollWidth, Titles: document.querySelectorAll("h1").length,
			Unlabeled: [...document.querySelectorAll("table.list:has(td[data-label]) td:not([data-label], [colspan])")].filter((cell) => cell.textContent.trim() && !cell.querySelector("form, button, input, .button")).map((cell) => cell.textContent.trim()),
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
			case m.Bytes == 0 || m.Bytes > maxBytes:
				t.Errorf("%s has %d bytes", path, m.Bytes)
			case m.Shifted > maxShift:
				t.Errorf("%s moves by %.3f while it loads in a window of %d", path, m.Shifted, width)
			}
		}
	}
}
