package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// File is a file that Writer wrote.
type File struct {
	from    io.ReaderAt
	size    int64
	columns []Column // to read
	stored  []Column // in the file
	at      []int    // position of each column to read in the file; -1 if the file lacks it
	groups  []group
	rows    int64
}

type group struct {
	rows   int64
	chunks []chunk
}

// firstRead is how much of the end of a file is read first. It usually has all metadata.
const firstRead = 64 << 10

// Open reads the metadata of a file. Columns are found by name: all values of one that the file lacks are null,
// and other columns of the file are ignored.
func Open(from io.ReaderAt, size int64, columns []Column) (*File, error) {
	f := &File{from: from, size: size, columns: columns}
	if size < int64(len(magic)+tailSize) {
		return nil, errCorrupt
	}
	tail, err := f.read(max(0, size-firstRead), min(size, firstRead))
	if err != nil {
		return nil, err
	}
	end := tail[len(tail)-tailSize:]
	length := int64(binary.LittleEndian.Uint32(end))
	if string(end[4:]) != magic || length > size-tailSize || length > maxPage {
		return nil, errCorrupt
	}
	metadata := tail[:len(tail)-tailSize]
	if length > int64(len(metadata)) {
		if metadata, err = f.read(size-tailSize-length, length); err != nil {
			return nil, err
		}
	}
	return f, f.parse(metadata[int64(len(metadata))-length:])
}

func (f *File) read(offset, size int64) ([]byte, error) {
	if offset < 0 || size < 0 || size > maxPage || offset > f.size-size {
		return nil, errCorrupt
	}
	buf := make([]byte, size)
	_, err := f.from.ReadAt(buf, offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return buf, err
}

// Rows returns the number of rows.
func (f *File) Rows() int64 { return f.rows }

// Groups returns the number of row groups.
func (f *File) Groups() int { return len(f.groups) }

// GroupRows returns the number of rows of a row group.
func (f *File) GroupRows(number int) int64 { return f.groups[number].rows }

// GroupSize returns how many bytes a row group has, compressed and uncompressed together.
func (f *File) GroupSize(number int) (total int64) {
	for _, c := range f.groups[number].chunks {
		total += c.size + c.plainSize
	}
	return total
}

// TextBounds returns the smallest and the largest text of a column in a row group. They are empty if unknown.
func (f *File) TextBounds(number, column int) (low, high string) {
	at := f.at[column]
	if at < 0 {
		return "", ""
	}
	c := f.groups[number].chunks[at]
	return c.low, c.high
}

func (f *File) parse(metadata []byte) error {
	d := &decoder{in: metadata}
	var elements []element
	d.object(func(id int16, kind byte) {
		switch {
		case id == 2 && kind == thriftList:
			d.each(func() { elements = append(elements, parseElement(d)) })
		case id == 3 && kind == thriftI64:
			f.rows = d.varint()
		case id == 4 && kind == thriftList:
			d.each(func() { f.groups = append(f.groups, f.parseGroup(d)) })
		default:
			d.skip(kind)
		}
	})
	if d.err != nil {
		return d.err
	}
	if err := f.match(elements); err != nil {
		return err
	}
	var rows int64
	for _, g := range f.groups {
		if len(g.chunks) != len(f.stored) || g.rows <= 0 || g.rows > maxPage {
			return errCorrupt
		}
		for _, c := range g.chunks {
			if c.size < 0 || c.size > maxPage || c.plainSize < 0 || c.plainSize > 2*maxPage { // a dictionary and a data page
				return errCorrupt
			}
		}
		rows += g.rows
	}
	if rows != f.rows {
		return errCorrupt
	}
	return nil
}

// match finds the columns to read. The first element is the root of the schema.
func (f *File) match(elements []element) error {
	if len(elements) == 0 || elements[0].name != "schema" {
		return errCorrupt
	}
	positions := map[string]int{}
	for i, e := range elements[1:] {
		if _, found := positions[e.name]; found {
			return errCorrupt
		}
		positions[e.name] = i
		c := Column{Name: e.name, Type: Integer, Optional: e.repetition == optional}
		if e.physical == physicalByteArray {
			c.Type = Text
		}
		f.stored = append(f.stored, c)
	}
	f.at = make([]int, len(f.columns))
	for i, c := range f.columns {
		at, found := positions[c.Name]
		if !found {
			at = -1
		} else if c.Type.physical() != elements[at+1].physical {
			return fmt.Errorf("the Parquet file has another type in the column %s: %w", c.Name, errCorrupt)
		}
		f.at[i] = at
	}
	return nil
}

// element is a part of a file's schema.
type element struct {
	name                 string
	physical, repetition int64
}

func parseElement(d *decoder) (e element) {
	d.object(func(id int16, kind byte) {
		switch {
		case id == 1 && kind == thriftI32:
			e.physical = d.varint()
		case id == 3 && kind == thriftI32:
			e.repetition = d.varint()
		case id == 4 && kind == thriftBinary:
			e.name = d.text()
		default:
			d.skip(kind)
		}
	})
	return e
}

func (f *File) parseGroup(d *decoder) (g group) {
	d.object(func(id int16, kind byte) {
		switch {
		case id == 1 && kind == thriftList:
			d.each(func() { g.chunks = append(g.chunks, parseChunk(d)) })
		case id == 3 && kind == thriftI64:
			g.rows = d.varint()
		default:
			d.skip(kind)
		}
	})
	return g
}

func parseChunk(d *decoder) (c chunk) {
	d.object(func(id int16, kind byte) {
		if id == 3 && kind == thriftStruct {
			c = parseMetadata(d)
			return
		}
		d.skip(kind)
	})
	return c
}

func parseMetadata(d *decoder) (c chunk) {
	numbers := map[int16]*int64{5: &c.rows, 6: &c.plainSize, 7: &c.size, 9: &c.data, 11: &c.dictionary}
	d.object(func(id int16, kind byte) {
		switch n := numbers[id]; {
		case n != nil && kind == thriftI64:
			*n = d.varint()
		case id == 4 && kind == thriftI32:
			if d.varint() != codecZstd {
				d.fail()
			}
		case id == 12 && kind == thriftStruct:
			d.object(func(id int16, kind byte) {
				switch {
				case id == 3 && kind == thriftI64:
					c.nulls = d.varint()
				case id == 5 && kind == thriftBinary:
					c.high = d.text()
				case id == 6 && kind == thriftBinary:
					c.low = d.text()
				default:
					d.skip(kind)
				}
			})
		default:
			d.skip(kind)
		}
	})
	return c
}

// decompressor is shared, because a decoder is expensive to create.
var decompressor = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxPage), zstd.WithDecoderLowmem(true)) //budget:own pages of the archive are bounded
})

