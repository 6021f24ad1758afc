package leaks

import (
	"strings"
	"testing"
)

func TestReportedURLsAreCleaned(t *testing.T) {
	t.Parallel()
	key := "tp_live_" + strings.Repeat("a", 38)
	for given, want := range map[string]string{
		"":                                   "",
		" https://github.com/a/b/blob/c#L3 ": "https://github.com/a/b/blob/c#L3",
		"https://user:pass@example.com/x":    "https://example.com/x",
		"https://example.com/x?token=secret": "https://example.com/x",
		"https://example.com/" + key:         "https://example.com/tp_live_%2A%2A%2A",
		"https://example.com/tp%5Flive%5F" + strings.Repeat("a", 38): "https://example.com/tp_live_%2A%2A%2A",
		"https://example.com/#" + key:                                "https://example.com/#tp_live_***",
		"javascript:alert(1)":                                        "",
		"file:///etc/passwd":                                         "",
		"https://":                                                   "",
		"not a url":                                                  "",
		"https://example.com/\x00":                                   "",
		"https://example.com/%00":                                    "",
		"https://example.com/\xff":                                   "",
		"https://example.com/" + strings.Repeat("a", maxURL):         "",
	} {
		if got := cleanURL(given); got != want {
			t.Errorf("%q became %q, want %q", given, got, want)
		}
	}
}
