package messages_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/gateway/messages"
)

func values(list ...string) (out []jsontext.Value) {
	for _, v := range list {
		out = append(out, jsontext.Value(v))
	}
	return out
}

func readTurn(t *testing.T, body string) *messages.Turn {
	t.Helper()
	turn, err := messages.ReadTurn([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

func TestResumedRequestHasNoThread(t *testing.T) {
	t.Parallel()
	const thread = `"thread":{"type":"continue","previous_message_id":"msg_1"}`
	for body, want := range map[string]string{
		`{"thread":{"type":"create"},"system":"s", "messages" : [ {"role":"user"} ],"n":1.50}`: `{"system":"s","messages":[ {"role":"user"} ],"n":1.50}`,
		`{"\u0074hread":{"type":"create"},"messages":[]}`:                                      `{"messages":[]}`,
		`{"model":"m",` + thread + `,"messages":[{"role":"user","content":"c"}],"é":[1e3]}`:    `{"model":"m","é":[1e3],"messages":[{"role":"user","content":"a"},{"role":"user","content":"c"}],"system":"s"}`,
		`{` + thread + `,"messages":[],"system":null,"tools":null}`:                            `{"tools":null,"messages":[{"role":"user","content":"a"}],"system":"s"}`,
	} {
		turn := readTurn(t, body)
		var got []byte
		if turn.PreviousID == "" {
			got = turn.Resume(nil, nil)
		} else {
			// Anthropic rejects messages without content, which models may return.
			got = turn.Resume(values(`{"role":"user","content":"a"}`, `{"role":"assistant","content":[]}`), map[string]jsontext.Value{"system": jsontext.Value(`"s"`)})
		}
		if string(got) != want {
			t.Errorf("%s:\ngot  %s\nwant %s", body, got, want)
		}
	}
}

func TestThreadKeepsTheFieldsOfItsFirstRequest(t *testing.T) {
	t.Parallel()
	turn := readTurn(t, `{"thread":{"type":"create"},"system":"s","tools":[{"name":"a"}],"messages":[]}`)
	if len(turn.Fields) != 2 || string(turn.Fields["system"]) != `"s"` || string(turn.Fields["tools"]) != `[{"name":"a"}]` {
		t.Errorf("got %v", turn.Fields)
	}
	for _, name := range []string{"system", "tools"} {
		_, err := messages.ReadTurn([]byte(`{"thread":{"type":"continue","previous_message_id":"msg_1"},"` + name + `":"s","messages":[]}`))
		if f, _ := fault.As(err); f == nil || f.Param != name {
			t.Errorf("%s in a later request: got %v", name, err)
		}
	}
}

// TestThreadHasAtMostFourCacheMarkers: each turn may set some, and Anthropic rejects more than four.
func TestThreadHasAtMostFourCacheMarkers(t *testing.T) {
	t.Parallel()
	const mark = `,"cache_control":{"type":"ephemeral"}`
	text := func(name string) string {
		return `{"role":"user","content":[{"type":"text","text":"` + name + `"` + mark + `}]}`
	}
	earlier := values(text("one"), `{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"x","input":{"cache_control":1.50}}]}`,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"two"`+mark+`}]`+mark+`}]}`, text("three"))
	fields := map[string]jsontext.Value{"system": jsontext.Value(`[{"type":"text","text":"s"` + mark + `}]`)}
	for own, want := range map[string][]string{
		`"four"`: {"three"},
		`[{"type":"text","text":"four"` + mark + `}]`:                                                         {"three", "four"},
		`[{"type":"text","text":"four"` + mark + `},{"type":"text"` + mark + `},{"type":"text"` + mark + `}]`: {"four"},
	} {
		turn := readTurn(t, `{"thread":{"type":"continue","previous_message_id":"msg_1"},"messages":[{"role":"user","content":`+own+`}]}`)
		got := string(turn.Resume(earlier, fields))
		if n := strings.Count(got, `"cache_control":{`); n > 4 {
			t.Errorf("%s: %d markers in %s", own, n, got)
		}
		for _, name := range want {
			if !strings.Contains(got, `"`+name+`","cache_control"`) && !strings.Contains(got, `"`+name+`"`+mark) {
				t.Errorf("%s: no marker of %s in %s", own, name, got)
			}
		}
		if !strings.Contains(got, `"input":{"cache_control":1.50}`) {
			t.Errorf("%s: the input of a tool changed in %s", own, got)
		}
	}
	if got := string(earlier[0]); got != text("one") {
		t.Errorf("the stored message changed: %s", got)
	}
}

func TestCollectedMessageIsTheStreamedOne(t *testing.T) {
	t.Parallel()
	const stop = `{"type":"message_stop"}`
	start := func(block string) string {
		return `{"type":"content_block_start","index":0,"content_block":` + block + `}`
	}
	delta := func(fields string) string {
		return `{"type":"content_block_delta","index":0,"delta":{"type":` + fields + `}}`
	}
	for name, c := range map[string]struct {
		events []string
		want   string // "" if it can't be used
	}{
		"text":        {[]string{start(`{"type":"text","text":"a"}`), delta(`"text_delta","text":"\u00e9"`), delta(`"text_delta","text":"c\n"`), stop}, `[{"text":"aéc\n","type":"text"}]`},
		"citations":   {[]string{start(`{"type":"text","text":"","citations":null}`), delta(`"citations_delta","citation":{"n":1.0}`), delta(`"citations_delta","citation":2`), stop}, `[{"citations":[{"n":1.0},2],"text":"","type":"text"}]`},
		"thinking":    {[]string{start(`{"type":"thinking","thinking":"","signature":""}`), delta(`"thinking_delta","thinking":"hm","estimated_tokens":3`), delta(`"signature_delta","signature":"Eq=="`), stop}, `[{"signature":"Eq==","thinking":"hm","type":"thinking"}]`},
		"tool":        {[]string{start(`{"type":"tool_use","id":"t","input":{}}`), delta(`"input_json_delta","partial_json":""`), delta(`"input_json_delta","partial_json":"{\"a\":1"`), delta(`"input_json_delta","partial_json":".50}"`), stop}, `[{"id":"t","input":{"a":1.50},"type":"tool_use"}]`},
		"no input":    {[]string{start(`{"type":"tool_use","id":"t","input":{}}`), stop}, `[{"id":"t","input":{},"type":"tool_use"}]`},
		"compaction":  {[]string{start(`{"type":"compaction","content":null}`), delta(`"compaction_delta","content":"c"`), stop}, `[{"content":"c","type":"compaction"}]`},
		"whole block": {[]string{start(`{"type":"web_search_tool_result","content":[{"n":1e3}]}`), `{"type":"new_event"}`, stop}, `[{"content":[{"n":1e3}],"type":"web_search_tool_result"}]`},
		"empty":       {[]string{stop}, `[]`},

		"not ended":     {[]string{start(`{"type":"text","text":"a"}`)}, ""},
		"cut input":     {[]string{start(`{"type":"tool_use","id":"t","input":{}}`), delta(`"input_json_delta","partial_json":"{\"a\":"`), stop}, ""},
		"unknown delta": {[]string{start(`{"type":"text","text":"a"}`), delta(`"image_delta","data":"x"`), stop}, ""},
		"no type":       {[]string{start(`{"type":"text","text":"a"}`), `{"type":"content_block_delta","index":0,"delta":{}}`, stop}, ""},
		"no block":      {[]string{delta(`"text_delta","text":"a"`), stop}, ""},
		"negative":      {[]string{`{"type":"content_block_delta","index":-1,"delta":{"type":"text_delta","text":"a"}}`, stop}, ""},
		"gap":           {[]string{`{"type":"content_block_start","index":1,"content_block":{"type":"text"}}`, stop}, ""},
		"null block":    {[]string{start("null"), delta(`"signature_delta","signature":"x"`), stop}, ""},
		"not JSON":      {[]string{start(`{"type":"text","text":"a"}`), "{", stop}, ""},
	} {
		var collector messages.Collector
		for _, e := range c.events {
			collector.Add([]byte(e))
		}
		want := ""
		if c.want != "" {
			want = `{"role":"assistant","content":` + c.want + `}`
		}
		if got := string(collector.Param()); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
