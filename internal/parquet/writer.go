package parquet

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Writer writes a file. It holds one row group in memory.
type Writer struct {
	to        io.Writer
	columns   []Column
	groupRows int
	zstd      *zstd.Encoder

	at     int64    // bytes written
	values []Values // of the current group
	rows   int      // in it
	texts  int      // bytes of its texts
	total  int64
	groups []writtenGroup
	buf    []byte
}

type writtenGroup struct {
	rows   int
	chunks []chunk
}

// NewWriter returns a writer of row groups with groupRows rows, or fewer if their texts are large.
func NewWriter(to io.Writer, columns []Column, groupRows int) (*Writer, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, err
	}
	w := &Writer{to: to, columns: columns, groupRows: groupRows, zstd: z, values: make([]Values, len(columns))}
	return w, w.write([]byte(magic))
}

func (w *Writer) write(data []byte) error {
	n, err := w.to.Write(data)
	w.at += int64(n)
	return err
}

// Text sets the text of a column in the next row.
func (w *Writer) Text(column int, s string) {
	v := &w.values[column]
	v.Texts = append(v.Texts, s)
	w.texts += len(s)
	if v.Null != nil {
		v.Null = append(v.Null, false)
	}
}

// Integer sets the number or timestamp of a column in the next row.
func (w *Writer) Integer(column int, n int64) {
	v := &w.values[column]
	v.Integers = append(v.Integers, n)
	if v.Null != nil {
		v.Null = append(v.Null, false)
	}
}

// Null leaves a column of the next row without a value.
func (w *Writer) Null(column int) {
	v := &w.values[column]
	if v.Null == nil {
		v.Null = make([]bool, w.rows, w.groupRows)
	}
	v.Null = append(v.Null, true)
	if w.columns[column].Type == Text {
		v.Texts = append(v.Texts, "")
	} else {
		v.Integers = append(v.Integers, 0)
	}
}

// EndRow completes a row, all of whose columns must be set.
func (w *Writer) EndRow() error {
	for i, v := range w.values {
		if len(v.Texts)+len(v.Integers) != w.rows+1 {
			return fmt.Errorf("the column %s of a row isn't set", w.columns[i].Name)
		}
	}
	if w.rows++; w.rows < w.groupRows && w.texts < maxGroupTexts {
		return nil
	}
	return w.flush()
}

// Rows returns the number of complete rows.
func (w *Writer) Rows() int64 { return w.total + int64(w.rows) }

// flush writes the row group.
func (w *Writer) flush() error {
	if w.rows == 0 {
		return nil
	}
	g := writtenGroup{rows: w.rows}
	for i, c := range w.columns {
		v := &w.values[i]
		written, err := w.writeChunk(c, v)
		if err != nil {
			return err
		}
		g.chunks = append(g.chunks, written)
		clear(v.Texts) // releases the strings
		*v = Values{Texts: v.Texts[:0], Integers: v.Integers[:0]}
	}
	w.groups = append(w.groups, g)
	w.total += int64(w.rows)
	w.rows, w.texts = 0, 0
	return nil
}

// chunk is a column of a row group in a file.
type chunk struct {
	dictionary int64 // offset of the dictionary page; 0 if there is none
	data       int64 // offset of the data page
	size       int64 // of both pages
	plainSize  int64 // before compression
	nulls      int64
	low, high  string // as Parquet encodes them; both empty if unknown
	rows       int64
}

func (c *chunk) offset() int64 {
	if c.dictionary > 0 {
		return c.dictionary
	}
	return c.data
}

func (w *Writer) writeChunk(c Column, v *Values) (out chunk, err error) {
	out.rows = int64(w.rows)
	body := w.buf[:0]
	if c.Optional {
		body = w.appendLevels(body, v, &out)
	} else if v.Null != nil {
		return out, fmt.Errorf("the column %s must not be null", c.Name)
	}
	encoding := int64(encodingPlain)
	out.low, out.high = v.bounds(c.Type)
	if c.Type != Text {
		for i, n := range v.Integers {
			if !v.IsNull(i) {
				body = binary.LittleEndian.AppendUint64(body, uint64(n)) //nolint:gosec // its bits
			}
		}
	} else if words, positions := v.dictionary(); words != nil {
		encoding = encodingRLEDictionary
		out.dictionary = w.at
		if err := w.writeDictionary(words, &out); err != nil {
			return out, err
		}
		width := widthOf(len(words))
		body = appendHybrid(append(body, byte(width)), positions, width)
	} else {
		for i, s := range v.Texts {
			if !v.IsNull(i) {
				body = appendText(body, s)
			}
		}
	}
	out.data = w.at
	w.buf = body
	return out, w.writePage(&out, body, func(e *encoder) {
		e.nested(5, func() {
			e.i32(1, out.rows)
			e.i32(2, encoding)
			e.i32(3, encodingRLE)
			e.i32(4, encodingRLE)
		})
	})
}

func (w *Writer) appendLevels(body []byte, v *Values, out *chunk) []byte {
	levels := make([]uint32, w.rows)
	for i := range levels {
		if v.IsNull(i) {
			out.nulls++
		} else {
			levels[i] = 1
		}
	}
	body = append(body, 0, 0, 0, 0)
	body = appendHybrid(body, levels, 1)
	binary.LittleEndian.PutUint32(body, uint32(len(body)-4)) //nolint:gosec // of one group
	return body
}

func (w *Writer) writeDictionary(words []string, out *chunk) error {
	var body []byte
	for _, s := range words {
		body = appendText(body, s)
	}
	return w.writePage(out, body, func(e *encoder) {
		e.nested(7, func() {
			e.i32(1, int64(len(words)))
			e.i32(2, encodingPlain)
		})
	})
}

