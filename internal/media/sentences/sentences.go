// Package sentences cuts long texts into pieces that a voice can read one at
// a time, so that the cuts are where a reader would pause.
package sentences

import (
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// Split cuts a text into pieces of at most max characters (code points), each
// as long as possible. It cuts at the ends of sentences; a sentence that is
// too long at its clauses, those between words, and only a word that is too
// long by itself anywhere, but never through what is seen as one character,
// unless even that is too long. The pieces are the text without the white
// space between them; a text without anything else has none.
func Split(text string, max int) []string {
	if max < 1 {
		max = 1
	}
	c := cutter{text: text, max: max}
	c.cut(words(text), sentenceEnd)
	return c.pieces()
}

// span is a stretch of the text, in bytes and in characters.
type span struct {
	start, end         int
	startRune, endRune int
}

func (s span) runes() int { return s.endRune - s.startRune }

// to is the stretch from one span's start to another's end.
func (s span) to(t span) span { return span{s.start, t.end, s.startRune, t.endRune} }

// cutter finds the parts that must stay whole.
type cutter struct {
	text  string
	max   int
	parts []span
}

// cut divides words behind those that end with a break of the given strength,
// and what is still too long at the next weaker one.
func (c *cutter) cut(words []word, at strength) {
	first := 0
	for i, w := range words {
		if w.after < at && i < len(words)-1 {
			continue
		}
		whole := words[first].to(w.span)
		switch {
		case whole.runes() <= c.max:
			c.parts = append(c.parts, whole)
		case at > wordEnd:
			c.cut(words[first:i+1], at-1)
		default:
			c.cutWord(whole)
		}
		first = i + 1
	}
}

// cutWord divides a single word between what is seen as characters.
func (c *cutter) cutWord(w span) {
	part := span{w.start, w.start, w.startRune, w.startRune}
	add := func(size, runes int) {
		if part.runes()+runes > c.max && part.runes() > 0 {
			c.parts = append(c.parts, part)
			part.start, part.startRune = part.end, part.endRune
		}
		part.end += size
		part.endRune += runes
	}
	for rest := c.text[w.start:w.end]; rest != ""; {
		cluster := firstCluster(rest)
		rest = rest[len(cluster):]
		if runes := utf8.RuneCountInString(cluster); runes <= c.max {
			add(len(cluster), runes)
			continue
		}
		for cluster != "" { // a letter with more marks than a whole piece may have
			_, size := utf8.DecodeRuneInString(cluster)
			add(size, 1)
			cluster = cluster[size:]
		}
	}
	c.parts = append(c.parts, part)
}

// pieces joins the parts to pieces as long as they may be.
func (c *cutter) pieces() []string {
	var out []string
	for i := 0; i < len(c.parts); {
		piece := c.parts[i]
		for i++; i < len(c.parts); i++ {
			longer := piece.to(c.parts[i])
			if longer.runes() > c.max {
				break
			}
			piece = longer
		}
		out = append(out, c.text[piece.start:piece.end])
	}
	return out
}

// firstCluster is what is seen as the text's first character: a letter with
// its marks, an emoji of several code points, a flag.
func firstCluster(text string) string {
	// Nothing joins two ASCII characters but the end of a line.
	if len(text) == 1 || text[0] < utf8.RuneSelf && text[1] < utf8.RuneSelf && text[0] != '\r' {
		return text[:1]
	}
	cluster, _, _, _ := uniseg.FirstGraphemeClusterInString(text, -1)
	return cluster
}
