package simulator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// agent sends requests like an agent's loop until a response calls no tool. The
// transcript has a line for each response.
func agent(t *testing.T, text string, most int, fields ...string) (said []string) {
	t.Helper()
	messages := []any{map[string]any{"role": "user", "content": text}}
	for range most {
		c := ask(t, conversation(t, messages, fields...))
		m := c.Choices[0].Message
		said = append(said, saidIn(m))
		messages = append(messages, answered(m)...)
		if len(m.ToolCalls) == 0 {
			break
		}
	}
	return said
}

func conversation(t *testing.T, messages []any, fields ...string) string {
	t.Helper()
	text, err := json.Marshal(messages)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(append([]string{`{"model":"m","messages":` + string(text)}, fields...), ",") + "}"
}

func saidIn(m reading) string {
	var parts []string
	for _, c := range m.ToolCalls {
		parts = append(parts, c.Function.Name+c.Function.Arguments)
	}
	if m.Refusal != nil {
		parts = append(parts, "refusal")
	}
	if m.Content != nil {
		parts = append(parts, *m.Content)
	}
	return strings.Join(parts, " + ")
}

// answered returns the response as the next request contains it, with the
// results of its tools.
func answered(m reading) []any {
	list := []any{map[string]any{"role": "assistant", "content": m.Content, "refusal": m.Refusal, "tool_calls": m.ToolCalls}}
	for _, c := range m.ToolCalls {
		list = append(list, map[string]any{"role": "tool", "tool_call_id": c.ID, "content": "fine"})
	}
	return list
}

