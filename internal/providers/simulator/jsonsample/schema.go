package jsonsample

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// schema is a JSON Schema that has been read once: its shape is sound, its
// patterns are compiled and its references lead somewhere.
type schema struct {
	root     *value
	nodes    []*value          // every subschema once, inner ones first
	targets  map[*value]*value // a subschema with $ref → what it refers to
	patterns map[string]pattern
	weight   int // of all patterns
	heights  map[*value]int
}

// shape is what a keyword's value must look like.
type shape int

const (
	aSchema shape = iota
	aSchemaList
	aSchemaMap
	aSchemaOrList
	aString
	aPattern
	aStringList
	aStringListMap
	aTypeList
	aList
	aBool
	aNumber
	aCount
)

// keywords are those that are understood. Others are annotations to us.
var keywords = map[string]shape{
	"$ref": aString, "$defs": aSchemaMap, "definitions": aSchemaMap,
	"type": aTypeList, "enum": aList,
	"allOf": aSchemaList, "anyOf": aSchemaList, "oneOf": aSchemaList,
	"not": aSchema, "if": aSchema, "then": aSchema, "else": aSchema,
	"properties": aSchemaMap, "patternProperties": aSchemaMap, "additionalProperties": aSchema,
	"propertyNames": aSchema, "required": aStringList, "dependentRequired": aStringListMap,
	"minProperties": aCount, "maxProperties": aCount,
	"items": aSchemaOrList, "prefixItems": aSchemaList, "additionalItems": aSchema,
	"minItems": aCount, "maxItems": aCount, "uniqueItems": aBool,
	"contains": aSchema, "minContains": aCount, "maxContains": aCount,
	"minLength": aCount, "maxLength": aCount, "pattern": aPattern, "format": aString,
	"minimum": aNumber, "maximum": aNumber, "exclusiveMinimum": aNumber, "exclusiveMaximum": aNumber,
	"multipleOf": aNumber,
}

var types = []string{"object", "array", "string", "number", "integer", "boolean", "null"}

func parse(text []byte) (*schema, error) {
	root, err := decode(text)
	if err != nil {
		return nil, err
	}
	s := &schema{
		root:     root,
		targets:  map[*value]*value{},
		patterns: map[string]pattern{},
		heights:  map[*value]int{},
	}
	if err := s.read(root, "the schema"); err != nil {
		return nil, err
	}
	s.measure()
	return s, nil
}

// read checks a subschema's shape and everything below it. where names the
// place for people.
func (s *schema) read(v *value, where string) error {
	if _, seen := s.heights[v]; seen {
		return nil
	}
	if v.kind != isObject && v.kind != isTrue && v.kind != isFalse {
		return fmt.Errorf("%s must be an object or a boolean", where)
	}
	s.heights[v] = endless
	defer func() { s.nodes = append(s.nodes, v) }()
	for _, f := range v.fields {
		kind, known := keywords[f.name]
		if !known {
			continue
		}
		if err := s.keyword(kind, f.value, f.name); err != nil {
			return err
		}
		if f.name == "multipleOf" && f.value.number().Sign() <= 0 {
			return fmt.Errorf("%q must be above 0", f.name)
		}
	}
	if ref := v.get("$ref"); ref != nil {
		target := s.lookup(ref.text)
		if target == nil {
			return fmt.Errorf("$ref %.80q leads nowhere: expected a place inside the schema such as #/$defs/name", ref.text)
		}
		s.targets[v] = target
		return s.read(target, "$ref "+ref.text)
	}
	return nil
}

func (s *schema) keyword(kind shape, v *value, name string) error {
	wrong := func(expected string) error { return fmt.Errorf("%q must be %s", name, expected) }
	switch kind {
	case aSchemaOrList:
		if v.kind != isArray {
			return s.read(v, strconv.Quote(name))
		}
		return s.keyword(aSchemaList, v, name)
	case aSchema:
		return s.read(v, strconv.Quote(name))
	case aSchemaList:
		if v.kind != isArray || len(v.items) == 0 && name != "items" && name != "prefixItems" {
			return wrong("an array of schemas")
		}
		for _, item := range v.items {
			if err := s.read(item, "every schema in "+strconv.Quote(name)); err != nil {
				return err
			}
		}
	case aSchemaMap:
		if v.kind != isObject {
			return wrong("an object of schemas")
		}
		for _, f := range v.fields {
			if name == "patternProperties" {
				if err := s.compile(f.name); err != nil {
					return err
				}
			}
			if err := s.read(f.value, fmt.Sprintf("%q in %q", f.name, name)); err != nil {
				return err
			}
		}
	case aString, aPattern:
		if v.kind != isString {
			return wrong("a string")
		}
		if kind == aPattern {
			return s.compile(v.text)
		}
	case aStringList:
		if v.kind != isArray || slices.ContainsFunc(v.items, func(i *value) bool { return i.kind != isString }) {
			return wrong("an array of strings")
		}
	case aStringListMap:
		if v.kind != isObject {
			return wrong("an object of arrays of strings")
		}
		for _, f := range v.fields {
			if err := s.keyword(aStringList, f.value, name); err != nil {
				return err
			}
		}
	case aTypeList:
		list := typeList(v)
		if len(list) == 0 || slices.ContainsFunc(list, func(t string) bool { return !slices.Contains(types, t) }) {
			return wrong("one or more of " + strings.Join(types, ", "))
		}
	case aList:
		if v.kind != isArray || len(v.items) == 0 {
			return wrong("an array with at least one value")
		}
	case aBool:
		if v.kind != isTrue && v.kind != isFalse {
			return wrong("a boolean")
		}
	case aNumber:
		if v.kind != isNumber {
			return wrong("a number")
		}
	case aCount:
		if v.kind != isNumber || !v.number().IsInt() || v.number().Sign() < 0 {
			return wrong("a whole number that is not negative")
		}
	}
	return nil
}

// lookup follows a reference inside the document; nil is nowhere.
func (s *schema) lookup(ref string) *value {
	rest, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	if rest == "" {
		return s.root
	}
	rest, ok = strings.CutPrefix(rest, "/")
	if !ok {
		return nil
	}
	at := s.root
	for token := range strings.SplitSeq(rest, "/") {
		if plain, err := url.PathUnescape(token); err == nil {
			token = plain
		}
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		if at.kind == isArray {
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(at.items) {
				return nil
			}
			at = at.items[i]
		} else if at = at.get(token); at == nil {
			return nil
		}
	}
	return at
}

// typeList reads "type", which is a string or an array of them.
func typeList(v *value) []string {
	switch {
	case v == nil:
		return nil
	case v.kind == isString:
		return []string{v.text}
	}
	var list []string
	for _, item := range v.items {
		list = append(list, item.text)
	}
	return list
}
