package openai

import (
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// StringOr is a JSON value that is either a string or a T, which is a slice or
// a struct. Kind is the kind of the value, or 0 if there is none. A value of any
// other kind is skipped, so that the reader can return its own error.
type StringOr[T any] struct {
	Kind  jsontext.Kind
	Text  string
	Value T
}

// UnmarshalJSONFrom decodes the value by its kind.
func (u *StringOr[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*u = StringOr[T]{Kind: d.PeekKind()}
	switch u.Kind {
	case jsontext.KindString:
		return json.UnmarshalDecode(d, &u.Text)
	case u.valueKind():
		return json.UnmarshalDecode(d, &u.Value)
	}
	return d.SkipValue()
}

// MarshalJSONTo encodes the string or the value, and null if there is neither.
func (u StringOr[T]) MarshalJSONTo(e *jsontext.Encoder) error {
	switch u.Kind {
	case jsontext.KindString:
		return e.WriteToken(jsontext.String(u.Text))
	case u.valueKind():
		return json.MarshalEncode(e, u.Value)
	}
	return e.WriteToken(jsontext.Null)
}

// IsZero reports whether there was no value at all. It serves omitzero.
func (u StringOr[T]) IsZero() bool { return u.Kind == jsontext.KindInvalid }

// IsNull reports whether the value is absent or null.
func (u *StringOr[T]) IsNull() bool {
	return u.Kind == jsontext.KindInvalid || u.Kind == jsontext.KindNull
}

func (u *StringOr[T]) valid() bool {
	return u.IsNull() || u.Kind == jsontext.KindString || u.Kind == u.valueKind()
}

func (*StringOr[T]) valueKind() jsontext.Kind {
	if reflect.TypeFor[T]().Kind() == reflect.Slice {
		return jsontext.KindBeginArray
	}
	return jsontext.KindBeginObject
}
