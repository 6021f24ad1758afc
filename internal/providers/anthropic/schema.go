package anthropic

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxSchemaDepth limits the recursion into nested schemas.
const maxSchemaDepth = 64

// member is a member of an object. Their order is kept, because a model writes
// its response in the order of the schema.
type member struct {
	name  string
	value jsontext.Value
}

// members returns the members of an object, and nil for any other value.
func members(object jsontext.Value) []member {
	if object.Kind() != jsontext.KindBeginObject {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	var list []member
	for d.PeekKind() == jsontext.KindString {
		name, err := d.ReadToken()
		if err != nil {
			return nil
		}
		m := member{name: name.String()}
		value, err := d.ReadValue()
		if err != nil {
			return nil
		}
		m.value = value.Clone()
		list = append(list, m)
	}
	return list
}

func elements(array jsontext.Value) (list []jsontext.Value) {
	_ = json.Unmarshal(array, &list, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return list
}

func appendObject(b []byte, list []member) []byte {
	b = append(b, '{')
	for i, m := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, m.name)
		b = append(b, ':')
		b = append(b, m.value...)
	}
	return append(b, '}')
}

// objectSchema returns a function's parameters as a tool's input schema, which
// must have the type object.
func objectSchema(v jsontext.Value) (jsontext.Value, bool) {
	switch v.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return jsontext.Value(emptySchema), true
	case jsontext.KindBeginObject:
	default:
		return nil, false
	}
	list := members(v)
	at := slices.IndexFunc(list, func(m member) bool { return m.name == "type" })
	if at < 0 {
		return appendObject(nil, slices.Insert(list, 0, member{"type", jsontext.Value(`"object"`)})), true
	}
	return v, list[at].value.Kind() != jsontext.KindString || string(list[at].value) == `"object"`
}

// isClosed reports whether a grammar can express the schema: no object in it
// allows unknown properties, and it isn't recursive.
func isClosed(schema jsontext.Value) bool {
	w := &closedWalk{definitions: map[string]jsontext.Value{}}
	for _, m := range members(schema) {
		if m.name == "$defs" || m.name == "definitions" {
			for _, d := range members(m.value) {
				w.definitions["#/"+m.name+"/"+d.name] = d.value
			}
		}
	}
	return w.check(schema, 0)
}

type closedWalk struct {
	definitions map[string]jsontext.Value
	inside      []string // definitions that are being checked
	checked     []string
}

func (w *closedWalk) check(schema jsontext.Value, depth int) bool {
	if depth > maxSchemaDepth {
		return false
	}
	list := members(schema)
	if isFreeForm(list) {
		return false
	}
	for _, m := range list {
		closed := true
		switch m.name {
		case "additionalProperties", "unevaluatedProperties":
			closed = m.value.Kind() == jsontext.KindFalse
		case "patternProperties":
			closed = false
		case "$ref":
			closed = w.checkRef(m.value, depth)
		case "properties":
			for _, p := range members(m.value) {
				closed = closed && w.check(p.value, depth+1)
			}
		case "items":
			closed = w.check(m.value, depth+1)
		case "anyOf", "oneOf", "allOf":
			for _, e := range elements(m.value) {
				closed = closed && w.check(e, depth+1)
			}
		}
		if !closed {
			return false
		}
	}
	return true
}

// isFreeForm reports whether the schema is an object without any properties: a
// grammar would allow only an empty one.
func isFreeForm(schema []member) bool {
	object := false
	for _, m := range schema {
		switch m.name {
		case "type":
			object = bytes.Contains(m.value, []byte(`"object"`))
		case "properties", "additionalProperties", "unevaluatedProperties", "$ref", "anyOf", "oneOf", "allOf", "enum", "const":
			return false
		}
	}
	return object
}

