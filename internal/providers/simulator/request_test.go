package simulator

import (
	"strings"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

func TestInvalidRequestIsRejectedWithItsParameter(t *testing.T) {
	t.Parallel()
	messages := func(list string) string { return `{"messages":[` + list + `]}` }
	user := `{"role":"user","content":"hi"}`
	for _, test := range []struct {
		body  string
		code  fault.Code
		param string
	}{
		{``, fault.InvalidJSON, ""},
		{`{`, fault.InvalidJSON, ""},
		{`[]`, fault.InvalidJSON, ""},
		{`"x"`, fault.InvalidJSON, ""},
		{`{"messages":[]} x`, fault.InvalidJSON, ""},
		{"{\"messages\":\"\xff\"}", fault.InvalidJSON, ""},
		{`{"messages":[],"messages":[]}`, fault.InvalidJSON, "messages"},

		{`null`, fault.MissingParameter, "messages"},
		{`{}`, fault.MissingParameter, "messages"},
		{`{"messages":null}`, fault.MissingParameter, "messages"},
		{`{"messages":[]}`, fault.InvalidParameter, "messages"},
		{`{"messages":"hi"}`, fault.InvalidParameter, "messages"},
		{messages(`"hi"`), fault.InvalidParameter, "messages[0]"},
		{messages(`null`), fault.MissingParameter, "messages[0].role"},
		{messages(`{"content":"hi"}`), fault.MissingParameter, "messages[0].role"},
		{messages(user + `,{"role":"robot","content":"hi"}`), fault.InvalidParameter, "messages[1].role"},
		{messages(`{"role":1,"content":"hi"}`), fault.InvalidParameter, "messages[0].role"},
		{messages(`{"role":"user"}`), fault.MissingParameter, "messages[0].content"},
		{messages(`{"role":"user","content":null}`), fault.MissingParameter, "messages[0].content"},
		{messages(`{"role":"assistant","content":null,"refusal":null,"audio":null,"function_call":null,"tool_calls":[]}`), fault.MissingParameter, "messages[0].content"},
		{messages(`{"role":"assistant","content":null}`), fault.MissingParameter, "messages[0].content"},
		{messages(`{"role":"user","content":1}`), fault.InvalidParameter, "messages[0].content"},
		{messages(`{"role":"user","content":{"a":1}}`), fault.InvalidParameter, "messages[0].content"},
		{messages(`{"role":"user","content":[]}`), fault.InvalidParameter, "messages[0].content"},
		{messages(`{"role":"user","content":["hi"]}`), fault.InvalidParameter, "messages[0].content[0]"},
		{messages(`{"role":"user","content":[{"text":"hi"}]}`), fault.MissingParameter, "messages[0].content[0].type"},
		{messages(`{"role":"user","content":[{"type":"text"}]}`), fault.MissingParameter, "messages[0].content[0].text"},
		{messages(`{"role":"user","content":[{"type":"text","text":1}]}`), fault.InvalidParameter, "messages[0].content[0].text"},
		{messages(`{"role":"user","content":[{"type":"smell"}]}`), fault.InvalidParameter, "messages[0].content[0].type"},
		{messages(`{"role":"user","content":[{"type":"refusal","refusal":"no"}]}`), fault.InvalidParameter, "messages[0].content[0].type"},
		{messages(`{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://example.com"}}]}`), fault.InvalidParameter, "messages[0].content[0].type"},
		{messages(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}`), fault.MissingParameter, "messages[0].content[1].image_url"},
		{messages(`{"role":"user","content":[{"type":"image_url","image_url":"https://example.com"}]}`), fault.InvalidParameter, "messages[0].content[0].image_url"},
		{messages(`{"role":"user","content":[{"type":"image_url","image_url":{}}]}`), fault.MissingParameter, "messages[0].content[0].image_url.url"},
		{messages(`{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.com","detail":"huge"}}]}`), fault.InvalidParameter, "messages[0].content[0].image_url.detail"},
		{messages(`{"role":"user","content":[{"type":"input_audio"}]}`), fault.MissingParameter, "messages[0].content[0].input_audio"},
		{messages(`{"role":"user","content":[{"type":"input_audio","input_audio":{"format":"wav"}}]}`), fault.MissingParameter, "messages[0].content[0].input_audio.data"},
		{messages(`{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA","format":"mid"}}]}`), fault.InvalidParameter, "messages[0].content[0].input_audio.format"},
		{messages(`{"role":"user","content":[{"type":"file","file":{}}]}`), fault.MissingParameter, "messages[0].content[0].file"},
		{messages(`{"role":"assistant","content":[{"type":"refusal"}]}`), fault.MissingParameter, "messages[0].content[0].refusal"},
		{messages(`{"role":"function","content":"x"}`), fault.MissingParameter, "messages[0].name"},

		{messages(`{"role":"tool","content":"x"}`), fault.MissingParameter, "messages[0].tool_call_id"},
		{messages(`{"role":"tool","tool_call_id":"a","content":"x"}`), fault.InvalidParameter, "messages[0].tool_call_id"},
		{messages(`{"role":"user","content":"x","tool_calls":[{"id":"a","function":{"name":"f"}}]}`), fault.InvalidParameter, "messages[0].tool_calls"},
		{messages(`{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}`), fault.MissingParameter, "messages[0].tool_calls[0].id"},
		{messages(`{"role":"assistant","tool_calls":[{"id":"a","type":"magic"}]}`), fault.InvalidParameter, "messages[0].tool_calls[0].type"},
		{messages(`{"role":"assistant","tool_calls":[{"id":"a"}]}`), fault.MissingParameter, "messages[0].tool_calls[0].function"},
		{messages(`{"role":"assistant","tool_calls":[{"id":"a","function":{}}]}`), fault.MissingParameter, "messages[0].tool_calls[0].function.name"},
		{messages(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]}`), fault.InvalidParameter, "messages[0].tool_calls[0].function.arguments"},
		{messages(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}}]}`), fault.InvalidParameter, "messages[1]"},
		{messages(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}}]},` + user), fault.InvalidParameter, "messages[1]"},
		{messages(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"f"}}]},{"role":"tool","tool_call_id":"b","content":"x"},{"role":"tool","tool_call_id":"b","content":"x"}`), fault.InvalidParameter, "messages[2].tool_call_id"},

		{say("hi", `"n":0`), fault.InvalidParameter, "n"},
		{say("hi", `"n":9`), fault.InvalidParameter, "n"},
		{say("hi", `"n":1.5`), fault.InvalidParameter, "n"},
		{say("hi", `"n":"1"`), fault.InvalidParameter, "n"},
		{say("hi", `"max_tokens":0`), fault.InvalidParameter, "max_tokens"},
		{say("hi", `"max_completion_tokens":-1`), fault.InvalidParameter, "max_completion_tokens"},
		{say("hi", `"max_tokens":99999999999999999999`), fault.InvalidParameter, "max_tokens"},
		{say("hi", `"temperature":2.1`), fault.InvalidParameter, "temperature"},
		{say("hi", `"temperature":-0.1`), fault.InvalidParameter, "temperature"},
		{say("hi", `"temperature":"hot"`), fault.InvalidParameter, "temperature"},
		{say("hi", `"top_p":1.1`), fault.InvalidParameter, "top_p"},
		{say("hi", `"presence_penalty":3`), fault.InvalidParameter, "presence_penalty"},
		{say("hi", `"frequency_penalty":-3`), fault.InvalidParameter, "frequency_penalty"},
		{say("hi", `"logprobs":1`), fault.InvalidParameter, "logprobs"},
		{say("hi", `"top_logprobs":3`), fault.InvalidParameter, "top_logprobs"},
		{say("hi", `"logprobs":true,"top_logprobs":21`), fault.InvalidParameter, "top_logprobs"},
		{say("hi", `"stop":1`), fault.InvalidParameter, "stop"},
		{say("hi", `"stop":""`), fault.InvalidParameter, "stop"},
		{say("hi", `"stop":["a","b","c","d","e"]`), fault.InvalidParameter, "stop"},
		{say("hi", `"stop":["a",1]`), fault.InvalidParameter, "stop[1]"},
		{say("hi", `"stream_options":{"include_usage":true}`), fault.InvalidParameter, "stream_options"},
		{say("hi", `"modalities":["text","audio"]`), fault.InvalidParameter, "modalities[1]"},

		{say("hi", `"tools":{}`), fault.InvalidParameter, "tools"},
		{say("hi", `"tools":[{}]`), fault.MissingParameter, "tools[0].type"},
		{say("hi", `"tools":[{"type":"search"}]`), fault.InvalidParameter, "tools[0].type"},
		{say("hi", `"tools":[{"type":"function"}]`), fault.MissingParameter, "tools[0].function"},
		{say("hi", `"tools":[{"type":"function","function":{}}]`), fault.MissingParameter, "tools[0].function.name"},
		{say("hi", `"tools":[{"type":"function","function":{"name":"a b"}}]`), fault.InvalidParameter, "tools[0].function.name"},
		{say("hi", `"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}]`), fault.InvalidParameter, "tools[1].function.name"},
		{say("hi", `"tools":[{"type":"function","function":{"name":"a","parameters":[]}}]`), fault.InvalidParameter, "tools[0].function.parameters"},
		{say("hi", weatherTool, `"tool_choice":"always"`), fault.InvalidParameter, "tool_choice"},
		{say("hi", weatherTool, `"tool_choice":1`), fault.InvalidParameter, "tool_choice"},
		{say("hi", weatherTool, `"tool_choice":{"type":"function"}`), fault.InvalidParameter, "tool_choice"},
		{say("hi", weatherTool, `"tool_choice":{"type":"function","function":{"name":"nothing"}}`), fault.InvalidParameter, "tool_choice.function.name"},
		{say("hi", weatherTool, `"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"always","tools":[{"type":"function","function":{"name":"now"}}]}}`), fault.InvalidParameter, "tool_choice.allowed_tools.mode"},
		{say("hi", `"tool_choice":"required"`), fault.InvalidParameter, "tool_choice"},

		{say("hi", `"response_format":"json"`), fault.InvalidParameter, "response_format"},
		{say("hi", `"response_format":{}`), fault.MissingParameter, "response_format.type"},
		{say("hi", `"response_format":{"type":"xml"}`), fault.InvalidParameter, "response_format.type"},
		{say("hi", `"response_format":{"type":"json_schema"}`), fault.MissingParameter, "response_format.json_schema"},
		{say("hi", `"response_format":{"type":"json_schema","json_schema":{"schema":{}}}`), fault.MissingParameter, "response_format.json_schema.name"},
		{say("hi", `"response_format":{"type":"json_schema","json_schema":{"name":"a b","schema":{}}}`), fault.InvalidParameter, "response_format.json_schema.name"},
		{say("hi", `"response_format":{"type":"json_schema","json_schema":{"name":"x"}}`), fault.MissingParameter, "response_format.json_schema.schema"},
		{say("hi", `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":true}}`), fault.InvalidParameter, "response_format.json_schema.schema"},
	} {
		err := askFor(test.body)
		f, ok := fault.As(err)
		if !ok || f.Code != test.code || f.Param != test.param {
			t.Errorf("%s:\n got %v, param %q\nwant %s, param %q", test.body, err, param(f), test.code, test.param)
			continue
		}
		if f.Param != "" && !strings.Contains(f.Message, strings.Split(f.Param, ".")[0]) {
			t.Errorf("%s: the message %q does not name the parameter", test.body, f.Message)
		}
	}
}

