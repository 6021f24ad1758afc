package api_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"turnpike/internal/events"
)

func TestLongResultIsTruncatedInItsEvent(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		long := strings.Repeat("é\u0001", events.MaxBody/4)
		path := l.startRun(t, runBody(l.model.addScript("long", reply{text: long}), nil))
		if r := l.waitForEnd(t, path, "completed"); r.Text("result.output_text") != long {
			t.Errorf("the result has %d bytes of %d", len(r.Text("result.output_text")), len(long))
		}
		l.checkCost(t, path, oneAnswer)
		told := l.eventsOf(t, idOf(path))
		if len(told) != 1 || told[0]["type"] != "agent.run.completed" {
			t.Fatalf("got %d events", len(told))
		}
		text := told[0]["data"].(map[string]any)["result"].(map[string]any)["output_text"].(string)
		words, cut := strings.CutSuffix(text, "… [cut: the run itself has all of it]")
		if !cut || !strings.HasPrefix(long, words) || len(words) < 64<<10 {
			t.Errorf("the event has %d bytes of it", len(text))
		}

		// Any kind of output can be too long.
		arguments := `{"q":"` + strings.Repeat("x", events.MaxBody/2) + `"}`
		asking := l.startRun(t, runBody(l.model.addScript("asks", calls(toolCall{"pay", arguments}, toolCall{"pay", arguments}, toolCall{"pay", ok})), []any{approved("pay", l.model.URL)}))
		if wanted := l.waitForAction(t, asking, "awaiting_approval"); len(wanted) != 3 || wanted[0]["arguments"] != arguments {
			t.Errorf("it waits for %d decisions", len(wanted))
		}
		told = l.eventsOf(t, idOf(asking))
		if len(told) != 1 || told[0]["type"] != "agent.run.awaiting_approval" {
			t.Fatalf("got %d events", len(told))
		}
		if list := told[0]["data"].(map[string]any)["required_actions"].([]any); len(list) != 3 || list[2].(map[string]any)["arguments"] != ok {
			t.Errorf("the event has %d calls", len(list))
		}
	})
}

func TestInvalidUTF8OfAModelIsReplaced(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		tool := newTool(t, l, "found")
		body, err := json.Marshal(map[string]any{"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mind", "choices": []any{map[string]any{"index": 0,
			"message": map[string]any{"role": "assistant", "content": "B@D", "tool_calls": []any{map[string]any{"id": "call_1", "type": "function", "extra": "B@D",
				"function": map[string]any{"name": "search", "arguments": `{"q":"B@D"}`}}}}, "finish_reason": "tool_calls"}},
			"usage": map[string]any{"prompt_tokens": tokensIn, "completion_tokens": tokensOut}})
		if err != nil {
			t.Fatal(err)
		}
		bad := string(bytes.ReplaceAll(body, []byte("@"), []byte{0xff}))
		path := l.startRun(t, runBody(l.model.addScript("bytes", reply{body: bad}, reply{text: "Done."}), []any{webTool("search", tool.URL)}))
		l.waitForEnd(t, path, "completed")
		if c := called(l.steps(t, path)[0])[0]; c["arguments"] != "{\"q\":\"B\uFFFDD\"}" || c["output"] != "found" {
			t.Errorf("the call is %v", c)
		}
		l.checkCost(t, path, 2*oneAnswer)
	})
}

func TestInvalidToolCallsAreSanitizedInTheConversation(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		input := l.model.addScript("odd", calls(toolCall{"functions.search", ok}, toolCall{"", "{}"}, toolCall{strings.Repeat("n", 100), "{}"},
			toolCall{"search", `{"q":`}, toolCall{"search", ""}, toolCall{"search", ok + "}"}, toolCall{"search", ok}), reply{text: "Done."})
		tool := newTool(t, l, "found")
		path := l.startRun(t, runBody(input, []any{webTool("search", tool.URL)}))
		l.waitForEnd(t, path, "completed")
		if tool.count() != 1 {
			t.Errorf("got %d calls", tool.count())
		}
		if c := called(l.steps(t, path)[0]); c[0]["tool"] != "functions.search" || c[3]["arguments"] != `{"q":` {
			t.Errorf("the step does not say what the model said: %v", c)
		}
		want := [][2]string{{"functions_search", ok}, {"no_name", "{}"}, {strings.Repeat("n", 64), "{}"},
			{"search", `{"not_an_object":"{\"q\":"}`}, {"search", "{}"}, {"search", `{"not_an_object":"{\"q\":\"x\"}}"}`}, {"search", ok}}
		sent := l.model.requests("odd")[1].messages[1]["tool_calls"].([]any)
		for i, w := range want {
			f := sent[i].(map[string]any)["function"].(map[string]any)
			if f["name"] != w[0] || f["arguments"] != w[1] {
				t.Errorf("call %d is sent as %v", i, f)
			}
		}
	})
}

