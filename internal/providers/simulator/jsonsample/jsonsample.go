// Package jsonsample generates a JSON document that is valid for a JSON Schema.
//
// The same schema always gives the same document. A document is generated from the keywords that
// OpenAI's strict mode allows, plus allOf and oneOf, and then validated by the jsonschema library
// against the whole schema. The work and the size of the document are limited for every schema.
package jsonsample

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"turnpike/internal/jsonbody"
	"turnpike/internal/safeschema"
)

// Limits for one document.
const (
	maxSteps  = 100_000   // subschemas visited while generating and validating
	maxValues = 5_000     // JSON values
	maxBytes  = 128 << 10 // of strings and names
	maxDepth  = 64
)

// Beyond these limits optional parts are omitted.
const (
	richDepth  = 3
	richValues = 200
)

var (
	errTooMuch = fmt.Errorf("it needs more than %d values, %d bytes of text or %d steps", maxValues, maxBytes, maxSteps)
	errTooDeep = fmt.Errorf("it needs more than %d levels, or requires itself", maxDepth)
	errNoMatch = errors.New("it combines rules for which no valid document was found")
)

// Value generates a document for the schema.
func Value(schema []byte) ([]byte, error) {
	return newSampler().sample(schema, map[string]any{"$ref": safeschema.URL})
}

// Object generates a document for the schema that is an object, such as the arguments of a tool.
func Object(schema []byte) ([]byte, error) {
	return newSampler().sample(schema, map[string]any{"$ref": safeschema.URL, "type": "object"})
}

type sampler struct {
	budget safeschema.Budget

	lean   bool // omit everything optional
	depth  int  // the deepest level allowed
	values int
	bytes  int

	property string // the property being generated, which strings mention
}

// value is a generated value: as the jsonschema library validates it, and as
// JSON, which keeps the order of the properties.
type value struct {
	plain any
	json  []byte
}

func newSampler() *sampler {
	return &sampler{budget: safeschema.Budget{Steps: maxSteps, IgnoreFormats: true}}
}

// Larger schemas are rejected: the compiler's time grows with the square of
// their size. OpenAI allows ten levels.
const (
	maxSchemaValues = 10_000
	maxSchemaDepth  = 100
)

// compile compiles the root schema, which refers to the raw one by its URL.
func (s *sampler) compile(raw []byte, root map[string]any) (*jsonschema.Schema, error) {
	if _, err := jsonbody.CheckShape(raw, maxSchemaDepth, maxSchemaValues); err != nil {
		return nil, fmt.Errorf("it has more than %d values or %d levels", maxSchemaValues, maxSchemaDepth)
	}
	var document any
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, fmt.Errorf("it can't be decoded: %w", err)
	}
	const rootURL = "https://root.invalid/"
	c := s.budget.NewCompiler()
	c.AssertFormat() // keeps the name of each format
	c.RegisterFormat(&jsonschema.Format{Name: "url"})
	if err := errors.Join(c.AddResource(safeschema.URL, document), c.AddResource(rootURL, root)); err != nil {
		return nil, err
	}
	return s.budget.Compile(c, rootURL)
}

// sample generates a document for the root schema, which refers to the raw one.
// The first attempt includes optional parts. The others include only required
// ones, which can fail in fewer ways. They allow more and more levels, which
// keeps documents for recursive schemas small.
func (s *sampler) sample(raw []byte, root map[string]any) ([]byte, error) {
	schema, err := s.compile(raw, root)
	if err != nil {
		return nil, err
	}
	for _, depth := range []int{richDepth + 2, 8, 16, maxDepth} {
		s.lean, s.depth = depth > richDepth+2, depth
		s.values, s.bytes = 0, 0
		var v value
		if v, err = s.generate([]*jsonschema.Schema{schema}, 0); err == nil && s.valid(v.plain, schema) {
			return v.json, nil
		}
		if err == nil {
			err = errNoMatch
		}
		if limit := s.checkLimits(); limit != nil {
			return nil, limit
		}
	}
	return nil, err
}

// spend counts one value with this many bytes of text.
func (s *sampler) spend(bytes int) error {
	s.budget.Steps--
	s.values++
	s.bytes += bytes
	return s.checkLimits()
}

func (s *sampler) checkLimits() error {
	if s.budget.Steps < 0 || s.values > maxValues || s.bytes > maxBytes {
		return errTooMuch
	}
	return nil
}

func (s *sampler) onlyRequired(depth int) bool {
	return s.lean || depth > richDepth || s.values > richValues
}

// valid reports whether a value satisfies all schemas. It reports false when a limit is exceeded.
func (s *sampler) valid(v any, schemas ...*jsonschema.Schema) bool {
	return !slices.ContainsFunc(schemas, func(schema *jsonschema.Schema) bool { return s.budget.Validate(schema, v) != nil }) && s.checkLimits() == nil
}