func TestScriptRunsStepByStep(t *testing.T) {
	t.Parallel()
	const sample = `weather{"city":"simulated city","days":1}`
	for text, want := range map[string][]string{
		"[[sim:script=tool:weather]]":                                       {sample, "This is a simulated answer from the tool results: weather returned fine."},
		"go [[sim:script=tool:now;tool:weather;text:done]] on":              {"now{}", sample, "done"},
		`[[sim:script=tool:weather{"city":"a;b+c*{}"};text:it is 20;more]]`: nil,
		`[[sim:script=tool:weather{"city":"a;b+c*{}"};text:it is 20 + 1*]]`: {`weather{"city":"a;b+c*{}"}`, "it is 20 + 1*"},
		"[[sim:script=tool:now+tool:weather+unknown:later]]":                {"now{} + " + sample + " + later{}", "This is a simulated answer from the tool results: now returned fine; weather returned fine; later returned fine."},
		`[[sim:script=unknown:nope{"a":[1]};broken:now;text:]]`:             {`nope{"a":[1]}`, "now" + brokenArguments, ""},
		"[[sim:script=tool:now*3;text:done]]":                               {"now{}", "now{}", "now{}", "done"},
		"[[sim:script=tool:now;refusal]]":                                   {"now{}", "refusal"},
		"[[sim:script=tool:now;invalid]]":                                   {"now{}", brokenDocument},
		"[[sim:script=answer]] Hi":                                          {"This is a simulated answer to: Hi"},
		"[[sim:tool=weather]] [[sim:script=tool:now;text:x]]":               {"now{}", "x"},
		"[[sim:script=text:old]] [[sim:script=tool:now;text:new]]":          {"now{}", "new"},
	} {
		if want == nil {
			mustRefuse(t, text)
			continue
		}
		if got := agent(t, text, 10, weatherTool); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func mustRefuse(t *testing.T, text string) {
	t.Helper()
	_, err := newSimulator().Chat(t.Context(), &providers.ChatRequest{Body: []byte(say(text, weatherTool))})
	if f, ok := fault.As(err); !ok || f.Code != fault.InvalidParameter || f.Param != "messages" || !strings.Contains(f.Message, "sim:script") {
		t.Errorf("%s: %v", text, err)
	}
}

func TestScriptStepRepeatsForever(t *testing.T) {
	t.Parallel()
	got := agent(t, "[[sim:script=tool:weather{\"city\":\"x\"};tool:now*]]", 50, weatherTool)
	if len(got) != 50 || got[0] != `weather{"city":"x"}` || got[1] != "now{}" || got[49] != "now{}" {
		t.Errorf("%d answers: %q", len(got), got)
	}
}

func TestScriptContinuesAfterPlainMessages(t *testing.T) {
	t.Parallel()
	schema := `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"a":{"const":7}},"required":["a"]}}}`
	messages := []any{map[string]any{"role": "user", "content": "[[sim:script=invalid*2;answer]]"}}
	for i, want := range []string{brokenDocument, brokenDocument, `{"a":7}`, `{"a":7}`} {
		m := ask(t, conversation(t, messages, schema)).Choices[0].Message
		if *m.Content != want {
			t.Errorf("answer %d is %s, want %s", i, *m.Content, want)
		}
		messages = append(append(messages, answered(m)...), map[string]any{"role": "user", "content": "Try again."})
	}
	// A later magic input ends the script, even if it is invalid.
	for _, text := range []string{"[[sim:text=other]]", "[[sim:nonsense]]"} {
		list := []any{map[string]any{"role": "user", "content": "[[sim:script=invalid*]]"}, map[string]any{"role": "assistant", "content": "x"}, map[string]any{"role": "user", "content": text},
			map[string]any{"role": "assistant", "content": "y"}, map[string]any{"role": "user", "content": "Well?"}}
		if got := *ask(t, conversation(t, list)).Choices[0].Message.Content; got != "This is a simulated answer to: Well?" {
			t.Errorf("after %s: %s", text, got)
		}
	}
}

func TestScriptHonorsToolChoiceAndParallelToolCalls(t *testing.T) {
	t.Parallel()
	if got := agent(t, "[[sim:script=tool:now+tool:weather;text:x]]", 5, weatherTool, `"parallel_tool_calls":false`); !slices.Equal(got, []string{"now{}", "x"}) {
		t.Errorf("without parallel calls: %q", got)
	}
	if got := agent(t, "[[sim:script=tool:now]] Hi", 5, weatherTool, `"tool_choice":"none"`); !slices.Equal(got, []string{"This is a simulated answer to: Hi"}) {
		t.Errorf("without calls: %q", got)
	}
	mustRefuse(t, "[[sim:script=tool:nope]]")
}

func TestScriptStepCanFail(t *testing.T) {
	t.Parallel()
	messages := []any{map[string]any{"role": "user", "content": "[[sim:script=tool:now;error:503]]"}}
	m := ask(t, conversation(t, messages, weatherTool)).Choices[0].Message
	body := conversation(t, append(messages, answered(m)...), weatherTool)
	if _, err := newSimulator().Chat(t.Context(), &providers.ChatRequest{Body: []byte(body)}); !fault.Is(err, fault.Overloaded) {
		t.Errorf("the second step: %v", err)
	}
}

func TestScriptDelaysApplyToEveryStep(t *testing.T) {
	t.Parallel()
	first := map[string]any{"role": "user", "content": "[[sim:delay=2s]] [[sim:chunk_delay=3s]] [[sim:length=5]] [[sim:script=text:a;text:b]]"}
	for _, messages := range [][]any{{first}, {first, map[string]any{"role": "assistant", "content": "a"}}} {
		r, err := parseRequest([]byte(conversation(t, messages)), false)
		if err != nil {
			t.Fatal(err)
		}
		if m := r.nextStep(new(magic)); m.delay.Seconds() != 2 || m.chunkDelay.Seconds() != 3 || m.length != 0 {
			t.Errorf("with %d messages: %+v", len(messages), m)
		}
	}
}

func TestInvalidScriptIsRejected(t *testing.T) {
	t.Parallel()
	for _, steps := range []string{"", ";", "tool", "tool:", "tool:a b", "tool:now;", "tool:now*0", "tool:now*1001", "tool:now*x", "tool:now*;text:x", "tool:now{", "tool:now{}x",
		"tool:now[1]", "broken:now{}", "unknown:", "error", "error:200", "error:x", "answer:x", "tool:now+text:x", "tool:now+", "sleep", "text",
		strings.TrimSuffix(strings.Repeat("answer;", maxSteps+1), ";"), strings.TrimSuffix(strings.Repeat("tool:now+", maxMagicTools+1), "+")} {
		mustRefuse(t, fmt.Sprintf("[[sim:script=%s]]", steps))
	}
	if _, ok := parseScript(strings.TrimSuffix(strings.Repeat("answer;", maxSteps), ";")); !ok {
		t.Error("a script may have as many steps as a run")
	}
}
