package tools

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxSteps limits one validation to some tenths of a second. A small schema
	// with nested references can take 2^1000 steps.
	maxSteps = 1 << 18

	maxPattern      = 1 << 10 // bytes
	maxInstructions = 50_000  // of all compiled patterns
	// matchingPerStep is how many instructions of a pattern count as a step.
	matchingPerStep = 128
)

// schemaBudget limits the work of one validation. The jsonschema library has no
// limit, so every schema gets a format that counts steps before the library
// validates anything else. It stops with a panic that run recovers.
type schemaBudget struct {
	left         int
	instructions int
	lenient      bool // an unsupported pattern matches everything
}

// budgetExceeded is the value of the panic.
type budgetExceeded struct{}

func (b *schemaBudget) take(steps int) {
	if b.left -= steps; b.left < 0 {
		panic(budgetExceeded{})
	}
}

// run runs a validation until it ends or exceeds the budget.
func (b *schemaBudget) run(validate func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(budgetExceeded); !ok {
				panic(p)
			}
			err = errors.New("it takes too long to validate; use a simpler schema or a smaller value")
		}
	}()
	err = validate()
	var details *jsonschema.ValidationError
	if errors.As(err, &details) {
		return explain(details)
	}
	return err
}

// instrument adds a counting format to each reachable schema.
func (b *schemaBudget) instrument(root *jsonschema.Schema) error {
	seen := map[*jsonschema.Schema]bool{root: true}
	for queue := []*jsonschema.Schema{root}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		if s.DynamicRef != nil || s.RecursiveRef != nil {
			return errors.New("it has $dynamicRef or $recursiveRef, which are not supported; use $ref")
		}
		ignoreUnsupported(s)
		same, each := children(s)
		for _, list := range [][]*jsonschema.Schema{same, each, values(s.Properties)} {
			for _, child := range list {
				if !seen[child] {
					seen[child] = true
					queue = append(queue, child)
				}
			}
		}
		s.Format = b.countingFormat(s, size(s)+sizes(same), sizes(each))
	}
	return nil
}

// countingFormat wraps a schema's format with counting. A schema costs once for
// itself and each for every member or item. The parent pays for a child that fails
// before its own format is reached.
func (b *schemaBudget) countingFormat(s *jsonschema.Schema, once, each int) *jsonschema.Format {
	inner := s.Format
	name := ""
	if inner != nil {
		name = inner.Name
	}
	if name == "regex" { // it would compile an untrusted pattern without a limit
		inner = nil
	}
	return &jsonschema.Format{Name: name, Validate: func(v any) error {
		steps := once
		switch v := v.(type) {
		case []any:
			steps += len(v) * (1 + each)
			if s.UniqueItems {
				steps += nodes(v)
			}
		case map[string]any:
			steps += len(v) * (1 + each)
			for name := range v {
				if child := s.Properties[name]; child != nil {
					steps += size(child)
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

// children returns the subschemas that apply to the same value, and those that may
// apply to each of its members or items. It leaves out properties.
func children(s *jsonschema.Schema) (same, each []*jsonschema.Schema) {
	same = append(same, s.AllOf...)
	same = append(same, s.AnyOf...)
	same = append(same, s.OneOf...)
	same = append(same, values(s.DependentSchemas)...)
	same = append(same, s.Ref, s.Not, s.If, s.Then, s.Else, s.ContentSchema)
	for _, dependency := range s.Dependencies {
		if child, ok := dependency.(*jsonschema.Schema); ok {
			same = append(same, child)
		}
	}
	each = append(each, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems)
	for _, child := range s.PatternProperties {
		each = append(each, child)
	}
	for _, maybe := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch child := maybe.(type) {
		case *jsonschema.Schema:
			each = append(each, child)
		case []*jsonschema.Schema:
			same = append(same, child...) // each applies to one item
		}
	}
	same = append(same, s.PrefixItems...)
	return present(same), present(each)
}

func present(list []*jsonschema.Schema) []*jsonschema.Schema {
	kept := list[:0]
	for _, s := range list {
		if s != nil {
			kept = append(kept, s)
		}
	}
	return kept
}

func values(m map[string]*jsonschema.Schema) []*jsonschema.Schema {
	list := make([]*jsonschema.Schema, 0, len(m))
	for _, s := range m {
		list = append(list, s)
	}
	return list
}

// size is the cost of a schema's own keywords.
func size(s *jsonschema.Schema) int {
	n := 1 + len(s.Required) + len(s.Dependencies) + len(s.DependentSchemas)
	for _, names := range s.DependentRequired {
		n += 1 + len(names)
	}
	if s.Enum != nil {
		n += nodes(s.Enum.Values)
	}
	if s.Const != nil {
		n += nodes(*s.Const)
	}
	return n
}

func sizes(list []*jsonschema.Schema) int {
	n := 0
	for _, s := range list {
		n += size(s)
	}
	return n
}

// compilePattern compiles a regular expression whose matching counts. Its time
// grows with the size of its program and of the text.
func (b *schemaBudget) compilePattern(text string) (jsonschema.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("it has more than %d bytes", maxPattern)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil && b.lenient {
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
	if err != nil {
		return nil, err
	}
	return &countingPattern{compiled, b, len(program.Inst)}, nil
}

// unsupportedPattern is a pattern that Go can't compile, such as a lookahead.
type unsupportedPattern string

func (p unsupportedPattern) String() string          { return string(p) }
func (p unsupportedPattern) MatchString(string) bool { return true }

// ignoreUnsupported accepts any value for the members of unsupported patterns.
func ignoreUnsupported(s *jsonschema.Schema) {
	for pattern := range s.PatternProperties {
		if _, ok := pattern.(unsupportedPattern); ok {
			s.PatternProperties[pattern] = &jsonschema.Schema{Location: s.Location}
		}
	}
}

type countingPattern struct {
	*regexp.Regexp
	budget       *schemaBudget
	instructions int
}

func (p *countingPattern) MatchString(s string) bool {
	p.budget.take(1 + p.instructions*len(s)/matchingPerStep)
	return p.Regexp.MatchString(s)
}