func param(f *fault.Error) string {
	if f == nil {
		return ""
	}
	return f.Param
}

func TestValidRequestIsAccepted(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		say("hi", `"unknown":{"deep":[1]},"seed":1,"user":"u","store":false,"metadata":{"a":"b"},"logit_bias":{"50256":-100}`),
		say("hi", `"n":null,"max_tokens":null,"temperature":null,"stop":null,"tools":null,"tool_choice":null,"response_format":null,"stream_options":null`),
		say("hi", `"temperature":2,"top_p":0,"presence_penalty":-2,"tools":[],"tool_choice":"none","response_format":{"type":"text"},"modalities":["text"]`),
		`{"messages":[{"role":"developer","content":"a"},{"role":"user","content":[{"type":"text","text":""}]},{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},{"role":"assistant","content":null,"refusal":"no"},{"role":"assistant","content":""}]}`,
		`{"messages":[{"role":"assistant","content":"","audio":{"id":"a"}},{"role":"assistant","audio":{"id":"a"}}]}`,
	} {
		if err := askFor(body); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	_, err := newSimulator().Chat(t.Context(), &providers.ChatRequest{Stream: true, Body: []byte(say("hi", `"stream_options":{"include_usage":true,"include_obfuscation":false}`))})
	if err != nil {
		t.Error(err)
	}
}
