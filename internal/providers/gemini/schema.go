package gemini

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// schemaCopy rewrites a JSON schema on the way from in to out. Gemini takes
// such schemas but reads only a part of the language: a keyword beyond it has
// no effect. What has a counterpart within becomes that, the rest stays. It
// works token by token, as the order of properties is the order in which the
// model answers.
type schemaCopy struct {
	in  *jsontext.Decoder
	out *jsontext.Encoder
	// rename makes definitions $defs; not in a schema that has both.
	rename bool
	refs   map[int64]bool // where the objects begin that have a $ref
}

// cleanSchema leaves out $schema and what may not stand beside a $ref, turns
// const into an enum of one value, and definitions into $defs, with the
// references to them.
func cleanSchema(schema jsontext.Value) (jsontext.Value, error) {
	var b bytes.Buffer
	c := schemaCopy{
		in:     jsontext.NewDecoder(bytes.NewReader(schema)),
		out:    jsontext.NewEncoder(&b),
		rename: !bytes.Contains(schema, []byte(`"$defs"`)),
		refs:   findRefs(schema),
	}
	if err := c.schema(); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// findRefs finds the objects that have a $ref.
func findRefs(schema jsontext.Value) map[int64]bool {
	found := map[int64]bool{}
	d := jsontext.NewDecoder(bytes.NewReader(schema))
	var open []int64
	for {
		token, err := d.ReadToken()
		if err != nil {
			return found // at the end, or where the copy will fail
		}
		switch token.Kind() {
		case jsontext.KindBeginObject, jsontext.KindBeginArray:
			open = append(open, d.InputOffset())
		case jsontext.KindEndObject, jsontext.KindEndArray:
			open = open[:len(open)-1]
		case jsontext.KindString:
			in, n := d.StackIndex(d.StackDepth())
			isName := in == jsontext.KindBeginObject && n%2 == 1
			if isName && token.String() == "$ref" && d.PeekKind() == jsontext.KindString {
				found[open[len(open)-1]] = true
			}
		}
	}
}

// besideRef: Gemini refuses any other keyword beside a $ref.
func besideRef(name string) bool {
	return strings.HasPrefix(name, "$") || name == "definitions" || name == "description" || name == "default"
}

// schema copies one schema, which may be true or false.
func (c *schemaCopy) schema() error {
	if c.in.PeekKind() != jsontext.KindBeginObject {
		return c.value()
	}
	hasEnum := false
	return c.object(func(at int64, name string) error {
		if c.refs[at] && !besideRef(name) {
			return c.in.SkipValue()
		}
		if name != "const" && name != "enum" {
			return c.keyword(name)
		}
		if hasEnum { // one of the two says enough
			return c.in.SkipValue()
		}
		hasEnum = true
		value, err := c.in.ReadValue()
		if err != nil {
			return err
		}
		if name == "const" {
			value = append(append(jsontext.Value("["), value...), ']')
		}
		if err := c.out.WriteToken(jsontext.String("enum")); err != nil {
			return err
		}
		return c.out.WriteValue(value)
	})
}

// keyword copies a keyword and its value.
func (c *schemaCopy) keyword(name string) error {
	switch {
	case name == "$schema":
		return c.in.SkipValue()
	case name == "definitions" && c.rename:
		name = "$defs"
	}
	if err := c.out.WriteToken(jsontext.String(name)); err != nil {
		return err
	}
	kind := c.in.PeekKind()
	switch name {
	case "$ref":
		if kind == jsontext.KindString {
			return c.ref()
		}
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		if kind == jsontext.KindBeginObject {
			return c.object(func(_ int64, name string) error {
				if err := c.out.WriteToken(jsontext.String(name)); err != nil {
					return err
				}
				return c.schema()
			})
		}
	case "items", "prefixItems", "anyOf", "oneOf", "allOf":
		if kind == jsontext.KindBeginArray {
			return c.array()
		}
		return c.schema()
	case "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames":
		return c.schema()
	}
	return c.value()
}

func (c *schemaCopy) ref() error {
	token, err := c.in.ReadToken()
	if err != nil {
		return err
	}
	ref := token.String()
	if rest, ok := strings.CutPrefix(ref, "#/definitions/"); ok && c.rename {
		ref = "#/$defs/" + rest
	}
	return c.out.WriteToken(jsontext.String(ref))
}

// object copies an object, member by member; at is where it begins.
func (c *schemaCopy) object(member func(at int64, name string) error) error {
	if err := c.token(); err != nil {
		return err
	}
	at := c.in.InputOffset()
	for c.in.PeekKind() != jsontext.KindEndObject {
		token, err := c.in.ReadToken()
		if err != nil {
			return err
		}
		if err := member(at, token.String()); err != nil {
			return err
		}
	}
	return c.token()
}

func (c *schemaCopy) array() error {
	if err := c.token(); err != nil {
		return err
	}
	for c.in.PeekKind() != jsontext.KindEndArray {
		if err := c.schema(); err != nil {
			return err
		}
	}
	return c.token()
}

func (c *schemaCopy) token() error {
	token, err := c.in.ReadToken()
	if err != nil {
		return err
	}
	return c.out.WriteToken(token)
}

func (c *schemaCopy) value() error {
	value, err := c.in.ReadValue()
	if err != nil {
		return err
	}
	return c.out.WriteValue(value)
}
