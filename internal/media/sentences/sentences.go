// Package sentences splits long texts into pieces where a reader would pause.
package sentences

import (
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// Split splits a text into pieces of at most limit characters (code points), each
// as long as possible. It splits after sentences. If a sentence is too long, it
// splits after clauses, then between words, and then inside a word. It splits a
// grapheme cluster only if that alone is too long. White space between pieces is
// removed.
func Split(text string, limit int) []string {
	s := splitter{text: text, limit: max(limit, 1)}
	s.split(words(text), sentenceEnd)
	return s.pieces()
}

// span is a range of the text, in bytes and in characters.
type span struct {
	start, end         int
	startRune, endRune int
}

func (s span) runes() int { return s.endRune - s.startRune }

// to returns the span from the start of s to the end of t.
func (s span) to(t span) span { return span{s.start, t.end, s.startRune, t.endRune} }

// splitter collects the parts that must stay whole.
type splitter struct {
	text  string
	limit int
	parts []span
}

// split splits after words with a break of the given strength, and splits parts
// that are still too long at weaker breaks.
func (s *splitter) split(words []word, at strength) {
	first := 0
	for i, w := range words {
		if w.after < at && i < len(words)-1 {
			continue
		}
		whole := words[first].to(w.span)
		switch {
		case whole.runes() <= s.limit:
			s.parts = append(s.parts, whole)
		case at > wordEnd:
			s.split(words[first:i+1], at-1)
		default:
			s.splitWord(whole)
		}
		first = i + 1
	}
}

// splitWord splits a word between grapheme clusters.
func (s *splitter) splitWord(w span) {
	part := span{w.start, w.start, w.startRune, w.startRune}
	add := func(size, runes int) {
		if part.runes()+runes > s.limit && part.runes() > 0 {
			s.parts = append(s.parts, part)
			part.start, part.startRune = part.end, part.endRune
		}
		part.end += size
		part.endRune += runes
	}
	for rest := s.text[w.start:w.end]; rest != ""; {
		cluster := firstCluster(rest)
		rest = rest[len(cluster):]
		if runes := utf8.RuneCountInString(cluster); runes <= s.limit {
			add(len(cluster), runes)
			continue
		}
		for cluster != "" { // a letter with more marks than the limit
			_, size := utf8.DecodeRuneInString(cluster)
			add(size, 1)
			cluster = cluster[size:]
		}
	}
	s.parts = append(s.parts, part)
}

// pieces joins parts to the longest possible pieces.
func (s *splitter) pieces() []string {
	var out []string
	for i := 0; i < len(s.parts); {
		piece := s.parts[i]
		for i++; i < len(s.parts); i++ {
			longer := piece.to(s.parts[i])
			if longer.runes() > s.limit {
				break
			}
			piece = longer
		}
		out = append(out, s.text[piece.start:piece.end])
	}
	return out
}

// firstCluster returns the first grapheme cluster of the text: a letter with its
// marks, an emoji of several code points, a flag.
func firstCluster(text string) string {
	// Only \r\n joins two ASCII characters.
	if len(text) == 1 || text[0] < utf8.RuneSelf && text[1] < utf8.RuneSelf && text[0] != '\r' {
		return text[:1]
	}
	cluster, _, _, _ := uniseg.FirstGraphemeClusterInString(text, -1)
	return cluster
}
