package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

const (
	maxSchema      = 64 << 10 // bytes
	maxSchemaDepth = 64
	maxSchemaNodes = 6000 // the compiler's time grows with their square
	maxValueDepth  = 128
	maxExponent    = 400 // 1e999999 takes a megabyte
	maxDigits      = 400

	// schemaURL is the address of every schema. Nothing is fetched from it.
	schemaURL = "https://schema.invalid/"
)

var errExternalRef = errors.New("a schema can refer only to itself")

// CheckSchema validates a customer's JSON Schema. Its error is about param.
func CheckSchema(param string, schema json.RawMessage) error {
	return checkSchema(param, schema, &schemaBudget{})
}

func checkSchema(param string, schema json.RawMessage, b *schemaBudget) error {
	if len(schema) > maxSchema {
		return fault.Invalid(param, "%s must have at most %d bytes.", param, maxSchema)
	}
	if _, err := compile(schema, b); err != nil {
		return fault.Invalid(param, "%s is not a usable JSON Schema: %s.", param, err)
	}
	return nil
}

// Validate validates a value against a schema. Its error says what is wrong and
// where.
func Validate(schema, value json.RawMessage) error {
	return validate(schema, value, &schemaBudget{left: maxSteps})
}

func validate(schema, value json.RawMessage, b *schemaBudget) error {
	if err := jsonbody.CheckDepth(value, maxValueDepth); err != nil {
		return fmt.Errorf("the value nests deeper than %d levels", maxValueDepth)
	}
	v, err := decode(value)
	if err != nil {
		return err
	}
	compiled, err := compile(schema, b)
	if err != nil {
		return fmt.Errorf("the schema is not usable: %w", err)
	}
	return b.run(func() error { return compiled.Validate(v) })
}

// CheckArguments validates the model's arguments. The model can act on its error.
// Patterns that Go can't compile are ignored, because the tool validates its input.
func CheckArguments(t Tool, arguments json.RawMessage) error {
	if err := validate(t.Parameters, arguments, &schemaBudget{left: maxSteps, lenient: true}); err != nil {
		return fmt.Errorf("the arguments of %s do not fit its parameters: %w", t.Name, err)
	}
	return nil
}

// compile compiles a schema for one validation, within its budget.
func compile(raw json.RawMessage, b *schemaBudget) (*jsonschema.Schema, error) {
	if len(raw) > maxSchema {
		return nil, fmt.Errorf("it has more than %d bytes", maxSchema)
	}
	if jsonbody.CheckDepth(raw, maxSchemaDepth) != nil {
		return nil, fmt.Errorf("it nests deeper than %d levels", maxSchemaDepth)
	}
	doc, err := decode(raw)
	if err != nil {
		return nil, err
	}
	if _, ok := doc.(map[string]any); !ok {
		return nil, errors.New("it is not an object")
	}
	if nodes(doc) > maxSchemaNodes {
		return nil, fmt.Errorf("it has more than %d values", maxSchemaNodes)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	compiler.UseRegexpEngine(b.compilePattern)
	if err := compiler.AddResource(schemaURL, doc); err != nil {
		return nil, errors.New("it cannot be read")
	}
	compiled, err := compiler.Compile(schemaURL)
	if err != nil {
		return nil, explainCompile(err)
	}
	return compiled, b.instrument(compiled)
}

// noLoader rejects references to URLs and files.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errExternalRef }

func explainCompile(err error) error {
	var (
		invalid *jsonschema.SchemaValidationError
		details *jsonschema.ValidationError
		pattern *jsonschema.InvalidRegexError
	)
	switch {
	case errors.Is(err, errExternalRef):
		return errors.New("it can refer only to itself with # and a path, not to a URL or a file")
	case errors.As(err, &invalid) && errors.As(invalid.Err, &details):
		return explain(details)
	case errors.As(err, &pattern):
		return fmt.Errorf("a pattern is not valid: %s", truncate(pattern.Err.Error(), maxReason))
	}
	return errors.New(truncate(strings.ReplaceAll(err.Error(), schemaURL, ""), maxReason))
}

const (
	maxReasons = 5
	maxReason  = 300 // bytes of one
)

// explain returns the reasons at the leaves of a validation error in one line.
// The others only say that something below them does not match.
func explain(err *jsonschema.ValidationError) error {
	var reasons []string
	collectReasons(err.DetailedOutput(), &reasons)
	if len(reasons) > maxReasons {
		reasons = append(reasons[:maxReasons], "and more")
	}
	return errors.New(strings.Join(reasons, "; "))
}

func collectReasons(unit *jsonschema.OutputUnit, reasons *[]string) {
	if len(*reasons) > maxReasons {
		return
	}
	if len(unit.Errors) == 0 && unit.Error != nil {
		where := "at the top"
		if unit.InstanceLocation != "" {
			where = "at " + truncate(unit.InstanceLocation, maxReason)
		}
		*reasons = append(*reasons, where+": "+truncate(strings.ReplaceAll(unit.Error.String(), schemaURL, ""), maxReason))
	}
	for i := range unit.Errors {
		collectReasons(&unit.Errors[i], reasons)
	}
}

// decode reads JSON with its numbers as they are written, and rejects extreme ones.
func decode(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, errors.New("it is not valid JSON")
	}
	if d.More() {
		return nil, errors.New("it is more than one JSON value")
	}
	// The decoder accepts an extra bracket and duplicate names, of which others may
	// read the first value instead of the last.
	switch text := jsontext.Value(raw); {
	case !text.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)):
		return nil, errors.New("it is not valid JSON")
	case !text.IsValid(jsontext.AllowInvalidUTF8(true)):
		return nil, errors.New("it has an object with the same name twice")
	}
	return v, checkNumbers(v)
}

func checkNumbers(v any) error {
	switch v := v.(type) {
	case json.Number:
		digits, exponent, _ := strings.Cut(strings.ToLower(v.String()), "e")
		n, err := strconv.Atoi(exponent)
		if exponent != "" && err != nil || n > maxExponent || n < -maxExponent || len(digits) > maxDigits {
			return errors.New("it has a number that is too large or too long")
		}
	case []any:
		for _, item := range v {
			if err := checkNumbers(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, item := range v {
			if err := checkNumbers(item); err != nil {
				return err
			}
		}
	}
	return nil
}

// nodes counts the values in a value.
func nodes(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			n += nodes(item)
		}
	case map[string]any:
		for _, item := range v {
			n += nodes(item)
		}
	}
	return n
}
