package anthropic

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
	"turnpike/test/fakes/upstreams"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata/golden")

const testKey = "sk-ant-api03-not-a-real-key"

// newProvider calls a mock of Anthropic; its ids and times can be foretold.
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

// A folder of testdata/golden is one conversation: call.json is what a caller
// sends and request.json what Anthropic gets of it; reply.json and
// events.jsonl are what Anthropic answers, plain and streamed, and answer.json
// and chunks.jsonl what the caller gets of that. The mock refuses a request
// that Anthropic would refuse.
func TestTranslationsAreAsRecorded(t *testing.T) {
	t.Parallel()
	folders, err := filepath.Glob("testdata/golden/*")
	if err != nil || len(folders) == 0 {
		t.Fatal("no golden files", err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			testPlain(t, folder)
			testStreamed(t, folder)
		})
	}
}

func readCall(t *testing.T, folder string) *providers.ChatRequest {
	t.Helper()
	var call struct {
		Model     string         `json:"model"`
		MaxOutput int64          `json:"max_output"`
		Body      jsontext.Value `json:"body"`
	}
	if err := json.Unmarshal(read(t, folder, "call.json"), &call, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	return &providers.ChatRequest{Model: call.Model, MaxOutput: call.MaxOutput, Body: call.Body}
}

func testPlain(t *testing.T, folder string) {
	p, mock := newProvider(t)
	reply := read(t, folder, "reply.json")
	if reply != nil {
		mock.Queue(upstreams.AnthropicReply{Body: string(reply)})
	}
	answer, err := p.Chat(t.Context(), readCall(t, folder))
	compare(t, folder, "request.json", indent(t, mock.Requests()[0].Body))
	if err != nil {
		t.Fatal(err)
	}
	if reply == nil {
		return
	}
	compare(t, folder, "answer.json", indent(t, answer.Body))
	checkUsage(t, answer.Body, answer.Usage)
}

func testStreamed(t *testing.T, folder string) {
	events := read(t, folder, "events.jsonl")
	if events == nil {
		return
	}
	p, mock := newProvider(t)
	mock.Queue(upstreams.AnthropicReply{Events: strings.Split(strings.TrimSpace(string(events)), "\n")})
	req := readCall(t, folder)
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
			t.Errorf("%s comes after the usage", chunk.Data)
		}
		last = chunk
		chunks.Write(chunk.Data)
		chunks.WriteByte('\n')
	}
	compare(t, folder, "chunks.jsonl", chunks.Bytes())
	if last.Usage == nil {
		t.Fatal("the last chunk has no usage")
	}
	checkUsage(t, last.Data, *last.Usage)
	if got := answer.Stream.SoFar(); got != *last.Usage {
		t.Errorf("SoFar is %+v at the end, not %+v", got, *last.Usage)
	}
}

// checkUsage compares what the caller reads with what the gateway charges.
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
		t.Errorf("the caller reads %+v, the gateway %+v", u, want)
	}
}

func read(t *testing.T, folder, name string) []byte {
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
