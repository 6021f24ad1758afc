package openai

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Ordered is a JSON value whose objects keep the order of their members. Translators
// change schemas with it: a model writes its response in the order of the schema.
type Ordered struct {
	Kind     jsontext.Kind
	Scalar   jsontext.Value // of a string, number, boolean or null
	Members  []Member       // of an object
	Elements []Ordered      // of an array
}

// Member is a member of an object.
type Member struct {
	Name  string
	Value Ordered
}

// ParseOrdered parses a value, which must be valid JSON.
func ParseOrdered(v jsontext.Value) Ordered {
	var o Ordered
	d := jsontext.NewDecoder(bytes.NewReader(v), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	_ = o.read(d)
	return o
}

func (o *Ordered) read(d *jsontext.Decoder) error {
	o.Kind = d.PeekKind()
	if o.Kind != jsontext.KindBeginObject && o.Kind != jsontext.KindBeginArray {
		v, err := d.ReadValue()
		o.Scalar = v.Clone()
		return err
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for kind := d.PeekKind(); kind != jsontext.KindEndObject && kind != jsontext.KindEndArray; kind = d.PeekKind() {
		value := Ordered{}
		if o.Kind == jsontext.KindBeginArray {
			if err := value.read(d); err != nil {
				return err
			}
			o.Elements = append(o.Elements, value)
			continue
		}
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		m := Member{Name: name.String()}
		if err := m.Value.read(d); err != nil {
			return err
		}
		o.Members = append(o.Members, m)
	}
	_, err := d.ReadToken()
	return err
}

// Compact returns a value without white space.
func Compact(v jsontext.Value) string {
	v = v.Clone()
	_ = v.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return string(v)
}

// OrderedString returns a string. Invalid UTF-8 becomes U+FFFD.
func OrderedString(s string) Ordered {
	quoted, _ := jsontext.AppendQuote(nil, s)
	return Ordered{Kind: jsontext.KindString, Scalar: quoted}
}

// Text returns the content of a string, and "" for other values.
func (o *Ordered) Text() (s string) {
	_ = json.Unmarshal(o.Scalar, &s, jsontext.AllowInvalidUTF8(true))
	return s
}

// Index returns the index of the member with a name, or -1.
func (o *Ordered) Index(name string) int {
	return slices.IndexFunc(o.Members, func(m Member) bool { return m.Name == name })
}

// Map replaces the values of all members and elements.
func (o *Ordered) Map(replace func(Ordered) Ordered) Ordered {
	for i := range o.Members {
		o.Members[i].Value = replace(o.Members[i].Value)
	}
	for i := range o.Elements {
		o.Elements[i] = replace(o.Elements[i])
	}
	return *o
}

// JSON encodes the value without white space.
func (o *Ordered) JSON() jsontext.Value { return o.append(nil) }

func (o *Ordered) append(b []byte) []byte {
	switch o.Kind {
	case jsontext.KindBeginObject:
		b = append(b, '{')
		for i := range o.Members {
			if i > 0 {
				b = append(b, ',')
			}
			b, _ = jsontext.AppendQuote(b, o.Members[i].Name)
			b = o.Members[i].Value.append(append(b, ':'))
		}
		return append(b, '}')
	case jsontext.KindBeginArray:
		b = append(b, '[')
		for i := range o.Elements {
			if i > 0 {
				b = append(b, ',')
			}
			b = o.Elements[i].append(b)
		}
		return append(b, ']')
	}
	return append(b, o.Scalar...)
}
