package responses_test

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/gateway/responses"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata/golden")

// A directory of testdata/golden is one call: request.json and its translation chat.json,
// completion.json and chunks.jsonl from the provider, and their translations response.json and
// events.jsonl.
func TestTranslationsMatchGoldenFiles(t *testing.T) {
	t.Parallel()
	for _, dir := range goldenDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			r := toChat(t, string(read(t, dir, "request.json")))
			compare(t, dir, "chat.json", indent(t, r.Chat))
			if chat := read(t, dir, "completion.json"); chat != nil {
				answer, err := r.ToResponse(chat)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, dir, "response.json", indent(t, answer))
			}
			if chunks := read(t, dir, "chunks.jsonl"); chunks != nil {
				var lines []byte
				for _, e := range stream(t, r, chunks) {
					lines = append(append(lines, e.Data...), '\n')
				}
				compare(t, dir, "events.jsonl", lines)
			}
		})
	}
}

func goldenDirs(t testing.TB) []string {
	t.Helper()
	list, err := filepath.Glob("testdata/golden/*")
	if err != nil || len(list) == 0 {
		t.Fatal("no golden files", err)
	}
	return list
}

func toChat(t testing.TB, body string) *responses.Request {
	t.Helper()
	r, err := responses.ToChat([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// stream translates a whole stream, one chunk per line.
func stream(t testing.TB, r *responses.Request, chunks []byte) []responses.Event {
	t.Helper()
	s := r.NewStream()
	var all []responses.Event
	for line := range bytes.Lines(chunks) {
		events, err := s.Push(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, events...)
	}
	return append(all, s.End()...)
}

func read(t testing.TB, dir, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return text
}

func indent(t *testing.T, text []byte) []byte {
	t.Helper()
	v := jsontext.Value(text).Clone() // Indent may write behind it
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return append(v, '\n')
}

func compare(t *testing.T, dir, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join(dir, name), got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := read(t, dir, name); !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}
