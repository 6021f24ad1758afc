// Package jsonbody decodes untrusted JSON: exact names, no duplicates, limited depth,
// and errors that name the field and what it must be.
package jsonbody

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// DecodeStrict decodes the body of one of Turnpike's own resources. Unknown fields are errors.
func DecodeStrict(body []byte, into any) error {
	if jsontext.Value(body).Kind() == jsontext.KindNull {
		return errNotAnObject()
	}
	return decode(body, into, json.RejectUnknownMembers(true))
}

// DecodeLenient decodes some fields of a body and ignores the others.
func DecodeLenient(body []byte, into any) error { return decode(body, into) }

func decode(body []byte, into any, opts ...json.Options) error {
	err := json.Unmarshal(body, into, opts...)
	if err == nil {
		return nil
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		return semanticFault(semantic)
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			name := Path(syntactic.JSONPointer)
			return fault.Param(fault.InvalidJSON, name, "%s appears twice in the same object.", name)
		}
		return fault.New(fault.InvalidJSON, "The body is not valid JSON. The problem is near byte %d.", syntactic.ByteOffset).Because(err)
	}
	return fault.New(fault.InvalidJSON, "The body is not valid JSON.").Because(err)
}

func errNotAnObject() error { return fault.New(fault.InvalidJSON, "The body must be a JSON object.") }

func semanticFault(err *json.SemanticError) error {
	param := Path(err.JSONPointer)
	if errors.Is(err, json.ErrUnknownName) {
		if names := fieldsOf(err.GoType); len(names) > 0 {
			return fault.Param(fault.UnknownParameter, param, "Unknown field %q. Allowed fields: %s.", param, strings.Join(names, ", "))
		}
		return fault.Param(fault.UnknownParameter, param, "Unknown field %q.", param)
	}
	if own, ok := fault.As(err.Err); ok { // from a type's own decoder
		return fault.Invalid(param, "%s: %s", param, own.Message)
	}
	if param == "" {
		return errNotAnObject()
	}
	if err.Err != nil {
		return fault.Invalid(param, "%s: %s.", param, explain(err))
	}
	return fault.Invalid(param, "%s must be %s, not %s.", param, expected(err.GoType), found(err.JSONKind))
}

func fieldsOf(t reflect.Type) []string {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.IsExported() && name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// explain returns the message of a type's own decoder, and a new one for errors of
// the JSON decoder.
func explain(err *json.SemanticError) string {
	if errors.Is(err, strconv.ErrSyntax) || errors.Is(err, strconv.ErrRange) {
		return "expected " + expected(err.GoType)
	}
	inner := err.Err
	for next := errors.Unwrap(inner); next != nil; next = errors.Unwrap(inner) {
		inner = next
	}
	return inner.Error()
}

func expected(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return "another type"
	}
	return cmp.Or(kindNames[t.Kind()], "an object")
}

var kindNames = map[reflect.Kind]string{reflect.String: "a string", reflect.Bool: "true or false",
	reflect.Int64: "a whole number", reflect.Float64: "a number", reflect.Slice: "an array"}

func found(kind jsontext.Kind) string { return cmp.Or(foundNames[kind], "an object") }

// foundNames has "this number" because the type may fit and the value not: 1.5 for an integer.
var foundNames = map[jsontext.Kind]string{jsontext.KindNull: "null", jsontext.KindTrue: "a boolean", jsontext.KindFalse: "a boolean",
	jsontext.KindString: "a string", jsontext.KindNumber: "this number", jsontext.KindBeginArray: "an array"}

// Path writes a JSON pointer as a path: a.b[0].c
func Path(p jsontext.Pointer) string {
	var out strings.Builder
	for token := range p.Tokens() {
		if token != "" && strings.Trim(token, "0123456789") == "" {
			out.WriteString("[" + token + "]")
			continue
		}
		if out.Len() > 0 {
			out.WriteByte('.')
		}
		out.WriteString(token)
	}
	return out.String()
}

// CheckDepth limits the nesting of a body.
func CheckDepth(body []byte, limit int) error {
	_, err := CheckShape(body, limit, math.MaxInt)
	return err
}

// CheckShape limits the nesting and the number of values of a body, and returns that number. It only counts brackets and
// commas outside of strings, and leaves other errors to the decoder. A value of two bytes takes a
// hundred and more once it is decoded, so the size of a body alone doesn't limit its cost.
func CheckShape(body []byte, depthLimit, valueLimit int) (values int, err error) {
	depth := 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			i += stringEnd(body[i+1:]) + 1
		case ',':
			values++
		case '{', '[':
			values++
			if depth++; depth > depthLimit {
				return 0, fault.New(fault.InvalidJSON, "The body nests deeper than %d levels.", depthLimit)
			}
		case '}', ']':
			depth--
		}
	}
	if values > valueLimit {
		return 0, fault.New(fault.InvalidJSON, "The body has more than %d values in its arrays and objects.", valueLimit)
	}
	return values, nil
}

// stringEnd returns the offset of the quote that ends a string, or the length of the
// text. Bodies are mostly strings, so it skips from quote to quote. An escaped quote
// has an odd number of backslashes before it.
func stringEnd(text []byte) int {
	for from := 0; ; {
		quote := bytes.IndexByte(text[from:], '"')
		if quote < 0 {
			return len(text)
		}
		quote += from
		slashes := 0
		for quote-slashes > from && text[quote-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return quote
		}
		from = quote + 1
	}
}

// Optional is a field that may be absent, null or a value, as in PATCH.
type Optional[T any] struct {
	Set   bool
	Null  bool
	Value T
}

// UnmarshalJSONFrom records that the field is present.
func (o *Optional[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	o.Set = true
	if d.PeekKind() == 'n' {
		o.Null = true
		return d.SkipValue()
	}
	return json.UnmarshalDecode(d, &o.Value)
}

// Pointer returns the value, or nil if it is null or absent.
func (o *Optional[T]) Pointer() *T {
	if !o.Set || o.Null {
		return nil
	}
	v := o.Value
	return &v
}
