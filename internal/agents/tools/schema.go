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
	maxExponent    = 400 // of a number: 1e999999 alone costs a megabyte
	maxDigits      = 400

	// home is the address of every schema. Nothing is ever fetched from it.
	home = "https://schema.invalid/"
)

var errForeign = errors.New("a schema may refer only to itself")

// CheckSchema checks a JSON Schema that a customer wrote. The fault is about
// param.
func CheckSchema(param string, schema json.RawMessage) error {
	return checkSchema(param, schema, &budget{})
}

func checkSchema(param string, schema json.RawMessage, b *budget) error {
	if len(schema) > maxSchema {
		return fault.Invalid(param, "%s must have at most %d bytes", param, maxSchema)
	}
	if _, err := compile(schema, b); err != nil {
		return fault.Invalid(param, "%s is not a usable JSON Schema: %s", param, err)
	}
	return nil
}

// Validate checks a value against a schema: nil, or an error whose text says
// what is wrong and where.
func Validate(schema, value json.RawMessage) error {
	return validate(schema, value, &budget{left: maxSteps})
}

func validate(schema, value json.RawMessage, left *budget) error {
	if err := jsonbody.CheckDepth(value, maxValueDepth); err != nil {
		return fmt.Errorf("the value nests deeper than %d levels", maxValueDepth)
	}
	v, err := decode(value)
	if err != nil {
		return err
	}
	compiled, err := compile(schema, left)
	if err != nil {
		return fmt.Errorf("the schema is not usable: %w", err)
	}
	return left.spend(func() error { return compiled.Validate(v) })
}

// CheckArguments validates the model's arguments: nil, or an error whose text
// the model can act on. The tool checks its own input: a pattern that only it
// can read is left to it.
func CheckArguments(t Tool, arguments json.RawMessage) error {
	if err := validate(t.Parameters, arguments, &budget{left: maxSteps, lenient: true}); err != nil {
		return fmt.Errorf("the arguments of %s do not fit its parameters: %w", t.Name, err)
	}
	return nil
}

// compile makes a schema ready for one use: its budget is spent by it.
func compile(raw json.RawMessage, left *budget) (*jsonschema.Schema, error) {
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
	compiler.UseRegexpEngine(left.pattern)
	if err := compiler.AddResource(home, doc); err != nil {
		return nil, errors.New("it cannot be read")
	}
	compiled, err := compiler.Compile(home)
	if err != nil {
		return nil, explainCompile(err)
	}
	return compiled, left.watch(compiled)
}

// noLoader refuses what a schema refers to outside of itself, be it a URL or
// a file.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errForeign }

func explainCompile(err error) error {
	var (
		invalid *jsonschema.SchemaValidationError
		details *jsonschema.ValidationError
		pattern *jsonschema.InvalidRegexError
	)
	switch {
	case errors.Is(err, errForeign):
		return errors.New("it may refer only to itself, by # and a path; no reference to a URL or a file is followed")
	case errors.As(err, &invalid) && errors.As(invalid.Err, &details):
		return explain(details)
	case errors.As(err, &pattern):
		return fmt.Errorf("a pattern is not valid: %s", cut(pattern.Err.Error(), maxReason))
	}
	return errors.New(cut(strings.ReplaceAll(err.Error(), home, ""), maxReason))
}

const (
	maxReasons = 5
	maxReason  = 300 // bytes of one
)

// explain is what the validator says, as one line of the reasons at the
// bottom: those above only say that something below does not fit.
func explain(err *jsonschema.ValidationError) error {
	var reasons []string
	collect(err.DetailedOutput(), &reasons)
	if len(reasons) > maxReasons {
		reasons = append(reasons[:maxReasons], "and more")
	}
	return errors.New(strings.Join(reasons, "; "))
}

func collect(unit *jsonschema.OutputUnit, reasons *[]string) {
	if len(*reasons) > maxReasons {
		return
	}
	if len(unit.Errors) == 0 && unit.Error != nil {
		where := "at the top"
		if unit.InstanceLocation != "" {
			where = "at " + cut(unit.InstanceLocation, maxReason)
		}
		*reasons = append(*reasons, where+": "+cut(strings.ReplaceAll(unit.Error.String(), home, ""), maxReason))
	}
	for i := range unit.Errors {
		collect(&unit.Errors[i], reasons)
	}
}

// decode reads JSON with its numbers as they are written, and refuses those
// that only a computer algebra system would want.
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
	// The decoder overlooks a bracket too many, and takes the last of two
	// values with one name, where whoever gets the text may take the first.
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