// writePage writes a page and its header. The kind follows from the chunk: the data page is last.
func (w *Writer) writePage(out *chunk, body []byte, header func(*encoder)) error {
	packed := w.zstd.EncodeAll(body, nil)
	kind := int64(dataPage)
	if out.data == 0 {
		kind = dictionaryPage
	}
	var e encoder
	e.object(func() {
		e.i32(1, kind)
		e.i32(2, int64(len(body)))
		e.i32(3, int64(len(packed)))
		header(&e)
	})
	out.size += int64(len(e.out) + len(packed))
	out.plainSize += int64(len(e.out) + len(body))
	if err := w.write(e.out); err != nil {
		return err
	}
	return w.write(packed)
}

func appendText(body []byte, s string) []byte {
	body = binary.LittleEndian.AppendUint32(body, uint32(len(s))) //nolint:gosec // texts of the log are short
	return append(body, s...)
}

// dictionary returns the different texts and the position of each value, or nil if most texts differ.
func (v *Values) dictionary() (words []string, positions []uint32) {
	limit := len(v.Texts)/2 + 1
	known := make(map[string]uint32)
	for i, s := range v.Texts {
		if v.IsNull(i) {
			continue
		}
		at, found := known[s]
		if !found {
			if len(words) == limit {
				return nil, nil
			}
			at = uint32(len(words)) //nolint:gosec // at most the rows of a group
			known[s] = at
			words = append(words, s)
		}
		positions = append(positions, at)
	}
	return words, positions
}

// bounds returns the smallest and the largest value.
func (v *Values) bounds(t Type) (low, high string) {
	if t == Text {
		return textBounds(v)
	}
	var least, most int64
	found := false
	for i, n := range v.Integers {
		switch {
		case v.IsNull(i):
		case !found:
			least, most, found = n, n, true
		default:
			least, most = min(least, n), max(most, n)
		}
	}
	if !found {
		return "", ""
	}
	return string(binary.LittleEndian.AppendUint64(nil, uint64(least))), string(binary.LittleEndian.AppendUint64(nil, uint64(most))) //nolint:gosec // their bits
}

func textBounds(v *Values) (low, high string) {
	found := false
	for i, s := range v.Texts {
		switch {
		case v.IsNull(i):
		case !found:
			low, high, found = s, s, true
		default:
			low, high = min(low, s), max(high, s)
		}
	}
	if len(low) > maxStatistic || len(high) > maxStatistic {
		return "", ""
	}
	return low, high
}

// Close writes the last row group and the metadata. It doesn't close the underlying writer.
func (w *Writer) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	w.zstd.Close()
	e := &encoder{}
	e.object(func() { w.describe(e) })
	tail := binary.LittleEndian.AppendUint32(e.out, uint32(len(e.out))) //nolint:gosec // a few hundred kilobytes
	return w.write(append(tail, magic...))
}

// describe writes the metadata.
func (w *Writer) describe(e *encoder) {
	e.i32(1, 2)
	e.list(2, thriftStruct, len(w.columns)+1)
	e.object(func() {
		e.text(4, "schema")
		e.i32(5, int64(len(w.columns)))
	})
	for _, c := range w.columns {
		e.object(func() { c.describe(e) })
	}
	e.i64(3, w.total)
	e.list(4, thriftStruct, len(w.groups))
	for i, g := range w.groups {
		e.object(func() { w.describeGroup(e, i, g) })
	}
	e.text(6, "turnpike version 1.0 (build 1)")
	e.list(7, thriftStruct, len(w.columns)) // the order of the minimum and the maximum
	for range w.columns {
		e.object(func() { e.nested(1, func() {}) })
	}
}

func (c Column) describe(e *encoder) {
	e.i32(1, c.Type.physical())
	if c.Optional {
		e.i32(3, optional)
	} else {
		e.i32(3, required)
	}
	e.text(4, c.Name)
	switch c.Type {
	case Text:
		e.i32(6, convertedUTF8)
		e.nested(10, func() { e.nested(1, func() {}) })
	case Timestamp:
		e.i32(6, convertedTimestampMicros)
		e.nested(10, func() {
			e.nested(8, func() {
				e.flag(1)
				e.nested(2, func() { e.nested(2, func() {}) })
			})
		})
	}
}

func (w *Writer) describeGroup(e *encoder, number int, g writtenGroup) {
	var plain, packed int64
	e.list(1, thriftStruct, len(g.chunks))
	for i, c := range g.chunks {
		plain, packed = plain+c.plainSize, packed+c.size
		e.object(func() {
			e.i64(2, c.offset())
			e.nested(3, func() { c.describe(e, w.columns[i]) })
		})
	}
	e.i64(2, plain)
	e.i64(3, int64(g.rows))
	e.i64(5, g.chunks[0].offset())
	e.i64(6, packed)
	e.field(7, thriftI16)
	e.varint(int64(number))
}

func (c *chunk) describe(e *encoder, of Column) {
	e.i32(1, of.Type.physical())
	encodings := []int64{encodingPlain, encodingRLE}
	if c.dictionary > 0 {
		encodings = append(encodings, encodingRLEDictionary)
	}
	e.list(2, thriftI32, len(encodings))
	for _, n := range encodings {
		e.varint(n)
	}
	e.list(3, thriftBinary, 1)
	e.element(of.Name)
	e.i32(4, codecZstd)
	e.i64(5, c.rows)
	e.i64(6, c.plainSize)
	e.i64(7, c.size)
	e.i64(9, c.data)
	if c.dictionary > 0 {
		e.i64(11, c.dictionary)
	}
	e.nested(12, func() {
		e.i64(3, c.nulls)
		if c.low != "" || c.high != "" {
			e.text(5, c.high)
			e.text(6, c.low)
		}
	})
}
