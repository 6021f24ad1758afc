package anthropic

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
	"turnpike/test/fakes/openaitest"
	"turnpike/test/fakes/upstreams"
)

const testKey = "sk-ant-api03-not-a-real-key"

// newProvider returns a provider with predictable IDs and times at a mock server.
func newProvider(t testing.TB) (*Provider, *upstreams.Anthropic) {
	mock := upstreams.NewAnthropic(t, testKey)
	p := New(Options{BaseURL: mock.BaseURL(), Key: testKey, Client: wire.NewClient(wire.Timeouts{})})
	p.now = func() time.Time { return time.Unix(1_750_000_000, 0) }
	p.newID = counter()
	return p, mock
}

func counter() func(prefix string) string {
	n := 0
	return func(prefix string) string {
		n++
		return fmt.Sprintf("%s%d", prefix, n)
	}
}

// A directory of testdata/golden is one conversation. call.json is the client's
// request, and request.json its translation; reply.json and events.jsonl are
// Anthropic's response, plain and streamed, and answer.json and chunks.jsonl
// their translations. The mock rejects requests that Anthropic would reject.
func TestTranslationsMatchGoldenFiles(t *testing.T) {
	t.Parallel()
	for _, dir := range openaitest.Glob(t, "testdata/golden/*") {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			testPlain(t, dir)
			testStreamed(t, dir)
		})
	}
}

func readCall(t *testing.T, dir string) *providers.ChatRequest {
	t.Helper()
	var call struct {
		Model     string         `json:"model"`
		MaxOutput int64          `json:"max_output"`
		Body      jsontext.Value `json:"body"`
	}
	if err := json.Unmarshal(openaitest.Read(t, filepath.Join(dir, "call.json")), &call, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	return &providers.ChatRequest{Model: call.Model, MaxOutput: call.MaxOutput, Body: call.Body}
}

func testPlain(t *testing.T, dir string) {
	p, mock := newProvider(t)
	reply := openaitest.Read(t, filepath.Join(dir, "reply.json"))
	if reply != nil {
		mock.Queue(upstreams.AnthropicReply{Body: string(reply)})
	}
	answer, err := p.Chat(t.Context(), readCall(t, dir))
	openaitest.Golden(t, filepath.Join(dir, "request.json"), openaitest.Indent(t, mock.Requests()[0].Body))
	if err != nil {
		t.Fatal(err)
	}
	if reply == nil {
		return
	}
	openaitest.Golden(t, filepath.Join(dir, "answer.json"), openaitest.Indent(t, answer.Body))
	checkUsage(t, answer.Body, answer.Usage)
}

func testStreamed(t *testing.T, dir string) {
	events := openaitest.Read(t, filepath.Join(dir, "events.jsonl"))
	if events == nil {
		return
	}
	p, mock := newProvider(t)
	mock.Queue(upstreams.AnthropicReply{Events: strings.Split(strings.TrimSpace(string(events)), "\n")})
	req := readCall(t, dir)
	req.Stream = true
	answer, err := p.Chat(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Stream.Close()
	var chunks bytes.Buffer
	var last providers.Chunk
	for {
		chunk, err := answer.Stream.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if last.Usage != nil {
			t.Errorf("chunk after the usage: %s", chunk.Data)
		}
		last = chunk
		chunks.Write(chunk.Data)
		chunks.WriteByte('\n')
	}
	openaitest.Golden(t, filepath.Join(dir, "chunks.jsonl"), chunks.Bytes())
	if last.Usage == nil {
		t.Fatal("the last chunk has no usage")
	}
	checkUsage(t, last.Data, *last.Usage)
	if got := answer.Stream.SoFar(); got != *last.Usage {
		t.Errorf("SoFar at the end: got %+v, want %+v", got, *last.Usage)
	}
}

// checkUsage compares the usage in a response with the one that is charged.
func checkUsage(t *testing.T, body []byte, want providers.Usage) {
	t.Helper()
	var got struct {
		Usage struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Total      int64 `json:"total_tokens"`
			Details    struct {
				Cached  int64 `json:"cached_tokens"`
				Written int64 `json:"cache_write_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	u := got.Usage
	if (providers.Usage{InputTokens: u.Prompt, OutputTokens: u.Completion, CachedInput: u.Details.Cached, CacheWrite: u.Details.Written, Estimated: want.Estimated}) != want || u.Total != u.Prompt+u.Completion {
		t.Errorf("usage: got %+v, want %+v", u, want)
	}
}
