package jsonsample

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formats are examples of the formats that JSON Schema names.
var formats = map[string]string{
	"date-time":             "2025-01-01T12:00:00Z",
	"date":                  "2025-01-01",
	"time":                  "12:00:00Z",
	"duration":              "PT1H",
	"email":                 "user@example.com",
	"idn-email":             "user@example.com",
	"hostname":              "example.com",
	"idn-hostname":          "example.com",
	"ipv4":                  "192.0.2.1",
	"ipv6":                  "2001:db8::1",
	"uri":                   "https://example.com/",
	"url":                   "https://example.com/",
	"uri-reference":         "https://example.com/",
	"iri":                   "https://example.com/",
	"iri-reference":         "https://example.com/",
	"uri-template":          "https://example.com/{id}",
	"uuid":                  "00000000-0000-4000-8000-000000000000",
	"json-pointer":          "/simulated",
	"relative-json-pointer": "0",
	"regex":                 "^simulated$",
}

// string makes a text: an example of the format, or one that names the
// property, or one derived from a pattern; the first that satisfies the group.
func (m *maker) string(g group) (*value, error) {
	least, most := g.atLeast("minLength"), g.atMost("maxLength")
	if least > maxBytes || !m.charge(least/64) {
		return nil, errTooMuch
	}
	text := "simulated"
	if m.name != "" {
		text += " " + m.name
	}
	if m.variant > 0 {
		text = strconv.Itoa(m.variant) + " " + text
	}
	candidates := []string{fit(text, least, most)}
	for _, s := range g.list {
		if format := s.get("format"); format != nil && formats[format.text] != "" {
			candidates = append([]string{formats[format.text]}, candidates...)
		}
		if pattern := s.get("pattern"); pattern != nil && m.charge(m.patterns[pattern.text].weight) {
			for _, extra := range []int{m.variant, least + m.variant} {
				text := fromPattern(pattern.text, extra)
				candidates = append(candidates, text, fit(text, least, most))
			}
		}
	}
	for _, c := range candidates {
		if v := stringValue(c); m.allValid(g.list, v) {
			return v, m.spend(len(c))
		}
	}
	return nil, m.orTooMuch("no text was found that satisfies the schema's rules for a string")
}

// fit cuts or pads a text to a length in characters; most < 0 is no limit.
func fit(text string, least, most int) string {
	n := utf8.RuneCountInString(text)
	if most >= 0 && n > most {
		return string([]rune(text)[:most])
	}
	if n < least {
		return text + strings.Repeat("x", least-n)
	}
	return text
}

// number makes a number that the group allows: 1 if possible, else one near a bound.
func (m *maker) number(g group, integer bool) (*value, error) {
	one := big.NewRat(1, 1)
	var low, high, step *big.Rat
	for _, s := range g.list {
		for _, keyword := range []string{"minimum", "exclusiveMinimum"} {
			if v := s.get(keyword); v != nil && (low == nil || v.number().Cmp(low) > 0) {
				low = v.number()
			}
		}
		for _, keyword := range []string{"maximum", "exclusiveMaximum"} {
			if v := s.get(keyword); v != nil && (high == nil || v.number().Cmp(high) < 0) {
				high = v.number()
			}
		}
		if v := s.get("multipleOf"); v != nil && (step == nil || v.number().Cmp(step) > 0) {
			step = v.number()
		}
	}
	if step == nil {
		step = one
	}
	if integer && !step.IsInt() {
		step = new(big.Rat).SetInt(step.Num()) // the least whole multiple of a fraction in lowest terms
	}
	candidates := []*big.Rat{one}
	if low != nil && high != nil { // between them there may be no multiple
		middle := new(big.Rat).Add(low, high)
		candidates = append(candidates, low, middle.Quo(middle, big.NewRat(2, 1)))
	}
	for _, near := range []*big.Rat{one, low, high} {
		if near == nil {
			continue
		}
		for _, d := range []int64{0, 1, -1} {
			c := new(big.Rat).Mul(step, big.NewRat(d, 1))
			candidates = append(candidates, c.Add(c, floorTo(near, step)))
		}
	}
	for _, c := range candidates {
		if v := m.numeral(g, c, integer); v != nil {
			if m.variant > 0 {
				v = m.variantOf(g, c, step, integer)
			}
			return v, m.spend(len(v.text))
		}
	}
	return nil, m.orTooMuch("no number was found that satisfies the schema's rules for one")
}

// variantOf moves a number by as many steps as the variant asks for, up or
// down, and leaves it where neither is allowed.
func (m *maker) variantOf(g group, c, step *big.Rat, integer bool) *value {
	shift := new(big.Rat).Mul(step, big.NewRat(int64(m.variant), 1))
	for _, moved := range []*big.Rat{new(big.Rat).Add(c, shift), new(big.Rat).Sub(c, shift)} {
		if v := m.numeral(g, moved, integer); v != nil {
			return v
		}
	}
	return numberValue(c)
}

// numeral is the number as a value, or nil if the group does not allow it.
func (m *maker) numeral(g group, c *big.Rat, integer bool) *value {
	// Exact numbers cost as much as many other steps.
	if integer && !c.IsInt() || !m.charge(8) {
		return nil
	}
	if v := numberValue(c); m.allValid(g.list, v) {
		return v
	}
	return nil
}

// floorTo is the greatest multiple of step that is not above r.
func floorTo(r, step *big.Rat) *big.Rat {
	q := new(big.Rat).Quo(r, step)
	// Div rounds towards negative infinity for a positive divisor.
	whole := new(big.Int).Div(q.Num(), q.Denom())
	return new(big.Rat).Mul(new(big.Rat).SetInt(whole), step)
}
