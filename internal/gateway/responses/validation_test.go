package responses_test

import (
	"errors"
	"strings"
	"testing"

	"turnpike/internal/fault"
)

func TestInvalidRequestErrorNamesTheField(t *testing.T) {
	t.Parallel()
	const (
		invalid = fault.InvalidParameter
		missing = fault.MissingParameter
		unknown = fault.UnknownParameter
	)
	item := func(item string) string { return `{"model":"m","input":[` + item + `]}` }
	user := func(part string) string { return item(`{"role":"user","content":[` + part + `]}`) }
	with := func(fields string) string { return `{"model":"m","input":"hi",` + fields + `}` }
	tool := `"tools":[{"type":"function","name":"f"}],`
	call := `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`
	for _, c := range []struct {
		body    string
		code    fault.Code
		param   string
		message string
	}{
		{`[]`, fault.InvalidJSON, "", "JSON object"},
		{`{"model":1,"input":"hi"}`, invalid, "model", "a string"},
		{`{"model":"m"}`, missing, "input", "a string or an array"},
		{`{"model":"m","input":null}`, missing, "input", "a string or an array"},
		{`{"model":"m","input":5}`, invalid, "input", "a string or an array"},
		{`{"model":"m","input":[]}`, invalid, "input", "at least one message"},
		{item(`{"type":"reasoning","id":"rs_1","summary":[]}`), invalid, "input", "at least one message"},
		{item(`5`), invalid, "input[0]", "an object"},
		{item(`{}`), missing, "input[0].type", "function_call_output"},
		{item(`{"type":"message","content":"hi"}`), missing, "input[0].role", "assistant"},
		{item(`{"role":"tool","content":"hi"}`), invalid, "input[0].role", "assistant"},
		{item(`{"role":"user"}`), missing, "input[0].content", "a string or an array"},
		{item(`{"role":"user","content":{}}`), invalid, "input[0].content", "a string or an array"},
		{item(`{"role":"user","content":[]}`), invalid, "input[0].content", "at least one part"},
		{item(`{"role":"user","content":[{"type":"input_text","text":5}]}`), invalid, "input[0].content[0].text", "a string"},
		{item(`{"type":"item_reference","id":"msg_1"}`), invalid, "input[0]", "store: false"},
		{item(`{"id":"msg_1"}`), invalid, "input[0]", "store: false"},
		{item(`{"type":"file_search_call","id":"fs_1","status":"completed"}`), invalid, "input[0].type", "file_search_call"},
		{item(`{"type":"web_search_call","id":"ws_1","status":"completed"}`), invalid, "input", "at least one message"},
		{item(`{"type":"custom_tool_call","call_id":"c","name":"f"}`), missing, "input[0].input", "a string"},
		{item(`{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"}`), invalid, "input[0].call_id", "no output"},
		{item(`{"type":"additional_tools","tools":[{"type":"mcp"}]}`), invalid, "input[0].tools[0].type", "mcp"},
		{item(`{"type":"additional_tools","tools":[]}`), invalid, "input", "at least one message"},
		{item(`{"type":"tool_search_output","execution":"client","call_id":"c","tools":[]}`), invalid, "input[0].call_id", "no function_call before it"},
		{user(`{}`), missing, "input[0].content[0].type", "input_text"},
		{user(`{"type":"text","text":"hi"}`), invalid, "input[0].content[0].type", "input_text"},
		{user(`{"type":"input_video"}`), invalid, "input[0].content[0].type", "input_video"},
		{user(`{"type":"input_text"}`), missing, "input[0].content[0].text", "a string"},
		{user(`{"type":"refusal","refusal":"no"}`), invalid, "input[0].content[0].type", "assistant"},
		{user(`{"type":"input_image"}`), missing, "input[0].content[0].image_url", "data URL"},
		{user(`{"type":"input_image","image_url":{"url":"https://example.com"}}`), invalid, "input[0].content[0].image_url", "a string"},
		{user(`{"type":"input_image","file_id":"file_1"}`), invalid, "input[0].content[0].file_id", "image_url"},
		{user(`{"type":"input_file","file_id":"file_1"}`), invalid, "input[0].content[0].file_id", "file_data"},
		{user(`{"type":"input_file","file_url":"https://example.com/a.pdf"}`), invalid, "input[0].content[0].file_url", "file_data"},
		{user(`{"type":"input_file","filename":"a.pdf"}`), missing, "input[0].content[0].file_data", "data URL"},
		{user(`{"type":"input_audio"}`), missing, "input[0].content[0].input_audio", "format"},
		{item(`{"role":"assistant","content":[{"type":"refusal"}]}`), missing, "input[0].content[0].refusal", "a string"},
		{item(`{"role":"system","content":[{"type":"input_image","image_url":"https://example.com"}]}`), invalid, "input[0].content[0].type", "message of the user"},
		{item(`{"type":"function_call","name":"f","arguments":"{}"}`), missing, "input[0].call_id", "required"},
		{item(`{"type":"function_call","call_id":"c","arguments":"{}"}`), missing, "input[0].name", "function"},
		{item(`{"type":"function_call","call_id":"c","name":"f"}`), missing, "input[0].arguments", "JSON object"},
		{item(call), invalid, "input[0].call_id", "no output"},
		{item(call + `,` + call + `,{"type":"function_call_output","call_id":"c","output":"x"}`), invalid, "input[0].call_id", "no output"},
		{item(`{"type":"function_call_output","call_id":"c","output":"x"}`), invalid, "input[0].call_id", "no function_call before it"},
		{item(call + `,{"type":"function_call_output","output":"x"}`), missing, "input[1].call_id", "function_call"},
		{item(call + `,{"type":"function_call_output","call_id":"c"}`), missing, "input[1].output", "a string or an array"},
		{item(call + `,{"type":"function_call_output","call_id":"c","output":[{"type":"refusal","refusal":"no"}]}`), invalid, "input[1].output[0].type", "assistant"},
		{with(`"instructions":["x"]`), invalid, "instructions", "a string"},
		{with(`"conversation":{}`), invalid, "conversation", "an ID"},
		{with(`"previous_response_id":"resp_1","conversation":"conv_1"`), invalid, "conversation", "exclude each other"},
		{with(`"prompt":{"id":"pmpt_1"}`), invalid, "prompt", "not stored"},
		{with(`"context_management":[{"type":"compaction"}]`), invalid, "context_management", "not supported"},
		{with(`"background":true,"store":false`), invalid, "store", "must be stored"},
		{with(`"n":2`), invalid, "n", "repeat the request"},
		{with(`"audio":{"voice":"alloy"}`), invalid, "audio", "chat"},
		{with(`"messages":[]`), unknown, "messages", "input"},
		{with(`"response_format":{"type":"text"}`), unknown, "response_format", "text.format"},
		{with(`"max_tokens":5`), unknown, "max_tokens", "max_output_tokens"},
		{with(`"max_completion_tokens":5`), unknown, "max_completion_tokens", "max_output_tokens"},
		{with(`"reasoning_effort":"low"`), unknown, "reasoning_effort", "reasoning.effort"},
		{with(`"verbosity":"low"`), unknown, "verbosity", "text.verbosity"},
		{with(`"logprobs":true`), unknown, "logprobs", "include"},
		{with(`"functions":[]`), unknown, "functions", "tools"},
		{with(`"function_call":"auto"`), unknown, "function_call", "tool_choice"},
		{with(`"max_output_tokens":0`), invalid, "max_output_tokens", "at least 1"},
		{with(`"max_output_tokens":1.5`), invalid, "max_output_tokens", "whole number"},
		{with(`"temperature":"hot"`), invalid, "temperature", "a number"},
		{with(`"metadata":"x"`), invalid, "metadata", "an object"},
		{with(`"truncation":"middle"`), invalid, "truncation", "disabled or auto"},
		{with(`"include":["message.output_text.logprobs","everything"]`), invalid, "include[1]", "everything"},
		{with(`"top_logprobs":21`), invalid, "top_logprobs", "0 to 20"},
		{with(`"reasoning":{"effort":1}`), invalid, "reasoning.effort", "a string"},
		{with(`"stream":"yes"`), invalid, "stream", "true or false"},
		{with(`"text":{"format":{}}`), missing, "text.format.type", "json_schema"},
		{with(`"text":{"format":{"type":"xml"}}`), invalid, "text.format.type", "json_schema"},
		{with(`"text":{"format":{"type":"json_schema","schema":{}}}`), missing, "text.format.name", "name"},
		{with(`"text":{"format":{"type":"json_schema","name":"x"}}`), missing, "text.format.schema", "JSON Schema"},
		{with(`"tools":[{}]`), missing, "tools[0].type", "function"},
		{with(`"tools":[{"type":"function","name":"f"},{"type":"local_shell"}]`), invalid, "tools[1].type", "local_shell"},
		{with(`"tools":[{"type":"namespace","tools":[]}]`), missing, "tools[0].name", "required"},
		{with(`"tools":[{"type":"namespace","name":"n","tools":[{"type":"function"}]}]`), missing, "tools[0].tools[0].name", "required"},
		{with(`"tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp"}]}]`), invalid, "tools[0].tools[0].type", "mcp"},
		{with(`"tools":[{"type":"file_search"}]`), invalid, "tools[0].type", "file_search"},
		{with(`"tools":[{"type":"computer_use_preview"}]`), invalid, "tools[0].type", "computer"},
		{with(`"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`), invalid, "tools[0].type", "code_interpreter"},
		{with(`"tools":[{"type":"mcp","server_label":"x"}]`), invalid, "tools[0].type", "mcp"},
		{with(`"tools":[{"type":"custom"}]`), missing, "tools[0].name", "required"},
		{with(`"tools":[{"type":"web_search"}],"tool_choice":"required"`), invalid, "tool_choice", "needs tools"},
		{with(`"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}`), invalid, "tool_choice.type", "no other tools"},
		{with(`"tools":[{"type":"function"}]`), missing, "tools[0].name", "required"},
		{with(`"tools":[{"type":"function","function":{"name":"f"}}]`), missing, "tools[0].name", "next to type"},
		{with(`"tools":[{"type":"function","name":"f","parameters":[]}]`), invalid, "tools[0].parameters", "JSON Schema"},
		{with(`"tool_choice":"required"`), invalid, "tool_choice", "needs tools"},
		{with(tool + `"tool_choice":"maybe"`), invalid, "tool_choice", "required"},
		{with(tool + `"tool_choice":5`), invalid, "tool_choice", "required"},
		{with(tool + `"tool_choice":{}`), missing, "tool_choice.type", "function"},
		{with(tool + `"tool_choice":{"type":"web_search"}`), invalid, "tool_choice.type", "function"},
		{with(tool + `"tool_choice":{"type":"function"}`), missing, "tool_choice.name", "function"},
		{with(tool + `"tool_choice":{"type":"allowed_tools","tools":[{"type":"function","name":"f"}]}`), invalid, "tool_choice.mode", "required"},
		{with(tool + `"tool_choice":{"type":"allowed_tools","mode":"auto"}`), missing, "tool_choice.tools", "at least one"},
		{with(tool + `"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp"}]}`), invalid, "tool_choice.tools[0].type", "function"},
		{with(tool + `"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function"}]}`), missing, "tool_choice.tools[0].name", "name"},
	} {
		_, err := readAndTranslate([]byte(c.body))
		f, ok := fault.As(err)
		if !ok || f.Code != c.code || f.Param != c.param || !strings.Contains(f.Message, c.message) || !strings.Contains(f.Message, c.param) {
			t.Errorf("%s: got %v (%+v), want %s about %q", c.body, err, f, c.code, c.param)
		}
	}
}

