package api_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"turnpike/internal/events"
)

// TestAnAnswerThatIsLongerThanAnEvent: the run ends, has all of it, and is told
// of with as much as a delivery takes. Its neighbours do not wait for it.
func TestAnAnswerThatIsLongerThanAnEvent(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		long := strings.Repeat("é\u0001", events.MaxBody/4)
		path := l.begin(t, task(l.brain.learn("long", saying{text: long}), nil))
		if r := l.ended(t, path, "completed"); r.Text("result.output_text") != long {
			t.Errorf("the result has %d bytes of %d", len(r.Text("result.output_text")), len(long))
		}
		l.paid(t, path, oneAnswer)
		told := l.eventsOf(t, idOf(path))
		if len(told) != 1 || told[0]["type"] != "agent.run.completed" {
			t.Fatalf("there are %d events", len(told))
		}
		text := told[0]["data"].(map[string]any)["result"].(map[string]any)["output_text"].(string)
		words, cut := strings.CutSuffix(text, "… [cut: the run itself has all of it]")
		if !cut || !strings.HasPrefix(long, words) || len(words) < 64<<10 {
			t.Errorf("the event has %d bytes of it", len(text))
		}

		// Whatever it is that a model says too much of.
		arguments := `{"q":"` + strings.Repeat("x", events.MaxBody/2) + `"}`
		asking := l.begin(t, task(l.brain.learn("asks", calls(toolCall{"pay", arguments}, toolCall{"pay", arguments}, toolCall{"pay", ok})), []any{approved("pay", l.brain.URL)}))
		if wanted := l.waits(t, asking, "awaiting_approval"); len(wanted) != 3 || wanted[0]["arguments"] != arguments {
			t.Errorf("it waits for %d decisions", len(wanted))
		}
		told = l.eventsOf(t, idOf(asking))
		if len(told) != 1 || told[0]["type"] != "agent.run.awaiting_approval" {
			t.Fatalf("there are %d events", len(told))
		}
		if list := told[0]["data"].(map[string]any)["required_actions"].([]any); len(list) != 3 || list[2].(map[string]any)["arguments"] != ok {
			t.Errorf("the event has %d calls", len(list))
		}
	})
}

// TestAnAnswerThatIsNoUTF8 is made some, and paid for once: a database that
// does not take it would have the model asked for ever.
func TestAnAnswerThatIsNoUTF8(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		tool := tellAll(t, l, "found")
		body, err := json.Marshal(map[string]any{"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mind", "choices": []any{map[string]any{"index": 0,
			"message": map[string]any{"role": "assistant", "content": "B@D", "tool_calls": []any{map[string]any{"id": "call_1", "type": "function", "extra": "B@D",
				"function": map[string]any{"name": "search", "arguments": `{"q":"B@D"}`}}}}, "finish_reason": "tool_calls"}},
			"usage": map[string]any{"prompt_tokens": tokensIn, "completion_tokens": tokensOut}})
		if err != nil {
			t.Fatal(err)
		}
		bad := string(bytes.ReplaceAll(body, []byte("@"), []byte{0xff}))
		path := l.begin(t, task(l.brain.learn("bytes", saying{body: bad}, saying{text: "Done."}), []any{webTool("search", tool.URL)}))
		l.ended(t, path, "completed")
		if c := called(l.steps(t, path)[0])[0]; c["arguments"] != "{\"q\":\"B\uFFFDD\"}" || c["output"] != "found" {
			t.Errorf("the call is %v", c)
		}
		l.paid(t, path, 2*oneAnswer)
	})
}

// TestCallsThatNoProviderTakesBack: the model is told what is wrong with them,
// in a conversation that has them in a form that can be sent.
func TestCallsThatNoProviderTakesBack(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		input := l.brain.learn("odd", calls(toolCall{"functions.search", ok}, toolCall{"", "{}"}, toolCall{strings.Repeat("n", 100), "{}"},
			toolCall{"search", `{"q":`}, toolCall{"search", ""}, toolCall{"search", ok + "}"}, toolCall{"search", ok}), saying{text: "Done."})
		tool := tellAll(t, l, "found")
		path := l.begin(t, task(input, []any{webTool("search", tool.URL)}))
		l.ended(t, path, "completed")
		if tool.count() != 1 {
			t.Errorf("%d calls were made", tool.count())
		}
		if c := called(l.steps(t, path)[0]); c[0]["tool"] != "functions.search" || c[3]["arguments"] != `{"q":` {
			t.Errorf("the step does not say what the model said: %v", c)
		}
		want := [][2]string{{"functions_search", ok}, {"no_name", "{}"}, {strings.Repeat("n", 64), "{}"},
			{"search", `{"not_an_object":"{\"q\":"}`}, {"search", "{}"}, {"search", `{"not_an_object":"{\"q\":\"x\"}}"}`}, {"search", ok}}
		sent := l.brain.questions("odd")[1].messages[1]["tool_calls"].([]any)
		for i, w := range want {
			f := sent[i].(map[string]any)["function"].(map[string]any)
			if f["name"] != w[0] || f["arguments"] != w[1] {
				t.Errorf("call %d is sent as %v", i, f)
			}
		}
	})
}

