//go:build browser

package browser_test

import (
	"testing"

	"github.com/chromedp/chromedp"

	"turnpike/internal/accounts"
	"turnpike/internal/db/dbtest"
	"turnpike/test/harness"
)

func TestBackButtonRestoresFilters(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, dbtest.Engines[0]), harness.NewClock())
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)

	// The filter waits until the date is complete.
	usage := in(w, accounts.Live, "usage")
	b.open(usage)
	b.run(chromedp.SendKeys(`input[name="start"]`, "01012025"))
	if got := eval[string](b, `document.querySelector("input[name=start]").value`); got != "2025-01-01" || b.path() != usage {
		t.Errorf("typing a day led to %s with %s", b.path(), got)
	}

	// The selected filters match the listed rows.
	requests := in(w, accounts.Live, "requests")
	b.open(requests)
	eval[bool](b, `(() => { const s = document.querySelector("select[name=status]"); s.value = "402"; s.form.requestSubmit(); return true; })()`)
	b.until("the filter to apply", func() bool { return b.path() == requests+"?q=status%3A402" })
	b.run(chromedp.NavigateBack())
	b.until("the list without a filter", func() bool { return b.path() == requests })
	if got := eval[string](b, `document.querySelector("select[name=status]").value`); got != "" {
		t.Errorf("the list of everything says that it is filtered by %s", got)
	}
}
