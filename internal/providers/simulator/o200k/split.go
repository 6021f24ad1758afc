package o200k

import (
	"unicode"
	"unicode/utf8"
)

// The encoding first splits text into pieces by this pattern. Merges never cross
// the boundary of a piece. nextPiece matches the pattern in linear time.
//
//	[^\r\n\p{L}\p{N}]?U*L+(?i:'s|'t|'re|'ve|'m|'ll|'d)?   a word that ends in lower case
//	[^\r\n\p{L}\p{N}]?U+L*(?i:'s|'t|'re|'ve|'m|'ll|'d)?   a word in capitals
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
//
// where U is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and L is [\p{Ll}\p{Lm}\p{Lo}\p{M}].

// The classes of the pattern that a character is in.
const (
	upper   = 1 << iota // U
	lower               // L
	letter              // \p{L}
	number              // \p{N}
	space               // \s
	newline             // \r, \n
)

var asciiClass = func() (classes [utf8.RuneSelf]uint8) {
	for c := range rune(utf8.RuneSelf) {
		switch {
		case 'A' <= c && c <= 'Z':
			classes[c] = upper | letter
		case 'a' <= c && c <= 'z':
			classes[c] = lower | letter
		case '0' <= c && c <= '9':
			classes[c] = number
		case c == '\r' || c == '\n':
			classes[c] = space | newline
		case unicode.IsSpace(c):
			classes[c] = space
		}
	}
	return classes
}()

// classAt returns the classes and the width of the character at i. At the end of
// the text, the width is 0.
func classAt(s string, i int) (class uint8, width int) {
	if i >= len(s) {
		return 0, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return asciiClass[c], 1
	}
	r, width := utf8.DecodeRuneInString(s[i:])
	return classOf(r), width
}

func classOf(r rune) uint8 {
	switch {
	case unicode.Is(unicode.Ll, r):
		return lower | letter
	case unicode.In(r, unicode.Lo, unicode.Lm):
		return upper | lower | letter
	case unicode.In(r, unicode.Lu, unicode.Lt):
		return upper | letter
	case unicode.Is(unicode.M, r):
		return upper | lower
	case unicode.Is(unicode.N, r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return 0
}

// skip returns the end of the run of characters at i that are in one of the classes.
func skip(s string, i int, wanted uint8) int {
	for {
		class, width := classAt(s, i)
		if class&wanted == 0 {
			return i
		}
		i += width
	}
}

// nextPiece returns the length of the first piece of s, which is not empty.
func nextPiece(s string) int {
	class, width := classAt(s, 0)
	if end := wordPiece(s, class, width); end > 0 {
		return contraction(s, end)
	}
	if class&number != 0 {
		end := width
		for range 2 {
			next, w := classAt(s, end)
			if next&number == 0 {
				break
			}
			end += w
		}
		return end
	}
	if end := symbols(s); end > 0 {
		return end
	}
	return spaces(s)
}

// wordPiece matches the first two lines of the pattern without the contraction,
// and returns 0 for no match. One character other than a letter may precede the word.
func wordPiece(s string, class uint8, width int) int {
	switch {
	case class&letter != 0:
		end, _ := word(s, 0)
		return end
	case class&(number|newline) != 0:
		return 0
	case class&lower != 0: // a combining mark leads a word, or is one
		if end, ok := word(s, width); ok {
			return end
		}
		end, _ := word(s, 0)
		return end
	}
	if end, _ := word(s, width); end > width {
		return end
	}
	return 0
}

// word returns the end of the word at i, or i if there is none. ok reports whether
// U*L+ matched, and not only U+L*.
func word(s string, i int) (end int, ok bool) {
	both := i // the end of the last character in both U and L
	for {
		class, width := classAt(s, i)
		if class&upper == 0 {
			break
		}
		i += width
		if class&lower != 0 {
			both = i
			ok = true
		}
	}
	if end := skip(s, i, lower); end > i {
		return end, true
	}
	if ok {
		return both, true
	}
	return i, false
}

// contraction extends the end of a word by an English contraction.
func contraction(s string, end int) int {
	rest := s[end:]
	if len(rest) < 2 || rest[0] != '\'' {
		return end
	}
	switch rest[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return end + 2
	}
	if len(rest) < 3 {
		return end
	}
	switch string([]byte{rest[1] | 0x20, rest[2] | 0x20}) {
	case "re", "ve", "ll":
		return end + 3
	}
	if rest[1:3] == "ſ" { // the long s is an s to a case-insensitive match
		return end + 3
	}
	return end
}

// symbols matches ` ?[^\s\p{L}\p{N}]+[\r\n/]*` and returns 0 for no match.
func symbols(s string) int {
	start := 0
	if s[0] == ' ' {
		start = 1
	}
	end := start
	for {
		class, width := classAt(s, end)
		if width == 0 || class&(space|letter|number) != 0 {
			break
		}
		end += width
	}
	if end == start {
		return 0
	}
	for end < len(s) && (s[end] == '\r' || s[end] == '\n' || s[end] == '/') {
		end++
	}
	return end
}

// spaces matches the last three lines of the pattern. It returns the run up to
// its last newline, or the whole run at the end of the text. Otherwise it
// returns all but the last character, which precedes the next word.
func spaces(s string) int {
	end, last, lineEnd := 0, 0, 0
	for {
		class, width := classAt(s, end)
		if class&space == 0 {
			break
		}
		last = end
		end += width
		if class&newline != 0 {
			lineEnd = end
		}
	}
	switch {
	case lineEnd > 0:
		return lineEnd
	case end < len(s) && last > 0:
		return last
	}
	return end
}
