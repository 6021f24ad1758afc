package db_test

import (
	"testing"

	"turnpike/internal/db"
)

func TestPatternsMatchAsInTheDatabase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"gpt", "gpt", true}, {"gpt", "GPT", false}, {"gpt", "gpt-4", false}, {"gpt*", "GPT-4o", true}, {"*", "", true}, {"*", "x", true},
		{"*4o", "gpt-4o", true}, {"*4o", "gpt-4o-mini", false}, {"g*4*i", "gpt-4o-mini", true}, {"a*a", "a", false}, {"a*a", "aa", true}, {"a**b", "axb", true}, {"g_t*", "gpt", false},
	} {
		if got := db.Match(c.pattern, c.text); got != c.want {
			t.Errorf("%q matches %q: got %v, want %v", c.pattern, c.text, got, c.want)
		}
	}
}