// ReadGroup returns the values of a row group, by column. It reads the bytes of the group in one call.
func (f *File) ReadGroup(number int) ([]Values, error) {
	g := f.groups[number]
	start, end := f.size, int64(0)
	for i := range g.chunks {
		c := &g.chunks[i]
		if c.offset() < 0 {
			return nil, errCorrupt
		}
		start, end = min(start, c.offset()), max(end, c.offset()+c.size)
	}
	data, err := f.read(start, end-start)
	if err != nil {
		return nil, err
	}
	z, err := decompressor()
	if err != nil {
		return nil, err
	}
	out := make([]Values, len(f.columns))
	for i, column := range f.columns {
		at := f.at[i]
		if at < 0 {
			out[i] = nulls(column.Type, int(g.rows))
			continue
		}
		c := g.chunks[at]
		r := chunkReader{column: f.stored[at], rows: int(g.rows), in: data[c.offset()-start:][:c.size], zstd: z}
		if out[i], err = r.read(); err != nil {
			return nil, fmt.Errorf("column %s: %w", column.Name, err)
		}
	}
	return out, nil
}

// nulls returns the values of a column that a file lacks.
func nulls(t Type, rows int) Values {
	v := Values{Null: slices.Repeat([]bool{true}, rows)}
	if t == Text {
		v.Texts = make([]string, rows)
	} else {
		v.Integers = make([]int64, rows)
	}
	return v
}

// chunkReader decodes a column of a row group.
type chunkReader struct {
	column Column
	rows   int
	in     []byte
	zstd   *zstd.Decoder
}

type pageHeader struct {
	kind, plainSize, size, values, encoding int64
}

