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

// redact replaces the headers' values in a text, because servers may return what
// they received. It finds values as they are, escaped for JSON and escaped for
// URLs.
func redact(text string, headers map[string]string) string {
	text, _ = redactPrefix(text, headers, len(text))
	return text
}

// redactPrefix redacts a text and shortens it to about n bytes, so that no part
// of a value is left at the end. It reports whether the text is complete.
func redactPrefix(text string, headers map[string]string, n int) (_ string, complete bool) {
	forms := secretForms(headers)
	replacements := make([]string, 0, 2*len(forms))
	longest := 0
	for _, form := range forms {
		replacements = append(replacements, form, redacted)
		longest = max(longest, len(form))
	}
	complete = len(text) <= n
	text = strings.NewReplacer(replacements...).Replace(text[:min(len(text), n+longest)])
	if complete {
		return text, true
	}
	// The last bytes may be a part of a value, which was not found.
	return trimTo(text, min(n, len(text)-longest)), false
}

// secretForms returns the headers' values in all forms, longest first: one value
// may contain another.
func secretForms(headers map[string]string) (forms []string) {
	for _, value := range headers {
		_, credentials, _ := strings.Cut(value, " ") // Bearer …
		for _, secret := range []string{value, strings.TrimSpace(credentials)} {
			if len(secret) < minSecret {
				continue
			}
			forms = append(forms, secret)
			for _, escaped := range []string{url.QueryEscape(secret), url.PathEscape(secret)} {
				forms = append(forms, escaped, lowerEscapes(escaped))
			}
			for _, e := range jsonEscapers {
				escaped := e.escape(secret)
				forms = append(forms, escaped, e.escape(escaped)) // also JSON in JSON
			}
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return slices.Compact(forms)
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
