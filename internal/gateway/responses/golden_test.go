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

// A folder of testdata/golden is one call: request.json is what a caller sends
// and chat.json the chat made of it; completion.json and chunks.jsonl are the
// chat's answer, plain and streamed, and response.json and events.jsonl what
// the caller gets of that.
func TestTranslationsAreAsRecorded(t *testing.T) {
	t.Parallel()
	for _, folder := range folders(t) {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			r := toChat(t, string(read(t, folder, "request.json")))
			compare(t, folder, "chat.json", indent(t, r.Chat))
			if chat := read(t, folder, "completion.json"); chat != nil {
				answer, err := r.Answer(chat)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, folder, "response.json", indent(t, answer))
			}
			if chunks := read(t, folder, "chunks.jsonl"); chunks != nil {
				var lines []byte
				for _, e := range stream(t, r, chunks) {
					lines = append(append(lines, e.Data...), '\n')
				}
				compare(t, folder, "events.jsonl", lines)
			}
		})
	}
}

func folders(t testing.TB) []string {
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

// stream translates a whole stream, a chunk to a line.
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

func read(t testing.TB, folder, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return text
}

func indent(t *testing.T, text []byte) []byte {
	t.Helper()
	v := jsontext.Value(text).Clone() // Indent may use what is behind it
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return append(v, '\n')
}

func compare(t *testing.T, folder, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join(folder, name), got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := read(t, folder, name); !bytes.Equal(got, want) {
		t.Errorf("%s is\n%s\nnot\n%s", name, got, want)
	}
}
