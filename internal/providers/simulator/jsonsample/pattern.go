package jsonsample

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// pattern is a compiled regular expression. Its weight is about the number of
// its instructions, which is what a match costs per byte.
type pattern struct {
	*regexp.Regexp
	weight int
}

// maxWeight bounds all patterns of a schema together: (a{1000}){1000} is short
// to write and a hundred megabytes to compile.
const maxWeight = 10_000

func (s *schema) compile(text string) error {
	if _, ok := s.patterns[text]; ok {
		return nil
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return fmt.Errorf("the pattern %.80q uses regular expression syntax that is not simulated", text)
	}
	p := pattern{weight: weigh(tree)}
	if s.weight += p.weight; s.weight > maxWeight {
		return fmt.Errorf("the schema's patterns are too large, at %.80q", text)
	}
	if p.Regexp, err = regexp.Compile(text); err != nil {
		return fmt.Errorf("the pattern %.80q cannot be compiled", text)
	}
	s.patterns[text] = p
	return nil
}

func weigh(re *syntax.Regexp) int {
	weight := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		weight = min(weight+weigh(sub), maxWeight+1)
	}
	if re.Op == syntax.OpRepeat {
		weight *= max(re.Min, re.Max, 1)
	}
	return min(weight, maxWeight+1)
}

// textWriter makes a text that a pattern matches.
type textWriter struct {
	strings.Builder
	extra int // further repetitions of what may be repeated
	steps int
}

// fromPattern makes a text that the pattern matches, with extra repetitions.
// Anchors and word borders are not looked at, so the caller checks.
func fromPattern(text string, extra int) string {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return ""
	}
	w := textWriter{extra: extra}
	w.write(tree)
	return w.String()
}

func (w *textWriter) write(re *syntax.Regexp) {
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

// fromClass picks a readable character of a class, given as ranges.
func fromClass(ranges []rune) rune {
	for _, wanted := range "axAX01 -_" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= wanted && wanted <= ranges[i+1] {
				return wanted
			}
		}
	}
	if len(ranges) == 0 {
		return 'x'
	}
	return ranges[0]
}
