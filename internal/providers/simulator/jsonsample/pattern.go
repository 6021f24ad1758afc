package jsonsample

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxPatternWeight limits all patterns of a schema together: (a{30}){30} is
	// short to write and has a thousand instructions.
	maxPatternWeight = 10_000
	// maxPatternText limits the strings generated from a pattern.
	maxPatternText = 4 << 10
)

// pattern is a regular expression that counts the work of its matching.
type pattern struct {
	*regexp.Regexp
	tree    *syntax.Regexp
	weight  int // roughly the number of instructions: the cost of matching a byte
	sampler *sampler
}

func (s *sampler) compilePattern(text string) (jsonschema.Regexp, error) {
	if p := s.patterns[text]; p != nil {
		return p, nil
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, errors.New("only RE2 syntax is supported")
	}
	p := &pattern{tree: tree, weight: weigh(tree), sampler: s}
	if s.patternWeight += p.weight; s.patternWeight > maxPatternWeight {
		return nil, errors.New("the patterns of the schema are too large")
	}
	s.patterns[text] = p
	p.Regexp, err = regexp.Compile(text)
	return p, err
}

func weigh(re *syntax.Regexp) int {
	weight := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		weight = min(weight+weigh(sub), maxPatternWeight+1)
	}
	if re.Op == syntax.OpRepeat {
		weight *= max(re.Min, re.Max, 1)
	}
	return min(weight, maxPatternWeight+1)
}

func (p *pattern) MatchString(text string) bool {
	if p.sampler.steps += 1 + p.weight*len(text)/128; p.sampler.checkLimits() != nil {
		return false
	}
	return p.Regexp.MatchString(text)
}

// sample returns a string for the pattern, with this many extra repetitions of
// everything that may repeat. It ignores anchors and word boundaries, so the
// caller has to check the result.
func (p *pattern) sample(extra int) string {
	w := patternWriter{extra: extra}
	w.write(p.tree)
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
