package jsonbody

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// Names registers the members of a JSON object that Turnpike reads or sets.
// The value describes the object that the member holds, or the objects in its
// array; it is nil if Turnpike doesn't read inside. Names are ASCII in lower case.
type Names map[string]Names

// NewNames registers members separated by spaces that Turnpike doesn't read
// inside, and the nested ones.
func NewNames(list string, nested Names) Names {
	names := Names{}
	for name := range strings.FieldsSeq(list) {
		names[name] = nil
	}
	maps.Copy(names, nested)
	return names
}

// NamesOf derives the names from the type that a body is decoded into. A type
// with its own decoder stands for the types of its fields.
func NamesOf[T any]() Names { return namesOf(reflect.TypeFor[T](), nil) }

// namesOf stops where a type contains itself.
func namesOf(t reflect.Type, around []reflect.Type) Names {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || slices.Contains(around, t) {
		return nil
	}
	around = append(around, t)
	names := Names{}
	for f := range t.Fields() {
		tag, tagged := f.Tag.Lookup("json")
		name, _, _ := strings.Cut(tag, ",")
		inside := namesOf(f.Type, around)
		switch {
		case name == "-":
		case name != "":
			names[name] = inside
		case !tagged: // embedded, or filled by the type's own decoder
			maps.Copy(names, inside)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return names
}

// DecodeForwarded decodes the fields of a body that goes to a provider, and
// rejects other spellings of the names.
func DecodeForwarded(body []byte, into any, names Names) error {
	if err := DecodeLenient(body, into); err != nil {
		return err
	}
	return CheckNames("", body, names)
}

// CheckNames rejects members whose names differ from registered ones only in case. Providers that
// fold case, such as every server that uses Go's encoding/json, would read "Model" where Turnpike
// has read and priced "model". The value must be valid JSON without duplicate names. at is its
// place in the body. Values that aren't registered are skipped without being parsed.
func CheckNames(at string, value []byte, names Names) error {
	c := nameCheck{text: value}
	wrong := c.value(names)
	if wrong == nil {
		return nil
	}
	param := strings.TrimPrefix(at+wrong.path, ".")
	return fault.Param(fault.UnknownParameter, param, "Unknown field %q. Use the exact spelling %q.", param, wrong.want)
}

type nameCheck struct {
	text []byte
	at   int
}

type misspelling struct{ path, want string }

// value checks the value at the cursor and moves past it.
func (c *nameCheck) value(names Names) *misspelling {
	switch {
	case names == nil:
		c.skip()
	case c.peek() == '{':
		return c.object(names)
	case c.peek() == '[':
		return c.array(names)
	default:
		c.skip()
	}
	return nil
}

func (c *nameCheck) object(names Names) *misspelling {
	c.at++
	for c.peek() == '"' {
		name := c.name()
		inside, exact := names[string(name)]
		if !exact {
			if want, found := names.fold(name); found {
				return &misspelling{"." + string(name), want}
			}
		}
		if wrong := c.value(inside); wrong != nil {
			wrong.path = "." + string(name) + wrong.path
			return wrong
		}
		if c.peek() == ',' {
			c.at++
			c.peek()
		}
	}
	c.at++
	return nil
}

// name returns the unquoted name at the cursor and moves past the colon after it.
func (c *nameCheck) name() []byte {
	start := c.at
	c.skip()
	name := c.text[start+1 : c.at-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name, _ = jsontext.AppendUnquote(nil, c.text[start:c.at])
	}
	c.peek()
	c.at++
	return name
}

func (c *nameCheck) array(names Names) *misspelling {
	c.at++
	for i := 0; c.at < len(c.text) && c.peek() != ']'; i++ {
		if wrong := c.value(names); wrong != nil {
			wrong.path = "[" + strconv.Itoa(i) + "]" + wrong.path
			return wrong
		}
		if c.peek() == ',' {
			c.at++
		}
	}
	c.at++
	return nil
}

func (c *nameCheck) peek() byte {
	for c.at < len(c.text) {
		switch b := c.text[c.at]; b {
		case ' ', '\t', '\r', '\n':
			c.at++
		default:
			return b
		}
	}
	return 0
}

// skip moves past the value at the cursor.
func (c *nameCheck) skip() {
	depth := 0
	for c.peek(); c.at < len(c.text); c.at++ {
		switch c.text[c.at] {
		case '"':
			c.at += stringEnd(c.text[c.at+1:]) + 1
			if depth == 0 {
				c.at++
				return
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 { // the end of the object or array around a number
				return
			} else if depth == 0 {
				c.at++
				return
			}
		case ',':
			if depth == 0 {
				return
			}
		}
	}
}

// Respells reports whether a name differs from a registered one only in case.
func (n Names) Respells(name []byte) bool {
	_, found := n.fold(name)
	return found
}

// fold finds the name that another one differs from only in case, by Unicode's simple folding,
// which includes that of encoding/json: it reads ſ as s and the Kelvin sign as k.
func (n Names) fold(name []byte) (want string, found bool) {
	if !mayFold(name) {
		return "", false
	}
	var folded []byte
	for _, r := range string(name) {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		folded = utf8.AppendRune(folded, unicode.ToLower(least))
	}
	_, found = n[string(folded)]
	return string(folded), found
}

// mayFold reports whether a name has letters that aren't ASCII in lower case.
func mayFold(name []byte) bool {
	for _, b := range name {
		if 'A' <= b && b <= 'Z' || b >= utf8.RuneSelf {
			return true
		}
	}
	return false
}
