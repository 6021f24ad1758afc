package access

import (
	"strings"
	"testing"
)

func TestSecretWithAnyChangedCharacterIsRejected(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{PrefixLive, PrefixTest, PrefixScoped} {
		s := newSecret(prefix)
		if got, ok := ParseSecret(s); !ok || got != prefix {
			t.Fatalf("%q was not read back", prefix)
		}
		for i := range len(s) {
			for _, c := range []byte("0aZ_ \x00é") {
				if s[i] == c {
					continue
				}
				changed := s[:i] + string(c) + s[i+1:]
				if _, ok := ParseSecret(changed); ok {
					t.Errorf("a secret with character %d changed passed", i)
				}
			}
		}
	}
}

func TestSecretsAreUniqueAndUseTheWholeAlphabet(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	letters := map[rune]int{}
	for range 2000 {
		s := newSecret(PrefixTest)
		if seen[s] {
			t.Fatal("a secret was made twice")
		}
		seen[s] = true
		for _, c := range s[len(PrefixTest) : len(PrefixTest)+randomSize] {
			letters[c]++
		}
	}
	// 64,000 letters over 62: about 1,032 each. A biased draw is far outside
	// these limits.
	for _, c := range base62 {
		if n := letters[c]; n < 800 || n > 1300 {
			t.Errorf("the letter %c came %d times in 64,000", c, n)
		}
	}
}

func FuzzParseSecret(f *testing.F) {
	f.Add("tp_live_")
	f.Add(newSecret(PrefixScoped))
	f.Add("tp_test_" + strings.Repeat("a", 38))
	f.Fuzz(func(t *testing.T, s string) {
		prefix, ok := ParseSecret(s)
		if !ok {
			return
		}
		body := s[:len(s)-checkSize]
		if !strings.HasPrefix(s, prefix) || len(body) != len(prefix)+randomSize || string(appendChecksum([]byte(body))) != s {
			t.Errorf("%q passed as a secret", s)
		}
	})
}

func BenchmarkParseSecret(b *testing.B) {
	s := newSecret(PrefixLive)
	for b.Loop() {
		ParseSecret(s)
	}
}
