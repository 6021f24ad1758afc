package sentences

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// strength ranks the places for a pause.
type strength int

const (
	wordEnd strength = iota
	clauseEnd
	sentenceEnd
)

// word is a range without white space. Dashes, and stops of scripts without
// spaces, end a word, too.
type word struct {
	span
	after strength // of the break after it
}

const (
	// fullStops end a sentence anywhere.
	fullStops = "。！？｡"
	// clauseStops end a clause anywhere.
	clauseStops = "，、；：､—"
	// stops end a sentence before white space.
	stops = ".!?…؟۔।॥‼⁇⁈⁉።፧" + fullStops
	// pauses end a clause before white space.
	pauses = ",;:–،؛" + clauseStops
	// closers belong to the sentence before them.
	closers = "\"'”’»›)]}」』】）〉》］｣＂"
	// openers belong to the sentence after them.
	openers = "\"'“‘„«‹([{¿¡「『【（〈《［"
)

// words returns the words of a text. It goes by grapheme clusters, so that it
// never splits one.
func words(text string) []word {
	var out []word
	at, runes := 0, 0
	for at < len(text) {
		w := word{span: span{start: at, startRune: runes}}
		stopped := false // by a mark that ends words without white space
		for at < len(text) {
			cluster := firstCluster(text[at:])
			mark, _ := utf8.DecodeRuneInString(cluster)
			if isSpace(cluster) {
				break
			}
			if isStop := strings.ContainsRune(fullStops+clauseStops, mark); stopped && !isStop && !strings.ContainsRune(closers+stops, mark) {
				break
			} else if isStop {
				stopped = true
			}
			at += len(cluster)
			runes += utf8.RuneCountInString(cluster)
		}
		w.end, w.endRune = at, runes
		gap := at
		for at < len(text) {
			cluster := firstCluster(text[at:])
			if !isSpace(cluster) {
				break
			}
			at += len(cluster)
			runes += utf8.RuneCountInString(cluster)
		}
		if w.end > w.start {
			w.after = breakAfter(text[w.start:w.end], text[gap:at], text[at:])
			out = append(out, w)
		}
	}
	return out
}

// isSpace reports whether a cluster is white space without marks, which are visible.
func isSpace(cluster string) bool {
	for _, c := range cluster {
		if !unicode.IsSpace(c) {
			return false
		}
	}
	return true
}

// breakAfter returns the strength of the gap after a word.
func breakAfter(word, gap, rest string) strength {
	if countLineEnds(gap) > 1 {
		return sentenceEnd
	}
	body := strings.TrimRightFunc(word, func(c rune) bool { return strings.ContainsRune(closers, c) || unicode.Is(unicode.M, c) })
	mark, size := utf8.DecodeLastRuneInString(body)
	switch {
	case strings.ContainsRune(fullStops, mark):
		return sentenceEnd
	case strings.ContainsRune(stops, mark):
		if mark == '.' && isAbbreviation(body[:len(body)-size], rest) {
			return wordEnd
		}
		// "Stop!" he said; and so on… and on.
		quoted := len(body) < len(word)
		if (mark == '.' || mark == '…' || quoted) && startsLowercase(rest) {
			return clauseEnd
		}
		return sentenceEnd
	case strings.ContainsRune(pauses, mark), countLineEnds(gap) > 0:
		return clauseEnd
	}
	return wordEnd
}

// countLineEnds counts line ends. A paragraph separator counts as two.
func countLineEnds(gap string) int {
	return strings.Count(gap, "\n") + 2*strings.Count(gap, "\u2029")
}

func startsLowercase(rest string) bool {
	for range 3 { // after at most a quotation mark and a bracket
		first, size := utf8.DecodeRuneInString(rest)
		if !strings.ContainsRune(openers, first) {
			return unicode.IsLower(first)
		}
		rest = rest[size:]
	}
	return false
}

// abbreviations don't end a sentence. They are in lowercase and without the last
// full stop. Abbreviations that often end a sentence are not listed.
var abbreviations = strings.Fields(`
	mr mrs ms dr prof st messrs rev hon gen col capt lt sgt gov sen rep pres vs cf fig figs vol ch sec approx dept
	ed eds mt ave viz al
	hr fr bzw ca nr str vgl inkl evtl ggf sog abb bspw
	mme mlle mm sra srta ud uds sig dott dra núm pág`) // English, German, and Romance languages

// beforeNumbers are abbreviations only before a number.
var beforeNumbers = []string{"no", "nos", "art", "p", "pp", "op", "abs", "nº"}

const maxAbbreviation = 16

// isAbbreviation reports whether a full stop after the word marks an abbreviation.
func isAbbreviation(word, rest string) bool {
	if len(word) > maxAbbreviation {
		return false
	}
	word = strings.TrimLeft(word, openers)
	if word == "I" { // rarely an initial
		return false
	}
	lower := strings.ToLower(word)
	if first, _ := utf8.DecodeRuneInString(rest); slices.Contains(beforeNumbers, lower) && unicode.IsDigit(first) {
		return true
	}
	return slices.Contains(abbreviations, lower) || isInitials(word)
}

// isInitials reports whether a word is single letters with full stops between
// them: J, e.g, U.S.
func isInitials(word string) bool {
	for letter := range strings.SplitSeq(word, ".") {
		first, size := utf8.DecodeRuneInString(letter)
		// In scripts without case, a letter can be a word.
		if size == 0 || size < len(letter) || !unicode.IsUpper(first) && !unicode.IsLower(first) {
			return false
		}
	}
	return true
}
