// Package safeschema compiles untrusted JSON Schemas and limits the work of validating by them. The
// jsonschema library has no limit: a few hundred bytes of oneOf and $ref ask for 2^60 steps.
package safeschema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// URL is the address of every schema. Nothing is fetched from it.
const URL = "https://schema.invalid/"

var errForeignReference = errors.New("it can refer only to itself with # and a path, not to a URL or a file")

type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errForeignReference }

// NewCompiler returns a compiler that fetches nothing and limits patterns.
func (b *Budget) NewCompiler() *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(b.compilePattern)
	return c
}

// Compile compiles a schema that was added to the compiler, for validations within the budget.
func (b *Budget) Compile(c *jsonschema.Compiler, url string) (*jsonschema.Schema, error) {
	compiled, err := c.Compile(url)
	if err != nil {
		return nil, explainCompile(err)
	}
	return compiled, b.instrument(compiled)
}

func explainCompile(err error) error {
	if errors.Is(err, errForeignReference) {
		return errForeignReference
	}
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if details, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			return explain(details)
		}
	}
	if pattern, ok := errors.AsType[*jsonschema.InvalidRegexError](err); ok {
		return fmt.Errorf("a pattern is not valid: %s", truncate(pattern.Err.Error()))
	}
	return errors.New(truncate(err.Error()))
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
			where = "at " + truncate(unit.InstanceLocation)
		}
		*reasons = append(*reasons, where+": "+truncate(unit.Error.String()))
	}
	for i := range unit.Errors {
		collectReasons(&unit.Errors[i], reasons)
	}
}

func truncate(reason string) string {
	reason = strings.ReplaceAll(reason, URL, "")
	if len(reason) <= maxReason {
		return reason
	}
	return strings.ToValidUTF8(reason[:maxReason], "") + "…"
}

// CountValues returns the number of values in a decoded JSON value.
func CountValues(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			n += CountValues(item)
		}
	case map[string]any:
		for _, item := range v {
			n += CountValues(item)
		}
	}
	return n
}
