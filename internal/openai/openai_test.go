package openai_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
	"turnpike/test/fakes/jsonbodytest"
)

func TestChatRequestSurvivesDecodingAndEncoding(t *testing.T) {
	t.Parallel()
	const body = `{"model":"m","messages":[` +
		`{"role":"system","content":"Be brief."},` +
		`{"role":"user","content":[{"type":"text","text":"Hi","cache_control":{"type":"ephemeral"}},{"type":"image_url","image_url":{"url":"https://x","detail":"low"}},{"type":"file","file":{"file_data":"d","filename":"f"}},{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}},{"type":"text","text":"","new":1}]},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{}}}]},` +
		`{"role":"tool","content":"","tool_call_id":"c"}],` +
		`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{},"strict":true}}],` +
		`"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,"n":1,"max_tokens":1,"max_completion_tokens":2,` +
		`"temperature":0,"top_p":1,"presence_penalty":-1,"frequency_penalty":1,"seed":7,"stop":["a"],"logprobs":true,"top_logprobs":0,` +
		`"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{}}},"verbosity":"low","reasoning_effort":"low","user":"u",` +
		`"safety_identifier":"s","prompt_cache_key":"k","service_tier":"auto","modalities":["text"],"functions":[],"web_search_options":{},` +
		`"stream":true,"stream_options":{"include_usage":true},"logit_bias":{"1":2}}`
	r, err := openai.Decode([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(r)
	if err != nil || string(got) != body {
		t.Errorf("%v\n got %s\nwant %s", err, got, body)
	}
}

func TestStringOrKeepsTheKindOfOtherValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`"a"`: `"a"`, `["a","b"]`: `["a","b"]`, `null`: `null`, `1`: `null`, `{"a":[1]}`: `null`} {
		var v openai.StringOr[[]string]
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Error(err)
		}
		got, err := json.Marshal(v)
		if string(got) != want || err != nil || byte(v.Kind) != text[0] && text != "1" {
			t.Errorf("%s: got %s of kind %v (%v), want %s", text, got, v.Kind, err, want)
		}
	}
}

func TestToolChoice(t *testing.T) {
	t.Parallel()
	const tools = `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`
	for fields, want := range map[string]struct {
		mode, function, allowed string
		param                   string // of the error
	}{
		tools:                               {mode: "auto"},
		tools + `,"tool_choice":null`:       {mode: "auto"},
		tools + `,"tool_choice":"none"`:     {mode: "none"},
		`"tool_choice":"none"`:              {mode: "none"},
		tools + `,"tool_choice":"required"`: {mode: "required"},
		tools + `,"tool_choice":{"type":"function","function":{"name":"g"}}`:                                                                    {mode: "required", function: "g"},
		tools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}}`: {mode: "auto", allowed: "f"},

		tools + `,"tool_choice":"always"`:                                                              {param: "tool_choice"},
		tools + `,"tool_choice":[]`:                                                                    {param: "tool_choice"},
		tools + `,"tool_choice":{"type":"function"}`:                                                   {param: "tool_choice"},
		tools + `,"tool_choice":{"type":"function","function":{"name":"x"}}`:                           {param: "tool_choice.function.name"},
		tools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"none","tools":[]}}`:   {param: "tool_choice.allowed_tools.mode"},
		tools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{}]}}`: {param: "tool_choice.allowed_tools.tools[0].function"},
		tools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto"}}`:              {param: "tool_choice"},
		`"tool_choice":"required"`:                                                                     {param: "tool_choice"},
	} {
		r, err := openai.Decode([]byte(`{"messages":[],` + fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.ReadToolChoice()
		if f, ok := fault.As(err); ok != (want.param != "") || ok && f.Param != want.param {
			t.Errorf("%s: got %v, want an error for %q", fields, err, want.param)
		} else if !ok && (got.Mode != want.mode || got.Function != want.function || strings.Join(got.Allowed, " ") != want.allowed) {
			t.Errorf("%s: got %+v, want %+v", fields, got, want)
		}
	}
}

func TestRouting(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]openai.Routing{
		`{"model":"m"}`: {Model: "m", Choices: 1},
		`{"model":"m","stream":true,"stream_options":{"include_usage":true},"n":3,"max_tokens":5,"max_completion_tokens":6}`: {Model: "m", Stream: true, IncludeUsage: true, Choices: 3, MaxOutput: 6},
		`{"tools":[ ],"functions":[{}],"response_format":{"type":"json_schema"},"service_tier":"Priority"}`:                  {Choices: 1, HasTools: true, HasSchema: true, PriorityService: true},
		`{"stream":null,"stream_options":null,"n":null,"tools":null,"response_format":null,"service_tier":5}`:                {Choices: 1},
	} {
		got, err := openai.ReadRouting([]byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
		} else if got.Models = nil; !equal(*got, want) {
			t.Errorf("%s: got %+v, want %+v", body, *got, want)
		}
	}
	for body, param := range map[string]string{
		`{"n":0}`: "n", `{"n":129}`: "n", `{"max_tokens":0}`: "max_tokens", `{"max_completion_tokens":-1}`: "max_completion_tokens",
		`{"tools":{}}`: "tools", `{"functions":1}`: "functions", `{"Model":"m"}`: "Model", `{"messages":[{"Role":"user"}]}`: "messages[0].Role",
	} {
		if f, ok := fault.As(second(openai.ReadRouting([]byte(body)))); !ok || f.Param != param {
			t.Errorf("%s: got %v, want an error for %s", body, f, param)
		}
	}
}

func equal(a, b openai.Routing) bool {
	a.Models, b.Models = nil, nil
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func second[T any](_ T, err error) error { return err }

func TestFieldsThatAreReadAreRegistered(t *testing.T) {
	t.Parallel()
	jsonbodytest.WantRegistered[openai.ChatRequest](t, openai.ChatNames)
	jsonbodytest.WantRegistered[openai.ChoiceObject](t, openai.ChatNames["tool_choice"])
	for _, name := range []string{"models", "n_predict", "service_tier", "stream_options"} {
		if _, ok := openai.ChatNames[name]; !ok {
			t.Errorf("%s isn't registered", name)
		}
	}
}
