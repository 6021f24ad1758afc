package dashboard

import "testing"

func TestClipCountsCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		most int
		want clipped
	}{
		{"", 3, clipped{}},
		{"abc", 3, clipped{Text: "abc"}},
		{"abcd", 3, clipped{Text: "abc", Cut: 1}},
		{"äöü", 3, clipped{Text: "äöü"}},
		{"äöüß€", 3, clipped{Text: "äöü", Cut: 2}},
	} {
		if got := clip(c.text, c.most); got != c.want {
			t.Errorf("clip(%q, %d) is %+v", c.text, c.most, got)
		}
	}
}

// TestEscapeInvisibleShowsEveryCharacter: nothing that is approved can hide.
func TestEscapeInvisibleShowsEveryCharacter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{\n\t\"a\": \"€ 日本\"}": "{\n\t\"a\": \"€ 日本\"}",
		"a\u202eb\u200bc":       `a\u202eb\u200bc`,
		"a\u00a0b\rc\u2028":     `a\u00a0b\u000dc\u2028`,
		"\U000E0041":            `\udb40\udc41`,
	} {
		if got := escapeInvisible(text); got != want {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
}
