// Package openaitest compares translations from and to OpenAI's format with golden files.
package openaitest

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

var update = flag.Bool("update", false, "write the golden files")

// Golden compares got with a golden file. With -update it writes the file.
func Golden(t testing.TB, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := Read(t, file); !bytes.Equal(got, want) {
		t.Errorf("%s differs (-update writes it)\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// Read returns the content of a file, or nil if it doesn't exist.
func Read(t testing.TB, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return text
}

// Glob returns the files that match a pattern, at least one.
func Glob(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files match %s: %v", pattern, err)
	}
	return files
}

// Indent formats JSON for a golden file.
func Indent(t testing.TB, text []byte) []byte {
	t.Helper()
	v := jsontext.Value(text).Clone() // Indent writes beyond the value's end
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return append(v, '\n')
}
