package jsonsample

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// value is a JSON document that keeps the order of its names. Schemas and the
// samples made from them are both values.
type value struct {
	kind   jsontext.Kind // n t f " 0 { [, as jsontext has them
	text   string        // of a string; the literal of a number
	items  []*value
	fields []field
	index  map[string]*value // only of objects with many fields
}

type field struct {
	name  string
	value *value
}

const (
	isNull   = jsontext.KindNull
	isTrue   = jsontext.KindTrue
	isFalse  = jsontext.KindFalse
	isString = jsontext.KindString
	isNumber = jsontext.KindNumber
	isObject = jsontext.KindBeginObject
	isArray  = jsontext.KindBeginArray
)

// get returns the named field, or nil.
func (v *value) get(name string) *value {
	if v.index != nil {
		return v.index[name]
	}
	for i := range v.fields {
		if v.fields[i].name == name {
			return v.fields[i].value
		}
	}
	return nil
}

// Schemas beyond these are refused: OpenAI's own limits are 5,000 properties
// and ten levels.
const (
	maxSchemaValues = 20_000
	maxSchemaDepth  = 100
)

// manyFields is where an index begins to pay.
const manyFields = 16

func decode(text []byte) (*value, error) {
	d := decoder{in: jsontext.NewDecoder(bytes.NewBuffer(text))}
	v, err := d.value(0)
	if err != nil {
		return nil, err
	}
	return v, nil
}

type decoder struct {
	in    *jsontext.Decoder
	count int
}

func (d *decoder) value(depth int) (*value, error) {
	if d.count++; d.count > maxSchemaValues || depth > maxSchemaDepth {
		return nil, fmt.Errorf("the schema has more than %d values or %d levels", maxSchemaValues, maxSchemaDepth)
	}
	token, err := d.in.ReadToken()
	if err != nil {
		return nil, errors.New("the schema is not valid JSON")
	}
	v := &value{kind: token.Kind()}
	switch v.kind {
	case isString, isNumber:
		v.text = token.String()
		if v.kind == isNumber && !reasonable(v.text) {
			return nil, fmt.Errorf("the schema has a number that is out of range: %.40s", v.text)
		}
		return v, nil
	case isArray:
		for d.in.PeekKind() != jsontext.KindEndArray {
			item, err := d.value(depth + 1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
	case isObject:
		for d.in.PeekKind() != jsontext.KindEndObject {
			name, err := d.in.ReadToken()
			if err != nil {
				return nil, errors.New("the schema is not valid JSON")
			}
			f := field{name: name.String()}
			if f.value, err = d.value(depth + 1); err != nil {
				return nil, err
			}
			v.fields = append(v.fields, f)
		}
		if len(v.fields) > manyFields {
			v.index = make(map[string]*value, len(v.fields))
			for _, f := range v.fields {
				v.index[f.name] = f.value
			}
		}
	default:
		return v, nil
	}
	if _, err := d.in.ReadToken(); err != nil { // the closing bracket
		return nil, errors.New("the schema is not valid JSON")
	}
	return v, nil
}

// reasonable keeps exact arithmetic cheap: a literal such as 1e1000000000
// would need a gigabyte as a rational number.
func reasonable(literal string) bool {
	if len(literal) > 64 {
		return false
	}
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		exponent, err := strconv.Atoi(literal[i+1:])
		return err == nil && -400 < exponent && exponent < 400
	}
	return true
}

// number returns the value of a number exactly.
func (v *value) number() *big.Rat {
	r, ok := new(big.Rat).SetString(v.text)
	if !ok {
		return new(big.Rat)
	}
	return r
}

func numberValue(r *big.Rat) *value {
	digits, _ := r.FloatPrec()
	return &value{kind: isNumber, text: r.FloatString(digits)}
}

func stringValue(s string) *value { return &value{kind: isString, text: s} }

func arrayValue(items ...*value) *value { return &value{kind: isArray, items: items} }

func objectValue(fields ...field) *value { return &value{kind: isObject, fields: fields} }

func (v *value) append(b []byte) []byte {
	switch v.kind {
	case isNull:
		return append(b, "null"...)
	case isTrue:
		return append(b, "true"...)
	case isFalse:
		return append(b, "false"...)
	case isNumber:
		return append(b, v.text...)
	case isString:
		b, _ = jsontext.AppendQuote(b, v.text)
		return b
	case isArray:
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.append(b)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, f := range v.fields {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, f.name)
		b = append(b, ':')
		b = f.value.append(b)
	}
	return append(b, '}')
}
