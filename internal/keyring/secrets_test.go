package keyring

import (
	"strings"
	"testing"

	"turnpike/webhook"
)

func TestSecretWithAnyChangedCharacterIsRejected(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds[:len(Kinds)-1] { // webhook secrets have no checksum
		s := NewSecret(kind)
		if got, ok := ParseSecret(s); !ok || got != kind {
			t.Fatalf("%q was not read back", kind)
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
		s := NewSecret(TestKey)
		if seen[s] {
			t.Fatal("a secret was made twice")
		}
		seen[s] = true
		for _, c := range s[len(TestKey) : len(TestKey)+randomSize] {
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
	f.Add(NewSecret(ScopedToken))
	f.Add("tp_test_" + strings.Repeat("a", 38))
	f.Fuzz(func(t *testing.T, s string) {
		kind, ok := ParseSecret(s)
		if !ok || kind == WebhookSecret {
			return
		}
		body := s[:len(s)-checkSize]
		if !strings.HasPrefix(s, string(kind)) || len(body) != len(kind)+randomSize || string(appendChecksum([]byte(body))) != s {
			t.Errorf("%q passed as a secret", s)
		}
	})
}

func BenchmarkParseSecret(b *testing.B) {
	s := NewSecret(LiveKey)
	for b.Loop() {
		ParseSecret(s)
	}
}

// TestEveryKindIsFoundMaskedAndHinted guards N6: a kind that one of them doesn't know would leak unnoticed.
func TestEveryKindIsFoundMaskedAndHinted(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds {
		secret := ""
		if kind == WebhookSecret {
			secret = webhook.NewSecret()
		} else {
			secret = NewSecret(kind)
		}
		text := "x_" + secret + " and"
		if at, found := FindSecret([]byte(text)); at != 2 || found != secret {
			t.Errorf("%s: found %q at %d", kind, found, at)
		}
		if got, want := Mask(text), "x_"+string(kind)+"*** and"; got != want {
			t.Errorf("%s: masked as %q, want %q", kind, got, want)
		}
		if got, want := Mask("x"+secret[:len(secret)-4]), "x"+string(kind)+"***"; got != want {
			t.Errorf("%s: a cut secret is masked as %q, want %q", kind, got, want)
		}
		if !ContainsSecret(text) {
			t.Errorf("%s: not recognized", kind)
		}
		if hint := SecretHint(secret); len(hint) != len(kind)+len("…")+4 || !strings.HasPrefix(hint, string(kind)+"…") || Mask(hint) != hint {
			t.Errorf("%s: the hint is %q", kind, hint)
		}
		if len(secret) != kind.size() || len(secret) > MaxSecret {
			t.Errorf("%s: got %d characters, want %d", kind, len(secret), kind.size())
		}
	}
}

func TestUnregisteredKindIsNotCreated(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{"tp_new_", "", WebhookSecret} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a secret of the kind %q was created", kind)
				}
			}()
			NewSecret(kind)
		}()
	}
}
