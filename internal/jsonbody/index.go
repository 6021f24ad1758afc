package jsonbody

import (
	"bytes"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// Index has the places of the values in a JSON text, from one scan. Whoever reads a value at several levels
// doesn't scan its strings at each of them.
type Index struct {
	text  []byte
	nodes []indexNode // a value comes before those in it, and a name before its value
}

// indexNode is any value but a number in an array.
type indexNode struct {
	start, end int32
	next       int32 // the node after the value
}

// Value is a value of an index. The zero value is absent.
type Value struct {
	in *Index
	at int32
}

// NewIndex indexes a text of at most 2 GiB. It is meant for valid JSON without duplicate names, but
// accepts any text.
func NewIndex(text []byte) *Index {
	x := &Index{text: text, nodes: make([]indexNode, 0, 48)}
	var open []int32
	for i := 0; i < len(text); {
		switch text[i] {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
		case '"':
			i = x.add(i, min(i+1+stringEnd(text[i+1:])+1, len(text)))
		case '{', '[':
			open = append(open, int32(len(x.nodes)))
			x.add(i, len(text))
			i++
		case '}', ']':
			i++
			if len(open) > 0 {
				x.close(open[len(open)-1], i)
				open = open[:len(open)-1]
			}
		default:
			start := i
			for i++; i < len(text) && !endsLiteral(text[i]); i++ {
			}
			// No one reads the numbers in an array, of which there may be very many.
			number := text[start] == '-' || '0' <= text[start] && text[start] <= '9'
			if len(open) > 0 && (!number || text[x.nodes[open[len(open)-1]].start] == '{') {
				x.add(start, i)
			}
		}
	}
	for _, at := range open {
		x.close(at, len(text))
	}
	return x
}

// add appends a value without others in it and returns its end.
func (x *Index) add(start, end int) int {
	x.nodes = append(x.nodes, indexNode{int32(start), int32(end), int32(len(x.nodes) + 1)})
	return end
}

func endsLiteral(b byte) bool {
	switch b {
	case ',', ']', '}', ':', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// close ends the object or array at a node.
func (x *Index) close(at int32, end int) {
	x.nodes[at].end, x.nodes[at].next = int32(end), int32(len(x.nodes))
}

// Of returns the index if it is that of a text, by its address, and otherwise a new one. It may be nil.
func (x *Index) Of(text []byte) *Index {
	if x != nil && len(x.text) == len(text) && (len(text) == 0 || &x.text[0] == &text[0]) {
		return x
	}
	return NewIndex(text)
}

// Root returns the outermost value.
func (x *Index) Root() Value {
	if len(x.nodes) == 0 {
		return Value{}
	}
	return Value{x, 0}
}

// Exists reports whether the value isn't absent.
func (v Value) Exists() bool { return v.in != nil }

// Text returns the JSON of the value, or nil if it is absent.
func (v Value) Text() []byte {
	if v.in == nil {
		return nil
	}
	n := v.in.nodes[v.at]
	return v.in.text[n.start:n.end]
}

// Kind returns the first byte of the value, or 0 if it is absent.
func (v Value) Kind() byte {
	if v.in == nil {
		return 0
	}
	return v.in.text[v.in.nodes[v.at].start]
}

// String returns a string without its quotes, or nil for any other value.
func (v Value) String() []byte {
	if v.Kind() != '"' {
		return nil
	}
	return unquoted(v.Text())
}

// Members returns the members of an object. Anything else has none.
func (v Value) Members() iter.Seq2[[]byte, Value] {
	return func(yield func([]byte, Value) bool) {
		if v.Kind() != '{' {
			return
		}
		nodes := v.in.nodes
		end := nodes[v.at].next
		for at := v.at + 1; at+1 < end; {
			name, value := Value{v.in, at}, Value{v.in, nodes[at].next}
			if value.at >= end || !yield(name.String(), value) {
				return
			}
			at = nodes[value.at].next
		}
	}
}

// Elements returns the values of an array but numbers. Anything else has none.
func (v Value) Elements() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.Kind() != '[' {
			return
		}
		nodes := v.in.nodes
		for at := v.at + 1; at < nodes[v.at].next; at = nodes[at].next {
			if !yield(Value{v.in, at}) {
				return
			}
		}
	}
}

// Find returns the first member with a name.
func (v Value) Find(name string) Value {
	for n, value := range v.Members() {
		if string(n) == name {
			return value
		}
	}
	return Value{}
}

// unquoted returns a JSON string without its quotes.
func unquoted(text []byte) []byte {
	if len(text) < 2 {
		return nil
	}
	if bytes.IndexByte(text, '\\') >= 0 {
		text, _ = jsontext.AppendUnquote(nil, text)
		return text
	}
	return text[1 : len(text)-1]
}
