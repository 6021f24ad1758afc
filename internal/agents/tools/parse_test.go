package tools

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

func TestParseErrorsNameTheField(t *testing.T) {
	t.Parallel()
	const secret = "sk-very-secret-value"
	http := func(more string) string {
		return `{"type":"http","name":"a","url":"https://example.com/"` + more + `}`
	}
	mcp := func(more string) string {
		return `{"type":"mcp","server_label":"a","server_url":"https://example.com/mcp"` + more + `}`
	}
	for _, c := range []struct{ tools, code, param, says string }{
		{`7`, "invalid_parameter", "tools[0]", "an object"},
		{`{`, "invalid_parameter", "tools[0]", "an object"},
		{`{"name":"a"}`, "missing_parameter", "tools[0].type", "function, http or mcp"},
		{`{"type":"stdio","name":"a"}`, "invalid_parameter", "tools[0].type", "function, http or mcp"},
		{`{"type":3}`, "invalid_parameter", "tools[0].type", "tools[0].type must be a string"},
		{`{"type":"function"}`, "missing_parameter", "tools[0].name", "is required"},
		{`{"type":"function","function":{}}`, "missing_parameter", "tools[0].function.name", "is required"},
		{`{"type":"function","name":"a","function":{"name":"b"}}`, "invalid_parameter", "tools[0].function", "not both"},
		{`{"type":"function","function":{"name":"b","url":"x"}}`, "unknown_parameter", "tools[0].function.url", `Unknown field "tools[0].function.url"`},
		{`{"type":"function","name":"a b"}`, "invalid_parameter", "tools[0].name", "letters"},
		{`{"type":"function","name":"` + strings.Repeat("a", 65) + `"}`, "invalid_parameter", "tools[0].name", "64"},
		{`{"type":"function","name":"a","url":"https://example.com"}`, "unknown_parameter", "tools[0].url", "Unknown field"},
		{`{"type":"function","name":"a","headers":{}}`, "unknown_parameter", "tools[0].headers", "Unknown field"},
		{`{"type":"function","name":"a","description":"` + strings.Repeat("a", 9000) + `"}`, "invalid_parameter", "tools[0].description", "8192"},
		{`{"type":"function","name":"a","parameters":[]}`, "invalid_parameter", "tools[0].parameters", "not an object"},
		{`{"type":"function","name":"a","parameters":{"type":"string"}}`, "invalid_parameter", "tools[0].parameters", `"type": "object"`},
		{`{"type":"function","name":"a","parameters":{"type":"objekt"}}`, "invalid_parameter", "tools[0].parameters", "at /type"},
		{`{"type":"function","function":{"name":"a","parameters":{"type":7}}}`, "invalid_parameter", "tools[0].function.parameters", "at /type"},
		{`{"type":"function","name":"a","require_approval":"sometimes"}`, "invalid_parameter", "tools[0].require_approval", "always"},
		{`{"type":"function","name":"a","require_approval":{"never":{"tool_names":["a"]}}}`, "invalid_parameter", "tools[0].require_approval", "for mcp"},
		{`{"type":"function","name":"a"},{"type":"function","name":"a"}`, "invalid_parameter", "tools[1].name", "already"},
		{`{"type":"function","name":"a"},` + mcp(""), "invalid_parameter", "tools[1].server_label", "already"},
		{`{"type":"http","name":"a"}`, "missing_parameter", "tools[0].url", "is required"},
		{`{"type":"http","url":"https://example.com"}`, "missing_parameter", "tools[0].name", "is required"},
		{`{"type":"http","name":"a","url":"http://example.com"}`, "invalid_parameter", "tools[0].url", "https://"},
		{`{"type":"http","name":"a","url":"https://10.0.0.5/"}`, "invalid_parameter", "tools[0].url", "private"},
		{`{"type":"http","name":"a","url":"https://localhost/"}`, "invalid_parameter", "tools[0].url", "localhost"},
		{`{"type":"http","name":"a","url":"file:///etc/passwd"}`, "invalid_parameter", "tools[0].url", "https://"},
		{http(`,"method":"CONNECT"`), "invalid_parameter", "tools[0].method", "POST"},
		{http(`,"method":""`), "invalid_parameter", "tools[0].method", "POST"},
		{http(`,"timeout_seconds":0`), "invalid_parameter", "tools[0].timeout_seconds", "1 to 300"},
		{http(`,"timeout_seconds":301`), "invalid_parameter", "tools[0].timeout_seconds", "1 to 300"},
		{http(`,"timeout_seconds":"1"`), "invalid_parameter", "tools[0].timeout_seconds", "whole number"},
		{http(`,"idempotent":"yes"`), "invalid_parameter", "tools[0].idempotent", "true or false"},
		{http(`,"nmae":1`), "unknown_parameter", "tools[0].nmae", `Unknown field "tools[0].nmae"`},
		{http(`,"headers":{"Host":"` + secret + `"}`), "invalid_parameter", "tools[0].headers", "Host"},
		{http(`,"headers":{"content-length":"` + secret + `"}`), "invalid_parameter", "tools[0].headers", "Content-Length"},
		{http(`,"headers":{"transfer-encoding":"` + secret + `"}`), "invalid_parameter", "tools[0].headers", "Transfer-Encoding"},
		{http(`,"headers":{"Connection":"` + secret + `"}`), "invalid_parameter", "tools[0].headers", "Connection"},
		{http(`,"headers":{"Idempotency-Key":"` + secret + `"}`), "invalid_parameter", "tools[0].headers", "which the server sets"},
		{http(`,"headers":{"x-idempotency-key":"` + secret + `"}`), "invalid_parameter", "tools[0].headers", "which the server sets"},
		{http(`,"headers":{"` + secret + ` x":"a"}`), "invalid_parameter", "tools[0].headers", "an invalid name"},
		{http(`,"headers":{"":"` + secret + `"}`), "invalid_parameter", "tools[0].headers", "an invalid name"},
		{http(`,"headers":{"A":"` + secret + `\nX: y"}`), "invalid_parameter", "tools[0].headers", "an invalid value"},
		{http(`,"headers":{"A":"` + secret + `","a":"b"}`), "invalid_parameter", "tools[0].headers", "twice"},
		{http(`,"headers":{"A":"` + strings.Repeat(secret, 1000) + `"}`), "invalid_parameter", "tools[0].headers", "8192"},
		{http(`,"headers":{"A":7}`), "invalid_parameter", "tools[0].headers.A", "a string"},
		{`{"type":"mcp","server_url":"https://example.com"}`, "missing_parameter", "tools[0].server_label", "is required"},
		{`{"type":"mcp","server_label":"a.b","server_url":"https://example.com"}`, "invalid_parameter", "tools[0].server_label", "letters"},
		{`{"type":"mcp","server_label":"a","headers":{"X-Key":"x"}}`, "invalid_parameter", "tools[0].headers", "registered"},
		{`{"type":"mcp","server_label":"a","require_approval":"never"}`, "invalid_parameter", "tools[0].require_approval", "registered"},
		{`{"type":"mcp","server_label":"a","server_url":"https://169.254.169.254/"}`, "invalid_parameter", "tools[0].server_url", "link-local"},
		{`{"type":"mcp","server_label":"a","command":"sh"}`, "unknown_parameter", "tools[0].command", "Unknown field"},
		{mcp(`,"allowed_tools":[]`), "invalid_parameter", "tools[0].allowed_tools", "Omit it"},
		{mcp(`,"allowed_tools":[""]`), "invalid_parameter", "tools[0].allowed_tools[0]", "1 to 256"},
		{mcp(`,"allowed_tools":"a"`), "invalid_parameter", "tools[0].allowed_tools", "an array"},
		{mcp(`,"allowed_tools":{"tool_names":[]}`), "invalid_parameter", "tools[0].allowed_tools.tool_names", "Omit it"},
		{mcp(`,"allowed_tools":{"read_only":true}`), "invalid_parameter", "tools[0].allowed_tools.read_only", "tool_names"},
		{mcp(`,"allowed_tools":{"names":["a"]}`), "unknown_parameter", "tools[0].allowed_tools.names", "Unknown field"},
		{mcp(`,"connector_id":"connector_dropbox"`), "invalid_parameter", "tools[0].connector_id", "server_url"},
		{mcp(`,"authorization":"` + secret + `","headers":{"authorization":"x"}`), "invalid_parameter", "tools[0].authorization", "exclude each other"},
		{mcp(`,"authorization":"` + secret + `\n"`), "invalid_parameter", "tools[0].authorization", "line breaks"},
		{mcp(`,"require_approval":7`), "invalid_parameter", "tools[0].require_approval", "always"},
		{mcp(`,"require_approval":{"sometimes":{}}`), "invalid_parameter", "tools[0].require_approval", "object such as"},
		{mcp(`,"require_approval":{"always":{"tool_names":["a"]},"never":{"tool_names":["a"]}}`), "invalid_parameter", "tools[0].require_approval", "both"},
		{mcp(`,"headers":{"Mcp-Session-Id":"` + secret + `"}`), "invalid_parameter", "tools[0].headers", "Mcp-Session-Id"},
		{mcp(`,"headers":{"Accept":"` + secret + `"}`), "invalid_parameter", "tools[0].headers", "Accept"},
	} {
		var raw []json.RawMessage
		if json.Unmarshal([]byte("["+c.tools+"]"), &raw) != nil {
			raw = []json.RawMessage{json.RawMessage(c.tools)}
		}
		_, _, err := public().Parse(raw)
		f, ok := fault.As(err)
		if !ok || string(f.Code) != c.code || f.Param != c.param || !strings.Contains(f.Message, c.says) {
			t.Errorf("%.120s: %v, want %s about %s with %q", c.tools, err, c.code, c.param, c.says)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%.120s: the error has the secret: %v", c.tools, err)
		}
	}
}

