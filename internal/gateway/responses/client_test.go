//go:build clients

package responses_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	oai "github.com/openai/openai-go/v3/responses"

	"turnpike/internal/gateway/responses"
)

// client is OpenAI's own on a server that responds as a golden directory says. With a failure
// the stream fails after its chunks.
func client(t *testing.T, dir, failure string) openai.Client {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r, err := readAndTranslate(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if !r.Stream {
			answer, err := r.ToResponse(read(t, dir, "completion.json"))
			if err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(answer)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		s := r.NewStream()
		for line := range strings.Lines(string(read(t, dir, "chunks.jsonl"))) {
			events, err := s.Push([]byte(line))
			if err != nil {
				t.Error(err)
			}
			write(w, events)
		}
		if failure != "" {
			write(w, s.Fail("upstream_error", failure))
		}
		write(w, s.End())
	}))
	t.Cleanup(server.Close)
	return openai.NewClient(option.WithBaseURL(server.URL), option.WithAPIKey("x"), option.WithMaxRetries(0))
}

func write(w io.Writer, events []responses.Event) {
	for _, e := range events {
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.Type, e.Data)
	}
}

var question = oai.ResponseNewParams{
	Model:           "gpt-4.1",
	Instructions:    openai.String("Be brief."),
	Input:           oai.ResponseNewParamsInputUnion{OfString: openai.String("Hi.")},
	Temperature:     openai.Float(0.5),
	MaxOutputTokens: openai.Int(100),
	Tools:           []oai.ToolUnionParam{oai.ToolParamOfFunction("weather", map[string]any{"type": "object"}, true)},
}

func TestOfficialClientReadsResponses(t *testing.T) {
	t.Parallel()
	c := client(t, "testdata/golden/calls", "")
	got, err := c.Responses.New(t.Context(), question)
	if err != nil {
		t.Fatal(err)
	}
	if got.OutputText() != "One moment." || got.Status != "completed" || got.Usage.TotalTokens != 27 || got.CreatedAt != 1750000000 {
		t.Error(got.RawJSON())
	}
	if len(got.Output) != 3 || got.Output[1].AsFunctionCall().Name != "weather" || got.Output[2].AsFunctionCall().CallID != "call_b" {
		t.Error(got.RawJSON())
	}
	if got.Instructions.OfString != "Be brief." || got.Temperature != 0.5 || got.Tools[0].AsFunction().Name != "weather" || !got.Tools[0].AsFunction().Strict {
		t.Error(got.RawJSON())
	}
	for name, field := range map[string]bool{
		"id": got.JSON.ID.Valid(), "object": got.JSON.Object.Valid(), "model": got.JSON.Model.Valid(), "metadata": got.JSON.Metadata.Valid(),
		"parallel_tool_calls": got.JSON.ParallelToolCalls.Valid(), "tool_choice": got.JSON.ToolChoice.Valid(), "text": got.JSON.Text.Valid(),
		"cache_write_tokens": got.Usage.InputTokensDetails.JSON.CacheWriteTokens.Valid(),
	} {
		if !field {
			t.Errorf("the client does not find %s", name)
		}
	}
}

// Deltas, done events and the last response agree, and sequence numbers increase.
func TestOfficialClientReadsStreams(t *testing.T) {
	t.Parallel()
	for _, dir := range goldenDirs(t) {
		if read(t, dir, "chunks.jsonl") == nil {
			continue
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			c := client(t, dir, "")
			stream := c.Responses.NewStreaming(t.Context(), question)
			defer stream.Close()
			w := watcher{t: t, deltas: map[string]string{}, open: map[string]bool{}}
			var collected oai.ResponseAccumulator
			for stream.Next() {
				event := stream.Current()
				w.see(event)
				var same oai.ResponsesServerEventUnion
				if err := json.Unmarshal([]byte(event.RawJSON()), &same); err != nil {
					t.Fatal(err)
				}
				if err := collected.AddEvent(same); err != nil {
					t.Error(err)
				}
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
			w.end()
			if s := collected.Snapshot(); s.OutputText() != w.last.OutputText() || s.TerminalEvent != "response."+string(w.last.Status) {
				t.Errorf("collected %+v", s)
			}
			switch filepath.Base(dir) {
			case "other-servers", "schema": // their two answers have other calls and tokens
				return
			}
			plain, err := c.Responses.New(t.Context(), question)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(raws(plain.Output), raws(w.last.Output)) {
				t.Errorf("streamed\n%s\nbut plain\n%s", raws(w.last.Output), raws(plain.Output))
			}
		})
	}
}

