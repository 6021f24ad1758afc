package safeschema

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// MaxPattern is the maximum size of a pattern in bytes.
	MaxPattern      = 1 << 10
	maxInstructions = 50_000 // of all compiled patterns
	// matchingPerStep is how many instructions of a pattern count as a step.
	matchingPerStep = 128
)

// Budget limits the work of validations. Every schema gets a format that counts
// steps, because the library checks it before anything else that takes time. It
// stops with a panic that Validate recovers.
type Budget struct {
	Steps          int  // remaining
	IgnorePatterns bool // patterns that Go can't compile, such as lookaheads, match everything
	IgnoreFormats  bool // formats are only names

	instructions int
}

type budgetExceeded struct{}

func (b *Budget) take(steps int) {
	if b.Steps -= steps; b.Steps < 0 {
		panic(budgetExceeded{})
	}
}

// Validate validates a value until it is done or exceeds the budget. Its error says
// what is wrong and where.
func (b *Budget) Validate(s *jsonschema.Schema, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(budgetExceeded); !ok {
				panic(p)
			}
			err = errors.New("it takes too long to validate; use a simpler schema or a smaller value")
		}
	}()
	err = s.Validate(v)
	if details, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return explain(details)
	}
	return err
}

// instrument adds a counting format to each reachable schema.
func (b *Budget) instrument(root *jsonschema.Schema) error {
	seen := map[*jsonschema.Schema]bool{root: true}
	for queue := []*jsonschema.Schema{root}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		if s.DynamicRef != nil || s.RecursiveRef != nil {
			return errors.New("it has $dynamicRef or $recursiveRef, which are not supported; use $ref")
		}
		for pattern := range s.PatternProperties {
			if _, ok := pattern.(unsupportedPattern); ok {
				s.PatternProperties[pattern] = &jsonschema.Schema{Location: s.Location} // accepts any value
			}
		}
		same, each := subschemas(s)
		for _, sub := range slices.Concat(same, each, slices.Collect(maps.Values(s.Properties))) {
			if !seen[sub] {
				seen[sub] = true
				queue = append(queue, sub)
			}
		}
		s.Format = b.countingFormat(s, cost(s)+costs(same), costs(each))
	}
	return nil
}

// countingFormat wraps a schema's format with counting. A schema costs once for
// itself and each for every member or item. The parent pays for a subschema that
// fails before its own format is reached.
func (b *Budget) countingFormat(s *jsonschema.Schema, once, each int) *jsonschema.Format {
	inner, name := s.Format, ""
	if inner != nil {
		name = inner.Name
	}
	if b.IgnoreFormats || name == "regex" { // regex would compile an untrusted pattern without a limit
		inner = nil
	}
	return &jsonschema.Format{Name: name, Validate: func(v any) error {
		steps := once
		switch v := v.(type) {
		case []any:
			steps += len(v) * (1 + each)
			if s.UniqueItems {
				steps += CountValues(v)
			}
		case map[string]any:
			steps += len(v) * (1 + each)
			for name := range v {
				if sub := s.Properties[name]; sub != nil {
					steps += cost(sub)
				}
			}
		case string:
			steps += len(v) / matchingPerStep
		}
		b.take(steps)
		if inner == nil {
			return nil
		}
		return inner.Validate(v)
	}}
}

// subschemas returns the subschemas that apply to the same value, and those that
// may apply to each of its members or items. It leaves out properties.
func subschemas(s *jsonschema.Schema) (same, each []*jsonschema.Schema) {
	same = append(same, s.Ref, s.Not, s.If, s.Then, s.Else, s.ContentSchema)
	same = slices.Concat(same, s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems, slices.Collect(maps.Values(s.DependentSchemas)))
	for _, dependency := range s.Dependencies {
		if sub, ok := dependency.(*jsonschema.Schema); ok {
			same = append(same, sub)
		}
	}
	each = append(each, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems)
	each = slices.AppendSeq(each, maps.Values(s.PatternProperties))
	for _, rest := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch sub := rest.(type) {
		case *jsonschema.Schema:
			each = append(each, sub)
		case []*jsonschema.Schema:
			same = append(same, sub...) // each applies to one item
		}
	}
	absent := func(sub *jsonschema.Schema) bool { return sub == nil }
	return slices.DeleteFunc(same, absent), slices.DeleteFunc(each, absent)
}

// cost returns the steps for a schema's own keywords.
func cost(s *jsonschema.Schema) int {
	n := 1 + len(s.Required) + len(s.Dependencies) + len(s.DependentSchemas)
	for _, names := range s.DependentRequired {
		n += 1 + len(names)
	}
	if s.Enum != nil {
		n += CountValues(s.Enum.Values)
	}
	if s.Const != nil {
		n += CountValues(*s.Const)
	}
	return n
}

func costs(list []*jsonschema.Schema) int {
	n := 0
	for _, s := range list {
		n += cost(s)
	}
	return n
}

// Pattern is a regular expression whose matching counts. Its time grows with the
// size of its program and of the text.
type Pattern struct {
	*regexp.Regexp
	Syntax       *syntax.Regexp
	budget       *Budget
	instructions int
}

// MatchString counts the steps and matches.
func (p *Pattern) MatchString(s string) bool {
	p.budget.take(1 + p.instructions*len(s)/matchingPerStep)
	return p.Regexp.MatchString(s)
}

// unsupportedPattern is a pattern that Go can't compile.
type unsupportedPattern string

func (p unsupportedPattern) String() string          { return string(p) }
func (p unsupportedPattern) MatchString(string) bool { return true }

func (b *Budget) compilePattern(text string) (jsonschema.Regexp, error) {
	if len(text) > MaxPattern {
		return nil, fmt.Errorf("it has more than %d bytes", MaxPattern)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil && b.IgnorePatterns {
		return unsupportedPattern(text), nil
	}
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if b.instructions += len(program.Inst); b.instructions > maxInstructions {
		return nil, errors.New("the patterns together are too large")
	}
	compiled, err := regexp.Compile(text)
	return &Pattern{compiled, parsed, b, len(program.Inst)}, err
}