func TestParseLimitsTheNumberOfTools(t *testing.T) {
	t.Parallel()
	var tools []any
	for i := range maxSpecs + 1 {
		tools = append(tools, fmt.Sprintf(`{"type":"function","name":"f%d"}`, i))
	}
	if _, _, err := public().Parse(list(t, tools[:maxSpecs]...)); err != nil {
		t.Error(err)
	}
	_, _, err := public().Parse(list(t, tools...))
	if f, ok := fault.As(err); !ok || f.Param != "tools" {
		t.Errorf("%v, want a fault about tools", err)
	}
}

func TestHeadersAreNotPartOfSpecs(t *testing.T) {
	t.Parallel()
	specs, secrets := parsed(t, public(),
		`{"type":"function","name":"plain"}`,
		`{"type":"function","function":{"name":"nested","description":"d","strict":true,"parameters":{"type":"object","properties":{"q":{"type":"string"}}}},"require_approval":"always"}`,
		`{"type":"http","name":"get","method":"GET","url":"https://example.com/?a=b","headers":{"authorization":"Bearer one"},"timeout_seconds":300,"idempotent":true}`,
		`{"type":"http","name":"post","url":"https://example.com/"}`,
		`{"type":"mcp","server_label":"docs","server_url":"https://example.com/mcp","headers":{"X-Key":"two"},"allowed_tools":["a"],"require_approval":{"never":{"tool_names":["a"]},"always":{"tool_names":["b"]}}}`,
		`{"type":"mcp","server_label":"more","server_url":"https://example.com/mcp","require_approval":"never"}`,
		`{"type":"mcp","server_label":"most","server_url":"https://example.com/mcp","authorization":"three","server_description":"Tickets.","defer_loading":true,"allowed_tools":{"tool_names":["c"],"read_only":false}}`)
	if want := (Secrets{"get": {"Authorization": "Bearer one"}, "docs": {"X-Key": "two"}, "most": {"Authorization": "Bearer three"}}); !reflect.DeepEqual(secrets, want) {
		t.Errorf("secrets: %v", secrets)
	}
	stored, err := json.Marshal(specs)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"Bearer", "two", "three", "headers", "Authorization"} {
		if strings.Contains(string(stored), secret) {
			t.Errorf("what is stored has %q: %s", secret, stored)
		}
	}
	var again []Spec
	if err := json.Unmarshal(stored, &again); err != nil || !reflect.DeepEqual(again, specs) {
		t.Errorf("read back: %v\n%+v\n%+v", err, again, specs)
	}
	if s := specs[6]; s.Description != "Tickets." || !slices.Equal(s.AllowedTools, []string{"c"}) {
		t.Errorf("OpenAI's fields: %+v", s)
	}
	if s := specs[3]; s.Method != "POST" || s.TimeoutSeconds != 30 || s.Idempotent || string(s.Parameters) != string(noParameters) {
		t.Errorf("defaults: %+v", s)
	}
	var words []string
	for _, s := range specs {
		word, _ := json.Marshal(s.Approval)
		words = append(words, string(word))
	}
	want := `"never" "always" "never" "never" {"always":{"tool_names":["b"]},"never":{"tool_names":["a"]}} "never" "always"`
	if got := strings.Join(words, " "); got != want {
		t.Errorf("approvals: %s, want %s", got, want)
	}
}

