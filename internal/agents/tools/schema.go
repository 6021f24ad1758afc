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
	"turnpike/internal/safeschema"
)

const (
	maxSchema       = 64 << 10 // bytes
	maxSchemaDepth  = 64
	maxSchemaValues = 6000 // the compiler's time grows with their square
	maxValueDepth   = 128
	maxExponent     = 400 // 1e999999 takes a megabyte
	maxDigits       = 400

	// maxSteps limits one validation to some tenths of a second.
	maxSteps = 1 << 18
)

// CheckSchema validates a customer's JSON Schema. Its error is about param.
func CheckSchema(param string, schema json.RawMessage) error {
	return checkSchema(param, schema, &safeschema.Budget{})
}

func checkSchema(param string, schema json.RawMessage, b *safeschema.Budget) error {
	if len(schema) > maxSchema {
		return fault.Invalid(param, "%s must have at most %d bytes.", param, maxSchema)
	}
	if _, err := compile(schema, b); err != nil {
		return fault.Invalid(param, "%s is not a usable JSON Schema: %s.", param, err)
	}
	return nil
}

// Validate validates a value against a schema. Its error says what is wrong and where.
func Validate(schema, value json.RawMessage) error {
	return validate(schema, value, &safeschema.Budget{Steps: maxSteps})
}

func validate(schema, value json.RawMessage, b *safeschema.Budget) error {
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
	return b.Validate(compiled, v)
}

// CheckArguments validates the model's arguments. The model can act on its error.
// Patterns that Go can't compile are ignored, because the tool validates its input.
func CheckArguments(t Tool, arguments json.RawMessage) error {
	if err := validate(t.Parameters, arguments, &safeschema.Budget{Steps: maxSteps, IgnorePatterns: true}); err != nil {
		return fmt.Errorf("the arguments of %s do not fit its parameters: %w", t.Name, err)
	}
	return nil
}

func compile(raw json.RawMessage, b *safeschema.Budget) (*jsonschema.Schema, error) {
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
	if safeschema.CountValues(doc) > maxSchemaValues {
		return nil, fmt.Errorf("it has more than %d values", maxSchemaValues)
	}
	compiler := b.NewCompiler()
	if err := compiler.AddResource(safeschema.URL, doc); err != nil {
		return nil, errors.New("it cannot be read")
	}
	return b.Compile(compiler, safeschema.URL)
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
