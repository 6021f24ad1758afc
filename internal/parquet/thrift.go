package parquet

import (
	"encoding/binary"
	"errors"
)

// errCorrupt means that a file isn't what Writer writes.
var errCorrupt = errors.New("the Parquet file is corrupt")

// The types of Thrift's compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// encoder writes Thrift's compact protocol. Fields must be in the order of their IDs.
type encoder struct {
	out  []byte
	last int16 // the ID of the last field of the current struct
}

func (e *encoder) uvarint(n uint64) { e.out = binary.AppendUvarint(e.out, n) }
func (e *encoder) varint(n int64)   { e.out = binary.AppendVarint(e.out, n) } // zigzag

func (e *encoder) field(id int16, kind byte) {
	if delta := id - e.last; delta > 0 && delta < 16 {
		e.out = append(e.out, byte(delta)<<4|kind)
	} else {
		e.out = append(e.out, kind)
		e.varint(int64(id))
	}
	e.last = id
}

func (e *encoder) i32(id int16, n int64) {
	e.field(id, thriftI32)
	e.varint(n)
}

func (e *encoder) i64(id int16, n int64) {
	e.field(id, thriftI64)
	e.varint(n)
}

func (e *encoder) flag(id int16) { e.field(id, thriftTrue) }

func (e *encoder) text(id int16, s string) {
	e.field(id, thriftBinary)
	e.element(s)
}

// element writes a string of a list.
func (e *encoder) element(s string) {
	e.uvarint(uint64(len(s)))
	e.out = append(e.out, s...)
}

// list begins a list. The elements follow.
func (e *encoder) list(id int16, kind byte, n int) {
	e.field(id, thriftList)
	if n < 15 {
		e.out = append(e.out, byte(n)<<4|kind)
		return
	}
	e.out = append(e.out, 15<<4|kind)
	e.uvarint(uint64(n))
}

// object writes a struct as an element of a list, or the document itself.
func (e *encoder) object(fields func()) {
	outer := e.last
	e.last = 0
	fields()
	e.out = append(e.out, 0)
	e.last = outer
}

// nested writes a struct as a field.
func (e *encoder) nested(id int16, fields func()) {
	e.field(id, thriftStruct)
	e.object(fields)
}

// decoder reads Thrift's compact protocol. After an error it returns zeros.
type decoder struct {
	in    []byte
	depth int
	err   error
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = errCorrupt
	}
	d.in = nil
}

func (d *decoder) byte() byte {
	if len(d.in) == 0 {
		d.fail()
		return 0
	}
	b := d.in[0]
	d.in = d.in[1:]
	return b
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.in)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.in = d.in[size:]
	return n
}

func (d *decoder) varint() int64 {
	n, size := binary.Varint(d.in)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.in = d.in[size:]
	return n
}

func (d *decoder) text() string {
	n := d.uvarint()
	if n > uint64(len(d.in)) {
		d.fail()
		return ""
	}
	s := string(d.in[:n])
	d.in = d.in[n:]
	return s
}

// list returns the type and the number of the elements that follow. Each has at least one byte.
func (d *decoder) list() (kind byte, n int) {
	head := d.byte()
	size := uint64(head >> 4)
	if size == 15 {
		size = d.uvarint()
	}
	if size > uint64(len(d.in)) {
		d.fail()
		return 0, 0
	}
	return head & 15, int(size) //nolint:gosec // at most the length of a slice
}

// maxDepth is more than the format nests.
const maxDepth = 16

// object calls read for each field of a struct. Read must consume the value.
func (d *decoder) object(read func(id int16, kind byte)) {
	if d.depth++; d.depth > maxDepth {
		d.fail()
	}
	defer func() { d.depth-- }()
	var last int16
	for d.err == nil {
		head := d.byte()
		if head == 0 {
			return
		}
		if delta := int16(head >> 4); delta > 0 {
			last += delta
		} else {
			last = int16(d.varint()) //nolint:gosec // IDs are small; others are skipped
		}
		read(last, head&15)
	}
}

// each calls read for each struct of a list.
func (d *decoder) each(read func()) {
	kind, n := d.list()
	if kind != thriftStruct {
		d.fail()
	}
	for ; n > 0 && d.err == nil; n-- {
		read()
	}
}

// skip consumes a value.
func (d *decoder) skip(kind byte) {
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		d.byte()
	case thriftI16, thriftI32, thriftI64:
		d.varint()
	case thriftBinary:
		d.text()
	case thriftList, thriftSet:
		of, n := d.list()
		for ; n > 0 && d.err == nil; n-- {
			if of == thriftTrue || of == thriftFalse { // a byte each, in lists
				of = thriftByte
			}
			d.skip(of)
		}
	case thriftStruct:
		d.object(func(_ int16, kind byte) { d.skip(kind) })
	default: // thriftDouble and thriftMap, which the parts we read don't have
		d.fail()
	}
}
