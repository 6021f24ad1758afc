package gateway

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/credits"
)

// withCredits sets credits in a chunk's usage object. It splices instead of re-encoding, so
// that everything else stays as the provider sent it. Credits of an upstream Turnpike are replaced.
func withCredits(chunk []byte, charged credits.Micro) []byte {
	d := jsontext.NewDecoder(bytes.NewReader(chunk), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if !enterMember(d, "usage") || d.PeekKind() != '{' {
		return chunk
	}
	if _, err := d.ReadToken(); err != nil {
		return chunk
	}
	start := d.InputOffset()
	if d.PeekKind() == '}' {
		return slices.Concat(chunk[:start], []byte(`"credits":`+charged.String()), chunk[start:])
	}
	if skipToMember(d, "credits") {
		value, err := d.ReadValue()
		if err != nil {
			return chunk
		}
		end := d.InputOffset()
		return slices.Concat(chunk[:end-int64(len(value))], []byte(charged.String()), chunk[end:])
	}
	return slices.Concat(chunk[:start], []byte(`"credits":`+charged.String()+`,`), chunk[start:])
}

// enterMember enters an object and skips to the value of a member.
func enterMember(d *jsontext.Decoder, name string) bool {
	if d.PeekKind() != '{' {
		return false
	}
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	return skipToMember(d, name)
}

// skipToMember skips to the value of a member of the current object.
func skipToMember(d *jsontext.Decoder, name string) bool {
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
