package responses_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"turnpike/internal/gateway/responses"
	"turnpike/test/fakes/openaitest"
)

// A directory of testdata/golden is one call: request.json and its translation chat.json,
// completion.json and chunks.jsonl from the provider, and their translations response.json and
// events.jsonl.
func TestTranslationsMatchGoldenFiles(t *testing.T) {
	t.Parallel()
	for _, dir := range goldenDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			r := toChat(t, string(read(t, dir, "request.json")))
			openaitest.Golden(t, filepath.Join(dir, "chat.json"), openaitest.Indent(t, r.Chat))
			if chat := read(t, dir, "completion.json"); chat != nil {
				answer, err := r.ToResponse(chat)
				if err != nil {
					t.Fatal(err)
				}
				openaitest.Golden(t, filepath.Join(dir, "response.json"), openaitest.Indent(t, answer))
			}
			if chunks := read(t, dir, "chunks.jsonl"); chunks != nil {
				var lines []byte
				for _, e := range stream(t, r, chunks) {
					lines = append(append(lines, e.Data...), '\n')
				}
				openaitest.Golden(t, filepath.Join(dir, "events.jsonl"), lines)
			}
		})
	}
}

func goldenDirs(t testing.TB) []string {
	return openaitest.Glob(t, "testdata/golden/*")
}

func toChat(t testing.TB, body string) *responses.Request {
	t.Helper()
	r, err := readAndTranslate([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readAndTranslate(body []byte) (*responses.Request, error) {
	r, err := responses.Read(body)
	if err == nil {
		err = r.Translate()
	}
	if err != nil {
		return nil, err
	}
	return r, nil
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

func read(t testing.TB, dir, name string) []byte { return openaitest.Read(t, filepath.Join(dir, name)) }
