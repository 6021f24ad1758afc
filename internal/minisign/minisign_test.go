package minisign_test

import (
	"errors"
	"strings"
	"testing"

	"turnpike/internal/minisign"
)

// Signatures that minisign made of a file with the content "test".
const (
	publicKey = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
	plain     = "untrusted comment: signature from minisign secret key\n" +
		"RWQf6LRCGA9i59SLOFxz6NxvASXDJeRtuZykwQepbDEGt87ig1BNpWaVWuNrm73YiIiJbq71Wi+dP9eKL8OC351vwIasSSbXxwA=\n" +
		"trusted comment: timestamp:1555779966\tfile:test\n" +
		"QtKMXWyYcwdpZAlPF7tE2ENJkRd1ujvKjlj1m9RtHTBnZPa5WKU5uWRs5GoP5M/VqE81QFuMKI5k/SfNQUaOAA==\n"
	prehashed = "untrusted comment: signature from minisign secret key\n" +
		"RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=\n" +
		"trusted comment: timestamp:1633700835\tfile:test\tprehashed\n" +
		"wLMDjy9FLAuxZ3q4NlEvkgtyhrr0gtTu6KC4KBJdITbbOeAi1zBIYo0v4iTgt8jJpIidRJnp94ABQkJAgAooBQ==\n"
)

func TestOnlySignaturesOfTheKeyAndTheContentAreValid(t *testing.T) {
	t.Parallel()
	key, err := minisign.ParsePublicKey(publicKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content, signature string
		want               error
	}{
		"plain":             {"test", plain, nil},
		"prehashed":         {"test", prehashed, nil},
		"CRLF":              {"test", strings.ReplaceAll(prehashed, "\n", "\r\n"), nil},
		"other content":     {"Test", prehashed, minisign.ErrInvalid},
		"plain, other":      {"Test", plain, minisign.ErrInvalid},
		"trusted comment":   {"test", strings.Replace(prehashed, "file:test", "file:best", 1), minisign.ErrInvalid},
		"other key":         {"test", strings.Replace(prehashed, "RUQf", "RUQg", 1), minisign.ErrOtherKey},
		"another algorithm": {"test", strings.Replace(prehashed, "RUQf", "RVQf", 1), minisign.ErrMalformed},
		"empty":             {"test", "", minisign.ErrMalformed},
		"one line":          {"test", strings.Split(plain, "\n")[1], minisign.ErrMalformed},
		"short":             {"test", strings.Replace(plain, "RWQf6LRC", "", 1), minisign.ErrMalformed},
	} {
		if err := key.Verify([]byte(c.content), []byte(c.signature)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	for _, bad := range []string{"", "x", publicKey[4:], strings.Replace(publicKey, "RW", "RX", 1)} {
		if _, err := minisign.ParsePublicKey(bad); err == nil {
			t.Errorf("%q was accepted as a public key", bad)
		}
	}
}
