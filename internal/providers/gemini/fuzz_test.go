package gemini

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/test/fakes/openaitest"
)

// seeds adds the files of testdata that match a pattern.
func seeds(f *testing.F, pattern string, add func(text []byte)) {
	for _, file := range openaitest.Glob(f, filepath.Join("testdata", pattern)) {
		add(openaitest.Read(f, file))
	}
}

// FuzzRequest checks that every body becomes JSON or a fault with a message.
func FuzzRequest(f *testing.F) {
	seeds(f, "request/*.json", func(text []byte) { f.Add("gemini-3-pro", text) })
	f.Add("gemini-2.0-flash", []byte(`{"messages":1}`))
	f.Fuzz(func(t *testing.T, model string, body []byte) {
		call, err := translate(&providers.ChatRequest{Model: model, Body: body, MaxOutput: 100})
		if err != nil {
			if e, ok := fault.As(err); !ok || e.Message == "" || !utf8.ValidString(e.Message) || !utf8.ValidString(e.Param) {
				t.Errorf("got %v, want a fault with a message", err)
			}
			return
		}
		if !jsontext.Value(call.body).IsValid() {
			t.Errorf("not JSON: %s", call.body)
		}
		if call.promptTokens < 0 {
			t.Errorf("%d tokens", call.promptTokens)
		}
	})
}

// FuzzSchema checks that every schema stays JSON, and that cleaning is idempotent.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"$schema":"x","properties":{"const":{"const":1}},"definitions":{"A":true},"$ref":"#/definitions/A","anyOf":[{"enum":[1],"const":2}]}`))
	f.Fuzz(func(t *testing.T, schema []byte) {
		if !jsontext.Value(schema).IsValid() {
			return
		}
		once := cleanSchema(schema)
		if !once.IsValid() {
			t.Fatalf("%s became %s", schema, once)
		}
		if twice := cleanSchema(once); string(twice) != string(once) {
			t.Errorf("%s: got %s after cleaning %s again", schema, twice, once)
		}
	})
}

func testHead() head {
	return head{openai.Head{ID: "chatcmpl-1", Created: 1, Model: "m"}, func(prefix string) string { return prefix + "1" }}
}

// FuzzResponse checks that every response becomes JSON or a failure.
func FuzzResponse(f *testing.F) {
	seeds(f, "answer/*.json", func(text []byte) { f.Add(text) })
	f.Add([]byte(`{"candidates":[{}],"usageMetadata":{"promptTokenCount":9223372036854775807,"toolUsePromptTokenCount":1,"candidatesTokenCount":9223372036854775807,"thoughtsTokenCount":1,"cachedContentTokenCount":-1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		answer, err := testHead().completion(body, &call{promptTokens: 1}, []string{testKey})
		if err != nil {
			var failure *providers.Failure
			if !errors.As(err, &failure) {
				t.Errorf("got %v, want a failure", err)
			}
			return
		}
		checkJSON(t, answer.Body)
		checkUsage(t, answer.Usage)
	})
}

// FuzzStream checks that every stream becomes JSON chunks, and ends with the
// usage or a failure.
func FuzzStream(f *testing.F) {
	seeds(f, "stream/*.sse", func(text []byte) { f.Add(string(text)) })
	f.Fuzz(func(t *testing.T, text string) {
		lines := lineEvents(strings.Split(text, "\n"))
		s := newStream(&lines, testHead(), &call{promptTokens: 1}, []string{testKey})
		var last *providers.Usage
		for {
			chunk, err := s.Next()
			checkUsage(t, s.SoFar())
			if err != nil {
				var failure *providers.Failure
				if err == io.EOF && last == nil || err != io.EOF && !errors.As(err, &failure) {
					t.Errorf("ended with %v and usage %v", err, last)
				}
				return
			}
			checkJSON(t, chunk.Data)
			if last = chunk.Usage; last != nil {
				checkUsage(t, *last)
			}
		}
	})
}

// lineEvents returns one event per line.
type lineEvents []string

func (e *lineEvents) Next() (string, []byte, error) {
	if len(*e) == 0 {
		return "", nil, io.EOF
	}
	data := (*e)[0]
	*e = (*e)[1:]
	return "", []byte(data), nil
}

func (e *lineEvents) Close() error { return nil }

func checkJSON(t *testing.T, data []byte) {
	t.Helper()
	if !jsontext.Value(data).IsValid() {
		t.Errorf("not JSON: %q", data)
	}
}

func checkUsage(t *testing.T, u providers.Usage) {
	t.Helper()
	if u.InputTokens < 0 || u.OutputTokens < 0 || u.CachedInput < 0 || u.CachedInput > u.InputTokens {
		t.Errorf("usage %+v", u)
	}
}

// FuzzError checks that every error body becomes a failure without the key.
func FuzzError(f *testing.F) {
	f.Add([]byte(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"m","details":[{"retryDelay":"3s"},{"fieldViolations":[{"field":"contents[0]"}]}]}}`))
	f.Add([]byte(`[{"error":{"message":"* GenerateContentRequest.tools[0].function_declarations[1].x: y"}}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		e := readError(body)
		failure := e.failure([]string{testKey})
		if failure.Kind == "" || failure.RetryAfter < 0 || strings.Contains(failure.Error(), testKey) {
			t.Errorf("%+v", failure)
		}
	})
}
