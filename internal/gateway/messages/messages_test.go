package messages

import (
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

func chatOf(t *testing.T, body string) string {
	t.Helper()
	r, err := Decode([]byte(body), Versions[0])
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	chat, err := r.Chat(true)
	if err != nil {
		t.Fatal(err)
	}
	return string(chat)
}

func TestRequestsBecomeChatCompletions(t *testing.T) {
	t.Parallel()
	const head = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]`
	for in, want := range map[string]string{
		head + `}`: `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9}`,
		head + `,"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}],"stream":true,"top_k":5,"new":1}`: `{"model":"m","messages":[{"role":"system","content":"a\n\nb"},{"role":"user","content":"hi"}],"max_tokens":9,"stream":true}`,
		head + `,"stop_sequences":["x"],"temperature":0.5,"metadata":{"user_id":"u"}}`:                                                                   `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9,"temperature":0.5,"stop":["x"],"user":"u"}`,
		head + `,"thinking":{"type":"adaptive"},"output_config":{"effort":"max"}}`:                                                                       `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9,"reasoning_effort":"high"}`,
		head + `,"tools":[{"name":"f","input_schema":{"properties":{}}}],"tool_choice":{"type":"tool","name":"f"}}`:                                      `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"max_tokens":9}`,
		head + `,"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}}`:                                                          `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9,"response_format":{"type":"json_schema","json_schema":{"name":"output","schema":{"type":"object"}}}}`,
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"D"}},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0xLjQ="}}]}]}`: `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"text","text":"T:\nD"},{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERi0xLjQ=","filename":"document.pdf"}}]}],"max_tokens":9}`,
	} {
		if got := chatOf(t, in); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", in, got, want)
		}
	}
	r, err := Decode([]byte(head+`,"thinking":{"type":"adaptive"}}`), Versions[0])
	if err != nil {
		t.Fatal(err)
	}
	if chat, err := r.Chat(false); err != nil || strings.Contains(string(chat), "reasoning") {
		t.Errorf("a model without reasoning gets %s, %v", chat, err)
	}
}

func TestFaultsNameTheClientsFields(t *testing.T) {
	t.Parallel()
	r, err := Decode([]byte(`{"model":"m","max_tokens":9,"system":"s","tools":[{"name":"f","input_schema":{}}],"messages":[{"role":"user","content":"hi"},
		{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"a","name":"f","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"r"},{"type":"text","text":"y"},{"type":"image","source":{"type":"url","url":"https://x"}}]}]}`), Versions[0])
	if err != nil {
		t.Fatal(err)
	}
	for chat, want := range map[string]string{
		"messages[0].content":                  "system",
		"messages[1].content":                  "messages[0].content",
		"messages[2].tool_calls[0].function.x": "messages[1].content[1]",
		"messages[3].content":                  "messages[2].content[0].content",
		"messages[4].content[1].image_url.url": "messages[2].content[2].source",
		"messages[9].role":                     "messages",
		"tools[0].function.name":               "tools[0].name",
		"tools[0].function.parameters.x":       "tools[0].input_schema.x",
		"stop":                                 "stop_sequences",
		"response_format.json_schema.schema":   "output_config.format.schema",
		"reasoning_effort":                     "thinking",
		"model":                                "model",
	} {
		if got := r.FieldName(chat); got != want {
			t.Errorf("%s: got %s, want %s", chat, got, want)
		}
	}
	renamed, _ := fault.As(r.TranslateFault(fault.Invalid("tools[0].function.name", "tools[0].function.name is too long.")))
	if renamed.Param != "tools[0].name" || renamed.Message != "tools[0].name is too long." {
		t.Errorf("got %+v", renamed)
	}
}

func TestCompletionsBecomeMessages(t *testing.T) {
	t.Parallel()
	r := &Request{thinks: true}
	for in, want := range map[string]string{
		`{"model":"m","choices":[{"index":0,"message":{"content":"Hi","reasoning_content":"hm"},"finish_reason":"stop"}]}`:                                                                                                                           `"content":[{"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"Hi"}],"stop_reason":"end_turn"`,
		`{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"text":"b"}]},"finish_reason":"length"}]}`:                                                                                                                                   `"model":"fallback","content":[{"type":"text","text":"ab"}],"stop_reason":"max_tokens"`,
		`{"choices":[{"message":{"content":null,"refusal":"No."},"finish_reason":"stop"}]}`:                                                                                                                                                          `"content":[{"type":"text","text":"No."}],"stop_reason":"refusal"`,
		`{"choices":[{"message":{"tool_calls":[{"id":"c 1","function":{"name":"f","arguments":"{\"a\": 1}"}},{"id":"c2","function":{"name":"g","arguments":"{bro"}},{"function":{"name":"h","arguments":{"x":1}}}]},"finish_reason":"tool_calls"}]}`: `{"type":"tool_use","id":"c2","name":"g","input":{"INVALID_JSON":"{bro"}}`,
	} {
		got, err := r.Message("msg_1", "fallback", []byte(in), providers.Usage{InputTokens: 10, CachedInput: 4, CacheWrite: 1, OutputTokens: 3})
		if err != nil || !strings.Contains(string(got), want) || !strings.HasSuffix(string(got), `"usage":{"input_tokens":5,"cache_creation_input_tokens":1,"cache_read_input_tokens":4,"output_tokens":3}}`) {
			t.Errorf("%s:\ngot  %s, %v\nwant %s", in, got, err, want)
		}
	}
	if _, err := r.Message("msg_1", "m", []byte(`{"choices":[]}`), providers.Usage{}); !fault.Is(err, fault.Upstream) {
		t.Errorf("got %v", err)
	}
}

// chunks is a stream of chat chunks.
type chunks struct {
	list []string
	used *providers.Usage
}

func (c *chunks) Next() (providers.Chunk, error) {
	if len(c.list) > 0 {
		data := c.list[0]
		c.list = c.list[1:]
		return providers.Chunk{Data: []byte(data), Whole: strings.Contains(data, "finish")}, nil
	}
	if u := c.used; u != nil {
		c.used = nil
		return providers.Chunk{Data: []byte(`{"choices":[],"usage":{}}`), Usage: u}, nil
	}
	return providers.Chunk{}, io.EOF
}

func (c *chunks) SoFar() providers.Usage { return providers.Usage{InputTokens: 5, OutputTokens: 2} }
func (c *chunks) Close() error           { return nil }

func read(t *testing.T, s *Stream) (events []string, err error) {
	t.Helper()
	for {
		chunk, err := s.Next()
		if err == io.EOF {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		var e struct{ Type string }
		if err := json.Unmarshal(chunk.Data, &e, json.MatchCaseInsensitiveNames(true)); err != nil || e.Type != chunk.Event {
			t.Errorf("%s is named %s", chunk.Data, chunk.Event)
		}
		if (chunk.Usage != nil) != (chunk.Event == messageDelta) {
			t.Errorf("%s has usage %v", chunk.Data, chunk.Usage)
		}
		events = append(events, string(chunk.Data))
	}
}

func TestChunksBecomeEvents(t *testing.T) {
	t.Parallel()
	delta := func(d string) string { return `{"model":"m","choices":[{"index":0,"delta":` + d + `}]}` }
	r := &Request{thinks: true}
	s := r.NewStream("msg_1", "x", &chunks{used: &providers.Usage{InputTokens: 10, OutputTokens: 7}, list: []string{
		delta(`{"role":"assistant","content":""}`), delta(`{"reasoning_content":"hm"}`), delta(`{"content":"Hi"}`), delta(`{"content":"!"}`),
		delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`),
		delta(`{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{\"x\":1}"}}]}`),
		`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`}})
	got, err := read(t, s)
	want := []string{
		`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":2}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"!"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"a","name":"f","input":{}}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{}"}}`,
		`{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"b","name":"g","input":{}}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"x\":1}"}}`,
		`{"type":"content_block_stop","index":3}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":7}}`,
		`{"type":"message_stop"}`,
	}
	if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%v, got\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// A call that goes on after the next one has begun can't be expressed.
	s = r.NewStream("msg_1", "x", &chunks{list: []string{
		delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}},{"index":1,"id":"b","function":{"name":"g"}}]}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`)}})
	if _, err := read(t, s); err != errInterleaved {
		t.Errorf("got %v", err)
	}
}

func TestCutStreamsEndWell(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]int{`{"type":"content_block_delta","index":3}`: 1, `{"type":"content_block_stop","index":3}`: 1, `{"type":"content_block_start","index":3}`: 0, `{"type":"message_delta"}`: 0} {
		got := StopBlock([]byte(next))
		if len(got) != want || want == 1 && string(got[0].Data) != `{"type":"content_block_stop","index":3}` {
			t.Errorf("%s: got %v", next, got)
		}
	}
}

func TestNewVersionRejectsWhatItRemoved(t *testing.T) {
	t.Parallel()
	const head = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"hi"`
	for body, param := range map[string]string{
		head + `}]}],"temperature":1}`:                   "temperature",
		head + `}]}],"top_p":1}`:                         "top_p",
		head + `}]}],"top_k":5}`:                         "top_k",
		head + `,"citations":[{"type":"x"}]}]}]}`:        "messages[0].content[0].citations",
		head + `,"citations":[]}]}],"temperature":null}`: "",
	} {
		if _, err := Decode([]byte(body), Versions[0]); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		_, err := Decode([]byte(body), Versions[1])
		f, failed := fault.As(err)
		if failed != (param != "") || failed && f.Param != param {
			t.Errorf("%s: got %v", body, err)
		}
	}
}

// FuzzDecode checks that every body becomes JSON or a fault with a message.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"model":"m","max_tokens":9,"system":[{"type":"text","text":"a"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"image","source":{"type":"base64"}}]}]}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Decode(body, Versions[1])
		if err != nil {
			if e, ok := fault.As(err); !ok || e.Message == "" {
				t.Errorf("got %v, want a fault with a message", err)
			}
			return
		}
		if _, err := r.Chat(true); err != nil {
			t.Error(err)
		}
	})
}