func TestHintsOnlyAddApprovals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		approval          string
		plain, destroying bool
	}{
		{`"always"`, true, true},
		{`"never"`, false, true},
		{`{"never":{"tool_names":["t"]}}`, false, false},
		{`{"never":{"tool_names":["other"]}}`, true, true},
		{`{"always":{"tool_names":["t"]}}`, true, true},
		{`{"always":{"tool_names":["other"]}}`, true, true},
		{`{}`, true, true},
	} {
		var a Approval
		if err := json.Unmarshal([]byte(c.approval), &a); err != nil {
			t.Fatal(err)
		}
		if a.needed("t", false) != c.plain || a.needed("t", true) != c.destroying {
			t.Errorf("%s: %t and, destructive, %t", c.approval, a.needed("t", false), a.needed("t", true))
		}
	}
	if (&Approval{}).needed("t", false) != true {
		t.Error("an approval that was never set must ask")
	}
}

func TestToolNamesAreValidAndUnique(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64)
	seen := map[string]bool{}
	for _, c := range [][2]string{{"a", "b"}, {long, "b"}, {long, "c"}, {"a", long}, {"a", long + "b"}, {"a", "b.c"}, {"a", "b/c"}, {"a", "bäc"}, {"a", "b\xffc"}} {
		name := mcpToolName(c[0], c[1])
		if !openai.ValidName(name) || seen[name] {
			t.Errorf("%v: %q", c, name)
		}
		seen[name] = true
	}
	if !seen["a__b"] {
		t.Errorf("plain names must stay: %v", seen)
	}
}
