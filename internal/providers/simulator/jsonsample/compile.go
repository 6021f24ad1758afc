package jsonsample

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"turnpike/internal/jsonbody"
)

// Larger schemas are rejected: the compiler's time grows with the square of
// their size. OpenAI allows ten levels.
const (
	maxSchemaValues = 10_000
	maxSchemaDepth  = 100
)

const (
	schemaURL = "https://schema.invalid/"
	rootURL   = "https://root.invalid/"
)

var errForeignReference = errors.New("$ref must point into the schema, for example #/$defs/name")

// noLoader rejects references that leave the schema.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errForeignReference }

// compile compiles the root schema, which refers to the raw one by schemaURL.
func (s *sampler) compile(raw []byte, root map[string]any) (*jsonschema.Schema, error) {
	if jsonbody.CheckShape(raw, maxSchemaDepth, maxSchemaValues) != nil {
		return nil, fmt.Errorf("it has more than %d values or %d levels", maxSchemaValues, maxSchemaDepth)
	}
	var document any
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, fmt.Errorf("it can't be decoded: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(s.compilePattern)
	c.AssertFormat() // keeps the name of each format; countWork removes the assertion
	c.RegisterFormat(&jsonschema.Format{Name: "url"})
	if err := errors.Join(c.AddResource(schemaURL, document), c.AddResource(rootURL, root)); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(rootURL)
	if err != nil {
		return nil, explain(err)
	}
	return compiled, s.countWork(compiled, map[*jsonschema.Schema]bool{})
}

func explain(err error) error {
	if errors.Is(err, errForeignReference) {
		return errForeignReference
	}
	if invalid := (*jsonschema.SchemaValidationError)(nil); errors.As(err, &invalid) {
		err = invalid.Err
	}
	var reasons []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		// The lines above the last only say that something below them failed.
		if !strings.Contains(line, " failed") {
			reasons = append(reasons, strings.ReplaceAll(strings.TrimLeft(line, " -"), schemaURL, ""))
		}
	}
	return fmt.Errorf("it is not a supported JSON Schema: %.300s", strings.Join(reasons, ", "))
}

// countWork makes every validation by the schema and its subschemas count steps,
// and fail when none are left. The library has no limit for its work, and a few
// hundred bytes of oneOf and $ref ask for 2^60 steps. Before anything else that
// takes time, the library checks the format, so this check does the counting.
//
// The library compares type, const and enum before the format. A schema therefore
// pays for its own subschemas, which may fail before their format is reached.
func (s *sampler) countWork(schema *jsonschema.Schema, seen map[*jsonschema.Schema]bool) error {
	if seen[schema] {
		return nil
	}
	seen[schema] = true
	if schema.DynamicRef != nil || schema.RecursiveRef != nil {
		return errors.New("$dynamicRef and $recursiveRef are not supported; use $ref")
	}
	once, perMember := subschemas(schema)
	onceCost, memberCost := ownCost(schema), 1
	for _, sub := range once {
		onceCost += ownCost(sub)
	}
	for _, sub := range perMember {
		memberCost += ownCost(sub)
	}
	format := &jsonschema.Format{Validate: func(v any) error {
		s.steps += onceCost
		switch v := v.(type) {
		case []any:
			s.steps += len(v) * memberCost
			if schema.UniqueItems {
				s.steps += countValues(v)
				if len(v) <= 20 { // compared with each other, and hashed beyond
					s.steps += countValues(v) * len(v)
				}
			}
		case map[string]any:
			s.steps += len(v) * memberCost
		case string:
			s.steps += len(v) / 64
		case json.Number:
			s.steps += 8 // exact arithmetic
		}
		return s.checkLimits()
	}}
	if schema.Format != nil {
		format.Name = schema.Format.Name
	}
	schema.Format = format
	for _, sub := range slices.Concat(once, perMember) {
		if err := s.countWork(sub, seen); err != nil {
			return err
		}
	}
	return nil
}

// subschemas returns the subschemas that apply to a value at most once, and
// those that may apply to each of its members or items.
func subschemas(s *jsonschema.Schema) (once, perMember []*jsonschema.Schema) {
	once = append(once, s.Ref, s.Not, s.If, s.Then, s.Else, s.ContentSchema)
	once = slices.Concat(once, s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems,
		slices.Collect(maps.Values(s.Properties)), slices.Collect(maps.Values(s.DependentSchemas)))
	for _, dependency := range s.Dependencies {
		if sub, ok := dependency.(*jsonschema.Schema); ok {
			once = append(once, sub)
		}
	}
	perMember = append(perMember, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems)
	perMember = slices.AppendSeq(perMember, maps.Values(s.PatternProperties))
	for _, rest := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch sub := rest.(type) {
		case *jsonschema.Schema:
			perMember = append(perMember, sub)
		case []*jsonschema.Schema:
			once = append(once, sub...)
		}
	}
	absent := func(sub *jsonschema.Schema) bool { return sub == nil }
	return slices.DeleteFunc(once, absent), slices.DeleteFunc(perMember, absent)
}

// ownCost is the number of steps for the keywords of a schema without its subschemas.
func ownCost(s *jsonschema.Schema) int {
	cost := 1 + len(s.Required)
	if s.Enum != nil {
		cost += countValues(s.Enum.Values)
	}
	if s.Const != nil {
		cost += countValues(*s.Const)
	}
	return cost
}

func countValues(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			n += countValues(item)
		}
	case map[string]any:
		for _, item := range v {
			n += countValues(item)
		}
	}
	return n
}
