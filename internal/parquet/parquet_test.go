package parquet_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"turnpike/internal/parquet"
)

var columns = []parquet.Column{{Name: "id"}, {Name: "word", Optional: true}, {Name: "n", Type: parquet.Integer}, {Name: "m", Type: parquet.Integer, Optional: true},
	{Name: "at", Type: parquet.Timestamp}}

type row struct {
	ID   string
	Word *string
	N    int64
	M    *int64
	At   int64
}

func write(t interface{ Fatal(args ...any) }, rows []row, groupRows int) []byte {
	var out bytes.Buffer
	w, err := parquet.NewWriter(&out, columns, groupRows)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		w.Text(0, r.ID)
		if r.Word != nil {
			w.Text(1, *r.Word)
		} else {
			w.Null(1)
		}
		w.Integer(2, r.N)
		if r.M != nil {
			w.Integer(3, *r.M)
		} else {
			w.Null(3)
		}
		w.Integer(4, r.At)
		if err := w.EndRow(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func read(data []byte) ([]row, error) {
	f, err := parquet.Open(bytes.NewReader(data), int64(len(data)), columns)
	if err != nil {
		return nil, err
	}
	var out []row
	for g := range f.Groups() {
		v, err := f.ReadGroup(g)
		if err != nil {
			return nil, err
		}
		low, high := f.TextBounds(g, 0)
		for i := range v[0].Texts {
			r := row{ID: v[0].Texts[i], N: v[2].Integers[i], At: v[4].Integers[i]}
			if !v[1].IsNull(i) {
				r.Word = &v[1].Texts[i]
			}
			if !v[3].IsNull(i) {
				r.M = &v[3].Integers[i]
			}
			if high != "" && (r.ID < low || r.ID > high) {
				return nil, fmt.Errorf("%q isn't between %q and %q", r.ID, low, high)
			}
			out = append(out, r)
		}
	}
	if int64(len(out)) != f.Rows() {
		return nil, fmt.Errorf("got %d rows, want %d", len(out), f.Rows())
	}
	return out, nil
}

func TestRowsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.Ptr(rapid.OneOf(rapid.SampledFrom([]string{"a", "b", "", strings.Repeat("x", 100)}), rapid.String()), true)
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) row {
			return row{ID: rapid.String().Draw(t, "id"), Word: word.Draw(t, "word"), N: rapid.Int64().Draw(t, "n"), M: rapid.Ptr(rapid.Int64(), true).Draw(t, "m"),
				At: rapid.Int64Range(0, math.MaxInt64).Draw(t, "at")}
		}), 1, 200).Draw(t, "rows")
		if rapid.Bool().Draw(t, "runs") { // long runs of the same value
			for i := range rows {
				rows[i].Word, rows[i].M = rows[i/20*20].Word, rows[i/50*50].M
			}
		}
		got, err := read(write(t, rows, rapid.IntRange(1, 100).Draw(t, "group")))
		if err != nil || !reflect.DeepEqual(got, rows) {
			t.Fatalf("got %v, %v", got, err)
		}
	})
}

func sample(n int) []row {
	rows := make([]row, n)
	for i := range rows {
		word, m := fmt.Sprintf("word %d", i%7), int64(i*i)
		rows[i] = row{ID: fmt.Sprintf("req_%06d", i), N: int64(-i), At: 1_700_000_000_000_000 + int64(i)}
		if i%3 > 0 {
			rows[i].Word = &word
		}
		if i%5 > 0 {
			rows[i].M = &m
		}
	}
	return rows
}

// TestFilesOfOtherVersionsAreRead covers files from before a column was added, and from after that.
func TestFilesOfOtherVersionsAreRead(t *testing.T) {
	t.Parallel()
	rows := sample(40)
	data := write(t, rows, 16)
	wanted := []parquet.Column{{Name: "new", Type: parquet.Integer, Optional: true}, {Name: "m", Type: parquet.Integer, Optional: true}, {Name: "id"}, {Name: "text", Optional: true}}
	f, err := parquet.Open(bytes.NewReader(data), int64(len(data)), wanted)
	if err != nil {
		t.Fatal(err)
	}
	if low, high := f.TextBounds(0, 2); low != rows[0].ID || high != rows[15].ID {
		t.Errorf("the IDs of the first group are from %q to %q, want %q to %q", low, high, rows[0].ID, rows[15].ID)
	}
	if low, high := f.TextBounds(0, 3); low != "" || high != "" {
		t.Errorf("a column that the file lacks is from %q to %q", low, high)
	}
	at := 0
	for g := range f.Groups() {
		v, err := f.ReadGroup(g)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v[2].Texts {
			if want := rows[at]; v[2].Texts[i] != want.ID || v[1].IsNull(i) != (want.M == nil) || want.M != nil && v[1].Integers[i] != *want.M {
				t.Errorf("row %d has the ID %q and the number %d, want %+v", at, v[2].Texts[i], v[1].Integers[i], want)
			}
			if !v[0].IsNull(i) || v[0].Integers[i] != 0 || !v[3].IsNull(i) || v[3].Texts[i] != "" {
				t.Errorf("row %d has values in columns that the file lacks", at)
			}
			at++
		}
	}
	if at != len(rows) {
		t.Errorf("got %d rows, want %d", at, len(rows))
	}
	if _, err := parquet.Open(bytes.NewReader(data), int64(len(data)), []parquet.Column{{Name: "n"}}); err == nil {
		t.Error("numbers are read as text")
	}
}

func TestCorruptFilesAreRefused(t *testing.T) {
	t.Parallel()
	data := write(t, sample(40), 16)
	for at := range data {
		for _, bit := range []byte{1, 0x80, 0xff} {
			changed := bytes.Clone(data)
			changed[at] ^= bit
			_, _ = read(changed) // must not panic
		}
		if _, err := read(data[:at]); err == nil {
			t.Fatalf("a file that ends at %d of %d is read", at, len(data))
		}
	}
}

// TestLargeTextsEndARowGroup: a group must fit into memory, whatever its rows have.
func TestLargeTextsEndARowGroup(t *testing.T) {
	t.Parallel()
	const size, count = 1 << 20, 40
	rows := sample(count)
	for i := range rows {
		word := strings.Repeat(fmt.Sprint(i), size)[:size]
		rows[i].Word = &word
	}
	data := write(t, rows, 8192)
	f, err := parquet.Open(bytes.NewReader(data), int64(len(data)), columns)
	if err != nil {
		t.Fatal(err)
	}
	if f.Groups() < 2 || f.GroupRows(0) < 2 || f.GroupSize(0) < f.GroupRows(0)*size {
		t.Errorf("%d groups, the first with %d rows and %d bytes, want several of some megabytes", f.Groups(), f.GroupRows(0), f.GroupSize(0))
	}
	if got, err := read(data); err != nil || !reflect.DeepEqual(got, rows) {
		t.Errorf("the rows differ (%v)", err)
	}
}
