package sentences

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// strength is how good a place for a pause is.
type strength int

const (
	wordEnd strength = iota
	clauseEnd
	sentenceEnd
)

// word is a stretch without white space, or less: the scripts that write
// sentences without spaces, and dashes, end one too.
type word struct {
	span
	after strength // of the break behind it
}

const (
	// fullStops end a sentence wherever they stand.
	fullStops = "。！？｡"
	// clauseStops end a clause wherever they stand.
	clauseStops = "，、；：､—"
	// stops end a sentence before white space.
	stops = ".!?…؟۔।॥‼⁇⁈⁉።፧" + fullStops
	// pauses end a clause before white space.
	pauses = ",;:–،؛" + clauseStops
	// closers belong to the sentence before them.
	closers = "\"'”’»›)]}」』】）〉》］｣＂"
	// openers belong to the sentence behind them.
	openers = "\"'“‘„«‹([{¿¡「『【（〈《［"
)

// words finds the places between which a text is never cut. It goes by what is
// seen as a character, so that none of these is ever divided here.
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

// isSpace reports whether a character is white space alone: a space that
// carries a mark is seen.
func isSpace(cluster string) bool {
	for _, c := range cluster {
		if !unicode.IsSpace(c) {
			return false
		}
	}
	return true
}

// breakAfter is how good a place the gap behind a word is for a pause.
func breakAfter(word, gap, rest string) strength {
	if paragraphs(gap) > 1 {
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
		if (mark == '.' || mark == '…' || quoted) && startsLow(rest) {
			return clauseEnd
		}
		return sentenceEnd
	case strings.ContainsRune(pauses, mark), paragraphs(gap) > 0:
		return clauseEnd
	}
	return wordEnd
}

// paragraphs counts the ends of lines.
func paragraphs(gap string) int {
	return strings.Count(gap, "\n") + 2*strings.Count(gap, "\u2029")
}

// startsLow reports whether a text goes on with a small letter.
func startsLow(rest string) bool {
	for range 3 { // behind a quotation mark and a bracket at most
		first, size := utf8.DecodeRuneInString(rest)
		if !strings.ContainsRune(openers, first) {
			return unicode.IsLower(first)
		}
		rest = rest[size:]
	}
	return false
}

// abbreviations that are followed by more of their sentence, in small letters
// and without the last full stop. Those that often end one are left out: what
// follows them decides.
var abbreviations = map[string]bool{
	// English
	"mr": true, "mrs": true, "ms": true, "dr": true, "prof": true, "st": true, "messrs": true, "rev": true, "hon": true, "gen": true, "col": true,
	"capt": true, "lt": true, "sgt": true, "gov": true, "sen": true, "rep": true, "pres": true, "vs": true, "cf": true, "fig": true, "figs": true,
	"vol": true, "ch": true, "sec": true, "approx": true, "dept": true, "ed": true, "eds": true, "mt": true, "ave": true, "viz": true, "al": true,
	// German
	"hr": true, "fr": true, "bzw": true, "ca": true, "nr": true, "str": true, "vgl": true, "inkl": true, "evtl": true, "ggf": true, "sog": true, "abb": true, "bspw": true,
	// French, Spanish, Italian, Portuguese
	"mme": true, "mlle": true, "mm": true, "sra": true, "srta": true, "ud": true, "uds": true, "sig": true, "dott": true, "dra": true, "núm": true, "pág": true,
}

// beforeNumbers are abbreviations only where a number follows.
var beforeNumbers = map[string]bool{"no": true, "nos": true, "art": true, "p": true, "pp": true, "op": true, "abs": true, "nº": true}

// maxAbbreviation bounds how much of a word is looked at.
const maxAbbreviation = 16

// isAbbreviation reports whether a full stop behind this word shortens it.
func isAbbreviation(word, rest string) bool {
	if len(word) > maxAbbreviation {
		return false
	}
	word = strings.TrimLeft(word, openers)
	if word == "I" { // seldom an initial
		return false
	}
	small := strings.ToLower(word)
	if first, _ := utf8.DecodeRuneInString(rest); beforeNumbers[small] && unicode.IsDigit(first) {
		return true
	}
	return abbreviations[small] || isLetters(word)
}

// isLetters reports whether a word is single letters with full stops between
// them: J, e.g, U.S.
func isLetters(word string) bool {
	for letter := range strings.SplitSeq(word, ".") {
		first, size := utf8.DecodeRuneInString(letter)
		// Of letters without large and small ones each can be a word.
		if size == 0 || size < len(letter) || !unicode.IsUpper(first) && !unicode.IsLower(first) {
			return false
		}
	}
	return true
}