func (w *closedWalk) checkRef(ref jsontext.Value, depth int) bool {
	var to string
	_ = json.Unmarshal(ref, &to, jsontext.AllowInvalidUTF8(true))
	definition, ok := w.definitions[to]
	if !ok || slices.Contains(w.inside, to) {
		return false
	}
	if slices.Contains(w.checked, to) {
		return true
	}
	w.inside = append(w.inside, to)
	closed := w.check(definition, depth+1)
	w.inside = w.inside[:len(w.inside)-1]
	w.checked = append(w.checked, to)
	return closed
}

// keywords are the keywords with plain values that Anthropic's grammars support.
var keywords = []string{"type", "enum", "const", "default", "description", "title", "required"}

// formats are the string formats that they support.
var formats = []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}

// grammar returns a schema that Anthropic's structured output accepts. It rejects
// keywords that it can't enforce, so they move to the description, where the
// model can read them.
func grammar(schema jsontext.Value) jsontext.Value { return grammarAt(schema, 0) }

func grammarAt(schema jsontext.Value, depth int) jsontext.Value {
	if schema.Kind() != jsontext.KindBeginObject || depth > maxSchemaDepth {
		return schema
	}
	list := members(schema)
	isRef := slices.ContainsFunc(list, func(m member) bool { return m.name == "$ref" })
	var out []member
	var notes []string
	object := false
	for _, m := range list {
		switch m.name {
		case "$defs", "definitions":
			out = append(out, member{m.name, eachMember(m.value, depth+1)})
			continue
		case "$ref":
			out = append(out, m)
			continue
		}
		if isRef { // no other keyword may be next to $ref
			continue
		}
		switch {
		case slices.Contains(keywords, m.name):
			object = object || m.name == "type" && strings.Contains(string(m.value), `"object"`)
			out = append(out, m)
		case m.name == "properties":
			object = true
			out = append(out, member{m.name, eachMember(m.value, depth+1)})
		case m.name == "items" && m.value.Kind() == jsontext.KindBeginObject:
			out = append(out, member{m.name, grammarAt(m.value, depth+1)})
		case m.name == "anyOf", m.name == "allOf":
			out = append(out, member{m.name, eachElement(m.value, depth+1)})
		case m.name == "oneOf":
			out = append(out, member{"anyOf", eachElement(m.value, depth+1)})
		case m.name == "format" && slices.Contains(formats, strings.Trim(string(m.value), `"`)),
			m.name == "minItems" && (string(m.value) == "0" || string(m.value) == "1"):
			out = append(out, m)
		case m.name == "additionalProperties", strings.HasPrefix(m.name, "$"):
		default:
			notes = append(notes, m.name+": "+compact(m.value))
		}
	}
	if object {
		out = append(out, member{"additionalProperties", jsontext.Value("false")})
	}
	return appendObject(nil, describe(out, notes))
}

// describe appends notes to the description.
func describe(list []member, notes []string) []member {
	if len(notes) == 0 {
		return list
	}
	note := "(" + strings.Join(notes, ", ") + ")"
	at := slices.IndexFunc(list, func(m member) bool { return m.name == "description" })
	if at < 0 {
		return append(list, member{"description", appendString(nil, note)})
	}
	var text string
	_ = json.Unmarshal(list[at].value, &text, jsontext.AllowInvalidUTF8(true))
	list[at].value = appendString(nil, strings.TrimSpace(text+" "+note))
	return list
}

func eachMember(object jsontext.Value, depth int) jsontext.Value {
	if object.Kind() != jsontext.KindBeginObject {
		return object
	}
	list := members(object)
	for i := range list {
		list[i].value = grammarAt(list[i].value, depth)
	}
	return appendObject(nil, list)
}

func eachElement(array jsontext.Value, depth int) jsontext.Value {
	if array.Kind() != jsontext.KindBeginArray {
		return array
	}
	b := []byte{'['}
	for i, e := range elements(array) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, grammarAt(e, depth)...)
	}
	return append(b, ']')
}

// compact returns a value without white space.
func compact(v jsontext.Value) string {
	v = v.Clone()
	_ = v.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return string(v)
}

// appendString appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
