// Package parquet writes and reads Parquet files with a flat schema of strings, 64-bit integers and
// timestamps. The files have plain and dictionary encoding, one page per column and row group, Zstandard
// compression, and minimum and maximum of each column, which every reader of Parquet supports. The package
// reads only what it writes, also with other columns.
//
// A file: row groups of column chunks, each of an optional dictionary page and a data page; then the
// metadata in Thrift's compact protocol, its length and a magic number.
package parquet

// Type is the type of a column.
type Type uint8

// The types.
const (
	Text Type = iota
	Integer
	Timestamp // microseconds in UTC
)

// Column describes a column.
type Column struct {
	Name     string
	Type     Type
	Optional bool // may be null
}

// Values are the values of a column in a row group, of which only one list is used. A null is an empty
// string or 0, and true in Null, which is nil if no value is null.
type Values struct {
	Texts    []string
	Integers []int64
	Null     []bool
}

// IsNull reports whether the value of a row is null.
func (v *Values) IsNull(row int) bool { return v.Null != nil && v.Null[row] }

const (
	magic = "PAR1"
	// tailSize is the size of the metadata's length and the magic number.
	tailSize = 8
	// maxStatistic is the longest text that is kept as minimum or maximum.
	maxStatistic = 64
	// maxGroupTexts ends a row group early, so that large texts don't make it larger than memory allows.
	maxGroupTexts = 16 << 20
	// maxPage limits what is decompressed into memory.
	maxPage = 64 << 20
)

// The numbers that parquet.thrift gives to types, encodings and so on.
const (
	physicalInt64     = 2
	physicalByteArray = 6

	required = 0
	optional = 1

	convertedUTF8            = 0
	convertedTimestampMicros = 10

	encodingPlain         = 0
	encodingRLE           = 3
	encodingRLEDictionary = 8

	codecZstd = 6

	dataPage       = 0
	dictionaryPage = 2
)

func (t Type) physical() int64 {
	if t == Text {
		return physicalByteArray
	}
	return physicalInt64
}