func TestConversationLongerThanTheContextFailsTheRun(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		input := l.model.addScript("grown", reply{text: "So far.", calls: []toolCall{{"search", ok}}}, reply{status: 400, message: "This model's maximum context length is 10 tokens."})
		path := l.startRun(t, runBody(input, []any{webTool("search", newTool(t, l, "found").URL)}))
		r := l.waitForFailure(t, path, "context_length_exceeded")
		if r.Text("partial_result") != "So far." || !strings.Contains(r.Text("error.message"), "context_window") || len(l.model.requests("grown")) != 2 {
			t.Errorf("got %s", r.Body)
		}
		l.checkCost(t, path, oneAnswer)
	})
}

func TestTruncatedResultIsMarked(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		path := l.startRun(t, runBody(l.model.addScript("cut", reply{text: "And so", cut: true}), nil))
		if r := l.waitForEnd(t, path, "completed"); r.At("result.truncated") != true || r.Text("result.output_text") != "And so" {
			t.Errorf("got %s", r.Body)
		}
		told := l.eventsOf(t, idOf(path))
		if len(told) != 1 || told[0]["data"].(map[string]any)["result"].(map[string]any)["truncated"] != true {
			t.Errorf("its event is %v", told)
		}

		// A checked output may be shorter after a revision, and the check uses
		// that one.
		output := map[string]any{"schema": numberSchema, "max_revisions": 1}
		path = l.startRun(t, runBody(l.model.addScript("again", reply{text: `{"n":`, cut: true}, reply{text: `{"n":7}`}), nil, "output", output))
		if r := l.waitForEnd(t, path, "completed"); r.At("result.truncated") != false || r.At("result.verified") != true {
			t.Errorf("got %s", r.Body)
		}
		if q := l.model.requests("again"); len(q) != 2 || !strings.Contains(q[1].last(), "cut off") {
			t.Errorf("got model requests %v", q)
		}
		// A truncated output is incomplete even if it is valid.
		path = l.startRun(t, runBody(l.model.addScript("right", reply{text: `{"n":7}`, cut: true}), nil, "output", output))
		if r := l.waitForEnd(t, path, "completed"); r.At("result.truncated") != true || r.At("result.verified") != true {
			t.Errorf("got %s", r.Body)
		}
	})
}

func TestTruncatedToolCallIsNotExecuted(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		whole := func(arguments string) map[string]any {
			return map[string]any{"id": "call_1", "type": "function", "function": map[string]any{"name": "remove", "arguments": arguments}}
		}
		body, err := json.Marshal(map[string]any{"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mind", "choices": []any{map[string]any{"index": 0,
			"message":       map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{whole(ok), whole("{}")}},
			"finish_reason": "length"}}, "usage": map[string]any{"prompt_tokens": tokensIn, "completion_tokens": tokensOut}})
		if err != nil {
			t.Fatal(err)
		}
		tool := newTool(t, l, "removed")
		everything := approved("remove", tool.URL)
		everything["parameters"] = map[string]any{"type": "object"}
		path := l.startRun(t, runBody(l.model.addScript("cut", reply{body: string(body)}, reply{text: "Done."}), []any{everything}))
		wanted := l.waitForAction(t, path, "awaiting_approval")
		if len(wanted) != 1 || wanted[0]["arguments"] != ok {
			t.Fatalf("got required actions %v", wanted)
		}
		l.decide(t, path, wanted[0]["id"].(string), "approve").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")
		if told := l.model.requests("cut")[1].answers(); tool.count() != 1 || told[0] != "removed" || !strings.Contains(told[1], "cut off") {
			t.Errorf("%d calls were made, and the model was told %q", tool.count(), told)
		}
		if c := called(l.steps(t, path)[0])[1]; c["approval"] != nil || c["is_error"] != true || c["started_at"] != nil {
			t.Errorf("the second call is %v", c)
		}
	})
}

func TestEmptyErrorOutputIsReportedAsFailure(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		path := l.startRun(t, runBody(l.model.addScript("silent", calls(toolCall{"mine", ok}), reply{text: "Done."}), []any{function("mine")}))
		call := l.waitForAction(t, path, "requires_action")[0]["call_id"]
		l.ask(t, "POST", path+"/tool_outputs", map[string]any{"tool_outputs": []any{map[string]any{"call_id": call, "is_error": true}}}).Want(t, 200, "")
		l.waitForEnd(t, path, "completed")
		if told := l.model.requests("silent")[1].answers(); len(told) != 1 || !strings.Contains(told[0], "failed") {
			t.Errorf("got tool outputs %q", told)
		}
	})
}