func TestProviderErrorsNameTheRequestsFields(t *testing.T) {
	t.Parallel()
	r := toChat(t, `{"model":"m","instructions":"x","input":[
		{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"x"}]},
		{"type":"reasoning","summary":[]},
		{"role":"assistant","content":"b"},
		{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
		{"type":"function_call","call_id":"d","name":"f","arguments":"{}"},
		{"type":"function_call_output","call_id":"c","output":"x"},
		{"type":"function_call_output","call_id":"d","output":"x"}]}`)
	for chat, want := range map[string]string{
		"messages":                                         "input",
		"messages[0].content":                              "instructions",
		"messages[1]":                                      "input[0]",
		"messages[1].content[1].image_url.url":             "input[0].content[1].image_url",
		"messages[1].content[1].image_url.detail":          "input[0].content[1].detail",
		"messages[1].content[1].file.file_data":            "input[0].content[1].file_data",
		"messages[2].content":                              "input[2].content",
		"messages[2].tool_calls[1].function.name":          "input[4].name",
		"messages[2].tool_calls[0].id":                     "input[3].call_id",
		"messages[2].tool_calls[0].function":               "input[3]",
		"messages[4].tool_call_id":                         "input[6].call_id",
		"messages[4].content":                              "input[6].output",
		"messages[9]":                                      "input",
		"max_completion_tokens":                            "max_output_tokens",
		"reasoning_effort":                                 "reasoning.effort",
		"response_format.json_schema.schema":               "text.format.schema",
		"response_format.type":                             "text.format.type",
		"tools[0].function.parameters":                     "tools[0].parameters",
		"tools":                                            "tools",
		"tool_choice.function.name":                        "tool_choice.name",
		"tool_choice.allowed_tools.tools[0]":               "tool_choice.tools[0]",
		"tool_choice.allowed_tools.tools[0].function.name": "tool_choice.tools[0].name",
		"model": "model",
		"":      "",
	} {
		f, _ := fault.As(r.TranslateFault(fault.Invalid(chat, "%s is wrong", chat)))
		if f.Param != want || f.Message != want+" is wrong" {
			t.Errorf("%s: %q, %q", chat, f.Param, f.Message)
		}
	}
	if other := errors.New("other"); r.TranslateFault(other) != other {
		t.Error("another error was changed")
	}
}

func TestInvalidCompletionIsAnUpstreamError(t *testing.T) {
	t.Parallel()
	r := toChat(t, `{"model":"m","input":"hi"}`)
	for _, chat := range []string{``, `[]`, `{}`, `{"choices":[]}`, `{"choices":[{"index":1}]}`, `{"choices":"x"}`} {
		if _, err := r.ToResponse([]byte(chat)); !fault.Is(err, fault.Upstream) {
			t.Errorf("%s: %v", chat, err)
		}
	}
	if _, err := r.NewStream().Push([]byte(`{"choices":`)); !fault.Is(err, fault.Upstream) {
		t.Error(err)
	}
}
