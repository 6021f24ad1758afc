//go:build browser

package browser_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// keys presses keys, wherever the focus is.
func (b *tab) keys(text string) {
	b.t.Helper()
	b.run(chromedp.KeyEvent(text))
}

// showPalette opens the palette by its shortcut.
func (b *tab) showPalette() {
	b.t.Helper()
	b.until("the palette works", func() bool { return eval[bool](b, `document.querySelector("dialog.palette") !== null`) })
	b.run(chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.until("the palette is open", func() bool { return eval[bool](b, `document.querySelector("dialog.palette").open`) })
}

// selected returns the selected row of the palette.
func (b *tab) selected() string {
	return b.read(`document.querySelector("dialog.palette [aria-selected=true] .name")?.textContent ?? ""`)
}

// slowly makes the palette wait for its results until the page calls window.answer.
func (b *tab) slowly() {
	b.t.Helper()
	eval[any](b, `void (() => {
		const plain = window.fetch, open = new Promise((done) => { window.answer = done; });
		window.fetch = async (...all) => { window.asked = true; await open; return plain(...all); };
	})()`)
}

func TestPaletteOpensPagesObjectsAndIDs(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	_, keyID := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Test), Name: "Lantern billing", Scopes: []string{"*"}})

	// By typing a part of a page's name.
	b.showPalette()
	b.keys("deliv")
	b.until("the page is found", func() bool { return b.selected() == "Deliveries" })
	b.navigates(chromedp.KeyEvent(kb.Enter))
	if got, want := b.path(), in(w, accounts.Test, "deliveries"); got != want {
		t.Errorf("Enter led to %s, want %s", got, want)
	}

	// The selection stays when the server's results arrive.
	b.slowly()
	b.showPalette()
	b.keys("bill")
	b.until("the page is found", func() bool { return b.selected() == "Billing" })
	b.until("the server is asked", func() bool { return eval[bool](b, "window.asked === true") })
	eval[any](b, "void window.answer()")
	b.until("the key is found, too", func() bool {
		return b.read(`document.querySelector("dialog.palette ul").textContent`) != "" && eval[bool](b, `document.querySelector("dialog.palette ul").textContent.includes("Lantern billing")`)
	})
	if got := b.selected(); got != "Billing" {
		t.Errorf("%s is selected, want what was before", got)
	}
	b.keys(kb.ArrowDown)
	if got := b.selected(); got != "Lantern billing" {
		t.Errorf("the arrow key selects %s", got)
	}
	b.navigates(chromedp.KeyEvent(kb.Enter))
	if got, want := b.path(), in(w, accounts.Test, "keys/"+keyID); got != want {
		t.Errorf("Enter led to %s, want %s", got, want)
	}

	// An ID opens when its page is found, even if Enter was faster.
	b.open(in(w, accounts.Test, "usage"))
	b.slowly()
	b.showPalette()
	b.keys(keyID + kb.Enter)
	b.until("the server is asked", func() bool { return eval[bool](b, "window.asked === true") })
	if got := b.read(`document.querySelector("dialog.palette ul").textContent`); got != "Searching…" {
		t.Errorf("the palette says %q before the results are there", got)
	}
	eval[any](b, "void window.answer()")
	b.until("the key is open", func() bool { return b.path() == in(w, accounts.Test, "keys/"+keyID) })

	// What isn't there is said so.
	b.showPalette()
	b.keys("nothing like it")
	b.sees("No results")
}

func TestShortcuts(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.Workspace(t, "acme")
	key, keyID := s.Key(t, w, accounts.Test)
	s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: key}).Want(t, 200, "")
	s.FillRequests(t, w, keyID, 3)
	b := owner(t, s, w)
	b.keys("g")
	b.navigates(chromedp.KeyEvent("r"))
	list := in(w, accounts.Test, "requests")
	if b.path() != list {
		t.Fatalf("g r leads to %s", b.path())
	}
	focused := func() int {
		return eval[int](b, `[...document.querySelectorAll("main table.list tbody tr")].findIndex((row) => row.contains(document.activeElement))`)
	}
	for i, press := range []struct {
		keys string
		row  int
	}{{"j", 0}, {"j", 1}, {"j", 2}, {"k", 1}} {
		b.keys(press.keys)
		if got := focused(); got != press.row {
			t.Errorf("press %d: %s leads to row %d, want %d", i, press.keys, got, press.row)
		}
	}
	row := eval[string](b, `document.querySelectorAll("[data-row]")[1].dataset.row`)
	b.navigates(chromedp.KeyEvent(kb.Enter))
	if !strings.HasPrefix(b.path(), list+"/"+row) {
		t.Errorf("Enter leads to %s, want %s", b.path(), row)
	}
	b.open(list)
	b.keys("?")
	b.sees("Keyboard shortcuts", "Single-key shortcuts", "Next row")
	b.keys(kb.Escape)
	closed := func() bool { return !eval[bool](b, `document.querySelector("dialog.shortcuts").open`) }
	b.until("the dialog is closed", closed)
	b.until("the search has the focus", func() bool { // the dialog keeps it for a frame
		b.keys("/")
		return eval[bool](b, `document.activeElement.id === "search"`)
	})
	b.keys("j?g")
	if got := b.value("#search", "value"); !strings.HasSuffix(got, "j?g") {
		t.Errorf("the box has %q: shortcuts work while typing", got)
	}

	// They can be turned off, except Ctrl+K.
	b.open(list)
	b.keys("?")
	b.tick("Single-key shortcuts")
	b.tap("Close")
	b.until("the dialog is closed", closed)
	b.keys("j")
	if got := focused(); got >= 0 {
		t.Errorf("j still leads to row %d", got)
	}
	b.showPalette()
}
