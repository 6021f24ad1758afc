package openai

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers/wire"
)

// object is a JSON object whose members can be replaced, dropped and added. All
// other bytes stay the same.
type object struct {
	source  []byte
	open    int // after the opening bracket
	members []member
	added   []byte
	buffer  bytes.Buffer
	decoder jsontext.Decoder
}

type member struct {
	name             []byte // unquoted
	start, from, end int    // of the name with its quotes, of the value, of both
	replacement      []byte // new value, if any
	dropped          bool
}

// usualMembers is a little more than most requests, responses and chunks have.
const usualMembers = 8

// parse parses a JSON object, which must not change while the object is in use.
func (o *object) parse(source []byte) error {
	o.source, o.members, o.added = source, o.members[:0], o.added[:0]
	if o.members == nil {
		o.members = make([]member, 0, usualMembers)
	}
	o.buffer = *bytes.NewBuffer(source) // decoded without a copy
	d := &o.decoder
	d.Reset(&o.buffer, wire.Lenient)
	if d.PeekKind() != '{' {
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		return errors.New("not a JSON object")
	}
	o.open = bytes.IndexByte(source, '{') + 1
	err := eachMember(d, func(name jsontext.Value) error {
		m := member{end: int(d.InputOffset())}
		m.start = m.end - len(name)
		m.name = source[m.start+1 : m.end-1]
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
		return errors.New("more data after the JSON object")
	}
	return nil
}

func (o *object) value(m *member) jsontext.Value { return o.source[m.from:m.end] }

// get returns the value of a member in the source, or nil. Of two with the same
// name it takes the last, as most decoders do.
func (o *object) get(name string) jsontext.Value {
	for i := len(o.members) - 1; i >= 0; i-- {
		if m := &o.members[i]; string(m.name) == name {
			return o.value(m)
		}
	}
	return nil
}

func (o *object) has(name string) bool {
	value := o.get(name)
	return value != nil && value.Kind() != 'n'
}

func (o *object) set(name, value string) {
	found := false
	for i := range o.members {
		if m := &o.members[i]; string(m.name) == name {
			m.replacement, found = []byte(value), true
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

func (o *object) setString(name, value string) {
	quoted, _ := jsontext.AppendQuote(nil, value)
	o.set(name, string(quoted))
}

func (o *object) drop(name string) {
	for i := range o.members {
		if m := &o.members[i]; string(m.name) == name {
			m.dropped = true
		}
	}
}

func (o *object) bytes() []byte {
	out := make([]byte, 0, len(o.source)+len(o.added)+64)
	out = append(out, o.source[:o.open]...)
	end, empty := o.open, true
	for i := range o.members {
		m := &o.members[i]
		switch {
		case m.dropped:
			end = m.end
			continue
		case empty: // no comma before the first
			out = append(out, o.source[o.open:o.members[0].start]...)
		default:
			out = append(out, o.source[end:m.start]...)
		}
		out = append(out, o.source[m.start:m.from]...)
		if m.replacement != nil {
			out = append(out, m.replacement...)
		} else {
			out = append(out, o.value(m)...)
		}
		end, empty = m.end, false
	}
	if len(o.added) > 0 {
		if !empty {
			out = append(out, ',')
		}
		out = append(out, o.added...)
	}
	return append(out, o.source[end:]...)
}

// eachMember calls read for each member of the next object. The quoted name is
// valid until read reads the value. Other values than objects are skipped.
func eachMember(d *jsontext.Decoder, read func(name jsontext.Value) error) error {
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
		if err := read(name); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// eachElement calls read for each element of the next array. Other values than arrays are skipped.
func eachElement(d *jsontext.Decoder, read func() error) error {
	if d.PeekKind() != '[' {
		return d.SkipValue()
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for kind := d.PeekKind(); kind != ']' && kind > 0; kind = d.PeekKind() {
		if err := read(); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}
