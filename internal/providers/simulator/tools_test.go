package simulator

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/providers/simulator/o200k"
)

func names(c completion) string {
	var list []string
	for _, call := range c.Choices[0].Message.ToolCalls {
		list = append(list, call.Function.Name)
	}
	return strings.Join(list, " ")
}

func TestToolChoiceAndMagicDecideWhichToolsAreCalled(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, choice, want string }{
		{"Hi", `"auto"`, ""},
		{"Hi", `null`, ""},
		{"Hi", `"required"`, "weather"},
		{"Hi", `{"type":"function","function":{"name":"now"}}`, "now"},
		{"Hi", `{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"now"}}]}}`, "now"},
		{"Hi", `{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"now"}}]}}`, ""},
		{"[[sim:tool=now]]", `"auto"`, "now"},
		{"[[sim:tool=now]]", `"required"`, "now"},
		{"[[sim:tool=now]] and [[sim:tool=weather]]", `"auto"`, "now weather"},
		{"[[sim:tool=now]]", `"none"`, ""},
	} {
		c := ask(t, say(test.text, weatherTool, `"tool_choice":`+test.choice))
		if got := names(c); got != test.want {
			t.Errorf("%s with %s: called %q, want %q", test.text, test.choice, got, test.want)
		}
		finish := "stop"
		if test.want != "" {
			finish = "tool_calls"
			if c.Choices[0].Message.Content != nil {
				t.Errorf("%s: content %q beside calls", test.text, *c.Choices[0].Message.Content)
			}
		}
		if got := *c.Choices[0].FinishReason; got != finish {
			t.Errorf("%s with %s: finish_reason %s", test.text, test.choice, got)
		}
	}
}

func TestParallelToolCallsFalseLeavesOneCall(t *testing.T) {
	t.Parallel()
	c := ask(t, say("[[sim:tool=now]] [[sim:tool=weather]]", weatherTool, `"parallel_tool_calls":false`))
	if got := names(c); got != "now" {
		t.Errorf("called %q", got)
	}
}

func TestArgumentsFollowTheToolsSchema(t *testing.T) {
	t.Parallel()
	c := ask(t, say("[[sim:tool=weather]] [[sim:tool=now]]", weatherTool, `"n":2`))
	ids := map[string]bool{}
	for _, choice := range c.Choices {
		for _, call := range choice.Message.ToolCalls {
			if !strings.HasPrefix(call.ID, "call_") || ids[call.ID] {
				t.Errorf("id %q is malformed or used twice", call.ID)
			}
			ids[call.ID] = true
		}
	}
	calls := c.Choices[0].Message.ToolCalls
	if got := calls[0].Function.Arguments; got != `{"city":"simulated city","days":1}` {
		t.Errorf("arguments %s", got)
	}
	if got := calls[1].Function.Arguments; got != `{}` {
		t.Errorf("arguments of a tool without parameters %s", got)
	}
	want := 2 * (3 + o200k.Count("weather") + o200k.Count(calls[0].Function.Arguments) + 3 + o200k.Count("now") + o200k.Count("{}"))
	if c.Usage.CompletionTokens != int64(want) {
		t.Errorf("%d completion tokens, want %d", c.Usage.CompletionTokens, want)
	}
}

func TestMaxTokensTruncatesToolCalls(t *testing.T) {
	t.Parallel()
	whole := ask(t, say("[[sim:tool=weather]] [[sim:tool=now]]", weatherTool)).Usage.CompletionTokens
	for limit := int64(1); limit <= whole; limit++ {
		c := ask(t, say("[[sim:tool=weather]] [[sim:tool=now]]", weatherTool, fmt.Sprintf(`"max_tokens":%d`, limit)))
		finish := "length"
		if limit == whole {
			finish = "tool_calls"
		}
		if c.Usage.CompletionTokens != limit || *c.Choices[0].FinishReason != finish {
			t.Errorf("limit %d: %d tokens, %s", limit, c.Usage.CompletionTokens, *c.Choices[0].FinishReason)
		}
	}
}

