package gemini

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/test/fakes/openaitest"
	"turnpike/test/fakes/upstreams"
)

const testKey = "AIzaTestKeyThatMustNotLeak"

// start returns a provider with predictable IDs and times at a mock server.
func start(t testing.TB) (*Provider, *upstreams.Gemini) {
	server := upstreams.NewGemini(t, testKey)
	p := New(Options{BaseURL: server.BaseURL() + "/", Key: testKey})
	p.now = func() time.Time { return time.Unix(1_700_000_000, 0) }
	n := 0
	p.newID = func(prefix string) string {
		n++
		return fmt.Sprintf("%s%d", prefix, n)
	}
	return p, server
}

// eachFile compares the output of a test for each file with its golden file.
func eachFile(t *testing.T, pattern string, test func(t *testing.T, input []byte) []byte) {
	for _, file := range openaitest.Glob(t, filepath.Join("testdata", pattern)) {
		extension := filepath.Ext(file)
		name := strings.TrimSuffix(file, extension)
		if strings.HasSuffix(name, ".golden") {
			continue
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			openaitest.Golden(t, name+".golden"+extension, test(t, openaitest.Read(t, file)))
		})
	}
}

// The mock server rejects requests that Google's published format doesn't have.
func TestRequestsAreTranslated(t *testing.T) {
	t.Parallel()
	eachFile(t, "request/*.json", func(t *testing.T, input []byte) []byte {
		var fields struct {
			Model string `json:"model"`
		}
		if err := json.Unmarshal(input, &fields); err != nil {
			t.Fatal(err)
		}
		p, server := start(t)
		if _, err := p.Chat(t.Context(), &providers.ChatRequest{Model: fields.Model, Body: input}); err != nil {
			t.Fatal(err)
		}
		requests := server.Requests()
		if want := "/v1beta/models/" + fields.Model + ":generateContent"; len(requests) != 1 || requests[0].Path != want {
			t.Fatalf("called %+v, want %s", requests, want)
		}
		return openaitest.Indent(t, requests[0].Body)
	})
}

const hello = `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`

func TestResponsesAreTranslated(t *testing.T) {
	t.Parallel()
	eachFile(t, "answer/*.json", func(t *testing.T, input []byte) []byte {
		p, server := start(t)
		server.Queue(upstreams.GeminiReply{Body: string(input)})
		answer, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "gemini-2.5-flash", Body: []byte(hello)})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Appendf(openaitest.Indent(t, answer.Body), "%+v\n", answer.Usage)
	})
}

func TestStreamsAreTranslated(t *testing.T) {
	t.Parallel()
	eachFile(t, "stream/*.sse", func(t *testing.T, input []byte) []byte {
		p, server := start(t)
		server.Queue(upstreams.GeminiReply{Events: strings.Split(strings.TrimSpace(string(input)), "\n")})
		answer, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "gemini-2.5-flash", Body: []byte(hello), Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Stream.Close()
		if r := server.Requests()[0]; r.Path != "/v1beta/models/gemini-2.5-flash:streamGenerateContent" || r.Query.Encode() != "alt=sse" {
			t.Errorf("called %s?%s", r.Path, r.Query.Encode())
		}
		return show(t, answer.Stream)
	})
}

// show prints a stream: its chunks, their usage, and its end.
func show(t *testing.T, s providers.Stream) []byte {
	t.Helper()
	var out []byte
	for {
		chunk, err := s.Next()
		var f *providers.Failure
		switch {
		case err == io.EOF:
			return append(out, "end\n"...)
		case errors.As(err, &f):
			return fmt.Appendf(out, "so far %+v\nfailure %v\n", s.SoFar(), f)
		case err != nil:
			t.Fatal(err)
		}
		if !jsontext.Value(chunk.Data).IsValid() {
			t.Errorf("not JSON: %s", chunk.Data)
		}
		out = append(append(out, chunk.Data...), '\n')
		if chunk.Usage != nil {
			out = fmt.Appendf(out, "%+v\n", *chunk.Usage)
		}
	}
}
