package keyring

import (
	"regexp"
	"slices"
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
		if len(secret) != len(kind)+kind.size() || len(secret) > MaxSecret {
			t.Errorf("%s: got %d characters, want %d", kind, len(secret), len(kind)+kind.size())
		}
	}
}

// The test isn't parallel, because the prefixes belong to the process. The others run afterwards.
func TestSecretsWithAnOlderPrefixKeepWorking(t *testing.T) {
	old := map[Kind]string{}
	for _, kind := range Kinds[:len(Kinds)-1] {
		old[kind] = NewSecret(kind)
	}
	t.Cleanup(func() { UseHeads(nil) })
	UseHeads([]string{"acme", "former", "not valid(", "whsec"})
	pattern := regexp.MustCompile("^" + Pattern() + "$")
	for kind, value := range old {
		head := func(s string) string { return s + strings.TrimPrefix(string(kind), "tp") }
		created := NewSecret(kind)
		for secret, prefix := range map[string]string{created: head("acme"), value: string(kind), replaceHead(value, "former"): head("former")} {
			if got, ok := ParseSecret(secret); !ok || got != kind || !strings.HasPrefix(secret, prefix) {
				t.Errorf("%s: got %q, %t for %s", kind, got, ok, secret)
			}
			if at, found := FindSecret([]byte("a=" + secret + ";")); at != 2 || found != secret {
				t.Errorf("%s: found %q at %d", prefix, found, at)
			}
			if got := Mask("a=" + secret + ";"); got != "a="+prefix+"***;" {
				t.Errorf("%s: masked as %q", prefix, got)
			}
			if hint := SecretHint(secret); hint != prefix+"…"+secret[len(secret)-4:] {
				t.Errorf("%s: the hint is %q", prefix, hint)
			}
			if !pattern.MatchString(secret) || !slices.Contains(Prefixes(), prefix) {
				t.Errorf("%s: a scanner with %s and %q misses it", prefix, Pattern(), Prefixes())
			}
		}
	}
	other := replaceHead(old[LiveKey], "other")
	if _, ok := ParseSecret(other); ok || Mask(other) != other {
		t.Errorf("%s is taken for a secret of this server", other)
	}
	if s := webhook.NewSecret(); !pattern.MatchString(s) {
		t.Errorf("scanners miss %s", s)
	}
}

// replaceHead returns a secret with another head and its checksum.
func replaceHead(secret, head string) string {
	return string(appendChecksum([]byte(head + secret[2:len(secret)-checkSize])))
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
