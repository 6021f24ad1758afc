package anthropic

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
	"turnpike/test/fakes/openaitest"
)

// seed adds a file of every golden directory.
func seed(f *testing.F, name string, add func(text []byte)) {
	for _, file := range openaitest.Glob(f, "testdata/golden/*/"+name) {
		add(openaitest.Read(f, file))
	}
}

func isJSON(text []byte) bool {
	return jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true))
}

// FuzzRequest checks that every body becomes JSON or a fault with a message.
func FuzzRequest(f *testing.F) {
	models := []string{"claude-opus-5-5", "claude-3-5-haiku-latest", "claude-sonnet-4-5", "kimi-k3"}
	seed(f, "call.json", func(text []byte) {
		for _, m := range openai.ParseOrdered(text).Members {
			if m.Name == "body" {
				f.Add([]byte(m.Value.JSON()))
			}
		}
	})
	f.Add([]byte(ask(`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"$ref":"#","anyOf":[1,{"items":[]}],"properties":[],"required":{},"type":["object","null"],"description":1,"x":"y"}}}`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, name := range models {
			out, _, err := translate(&providers.ChatRequest{Model: name, Body: body, MaxOutput: 100})
			if err != nil {
				if e, ok := fault.As(err); !ok || e.Message == "" || !utf8.ValidString(e.Message) || !utf8.ValidString(e.Param) {
					t.Errorf("got %v, want a fault with a message", err)
				}
			} else if !isJSON(out) {
				t.Errorf("not JSON: %s", out)
			}
		}
	})
}

func fuzzProvider() *Provider {
	p := New(Options{Key: testKey})
	p.newID = counter()
	return p
}

// FuzzResponse checks that every response becomes JSON or a failure.
func FuzzResponse(f *testing.F) {
	seed(f, "reply.json", func(text []byte) { f.Add(text) })
	f.Add([]byte(`{"type":"message","model":"\ud800","content":[{"type":"tool_use","input":{"a":1,"a":2}},{"type":"text","text":"` + "\xff" + `"}],"usage":{"input_tokens":-1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, answerTool := range []string{"", "trip"} {
			answer, err := fuzzProvider().completion(text, requestInfo{model: "m", answerTool: answerTool}, openai.Head{ID: "x", Model: "m"})
			if err != nil {
				checkFailure(t, err)
			} else if !isJSON(answer.Body) || answer.Usage.InputTokens < 0 || answer.Usage.OutputTokens < 0 {
				t.Errorf("%+v: %s", answer.Usage, answer.Body)
			}
		}
	})
}

// FuzzStream checks that every stream becomes JSON chunks, and ends with the
// usage or a failure.
func FuzzStream(f *testing.F) {
	seed(f, "events.jsonl", func(text []byte) { f.Add(text) })
	f.Add([]byte(started + "\n" + textOn + "\n" + hello))
	f.Fuzz(func(t *testing.T, lines []byte) {
		var body bytes.Buffer
		for line := range strings.SplitSeq(string(lines), "\n") {
			body.WriteString("data: " + line + "\n\n")
		}
		for _, answerTool := range []string{"", "trip"} {
			resp := &http.Response{Body: io.NopCloser(bytes.NewReader(body.Bytes()))}
			s := &stream{events: wire.NewEvents(resp, nil), provider: fuzzProvider(), info: requestInfo{model: "m", answerTool: answerTool}, ChunkQueue: wire.ChunkQueue{Head: openai.Head{ID: "x", Model: "m"}}}
			var last *providers.Usage
			for {
				chunk, err := s.Next()
				if err == io.EOF {
					if last == nil {
						t.Error("no usage at the end")
					}
					break
				}
				if err != nil {
					checkFailure(t, err)
					break
				}
				if !isJSON(chunk.Data) {
					t.Errorf("not JSON: %s", chunk.Data)
				}
				last = chunk.Usage
			}
			if u := s.SoFar(); u.InputTokens < 0 || u.OutputTokens < 0 {
				t.Errorf("%+v", u)
			}
		}
	})
}

func checkFailure(t *testing.T, err error) {
	t.Helper()
	f, ok := err.(*providers.Failure)
	if !ok || f.Kind == "" || f.Err == nil || !utf8.ValidString(f.Error()) {
		t.Errorf("got %v, want a failure with a kind", err)
	}
}
