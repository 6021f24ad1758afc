package db

import (
	"database/sql/driver"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Scan reads a row into the fields of a record. It stores NULL as the zero value,
// microseconds as times and durations, and decodes JSON into everything that is
// not a string, number, bool or raw bytes.
func Scan(r Row, fields ...any) error {
	dest, list := make([]any, len(fields)), make([]field, len(fields))
	for i, f := range fields {
		list[i].to = f
		dest[i] = &list[i]
	}
	return r.Scan(dest...)
}

// Scanner returns a function that reads a row into the fields of a new record.
func Scanner[T any](fields func(*T) []any) func(Row) (*T, error) {
	return func(r Row) (*T, error) {
		record := new(T)
		return record, Scan(r, fields(record)...)
	}
}

// field is a pointer to a field of a record. It implements sql.Scanner.
type field struct {
	to   any
	size int // of the text that was read
}

func (f *field) Scan(src any) error {
	if raw, ok := src.([]byte); ok {
		src = string(raw)
	}
	if text, ok := src.(string); ok {
		f.size = len(text)
	}
	return assign(reflect.ValueOf(f.to).Elem(), src)
}

// TextSize returns how many bytes of text a Row has scanned into a destination.
func TextSize(dest any) int {
	switch d := dest.(type) {
	case *field:
		return d.size
	case *string:
		return len(*d)
	case **string:
		return len(Text(*d))
	}
	return 0
}

var timeType, durationType = reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration]()

func assign(to reflect.Value, src any) error {
	if src == nil {
		to.SetZero()
		return nil
	}
	switch from := src.(type) {
	case bool:
		if to.Kind() == reflect.Bool {
			to.SetBool(from)
			return nil
		}
	case int64:
		switch kind := to.Kind(); {
		case to.Type() == timeType:
			to.Set(reflect.ValueOf(time.UnixMicro(from)))
			return nil
		case to.Type() == durationType:
			to.SetInt(from * int64(time.Microsecond))
			return nil
		case to.CanInt():
			to.SetInt(from)
			return nil
		case kind == reflect.Bool: // SQLite has no type for it
			to.SetBool(from != 0)
			return nil
		case kind == reflect.Pointer:
			to.Set(reflect.New(to.Type().Elem()))
			return assign(to.Elem(), src)
		}
	case string:
		switch {
		case to.Kind() == reflect.String:
			to.SetString(from)
			return nil
		case to.Kind() == reflect.Slice && to.Type().Elem().Kind() == reflect.Uint8:
			to.SetBytes([]byte(from))
			return nil
		case to.Kind() == reflect.Pointer && to.Type().Elem().Kind() == reflect.String:
			to.Set(reflect.ValueOf(&from))
			return nil
		}
		return json.Unmarshal([]byte(from), to.Addr().Interface())
	}
	return fmt.Errorf("cannot store %T in a field of type %s", src, to.Type())
}

// Insert returns an INSERT of one row. columns is a list with commas.
func Insert(table, columns string) string {
	marks := make([]string, strings.Count(columns, ",")+1)
	for i := range marks {
		marks[i] = fmt.Sprintf("$%d", i+1)
	}
	return "INSERT INTO " + table + " (" + columns + ") VALUES (" + strings.Join(marks, ", ") + ")"
}

// Upsert returns the ON CONFLICT clause that overwrites columns of the row with the same key.
func Upsert(key string, columns ...string) string {
	set := make([]string, len(columns))
	for i, name := range columns {
		set[i] = name + " = excluded." + name
	}
	return "ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(set, ", ")
}

// Strings collects the rows of a query with one column.
func Strings(rows Rows, err error) ([]string, error) { return All(rows, err, Value[string]) }

// JSON is an argument of a statement that stores the value as JSON, and a nil pointer as NULL.
func JSON(v any) driver.Valuer { return jsonValue{v} }

type jsonValue struct{ v any }

func (j jsonValue) Value() (driver.Value, error) {
	if v := reflect.ValueOf(j.v); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, nil
	}
	text, err := json.Marshal(j.v, json.Deterministic(true))
	return string(text), err
}

// OrNull returns the string, or NULL if it is empty.
func OrNull[T ~string](s T) any {
	if s == "" {
		return nil
	}
	return string(s)
}

// NullList returns the list as JSON, or NULL if it is nil.
func NullList[S ~[]string](list S) any {
	if list == nil {
		return nil
	}
	return JSON(list)
}

// NullInt returns the number, or NULL if it is 0.
func NullInt(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

// Number returns what the pointer points to, or NULL.
func Number[T ~int64](n *T) any {
	if n == nil {
		return nil
	}
	return int64(*n)
}

// Micros returns a time in microseconds, or NULL.
func Micros(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UnixMicro()
}

// Storable replaces what the databases can't hold: invalid UTF-8 and NUL.
func Storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Text returns the string, or an empty one for NULL.
func Text[T ~string](s *T) T {
	if s == nil {
		return ""
	}
	return *s
}

// Time returns the time of microseconds, or nil for NULL.
func Time(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := time.UnixMicro(*us)
	return &t
}
