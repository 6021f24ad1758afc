package gateway

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/credits"
)

// spliceUsage puts the credits into a chunk's usage object. It is a splice and
// not a re-encoding: whatever else the provider says there stays as it is, but
// for credits of its own, if it is one of us.
func spliceUsage(chunk []byte, charged credits.Micro) []byte {
	d := jsontext.NewDecoder(bytes.NewReader(chunk), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if !enter(d, "usage") || d.PeekKind() != '{' {
		return chunk
	}
	if _, err := d.ReadToken(); err != nil {
		return chunk
	}
	at := d.InputOffset()
	if d.PeekKind() == '}' {
		return slices.Concat(chunk[:at], []byte(`"credits":`+charged.String()), chunk[at:])
	}
	if find(d, "credits") {
		value, err := d.ReadValue()
		if err != nil {
			return chunk
		}
		end := d.InputOffset()
		return slices.Concat(chunk[:end-int64(len(value))], []byte(charged.String()), chunk[end:])
	}
	return slices.Concat(chunk[:at], []byte(`"credits":`+charged.String()+`,`), chunk[at:])
}

// enter goes into an object and to the value of a name, if it has it.
func enter(d *jsontext.Decoder, name string) bool {
	if d.PeekKind() != '{' {
		return false
	}
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	return find(d, name)
}

// find goes on to the value of a name in the object that is being read.
func find(d *jsontext.Decoder, name string) bool {
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return false
		}
		if token.String() == name {
			return true
		}
		if err := d.SkipValue(); err != nil {
			return false
		}
	}
	return false
}