// An agent that sends the whole conversation with every request must end, for
// every user message and every tool_choice.
func TestToolLoopEnds(t *testing.T) {
	t.Parallel()
	for _, choice := range []string{`"auto"`, `"required"`, `{"type":"function","function":{"name":"now"}}`} {
		messages := []any{map[string]any{"role": "user", "content": "[[sim:tool=weather]] [[sim:tool=now]] [[sim:delay=0s]] please"}}
		rounds := 0
		for ; rounds < 5; rounds++ {
			list, err := json.Marshal(messages)
			if err != nil {
				t.Fatal(err)
			}
			c := ask(t, fmt.Sprintf(`{"messages":%s,%s,"tool_choice":%s}`, list, weatherTool, choice))
			message := c.Choices[0].Message
			if len(message.ToolCalls) == 0 {
				const want = "This is a simulated answer from the tool results: weather returned sunny at weather; now returned sunny at now."
				if got := *message.Content; got != want || *c.Choices[0].FinishReason != "stop" {
					t.Errorf("the end is %q", got)
				}
				break
			}
			messages = append(messages, map[string]any{"role": "assistant", "content": nil, "tool_calls": message.ToolCalls})
			for _, call := range message.ToolCalls {
				messages = append(messages, map[string]any{"role": "tool", "tool_call_id": call.ID, "content": "sunny at\n" + call.Function.Name})
			}
		}
		if rounds != 1 {
			t.Errorf("tool_choice %s: %d rounds of tools, want 1", choice, rounds)
		}
	}
}

func TestResponseToToolResultsHasRequestedFormat(t *testing.T) {
	t.Parallel()
	c := ask(t, `{"messages":[{"role":"user","content":"[[sim:tool=now]]"},{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"now","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"noon"}]}],`+
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"hour":{"type":"integer"}},"required":["hour"]}}}}`)
	if got := *c.Choices[0].Message.Content; got != `{"hour":1}` {
		t.Errorf("content %s", got)
	}
}

func TestMagicCountsOnlyInTheLastUserMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ messages, want string }{
		"an older message":           {`{"role":"user","content":"[[sim:text=old]]"},{"role":"assistant","content":"old"},{"role":"user","content":"new"}`, "This is a simulated answer to: new"},
		"instructions may follow":    {`{"role":"user","content":"[[sim:text=yes]]"},{"role":"developer","content":"Be kind."}`, "yes"},
		"instructions have no magic": {`{"role":"system","content":"[[sim:text=no]] [[sim:nonsense]]"},{"role":"user","content":"hi"}`, "This is a simulated answer to: hi"},
		"the assistant spoke last":   {`{"role":"user","content":"[[sim:text=no]]"},{"role":"assistant","content":"So"}`, "This is a simulated answer."},
		"nobody asked":               {`{"role":"system","content":"Hi"}`, "This is a simulated answer."},
		"in parts":                   {`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://example.com"}},{"type":"text","text":"[[sim:text=yes]]"}]}`, "yes"},
		"parts are quoted together":  {`{"role":"user","content":[{"type":"text","text":" "},{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "This is a simulated answer to: a b"},
		"a function of old":          {`{"role":"user","content":"hi"},{"role":"assistant","content":null,"function_call":{"name":"now","arguments":"{}"}},{"role":"function","name":"now","content":"noon"}`, "This is a simulated answer from the tool results: now returned noon."},
	} {
		c := ask(t, `{"messages":[`+test.messages+`]}`)
		if got := *c.Choices[0].Message.Content; got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestUnknownToolIsRejected(t *testing.T) {
	t.Parallel()
	err := askFor(say("[[sim:tool=nothing]]", weatherTool))
	if f, ok := fault.As(err); !ok || f.Code != fault.InvalidParameter || f.Param != "messages" || !strings.Contains(f.Message, "nothing") {
		t.Errorf("got %v", err)
	}
	err = askFor(say("[[sim:tool=x]]", `"tools":[{"type":"function","function":{"name":"x","parameters":{"$ref":"#/nowhere"}}}]`))
	if f, ok := fault.As(err); !ok || f.Param != "tools[0].function.parameters" {
		t.Errorf("a tool with a broken schema gave %v", err)
	}
}
