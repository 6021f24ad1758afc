package anthropic

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/openai"
)

const maxSchemaDepth = 64

// isClosed reports whether a grammar can express the schema: no object in it
// allows unknown properties, and it isn't recursive.
func isClosed(schema openai.Ordered) bool {
	w := &closedWalk{definitions: map[string]openai.Ordered{}}
	for _, m := range schema.Members {
		if m.Name == "$defs" || m.Name == "definitions" {
			for _, d := range m.Value.Members {
				w.definitions["#/"+m.Name+"/"+d.Name] = d.Value
			}
		}
	}
	return w.check(schema, 0)
}

type closedWalk struct {
	definitions map[string]openai.Ordered
	inside      []string // definitions that are being checked
	checked     []string
}

func (w *closedWalk) check(schema openai.Ordered, depth int) bool {
	if depth > maxSchemaDepth || isFreeForm(schema) {
		return false
	}
	for _, m := range schema.Members {
		closed := true
		switch m.Name {
		case "additionalProperties", "unevaluatedProperties":
			closed = m.Value.Kind == jsontext.KindFalse
		case "patternProperties":
			closed = false
		case "$ref":
			closed = w.checkRef(m.Value.Text(), depth)
		case "properties":
			for _, p := range m.Value.Members {
				closed = closed && w.check(p.Value, depth+1)
			}
		case "items":
			closed = w.check(m.Value, depth+1)
		case "anyOf", "oneOf", "allOf":
			for _, e := range m.Value.Elements {
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
func isFreeForm(schema openai.Ordered) bool {
	object := false
	for _, m := range schema.Members {
		switch m.Name {
		case "type":
			object = namesObject(m.Value)
		case "properties", "additionalProperties", "unevaluatedProperties", "$ref", "anyOf", "oneOf", "allOf", "enum", "const":
			return false
		}
	}
	return object
}

// namesObject reports whether the value of "type" is or contains "object".
func namesObject(v openai.Ordered) bool {
	return v.Text() == "object" || slices.ContainsFunc(v.Elements, func(e openai.Ordered) bool { return e.Text() == "object" })
}

func (w *closedWalk) checkRef(to string, depth int) bool {
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

// grammar returns a schema that Anthropic's structured output accepts. It rejects keywords that it
// can't enforce, so they move to the description, where the model can read them.
func grammar(schema openai.Ordered) openai.Ordered {
	isRef := schema.Index("$ref") >= 0
	var out []openai.Member
	var notes []string
	object := false
	for _, m := range schema.Members {
		switch {
		case m.Name == "$defs", m.Name == "definitions":
			m.Value = m.Value.Map(grammar)
		case m.Name == "$ref":
		case isRef: // no other keyword may be next to $ref
			continue
		case slices.Contains(keywords, m.Name):
			object = object || m.Name == "type" && namesObject(m.Value)
		case m.Name == "properties":
			object = true
			m.Value = m.Value.Map(grammar)
		case m.Name == "items" && m.Value.Kind == jsontext.KindBeginObject:
			m.Value = grammar(m.Value)
		case m.Name == "anyOf", m.Name == "allOf", m.Name == "oneOf":
			if m.Name == "oneOf" {
				m.Name = "anyOf"
			}
			m.Value = m.Value.Map(grammar)
		case m.Name == "format" && slices.Contains(formats, m.Value.Text()),
			m.Name == "minItems" && (string(m.Value.Scalar) == "0" || string(m.Value.Scalar) == "1"):
		case m.Name == "additionalProperties", strings.HasPrefix(m.Name, "$"):
			continue
		default:
			notes = append(notes, m.Name+": "+string(m.Value.JSON()))
			continue
		}
		out = append(out, m)
	}
	if object {
		out = append(out, openai.Member{Name: "additionalProperties", Value: openai.Ordered{Kind: jsontext.KindFalse, Scalar: jsontext.Value("false")}})
	}
	schema.Members = out
	describe(&schema, notes)
	return schema
}

func describe(schema *openai.Ordered, notes []string) {
	if len(notes) == 0 {
		return
	}
	note := "(" + strings.Join(notes, ", ") + ")"
	at := schema.Index("description")
	if at < 0 {
		schema.Members = append(schema.Members, openai.Member{Name: "description", Value: openai.OrderedString(note)})
		return
	}
	text := schema.Members[at].Value.Text()
	schema.Members[at].Value = openai.OrderedString(strings.TrimSpace(text + " " + note))
}
