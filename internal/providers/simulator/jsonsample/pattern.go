package jsonsample

import (
	"regexp/syntax"
	"strings"
)

const maxPatternText = 4 << 10

// samplePattern returns a string for the pattern, with this many extra repetitions of everything
// that may repeat. It ignores anchors and word boundaries, so the caller has to check the result.
func samplePattern(re *syntax.Regexp, extra int) string {
	w := patternWriter{extra: extra}
	w.write(re)
	return w.String()
}

type patternWriter struct {
	strings.Builder
	extra int
	steps int
}

func (w *patternWriter) write(re *syntax.Regexp) {
	if w.steps++; w.steps > maxPatternText {
		return
	}
	repeat := 0
	switch re.Op {
	case syntax.OpLiteral:
		w.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		w.WriteRune(fromClass(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		w.WriteByte('x')
	case syntax.OpCapture, syntax.OpAlternate:
		w.write(re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			w.write(sub)
		}
	case syntax.OpPlus:
		repeat = 1 + w.extra
	case syntax.OpStar:
		repeat = w.extra
	case syntax.OpQuest:
		repeat = min(w.extra, 1)
	case syntax.OpRepeat:
		repeat = re.Min + w.extra
		if re.Max >= 0 {
			repeat = min(repeat, re.Max)
		}
	}
	for range repeat {
		if w.steps > maxPatternText {
			return
		}
		w.write(re.Sub[0])
	}
}

// fromClass returns a readable character of a class, which is given as ranges.
func fromClass(ranges []rune) rune {
	for _, preferred := range "axAX01 -_" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= preferred && preferred <= ranges[i+1] {
				return preferred
			}
		}
	}
	if len(ranges) == 0 {
		return 'x'
	}
	return ranges[0]
}
