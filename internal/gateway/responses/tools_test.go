package responses_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// customEvents streams the arguments of a custom tool's function in two chunks. It returns the
// deltas and the input of the last item.
func customEvents(t *testing.T, first, second string) (deltas, done, item string) {
	t.Helper()
	r := toChat(t, `{"model":"m","input":"hi","stream":true,"tools":[{"type":"custom","name":"edit"}]}`)
	var lines []string
	for _, arguments := range []string{first, second} {
		text, err := json.Marshal(arguments)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, `{"id":"1","choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"edit","arguments":`+string(text)+`}}]}}]}`)
	}
	for _, e := range stream(t, r, []byte(strings.Join(lines, "\n"))) {
		var data struct {
			Delta, Input string
			Item         struct{ Type, Input string }
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		switch e.Type {
		case "response.custom_tool_call_input.delta":
			deltas += data.Delta
		case "response.custom_tool_call_input.done":
			done = data.Input
		case "response.output_item.done":
			item = data.Item.Type + ":" + data.Item.Input
		}
	}
	return deltas, done, item
}

func TestCustomToolInputIsTheSameWhereverItsStreamIsSplit(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		`{"input":"a \"b\" \\ \u00e9 \ud83d\ude00\n"}`: "a \"b\" \\ é 😀\n",
		` { "input" : "" } `:                           "",
		`{"other":1,"input":"late"}`:                   "late",
		`"just text"`:                                  "just text",
		`*** Begin Patch`:                              "*** Begin Patch",
		``:                                             "",
	} {
		for i := range len(arguments) + 1 {
			deltas, done, item := customEvents(t, arguments[:i], arguments[i:])
			if deltas != want || done != want || item != "custom_tool_call:"+want {
				t.Errorf("%s split at %d: got deltas %q, done %q and item %q, want %q", arguments, i, deltas, done, item, want)
			}
		}
	}
}

func TestCutCustomToolInputIsItsBeginning(t *testing.T) {
	t.Parallel()
	if deltas, done, item := customEvents(t, `{"input":"abc`, `def\`); deltas != "abcdef" || done != "abcdef" || item != "custom_tool_call:abcdef" {
		t.Errorf("got deltas %q, done %q and item %q", deltas, done, item)
	}
}

func TestHostedToolsThatAgentsOfferByDefaultAreDroppedWithAWarning(t *testing.T) {
	t.Parallel()
	r := toChat(t, `{"model":"m","input":"hi","tools":[{"type":"web_search"},{"type":"web_search_2025_08_26"},{"type":"image_generation"},{"type":"function","name":"f"}]}`)
	if want := "Ignored tools: web_search, web_search_2025_08_26, image_generation."; !strings.HasPrefix(r.Warning(false), want) {
		t.Errorf("got %q, want %q", r.Warning(false), want)
	}
	if strings.Contains(string(r.Chat), "web_search") || !strings.Contains(string(r.Chat), `"name":"f"`) {
		t.Errorf("got chat request %s", r.Chat)
	}
	if r := toChat(t, `{"model":"m","input":"hi","tools":[{"type":"tool_search"}]}`); r.Warning(false) != "" || strings.Contains(string(r.Chat), "tools") {
		t.Errorf("got %q and %s", r.Warning(false), r.Chat)
	}
}

func TestLongNamespacedNamesStayDistinctAndValid(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	r := toChat(t, `{"model":"m","input":"hi","tools":[{"type":"namespace","name":"a.b `+long+`","tools":[{"type":"function","name":"`+long+`1"},{"type":"function","name":"`+long+`2"}]}]}`)
	var chat struct {
		Tools []struct{ Function struct{ Name string } }
	}
	if err := json.Unmarshal(r.Chat, &chat); err != nil {
		t.Fatal(err)
	}
	if len(chat.Tools) != 2 || chat.Tools[0].Function.Name == chat.Tools[1].Function.Name || len(chat.Tools[0].Function.Name) != 64 || !strings.HasPrefix(chat.Tools[0].Function.Name, "a_b_x") {
		t.Errorf("got %+v", chat.Tools)
	}
	got, err := r.ToResponse([]byte(`{"id":"1","choices":[{"message":{"tool_calls":[{"id":"c","function":{"name":"` + chat.Tools[1].Function.Name + `","arguments":"{}"}}]}}]}`))
	if err != nil || !strings.Contains(string(got), `"namespace":"a.b `+long+`","name":"`+long+`2"`) {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestCompactionIsASummaryThatLaterRequestsContain(t *testing.T) {
	t.Parallel()
	const body = `{"model":"m","stream":true,"tools":[{"type":"function","name":"f"}],"input":[{"role":"user","content":"Fix it."},{"type":"compaction_trigger"}]}`
	r := toChat(t, body)
	if !strings.Contains(string(r.Chat), "Summarize this conversation") || !strings.Contains(string(r.Chat), `"tool_choice":"none"`) {
		t.Errorf("got chat request %s", r.Chat)
	}
	var last struct {
		Response struct {
			Output []json.RawMessage
		}
	}
	events := stream(t, r, []byte("{\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"It was \"}}]}\n{\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"fixed.\"},\"finish_reason\":\"stop\"}]}"))
	if err := json.Unmarshal(events[len(events)-1].Data, &last); err != nil || len(last.Response.Output) != 1 || !strings.Contains(string(last.Response.Output[0]), `"type":"compaction"`) {
		t.Fatalf("got %s, %v", events[len(events)-1].Data, err)
	}
	plain, err := toChat(t, body).ToResponse([]byte(`{"id":"1","choices":[{"message":{"content":"It was fixed."}}]}`))
	if err != nil || !strings.Contains(string(plain), string(last.Response.Output[0])) {
		t.Errorf("got %s, %v, want the item %s", plain, err, last.Response.Output[0])
	}
	next := toChat(t, `{"model":"m","input":[`+string(last.Response.Output[0])+`,{"role":"user","content":"Go on."}]}`)
	if !strings.Contains(string(next.Chat), "It was fixed.") {
		t.Errorf("got chat request %s", next.Chat)
	}
	if _, err := readAndTranslate([]byte(`{"model":"m","input":[{"type":"compaction","encrypted_content":"gAAA"}]}`)); err == nil || !strings.Contains(err.Error(), "encrypted_content") {
		t.Errorf("got %v", err)
	}
}
