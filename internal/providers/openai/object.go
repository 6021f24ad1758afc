package openai

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/jsonbody"
	"turnpike/internal/providers/wire"
)

// object is a JSON object whose members can be replaced, dropped and added. All
// other values stay the same, byte for byte.
type object struct {
	members []member
	buffer  bytes.Buffer
	decoder jsontext.Decoder
}

type member struct {
	name  []byte // unquoted
	value jsontext.Value
}

// parse parses a JSON object, which must not change while the object is in use.
func (o *object) parse(source []byte) error {
	return o.parseEach(source, nil)
}

// parseEach is parse with a function that reads the value of each member from the decoder; nil skips them.
func (o *object) parseEach(source []byte, readValue func(name []byte) error) error {
	if o.members = o.members[:0]; o.members == nil {
		o.members = make([]member, 0, usualMembers)
	}
	o.buffer = *bytes.NewBuffer(source) // decoded without a copy
	d := &o.decoder
	d.Reset(&o.buffer, wire.Lenient)
	if d.PeekKind() != '{' {
		return errors.New("not a JSON object")
	}
	err := eachMember(d, func(quoted jsontext.Value) error {
		end := d.InputOffset()
		name := source[end-int64(len(quoted))+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name, _ = jsontext.AppendUnquote(nil, quoted)
		}
		var err error
		if readValue != nil {
			err = readValue(name)
		} else {
			err = d.SkipValue()
		}
		value := bytes.TrimLeft(source[end:d.InputOffset()], ": \t\r\n")
		o.members = append(o.members, member{name, value})
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

// split is parse for an object that is known to be valid.
func (o *object) split(source jsonbody.Value) {
	o.members = make([]member, 0, usualMembers)
	for name, value := range source.Members() {
		o.members = append(o.members, member{name, value.Text()})
	}
}

// usualMembers is as many members as most requests and responses have.
const usualMembers = 8

// get returns the value of a member, or nil. Of two it takes the last, as most decoders do.
func (o *object) get(name string) jsontext.Value {
	for i := len(o.members) - 1; i >= 0; i-- {
		if m := &o.members[i]; string(m.name) == name {
			return m.value
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
			m.value, found = jsontext.Value(value), true
		}
	}
	if !found {
		o.members = append(o.members, member{[]byte(name), jsontext.Value(value)})
	}
}

func (o *object) setString(name, value string) {
	quoted, _ := jsontext.AppendQuote(nil, value)
	o.set(name, string(quoted))
}

func (o *object) drop(name string) {
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return string(m.name) == name })
}

func (o *object) bytes() []byte {
	size := 2
	for _, m := range o.members {
		size += len(m.name) + len(m.value) + len(`"":,`)
	}
	out := append(make([]byte, 0, size), '{')
	for i, m := range o.members {
		if i > 0 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, m.name)
		out = append(append(out, ':'), m.value...)
	}
	return append(out, '}')
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