func raws(items []oai.ResponseOutputItemUnion) (list []string) {
	for _, i := range items {
		list = append(list, i.RawJSON())
	}
	return list
}

// watcher checks a stream's events against each other.
type watcher struct {
	t      *testing.T
	count  int64
	deltas map[string]string // by item and part
	open   map[string]bool   // items and parts that were added and are not done
	items  int64
	last   oai.Response
}

func (w *watcher) see(event oai.ResponseStreamEventUnion) {
	t := w.t
	if event.SequenceNumber != w.count {
		t.Errorf("%s has number %d, not %d", event.Type, event.SequenceNumber, w.count)
	}
	w.count++
	part := fmt.Sprint(event.ItemID, "/", event.ContentIndex)
	switch e := event.AsAny().(type) {
	case oai.ResponseCreatedEvent:
		if event.SequenceNumber != 0 || e.Response.Status != "in_progress" {
			t.Error(e.RawJSON())
		}
	case oai.ResponseInProgressEvent:
		if event.SequenceNumber != 1 {
			t.Error(e.RawJSON())
		}
	case oai.ResponseOutputItemAddedEvent:
		if e.OutputIndex != w.items {
			t.Errorf("item %d is number %d", e.OutputIndex, w.items)
		}
		w.items++
		w.open[e.Item.ID] = true
	case oai.ResponseContentPartAddedEvent:
		w.open[part] = true
	case oai.ResponseTextDeltaEvent:
		w.deltas[part] += e.Delta
	case oai.ResponseRefusalDeltaEvent:
		w.deltas[part] += e.Delta
	case oai.ResponseFunctionCallArgumentsDeltaEvent:
		w.deltas[part] += e.Delta
	case oai.ResponseTextDoneEvent:
		w.same(part, e.Text)
	case oai.ResponseRefusalDoneEvent:
		w.same(part, e.Refusal)
	case oai.ResponseFunctionCallArgumentsDoneEvent:
		w.same(part, e.Arguments)
	case oai.ResponseContentPartDoneEvent:
		w.same(part, e.Part.Text+e.Part.Refusal)
		delete(w.open, part)
	case oai.ResponseOutputItemDoneEvent:
		if !w.open[e.Item.ID] {
			t.Errorf("%s was not open", e.Item.ID)
		}
		delete(w.open, e.Item.ID)
	case oai.ResponseCompletedEvent:
		w.last = e.Response
	case oai.ResponseIncompleteEvent:
		w.last = e.Response
	default:
		t.Errorf("an event %T", e)
	}
}

func (w *watcher) same(part, whole string) {
	if w.deltas[part] != whole {
		w.t.Errorf("%s: %q in deltas, %q at the end", part, w.deltas[part], whole)
	}
}

func (w *watcher) end() {
	if w.last.ID == "" || len(w.open) > 0 || int64(len(w.last.Output)) != w.items {
		w.t.Errorf("at the end %v is open and the response is %s", w.open, w.last.RawJSON())
	}
}

func TestOfficialClientSeesStreamFailure(t *testing.T) {
	t.Parallel()
	c := client(t, "testdata/golden/cut", "the model provider failed")
	stream := c.Responses.NewStreaming(t.Context(), question)
	defer stream.Close()
	for stream.Next() {
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "the model provider failed") {
		t.Error(err)
	}
}
