package simulator

import (
	"encoding/json"
	"testing"
)

func TestToolResultComesFromTheLastMagicMessage(t *testing.T) {
	t.Parallel()
	user := func(text string) json.RawMessage {
		content, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return json.RawMessage(`{"role":"user","content":` + string(content) + `}`)
	}
	said := json.RawMessage(`{"role":"assistant","content":"[[sim:tool_result=no]]"}`)
	output := json.RawMessage(`{"role":"tool","tool_call_id":"c","content":"[[sim:tool_result=no]]"}`)
	for name, c := range map[string]struct {
		messages []json.RawMessage
		want     string
		found    bool
	}{
		"none":               {[]json.RawMessage{user("Hello")}, "", false},
		"beside a script":    {[]json.RawMessage{user("[[sim:script=tool:a]][[sim:tool_result={\"a\":[1]}]]"), said, output}, `{"a":[1]}`, true},
		"empty":              {[]json.RawMessage{user("[[sim:tool_result=]]")}, "", true},
		"before a plain one": {[]json.RawMessage{user("[[sim:tool_result=a]]"), said, user("Try again")}, "a", true},
		"the last counts":    {[]json.RawMessage{user("[[sim:tool_result=a]]"), user("[[sim:tool=a]]")}, "", false},
		"only users set it":  {[]json.RawMessage{said, output}, "", false},
		"in parts":           {[]json.RawMessage{json.RawMessage(`{"role":"user","content":[{"type":"text","text":"[[sim:tool_result=p]]"}]}`)}, "p", true},
	} {
		if got, found := ToolResult(c.messages); got != c.want || found != c.found {
			t.Errorf("%s: got %q, %v, want %q, %v", name, got, found, c.want, c.found)
		}
	}
}
