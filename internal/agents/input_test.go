package agents

import "testing"

func TestInputMessageShowsTextAndTypesOfParts(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]InputMessage{
		`{"role":"user","content":"Hello"}`: {Role: "user", Text: "Hello"},
		`{"role":"user","content":[{"type":"text","text":"See"},{"type":"image_url","image_url":{"url":"data:x"}}]}`: {Role: "user", Text: "See\n(image_url)"},
		`{"role":"assistant","content":null,"tool_calls":[]}`:                                                        {Role: "assistant"},
	} {
		if got, err := readInputMessage(message); err != nil || got != want {
			t.Errorf("readInputMessage(%s) = %+v, %v; want %+v", message, got, err, want)
		}
	}
}