// TestAConversationThatOutgrowsItsModel fails the run with a word of its own,
// at once: the next time it would be as long.
func TestAConversationThatOutgrowsItsModel(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		input := l.brain.learn("grown", saying{text: "So far.", calls: []toolCall{{"search", ok}}}, saying{status: 400, message: "This model's maximum context length is 10 tokens."})
		path := l.begin(t, task(input, []any{webTool("search", tellAll(t, l, "found").URL)}))
		r := l.failed(t, path, "context_length_exceeded")
		if r.Text("partial_result") != "So far." || !strings.Contains(r.Text("error.message"), "context_window") || len(l.brain.questions("grown")) != 2 {
			t.Errorf("it came to %s", r.Body)
		}
		l.paid(t, path, oneAnswer)
	})
}

// TestAnAnswerThatWasCutOff is a result that says so.
func TestAnAnswerThatWasCutOff(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		path := l.begin(t, task(l.brain.learn("cut", saying{text: "And so", cut: true}), nil))
		if r := l.ended(t, path, "completed"); r.At("result.truncated") != true || r.Text("result.output_text") != "And so" {
			t.Errorf("it came to %s", r.Body)
		}
		told := l.eventsOf(t, idOf(path))
		if len(told) != 1 || told[0]["data"].(map[string]any)["result"].(map[string]any)["truncated"] != true {
			t.Errorf("its event is %v", told)
		}

		// A checked one may be shorter the next time, and is judged by that.
		output := map[string]any{"schema": numberSchema, "max_revisions": 1}
		path = l.begin(t, task(l.brain.learn("again", saying{text: `{"n":`, cut: true}, saying{text: `{"n":7}`}), nil, "output", output))
		if r := l.ended(t, path, "completed"); r.At("result.truncated") != false || r.At("result.verified") != true {
			t.Errorf("it came to %s", r.Body)
		}
		if q := l.brain.questions("again"); len(q) != 2 || !strings.Contains(q[1].last(), "cut off") {
			t.Errorf("the model was asked %v", q)
		}
		// One that is right as far as it goes is still not whole.
		path = l.begin(t, task(l.brain.learn("right", saying{text: `{"n":7}`, cut: true}), nil, "output", output))
		if r := l.ended(t, path, "completed"); r.At("result.truncated") != true || r.At("result.verified") != true {
			t.Errorf("it came to %s", r.Body)
		}
	})
}

// TestACallThatWasCutOff is not made: what is left of its arguments may be
// right, and not what the model meant.
func TestACallThatWasCutOff(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		whole := func(arguments string) map[string]any {
			return map[string]any{"id": "call_1", "type": "function", "function": map[string]any{"name": "remove", "arguments": arguments}}
		}
		body, err := json.Marshal(map[string]any{"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mind", "choices": []any{map[string]any{"index": 0,
			"message":       map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{whole(ok), whole("{}")}},
			"finish_reason": "length"}}, "usage": map[string]any{"prompt_tokens": tokensIn, "completion_tokens": tokensOut}})
		if err != nil {
			t.Fatal(err)
		}
		tool := tellAll(t, l, "removed")
		everything := approved("remove", tool.URL)
		everything["parameters"] = map[string]any{"type": "object"}
		path := l.begin(t, task(l.brain.learn("cut", saying{body: string(body)}, saying{text: "Done."}), []any{everything}))
		wanted := l.waits(t, path, "awaiting_approval")
		if len(wanted) != 1 || wanted[0]["arguments"] != ok {
			t.Fatalf("it waits for %v", wanted)
		}
		l.decide(t, path, wanted[0]["id"].(string), "approve").Want(t, 200, "")
		l.ended(t, path, "completed")
		if told := l.brain.questions("cut")[1].answers(); tool.count() != 1 || told[0] != "removed" || !strings.Contains(told[1], "cut off") {
			t.Errorf("%d calls were made, and the model was told %q", tool.count(), told)
		}
		if c := called(l.steps(t, path)[0])[1]; c["approval"] != nil || c["is_error"] != true || c["started_at"] != nil {
			t.Errorf("the second call is %v", c)
		}
	})
}

// TestAFailureWithoutWords: the model learns that it is one.
func TestAFailureWithoutWords(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		path := l.begin(t, task(l.brain.learn("silent", calls(toolCall{"mine", ok}), saying{text: "Done."}), []any{function("mine")}))
		call := l.waits(t, path, "requires_action")[0]["call_id"]
		l.ask(t, "POST", path+"/tool_outputs", map[string]any{"tool_outputs": []any{map[string]any{"call_id": call, "is_error": true}}}).Want(t, 200, "")
		l.ended(t, path, "completed")
		if told := l.brain.questions("silent")[1].answers(); len(told) != 1 || !strings.Contains(told[0], "failed") {
			t.Errorf("the model was told %q", told)
		}
	})
}
