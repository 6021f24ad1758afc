package tools

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// leastSecret is what is hidden: shorter values would take ordinary words
	// with them.
	leastSecret = 8 // bytes
	// longestSecret is how long one can be in an answer: JSON in JSON takes
	// seven bytes for a character.
	longestSecret = 8 * maxHeaderBytes
	// jsonInJSON is how often a text is taken for the inside of JSON.
	jsonInJSON = 3
)

// hide takes the headers' values out of a text: servers that show what they
// were sent must not put them into a run's record.
func hide(text string, headers map[string]string) string {
	text, _ = hideWithin(text, headers, len(text))
	return text
}

// hideWithin is what the first n bytes of a text become. Secrets are looked for
// beyond them, so that none is cut in two and then not found.
func hideWithin(text string, headers map[string]string, n int) (shown string, whole bool) {
	n = min(n, len(text))
	whole = n == len(text)
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	var out strings.Builder
	at := 0
	for _, s := range secretsIn(text[:min(len(text), n+longestSecret)], secretsOf(headers)) {
		if s.from >= n {
			break
		}
		out.WriteString(text[at:s.from])
		out.WriteString("[hidden]")
		at = s.to
	}
	if at < n {
		out.WriteString(text[at:n])
	}
	return out.String(), whole
}

func secretsOf(headers map[string]string) (list [][]byte) {
	for _, value := range headers {
		list = append(list, []byte(value))
		if _, credentials, ok := strings.Cut(value, " "); ok { // Bearer …
			list = append(list, []byte(strings.TrimSpace(credentials)))
		}
	}
	return slices.DeleteFunc(list, func(s []byte) bool { return len(s) < leastSecret })
}

// span is a part of a text.
type span struct{ from, to int }

// secretsIn finds secrets in a text: as they are, as strings of JSON and of
// JSON in JSON, and as parts of a URL in any of these. Those that overlap are
// one: half of a secret is one, too.
func secretsIn(text string, secrets [][]byte) []span {
	if len(secrets) == 0 {
		return nil
	}
	var found []span
	read := plain(text)
	for range 1 + jsonInJSON {
		found = read.find(secrets, found)
		if bytes.IndexByte(read.text, '%') >= 0 {
			found = read.decoded(percent).find(secrets, found)
		}
		if bytes.IndexByte(read.text, '\\') < 0 {
			break
		}
		read = read.decoded(escape)
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) })
	var list []span
	for _, s := range found {
		if last := len(list) - 1; last >= 0 && s.from < list[last].to {
			list[last].to = max(list[last].to, s.to)
			continue
		}
		list = append(list, s)
	}
	return list
}

// reading is a text as somebody may read it, with the place of each of its
// bytes, and of its end, in what was sent.
type reading struct {
	text []byte
	from []int32
}

func plain(text string) reading {
	r := reading{[]byte(text), make([]int32, len(text)+1)}
	for i := range r.from {
		r.from[i] = int32(i)
	}
	return r
}

func (r reading) find(secrets [][]byte, found []span) []span {
	for _, s := range secrets {
		for at := 0; ; at += len(s) {
			i := bytes.Index(r.text[at:], s)
			if i < 0 {
				break
			}
			at += i
			found = append(found, span{int(r.from[at]), int(r.from[at+len(s)])})
		}
	}
	return found
}

// decoded is the text read once more. A notation says what the text begins
// with, and in how many bytes; none is a text that stands for itself.
func (r reading) decoded(notation func(text []byte) (is []byte, size int)) reading {
	out := reading{make([]byte, 0, len(r.text)), make([]int32, 0, len(r.from))}
	for i := 0; i < len(r.text); {
		is, size := notation(r.text[i:])
		if size == 0 {
			is, size = r.text[i:i+1], 1
		}
		for _, b := range is {
			out.text, out.from = append(out.text, b), append(out.from, r.from[i])
		}
		i += size
	}
	out.from = append(out.from, r.from[len(r.text)])
	return out
}

// percent is the notation of URLs.
func percent(text []byte) ([]byte, int) {
	if len(text) < 3 || text[0] != '%' {
		return nil, 0
	}
	n, err := strconv.ParseUint(string(text[1:3]), 16, 8)
	if err != nil {
		return nil, 0
	}
	return []byte{byte(n)}, 3
}

// escape is the notation of JSON's strings.
func escape(text []byte) ([]byte, int) {
	if len(text) < 2 || text[0] != '\\' {
		return nil, 0
	}
	switch c := text[1]; c {
	case '"', '\\', '/':
		return []byte{c}, 2
	case 't': // of the other control characters a header has none
		return []byte{'\t'}, 2
	}
	r, ok := unit(text)
	if !ok {
		return nil, 0
	}
	if low, ok := unit(text[6:]); ok && utf16.IsSurrogate(r) {
		if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
			return utf8.AppendRune(nil, both), 12
		}
	}
	return utf8.AppendRune(nil, r), 6
}

// unit reads \u and four digits.
func unit(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}
