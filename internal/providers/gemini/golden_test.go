package gemini

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/test/fakes/upstreams"
)

var update = flag.Bool("update", false, "write the golden files anew")

const testKey = "AIzaTestKeyThatMustNotLeak"

// start returns a provider at a server of its own, with ids that count up.
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

// eachFile runs a test for each of testdata's files of a kind.
func eachFile(t *testing.T, pattern string, test func(t *testing.T, input []byte) []byte) {
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for _, file := range files {
		if strings.Contains(file, ".golden") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
			t.Parallel()
			input, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := test(t, input)
			golden := strings.TrimSuffix(file, filepath.Ext(file)) + ".golden" + filepath.Ext(file)
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s differs; -update writes it anew. Got:\n%s", golden, got)
			}
		})
	}
}

func indent(t *testing.T, body []byte) []byte {
	t.Helper()
	v := jsontext.Value(body).Clone()
	if err := v.Indent(); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, body)
	}
	return append(v, '\n')
}

// The mock server refuses what Google's published format does not have, so
// that each golden request is also an accepted one.
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
		return indent(t, requests[0].Body)
	})
}

const hello = `{"model":"m","messages":[{"role":"user","content":"Hello"}]}`

func TestAnswersAreTranslated(t *testing.T) {
	t.Parallel()
	eachFile(t, "answer/*.json", func(t *testing.T, input []byte) []byte {
		p, server := start(t)
		server.Queue(upstreams.GeminiReply{Body: string(input)})
		answer, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "gemini-2.5-flash", Body: []byte(hello)})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Appendf(indent(t, answer.Body), "%+v\n", answer.Usage)
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

// show writes a stream down: its chunks, their usage, and how it ended.
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
