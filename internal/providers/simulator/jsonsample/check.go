package jsonsample

import (
	"math/big"
	"slices"
	"unicode/utf8"
)

// valid reports whether a value satisfies a subschema. It gives up, with
// false, when the steps are spent. "format" is an annotation, as the standard
// has it.
func (m *maker) valid(s, v *value) bool {
	if !m.charge(1) {
		return false
	}
	if s.kind != isObject {
		return s.kind == isTrue
	}
	if target := m.targets[s]; target != nil && !m.valid(target, v) {
		return false
	}
	for _, f := range s.fields {
		if !m.validKeyword(s, f.name, f.value, v) {
			return false
		}
	}
	switch v.kind {
	case isObject:
		return m.validObject(s, v)
	case isArray:
		return m.validArray(s, v)
	}
	return true
}

// validKeyword checks one keyword of any but the containers' own.
func (m *maker) validKeyword(s *value, name string, k, v *value) bool {
	switch name {
	case "type":
		return slices.ContainsFunc(typeList(k), func(t string) bool { return hasType(v, t) })
	case "const":
		return m.equal(k, v)
	case "enum":
		return slices.ContainsFunc(k.items, func(c *value) bool { return m.equal(c, v) })
	case "allOf":
		return m.allValid(k.items, v)
	case "anyOf":
		return slices.ContainsFunc(k.items, func(b *value) bool { return m.valid(b, v) })
	case "oneOf":
		n := 0
		for _, b := range k.items {
			if m.valid(b, v) {
				n++
			}
		}
		return n == 1
	case "not":
		return !m.valid(k, v) && m.charge(0)
	case "if":
		branch := s.get("else")
		if m.valid(k, v) {
			branch = s.get("then")
		}
		return branch == nil || m.valid(branch, v)
	}
	switch v.kind {
	case isString:
		switch name {
		case "minLength":
			return utf8.RuneCountInString(v.text) >= countOf(s, name, 0)
		case "maxLength":
			return utf8.RuneCountInString(v.text) <= countOf(s, name, 0)
		case "pattern":
			return m.matches(k.text, v.text)
		}
	case isNumber:
		switch name {
		case "minimum":
			return v.number().Cmp(k.number()) >= 0
		case "maximum":
			return v.number().Cmp(k.number()) <= 0
		case "exclusiveMinimum":
			return v.number().Cmp(k.number()) > 0
		case "exclusiveMaximum":
			return v.number().Cmp(k.number()) < 0
		case "multipleOf":
			return new(big.Rat).Quo(v.number(), k.number()).IsInt()
		}
	}
	return true
}

func hasType(v *value, t string) bool {
	switch t {
	case "object":
		return v.kind == isObject
	case "array":
		return v.kind == isArray
	case "string":
		return v.kind == isString
	case "number":
		return v.kind == isNumber
	case "integer":
		return v.kind == isNumber && v.number().IsInt()
	case "boolean":
		return v.kind == isTrue || v.kind == isFalse
	}
	return v.kind == isNull
}

func (m *maker) validObject(s, v *value) bool {
	if required := s.get("required"); required != nil {
		for _, name := range required.items {
			if v.get(name.text) == nil {
				return false
			}
		}
	}
	if dependent := s.get("dependentRequired"); dependent != nil {
		for _, d := range dependent.fields {
			if v.get(d.name) != nil && slices.ContainsFunc(d.value.items, func(n *value) bool { return v.get(n.text) == nil }) {
				return false
			}
		}
	}
	if n := len(v.fields); n < countOf(s, "minProperties", 0) || n > countOf(s, "maxProperties", n) {
		return false
	}
	names := s.get("propertyNames")
	for _, f := range v.fields {
		if names != nil && !m.valid(names, stringValue(f.name)) {
			return false
		}
		if !m.allValid(m.property(s, f.name), f.value) {
			return false
		}
	}
	return true
}

func (m *maker) validArray(s, v *value) bool {
	if n := len(v.items); n < countOf(s, "minItems", 0) || n > countOf(s, "maxItems", n) {
		return false
	}
	contains, contained := s.get("contains"), 0
	for i, item := range v.items {
		if !m.allValid(itemsAt(s, i), item) {
			return false
		}
		if contains != nil && m.valid(contains, item) {
			contained++
		}
	}
	if contains != nil && (contained < leastContained(s) || contained > countOf(s, "maxContains", contained)) {
		return false
	}
	if unique := s.get("uniqueItems"); unique == nil || unique.kind == isFalse {
		return true
	}
	for i, item := range v.items {
		if slices.ContainsFunc(v.items[:i], func(other *value) bool { return m.equal(item, other) }) {
			return false
		}
	}
	return m.charge(0)
}

// equal compares as JSON Schema does: numbers by value, objects in any order.
func (m *maker) equal(v, w *value) bool {
	if !m.charge(1) || v.kind != w.kind || len(v.items) != len(w.items) || len(v.fields) != len(w.fields) {
		return false
	}
	switch v.kind {
	case isString:
		return v.text == w.text
	case isNumber:
		// Exact numbers cost as much as many other steps.
		return v.text == w.text || m.charge(8) && v.number().Cmp(w.number()) == 0
	}
	for i := range v.items {
		if !m.equal(v.items[i], w.items[i]) {
			return false
		}
	}
	for _, f := range v.fields {
		if other := w.get(f.name); other == nil || !m.equal(f.value, other) {
			return false
		}
	}
	return true
}

// matches reports whether a pattern matches a text; a heavy pattern and a
// long text count as many steps.
func (m *maker) matches(pattern, text string) bool {
	p := m.patterns[pattern]
	return m.charge(1+p.weight*len(text)/256) && p.MatchString(text)
}
