package tools

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"
)

const (
	// minSecret is the length of the shortest value that is redacted. Shorter ones
	// would redact ordinary words.
	minSecret = 8
	// maxSecretForm is the length of the longest form of a header's value: JSON in
	// JSON takes seven bytes for a character.
	maxSecretForm = 8 * maxHeaderBytes

	redacted = "[hidden]"
)

// redact replaces the headers' values in a text, because servers may return what they received. It
// finds values as they are, escaped for JSON and escaped for URLs.
func redact(text string, headers map[string]string) string {
	text, _ = redactPrefix(text, headers, len(text))
	return text
}

// redactPrefix redacts the first n bytes of a text, including a value that begins
// there and ends later. It reports whether that is the complete text.
func redactPrefix(text string, headers map[string]string, n int) (_ string, complete bool) {
	complete = len(text) <= n
	n = len(trimTo(text, n))
	var out strings.Builder
	at := 0
	for _, s := range findSecrets(text[:min(len(text), n+maxSecretForm)], headers) {
		if s.from >= n {
			break
		}
		if s.from >= at {
			out.WriteString(text[at:s.from])
			out.WriteString(redacted)
		}
		at = max(at, s.to)
	}
	if at < n {
		out.WriteString(text[at:n])
	}
	return out.String(), complete
}

type span struct{ from, to int }

// findSecrets returns where a text contains the headers' values, in order. Spans
// may overlap, because one value may contain another.
func findSecrets(text string, headers map[string]string) (found []span) {
	for form := range secretForms(headers) {
		for at := 0; ; at += len(form) {
			i := strings.Index(text[at:], form)
			if i < 0 {
				break
			}
			at += i
			found = append(found, span{at, at + len(form)})
		}
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	return found
}

func secretForms(headers map[string]string) map[string]bool {
	forms := map[string]bool{}
	for _, value := range headers {
		scheme, credentials, _ := strings.Cut(value, " ") // Bearer …
		for prefix, secret := range map[string]string{"": value, scheme + " ": strings.TrimSpace(credentials)} {
			if len(secret) < minSecret {
				continue
			}
			list := []string{secret}
			for _, escaped := range []string{url.QueryEscape(secret), url.PathEscape(secret)} {
				list = append(list, escaped, lowerEscapes(escaped))
			}
			for _, e := range jsonEscapers {
				escaped := e.escape(secret)
				list = append(list, escaped, e.escape(escaped)) // also JSON in JSON
			}
			for _, form := range list {
				forms[form], forms[prefix+form] = true, true
			}
		}
	}
	return forms
}

// lowerEscapes writes the hexadecimal digits of URL escapes in lower case.
func lowerEscapes(s string) string {
	parts := strings.Split(s, "%")
	for i := 1; i < len(parts); i++ {
		parts[i] = strings.ToLower(parts[i][:2]) + parts[i][2:]
	}
	return strings.Join(parts, "%")
}

// jsonEscaper is how an encoder writes the characters of a JSON string.
type jsonEscaper struct {
	backslash string // characters written with a backslash
	unicode   string // characters written as \u and four digits
	ascii     bool   // so are all that are not ASCII
	format    string // of \u
}

// The encoders of most languages, of Go, Python, PHP and .NET.
var jsonEscapers = []jsonEscaper{
	{backslash: `"\`},
	{backslash: `"\`, unicode: "<>&", format: `\u%04x`},
	{backslash: `"\`, ascii: true, format: `\u%04x`},
	{backslash: `"\/`, ascii: true, format: `\u%04x`},
	{backslash: `\`, unicode: "\"<>&+'`", ascii: true, format: `\u%04X`},
}

func (e jsonEscaper) escape(s string) string {
	var out strings.Builder
	for _, r := range s {
		switch {
		case strings.ContainsRune(e.backslash, r):
			out.WriteByte('\\')
			out.WriteRune(r)
		case r == '\t': // the only control character that a header can have
			out.WriteString(`\t`)
		case strings.ContainsRune(e.unicode, r) || e.ascii && r > 0x7f:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&out, e.format, unit)
			}
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}
