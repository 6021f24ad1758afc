package openai

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// object is a JSON object in which values are replaced, members dropped and
// members added. All else stays as it is, byte for byte.
type object struct {
	text    []byte
	open    int // after the opening bracket
	members []member
	added   []byte
	from    bytes.Buffer
	decoder jsontext.Decoder
}

// member is a part of the text.
type member struct {
	name             []byte // unquoted
	start, from, end int    // of the name with its quotes, of the value, of both
	value            []byte // what takes the value's place, if any
	dropped          bool
}

// usualMembers is how many calls, answers and chunks have, or a few more.
const usualMembers = 8

var errNotObject = errors.New("not a JSON object")

// lenient is for what others made: what is wrong with it is theirs to judge.
// A caller's own body has been checked at the edge.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// parse reads a text, which must stay as it is while the object is in use.
func (o *object) parse(text []byte) error {
	o.text, o.members, o.added = text, o.members[:0], o.added[:0]
	if o.members == nil {
		o.members = make([]member, 0, usualMembers)
	}
	d := o.reader(text)
	if d.PeekKind() != '{' {
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		return errNotObject
	}
	o.open = bytes.IndexByte(text, '{') + 1
	err := members(d, func(name jsontext.Value) error {
		m := member{end: int(d.InputOffset())}
		m.start = m.end - len(name)
		m.name = text[m.start+1 : m.end-1]
		if bytes.IndexByte(m.name, '\\') >= 0 {
			m.name, _ = jsontext.AppendUnquote(nil, name)
		}
		value, err := d.ReadValue()
		m.end = int(d.InputOffset())
		m.from = m.end - len(value)
		o.members = append(o.members, m)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return errors.New("more after the JSON object")
	}
	return nil
}

// reader reads a text without a copy of it.
func (o *object) reader(text []byte) *jsontext.Decoder {
	o.from = *bytes.NewBuffer(text)
	o.decoder.Reset(&o.from, lenient...)
	return &o.decoder
}

// get is a member's value as it stands there, or nil.
func (o *object) get(name string) jsontext.Value {
	for i := len(o.members) - 1; i >= 0; i-- { // of two with one name most readers take the last
		if m := &o.members[i]; string(m.name) == name {
			return o.text[m.from:m.end]
		}
	}
	return nil
}

// has reports whether a member is there and is not null.
func (o *object) has(name string) bool {
	value := o.get(name)
	return value != nil && value.Kind() != 'n'
}

// set replaces a member's value, or adds the member.
func (o *object) set(name, value string) {
	found := false
	for i := range o.members {
		if m := &o.members[i]; string(m.name) == name {
			m.value, found = []byte(value), true
		}
	}
	if found {
		return
	}
	if len(o.added) > 0 {
		o.added = append(o.added, ',')
	}
	o.added, _ = jsontext.AppendQuote(o.added, name)
	o.added = append(append(o.added, ':'), value...)
}

// drop removes a member.
func (o *object) drop(name string) {
	for i := range o.members {
		if m := &o.members[i]; string(m.name) == name {
			m.dropped = true
		}
	}
}

// bytes is the object with its changes, in memory of its own.
func (o *object) bytes() []byte {
	out := make([]byte, 0, len(o.text)+len(o.added)+64)
	out = append(out, o.text[:o.open]...)
	end, empty := o.open, true
	for i := range o.members {
		m := &o.members[i]
		switch {
		case m.dropped:
			end = m.end
			continue
		case empty: // there is no comma before the first
			out = append(out, o.text[o.open:o.members[0].start]...)
		default:
			out = append(out, o.text[end:m.start]...)
		}
		out = append(out, o.text[m.start:m.from]...)
		if m.value != nil {
			out = append(out, m.value...)
		} else {
			out = append(out, o.text[m.from:m.end]...)
		}
		end, empty = m.end, false
	}
	if len(o.added) > 0 {
		if !empty {
			out = append(out, ',')
		}
		out = append(out, o.added...)
	}
	return append(out, o.text[end:]...)
}

// members calls visit for each member of the object that comes next: visit
// gets the name as it is written, valid until it reads the value. Anything
// but an object is skipped.
func members(d *jsontext.Decoder, visit func(name jsontext.Value) error) error {
	if d.PeekKind() != '{' {
		return d.SkipValue()
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		if err != nil {
			return err
		}
		if err := visit(name); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// elements calls visit for each element of the array that comes next.
func elements(d *jsontext.Decoder, visit func() error) error {
	if d.PeekKind() != '[' {
		return d.SkipValue()
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for kind := d.PeekKind(); kind != ']' && kind > 0; kind = d.PeekKind() {
		if err := visit(); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}
