package jsonbody

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// ReplaceMember returns an object with another value of a member that it has. Everything else stays
// as it is, so it also accepts what other servers have sent.
func ReplaceMember(object []byte, name, value string) []byte {
	d := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if token, err := d.ReadToken(); err != nil || token.Kind() != '{' {
		return object
	}
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return object
		}
		found := token.String() == name
		old, err := d.ReadValue()
		if err != nil {
			return object
		}
		if found {
			end := d.InputOffset()
			return slices.Concat(object[:end-int64(len(old))], []byte(value), object[end:])
		}
	}
	return object
}