// page reads the next page and decompresses it.
func (r *chunkReader) page() (h pageHeader, body []byte, err error) {
	d := &decoder{in: r.in}
	d.object(func(id int16, kind byte) {
		numbers := map[int16]*int64{1: &h.kind, 2: &h.plainSize, 3: &h.size}
		switch n := numbers[id]; {
		case n != nil && kind == thriftI32:
			*n = d.varint()
		case (id == 5 || id == 7) && kind == thriftStruct:
			d.object(func(id int16, kind byte) {
				switch {
				case id == 1 && kind == thriftI32:
					h.values = d.varint()
				case id == 2 && kind == thriftI32:
					h.encoding = d.varint()
				default:
					d.skip(kind)
				}
			})
		default:
			d.skip(kind)
		}
	})
	if d.err != nil || h.size < 0 || h.size > int64(len(d.in)) || h.plainSize < 0 || h.plainSize > maxPage {
		return h, nil, errCorrupt
	}
	body, err = r.zstd.DecodeAll(d.in[:h.size], make([]byte, 0, h.plainSize))
	if err != nil || int64(len(body)) != h.plainSize {
		return h, nil, errCorrupt
	}
	r.in = d.in[h.size:]
	return h, body, nil
}

func (r *chunkReader) read() (v Values, err error) {
	h, body, err := r.page()
	if err != nil {
		return v, err
	}
	var words []string
	if h.kind == dictionaryPage {
		if words, err = readTexts(body, h.values); err != nil {
			return v, err
		}
		if h, body, err = r.page(); err != nil {
			return v, err
		}
	}
	if h.kind != dataPage || h.values != int64(r.rows) {
		return v, errCorrupt
	}
	stored := r.rows
	if r.column.Optional {
		if body, stored, err = r.readLevels(&v, body); err != nil {
			return v, err
		}
	}
	switch {
	case r.column.Type != Text && h.encoding == encodingPlain:
		v.Integers, err = spreadIntegers(&v, body, stored, r.rows)
	case r.column.Type == Text && h.encoding == encodingPlain:
		texts, failed := readTexts(body, int64(stored))
		v.Texts, err = v.spread(texts, r.rows), failed
	case r.column.Type == Text && h.encoding == encodingRLEDictionary && len(body) > 0:
		texts, failed := lookUp(words, body, stored)
		v.Texts, err = v.spread(texts, r.rows), failed
	default:
		err = errCorrupt
	}
	return v, err
}

// readLevels reads which values are null, and returns the rest of the page and how many values it has.
func (r *chunkReader) readLevels(v *Values, body []byte) (rest []byte, stored int, err error) {
	if len(body) < 4 {
		return nil, 0, errCorrupt
	}
	n := int64(binary.LittleEndian.Uint32(body))
	if body = body[4:]; n > int64(len(body)) {
		return nil, 0, errCorrupt
	}
	levels, err := readHybrid(body[:n], 1, r.rows)
	if err != nil {
		return nil, 0, err
	}
	for _, l := range levels {
		stored += int(l)
	}
	if stored < r.rows {
		v.Null = make([]bool, r.rows)
		for i, l := range levels {
			v.Null[i] = l == 0
		}
	}
	return body[n:], stored, nil
}

func spreadIntegers(v *Values, body []byte, stored, rows int) ([]int64, error) {
	if len(body) != 8*stored {
		return nil, errCorrupt
	}
	out := make([]int64, rows)
	for i := range out {
		if !v.IsNull(i) {
			out[i] = int64(binary.LittleEndian.Uint64(body)) //nolint:gosec // its bits
			body = body[8:]
		}
	}
	return out, nil
}

// spread puts the values into their rows.
func (v *Values) spread(values []string, rows int) []string {
	if v.Null == nil {
		return values
	}
	out := make([]string, rows)
	for i := range out {
		if !v.Null[i] && len(values) > 0 {
			out[i], values = values[0], values[1:]
		}
	}
	return out
}

// readTexts returns texts that share the memory of one string.
func readTexts(body []byte, count int64) ([]string, error) {
	if count < 0 || count > int64(len(body)/4) {
		return nil, errCorrupt
	}
	all, out := string(body), make([]string, count)
	at := 0
	for i := range out {
		if len(body)-at < 4 {
			return nil, errCorrupt
		}
		n := int64(binary.LittleEndian.Uint32(body[at:]))
		if at += 4; n > int64(len(body)-at) {
			return nil, errCorrupt
		}
		out[i] = all[at:][:n]
		at += int(n)
	}
	return out, nil
}

func lookUp(words []string, body []byte, count int) ([]string, error) {
	positions, err := readHybrid(body[1:], int(body[0]), count)
	if err != nil {
		return nil, err
	}
	out := make([]string, count)
	for i, at := range positions {
		if int64(at) >= int64(len(words)) {
			return nil, errCorrupt
		}
		out[i] = words[at]
	}
	return out, nil
}

// From returns the file with another reader of the same content.
func (f *File) From(from io.ReaderAt) *File {
	other := *f
	other.from = from
	return &other
}
