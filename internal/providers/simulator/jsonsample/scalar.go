package jsonsample

import (
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"turnpike/internal/safeschema"
)

// formats are examples of the formats that JSON Schema defines.
var formats = map[string]string{
	"date-time": "2025-01-01T12:00:00Z", "date": "2025-01-01", "time": "12:00:00Z", "duration": "PT1H",
	"email": "user@example.com", "idn-email": "user@example.com", "hostname": "example.com", "idn-hostname": "example.com",
	"ipv4": "192.0.2.1", "ipv6": "2001:db8::1", "uuid": "00000000-0000-4000-8000-000000000000",
	"uri": "https://example.com/", "url": "https://example.com/", "uri-reference": "https://example.com/",
	"iri": "https://example.com/", "iri-reference": "https://example.com/", "uri-template": "https://example.com/{id}",
	"json-pointer": "/simulated", "relative-json-pointer": "0", "regex": "^simulated$",
}

// string returns the first valid one of: an example of the format, a string
// that mentions the property, a string that the pattern matches.
func (s *sampler) string(schemas []*jsonschema.Schema) (value, error) {
	minimum, maximum := 0, maxBytes
	for _, schema := range schemas {
		minimum, maximum = max(minimum, intOr(schema.MinLength, 0)), min(maximum, intOr(schema.MaxLength, maximum))
	}
	if minimum > maxBytes {
		return value{}, s.spend(minimum)
	}
	candidates := []string{fit(strings.TrimSpace("simulated "+s.property), minimum, maximum)}
	for _, schema := range schemas {
		if schema.Format != nil && formats[schema.Format.Name] != "" {
			candidates = slices.Insert(candidates, 0, formats[schema.Format.Name])
		}
		if p, ok := schema.Pattern.(*safeschema.Pattern); ok {
			for _, extra := range []int{0, minimum} {
				text := samplePattern(p.Syntax, extra)
				candidates = append(candidates, text, fit(text, minimum, maximum))
			}
		}
	}
	for _, c := range candidates {
		if s.budget.Steps -= 1 + len(c)/64; s.valid(c, schemas...) {
			return s.scalar(c)
		}
	}
	return value{}, errors.New("no string was found that satisfies its rules for one")
}

func fit(text string, minimum, maximum int) string {
	n := utf8.RuneCountInString(text)
	if n > maximum {
		return string([]rune(text)[:max(maximum, 0)])
	}
	return text + strings.Repeat("x", max(minimum-n, 0))
}

// number returns 1 if that is valid, or else a number near a limit.
func (s *sampler) number(schemas []*jsonschema.Schema, integer bool) (value, error) {
	one := big.NewRat(1, 1)
	step := one
	var low, high *big.Rat
	for _, schema := range schemas {
		for _, limit := range []*big.Rat{schema.Minimum, schema.ExclusiveMinimum} {
			if limit != nil && (low == nil || limit.Cmp(low) > 0) {
				low = limit
			}
		}
		for _, limit := range []*big.Rat{schema.Maximum, schema.ExclusiveMaximum} {
			if limit != nil && (high == nil || limit.Cmp(high) < 0) {
				high = limit
			}
		}
		if schema.MultipleOf != nil {
			step = schema.MultipleOf
		}
	}
	if integer && !step.IsInt() {
		step = new(big.Rat).SetInt(step.Num()) // the smallest whole multiple of a fraction in lowest terms
	}
	candidates := []*big.Rat{one}
	if low != nil && high != nil {
		middle := new(big.Rat).Add(low, high)
		candidates = append(candidates, low, middle.Quo(middle, big.NewRat(2, 1)))
	}
	for _, near := range []*big.Rat{one, low, high} {
		if near != nil {
			c := floor(near, step)
			candidates = append(candidates, c, new(big.Rat).Add(c, step), new(big.Rat).Sub(c, step))
		}
	}
	for _, c := range candidates {
		digits, _ := c.FloatPrec()
		literal := c.FloatString(digits)
		if (!integer || c.IsInt()) && s.valid(json.Number(literal), schemas...) {
			return value{json.Number(literal), []byte(literal)}, s.spend(len(literal))
		}
	}
	return value{}, errors.New("no number was found that satisfies its rules for one")
}

// floor returns the largest multiple of step that is not above r.
func floor(r, step *big.Rat) *big.Rat {
	q := new(big.Rat).Quo(r, step)
	// Div rounds toward negative infinity for a positive divisor.
	whole := new(big.Int).Div(q.Num(), q.Denom())
	return new(big.Rat).Mul(new(big.Rat).SetInt(whole), step)
}
