package responses

import (
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// inputReader reads the input of a custom tool while its function's arguments arrive.
type inputReader struct {
	open   bool // the value has begun
	closed bool
	at     int // offset in the arguments
	text   strings.Builder
}

var inputStart = regexp.MustCompile(`^\s*\{\s*"input"\s*:\s*"`)

// next returns the text since the last call. If the arguments don't begin with the input, there is
// none until finish.
func (r *inputReader) next(arguments string) string {
	if r.closed {
		return ""
	}
	if !r.open {
		found := inputStart.FindStringIndex(arguments)
		if found == nil {
			return ""
		}
		r.open, r.at = true, found[1]
	}
	rest := arguments[r.at:]
	n := wholeCharacters(rest)
	r.closed = n < len(rest) && rest[n] == '"'
	r.at += n
	text, _ := jsontext.AppendUnquote(nil, `"`+rest[:n]+`"`)
	r.text.Write(text)
	return string(text)
}

// finish returns the whole input, and the text since the last call.
func (r *inputReader) finish(arguments string) (input, rest string) {
	sent := r.text.String()
	input = customInput(arguments)
	if rest, ok := strings.CutPrefix(input, sent); ok && (!r.open || r.closed) {
		return input, rest
	}
	return sent, "" // the arguments aren't valid JSON, as in a response that was cut
}

// wholeCharacters returns how many bytes of the inside of a JSON string are complete characters
// before its closing quote.
func wholeCharacters(s string) int {
	i := 0
	for i < len(s) && s[i] != '"' {
		size := 1
		if s[i] == '\\' {
			size = escapeSize(s[i:])
		}
		if i+size > len(s) {
			break
		}
		i += size
	}
	return i
}

// escapeSize returns the length of the escape sequence at the start of s. It may exceed s.
func escapeSize(s string) int {
	const short, long = 2, 6
	if len(s) < short || s[1] != 'u' {
		return short
	}
	if len(s) >= long && strings.ContainsAny(s[2:3], "dD") && strings.ContainsAny(s[3:4], "89abAB") {
		return 2 * long // a surrogate needs its other half
	}
	return long
}
