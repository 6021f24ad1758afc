package o200k

import (
	"regexp"
	"unicode"
	"unicode/utf8"
)

// pieces is the pattern by which the encoding first splits text. Merges never cross the boundary of
// a piece. The original ends in \s+(?!\S)|\s+ instead, which nextPiece does, and \s matches all of
// Unicode's white space. Go's engine takes linear time.
var pieces = regexp.MustCompile(`^(?:` +
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` + // ends in lower case
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` + // in capitals
	`\p{N}{1,3}|` +
	` ?[^\t-\r\x85\p{Z}\p{L}\p{N}]+[\r\n/]*|` +
	`[\t-\r\x85\p{Z}]*[\r\n]+|` +
	`[\t-\r\x85\p{Z}]+)`)

// nextPiece returns the length of the first piece of s, which is not empty.
func nextPiece(s string) int {
	if end := asciiWord(s); end > 0 {
		return end
	}
	end := pieces.FindStringIndex(s)[1]
	// The last of several spaces precedes the next word.
	last, width := utf8.DecodeLastRuneInString(s[:end])
	if end < len(s) && width < end && unicode.IsSpace(last) && last != '\r' && last != '\n' {
		end -= width
	}
	return end
}

// asciiWord returns the length of a piece such as " word" or "Word", or 0. Most pieces are like
// that, and the pattern takes ten times as long.
func asciiWord(s string) int {
	end := 0
	if s[0] == ' ' || 'A' <= s[0] && s[0] <= 'Z' {
		end = 1
	}
	start := end
	for end < len(s) && 'a' <= s[end] && s[end] <= 'z' {
		end++
	}
	// A contraction or a letter beyond ASCII may follow.
	if end == start || end < len(s) && (s[end] == '\'' || s[end] >= utf8.RuneSelf) {
		return 0
	}
	return end
}
