package tools

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxSteps is what one validation may take. A small schema can ask for
	// 2^1000 of them: two references to a place with two references to a
	// place … . All of it is some tenths of a second.
	maxSteps = 1 << 18

	maxPattern      = 1 << 10 // bytes
	maxInstructions = 50_000  // of all patterns, compiled
	// A step is as much work as this many instructions for a character.
	matchingPerStep = 128
)

// budget bounds the work of one validation. The validator has no such bound,
// so every schema gets a format of its own, which counts before anything else
// is looked at, and stops all by a panic that never leaves spend.
type budget struct {
	left         int
	instructions int
	lenient      bool // a pattern that cannot be read holds for everything
}

// spent is the panic's value.
type spent struct{}

func (b *budget) take(steps int) {
	if b.left -= steps; b.left < 0 {
		panic(spent{})
	}
}

// spend runs a validation until it ends or the budget does.
func (b *budget) spend(validate func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(spent); !ok {
				panic(p)
			}
			err = errors.New("it takes too long to check; use a simpler schema or a smaller value")
		}
	}()
	err = validate()
	var details *jsonschema.ValidationError
	if errors.As(err, &details) {
		return explain(details)
	}
	return err
}

// watch makes each schema that can be reached count.
func (b *budget) watch(root *jsonschema.Schema) error {
	seen := map[*jsonschema.Schema]bool{root: true}
	for queue := []*jsonschema.Schema{root}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		if s.DynamicRef != nil || s.RecursiveRef != nil {
			return errors.New("it has $dynamicRef or $recursiveRef, which are not supported; use $ref")
		}
		unread(s)
		here, each := children(s)
		for _, list := range [][]*jsonschema.Schema{here, each, values(s.Properties)} {
			for _, child := range list {
				if !seen[child] {
					seen[child] = true
					queue = append(queue, child)
				}
			}
		}
		s.Format = b.counting(s, size(s)+sizes(here), sizes(each))
	}
	return nil
}

// counting is a schema's format with the counting before it. One application
// costs what it does itself and for each member or item; a child that ends
// before its own format is reached has been paid for by its parent.
func (b *budget) counting(s *jsonschema.Schema, once, each int) *jsonschema.Format {
	inner := s.Format
	name := ""
	if inner != nil {
		name = inner.Name
	}
	if name == "regex" { // would compile what a stranger wrote, unbounded
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

// children are the schemas inside a schema: those that apply to the same
// value, and those that may apply to each of its members or items. Properties
// are left out.
func children(s *jsonschema.Schema) (here, each []*jsonschema.Schema) {
	here = append(here, s.AllOf...)
	here = append(here, s.AnyOf...)
	here = append(here, s.OneOf...)
	here = append(here, values(s.DependentSchemas)...)
	here = append(here, s.Ref, s.Not, s.If, s.Then, s.Else, s.ContentSchema)
	for _, dependency := range s.Dependencies {
		if child, ok := dependency.(*jsonschema.Schema); ok {
			here = append(here, child)
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
			here = append(here, child...) // each applies to one item
		}
	}
	here = append(here, s.PrefixItems...)
	return present(here), present(each)
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

// size is what looking at a schema's own words costs.
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

// pattern compiles a regular expression whose matching counts. The engine
// takes time that grows with its program and the text, never more.
func (b *budget) pattern(text string) (jsonschema.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("it has more than %d bytes", maxPattern)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil && b.lenient {
		return anything(text), nil
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

// anything is a pattern of another engine's, such as one that looks ahead.
type anything string

func (p anything) String() string          { return string(p) }
func (p anything) MatchString(string) bool { return true }

// unread lets members be as they are whose names only a pattern of another
// engine's tells.
func unread(s *jsonschema.Schema) {
	for pattern := range s.PatternProperties {
		if _, ok := pattern.(anything); ok {
			s.PatternProperties[pattern] = &jsonschema.Schema{Location: s.Location}
		}
	}
}

type countingPattern struct {
	*regexp.Regexp
	budget       *budget
	instructions int
}

func (p *countingPattern) MatchString(s string) bool {
	p.budget.take(1 + p.instructions*len(s)/matchingPerStep)
	return p.Regexp.MatchString(s)
}
