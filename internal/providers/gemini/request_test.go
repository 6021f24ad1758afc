package gemini

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// say returns a request with one user message and the given fields.
func say(content string, fields ...string) string {
	all := append([]string{`"messages":[{"role":"user","content":` + content + `}]`}, fields...)
	return "{" + strings.Join(all, ",") + "}"
}

// translated returns the translation of a valid request.
func translated(t *testing.T, model, body string, maxOutput int64) generateRequest {
	t.Helper()
	call, err := translate(&providers.ChatRequest{Model: model, Body: []byte(body), MaxOutput: maxOutput})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var r generateRequest
	if err := json.Unmarshal(call.body, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestUntranslatableFieldsAreRejectedByName(t *testing.T) {
	t.Parallel()
	message := func(m string) string { return `{"messages":[{"role":"user","content":"Hi"},` + m + `]}` }
	assistant := func(call string) string {
		return message(`{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},` + call + `]}`)
	}
	image := func(url string) string {
		return say(`[{"type":"image_url","image_url":{"url":"` + url + `"}}]`)
	}
	const imageParam = "messages[0].content[0].image_url.url"
	for _, c := range []struct{ body, param string }{
		{`{}`, "messages"},
		{`{"messages":[]}`, "messages"},
		{`{"messages":"Hi"}`, "messages"},
		{say(`""`), "messages"},
		{say(`null`), "messages[0].content"},
		{say(`17`), "messages[0].content"},
		{message(`{"role":"user"}`), "messages[1].content"},
		{message(`{"content":"x"}`), "messages[1].role"},
		{message(`{"role":"robot","content":"x"}`), "messages[1].role"},
		{message(`{"role":"tool","content":"x"}`), "messages[1].tool_call_id"},
		{message(`{"role":"tool","tool_call_id":"nobody's","content":"x"}`), "messages[1].tool_call_id"},
		{message(`{"role":"function","content":"x"}`), "messages[1].name"},
		{message(`{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}`), "messages[1].content[0].type"},
		{assistant(`{"id":"b","function":{"name":"f","arguments":"{\"city\":"}}`), "messages[1].tool_calls[1].function.arguments"},
		{assistant(`{"id":"b","function":{"name":"f","arguments":"[1]"}}`), "messages[1].tool_calls[1].function.arguments"},
		{assistant(`{"id":"b","function":{"name":"f","arguments":"` + strings.Repeat(`{\"a\":`, 200) + `1` + strings.Repeat(`}`, 200) + `"}}`), "messages[1].tool_calls[1].function.arguments"},
		{assistant(`{"id":"b","function":{"arguments":"{}"}}`), "messages[1].tool_calls[1].function.name"},
		{assistant(`{"id":"b","type":"custom","custom":{}}`), "messages[1].tool_calls[1].type"},
		{say(`[{"type":"text"}]`), "messages[0].content[0].text"},
		{say(`[{"text":"x"}]`), "messages[0].content[0].type"},
		{say(`[{"type":"video"}]`), "messages[0].content[0].type"},
		{say(`[{"type":"file"}]`), "messages[0].content[0].file"},
		{say(`[{"type":"file","file":{"file_id":"f"}}]`), "messages[0].content[0].file.file_id"},
		{say(`[{"type":"file","file":{"filename":"a.pdf"}}]`), "messages[0].content[0].file.file_data"},
		{say(`[{"type":"file","file":{"file_data":"JVBERi0="}}]`), "messages[0].content[0].file.file_data"},
		{say(`[{"type":"file","file":{"file_data":"data:video/mp4;base64,AAAA"}}]`), "messages[0].content[0].file.file_data"},
		{say(`[{"type":"input_audio","input_audio":{"data":"","format":"wav"}}]`), "messages[0].content[0].input_audio.data"},
		{say(`[{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"ogg"}}]`), "messages[0].content[0].input_audio.format"},
		{say(`[{"type":"input_audio","input_audio":{"data":"not base64!","format":"wav"}}]`), "messages[0].content[0].input_audio.data"},
		{say(`[{"type":"image_url"}]`), "messages[0].content[0].image_url"},
		{image("http://example.com/a.png"), imageParam},
		{image("gs://bucket/a.png"), imageParam},
		{image("files/abc"), imageParam},
		{image("https://user:pass@example.com/a.png"), imageParam},
		{image("https://generativelanguage.googleapis.com/v1beta/files/abc"), imageParam},
		{image("https://GenerativeLanguage.googleapis.com.:443/v1beta/files/abc.png"), imageParam},
		{image("https://www.youtube.com/watch?v=abc"), imageParam},
		{image("https://youtu.be/abc"), imageParam},
		{image("https://example.com/film.mp4"), imageParam},
		{image("data:image/png,raw"), imageParam},
		{image("data:image/png;base64,"), imageParam},
		{image("data:image/png;base64,a b"), imageParam},
		{image("data:video/mp4;base64,AAAA"), imageParam},
		{image("data:;base64,AAAA"), imageParam},
		{say(`"Hi"`, `"n":0`), "n"},
		{say(`"Hi"`, `"logprobs":true`), "logprobs"},
		{say(`"Hi"`, `"modalities":["text","audio"]`), "modalities[1]"},
		{say(`"Hi"`, `"functions":[{"name":"f"}]`), "functions"},
		{say(`"Hi"`, `"web_search_options":{}`), "web_search_options"},
		{say(`"Hi"`, `"max_tokens":0`), "max_tokens"},
		{say(`"Hi"`, `"max_completion_tokens":-1`), "max_completion_tokens"},
		{say(`"Hi"`, `"max_tokens":1.5`), "max_tokens"},
		{say(`"Hi"`, `"stop":{}`), "stop"},
		{say(`"Hi"`, `"stop":[1]`), "stop[0]"},
		{say(`"Hi"`, `"stop":[""]`), "stop"},
		{say(`"Hi"`, `"reasoning_effort":"enormous"`), "reasoning_effort"},
		{say(`"Hi"`, `"response_format":{"type":"yaml"}`), "response_format.type"},
		{say(`"Hi"`, `"response_format":{"type":"json_schema","json_schema":{"name":"x"}}`), "response_format.json_schema.schema"},
		{say(`"Hi"`, `"tools":[{"type":"custom"}]`), "tools[0].type"},
		{say(`"Hi"`, `"tools":[{"type":"function"}]`), "tools[0].function"},
		{say(`"Hi"`, `"tools":[{"type":"function","function":{"name":"f","parameters":true}}]`), "tools[0].function.parameters"},
		{say(`"Hi"`, `"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}]`), "tools[0].function.parameters"},
		{say(`"Hi"`, `"tools":[{"type":"function","function":{"name":"f"}}]`, `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"array"}}}`), "response_format.json_schema.schema"},
		{say(`"Hi"`, `"tool_choice":"perhaps"`), "tool_choice"},
		{say(`"Hi"`, `"tool_choice":7`), "tool_choice"},
		{say(`"Hi"`, `"tool_choice":"required"`), "tool_choice"},
		{say(`"Hi"`, `"tool_choice":{"type":"function","function":{"name":"f"}}`), "tool_choice.function.name"},
		{say(`"Hi"`, `"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{}]}}`), "tool_choice.allowed_tools.tools[0].function"},
		{say(`"Hi"`, `"tools":[{"function":{"name":"f"}}]`, `"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"function":{"name":"g"}}]}}`), "tool_choice"},
	} {
		_, err := translate(&providers.ChatRequest{Model: "gemini-2.5-flash", Body: []byte(c.body)})
		f, ok := fault.As(err)
		if !ok || f.Param != c.param || fault.FamilyOf(f.Code).Status != 400 {
			t.Errorf("%.200s: got %v, want an error for %s", c.body, err, c.param)
		} else if !strings.HasPrefix(f.Message, c.param) {
			t.Errorf("got message %q, want it to start with %s", f.Message, c.param)
		}
	}
}

func TestModelsBefore25RejectImageURLs(t *testing.T) {
	t.Parallel()
	body := []byte(say(`[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]`))
	for model, refused := range map[string]bool{
		"gemini-1.5-pro": true, "gemini-2.0-flash": true, "models/gemini-2.0-flash": true,
		"gemini-2.5-flash": false, "gemini-3-pro-preview": false, "gemini-flash-latest": false, "something-new": false,
	} {
		_, err := translate(&providers.ChatRequest{Model: model, Body: body})
		if fault.Is(err, fault.InvalidParameter) != refused || !refused && err != nil {
			t.Errorf("%s: %v", model, err)
		}
	}
}

func TestModelsFrom3OnRejectSeveralChoices(t *testing.T) {
	t.Parallel()
	for model, refused := range map[string]bool{"gemini-2.5-flash": false, "gemini-3-flash-preview": true, "gemini-3.6-flash": true, "gemini-flash-latest": true} {
		_, err := translate(&providers.ChatRequest{Model: model, Body: []byte(say(`"Hi"`, `"n":2`))})
		if f, ok := fault.As(err); ok != refused || refused && f.Param != "n" {
			t.Errorf("%s: %v", model, err)
		}
	}
}

func TestRecentModelsRejectTrailingAssistantMessage(t *testing.T) {
	t.Parallel()
	const body = `{"messages":[{"role":"user","content":"A rhyme."},{"role":"assistant","content":"Roses are"},{"role":"assistant","content":""}]}`
	for model, refused := range map[string]bool{"gemini-2.5-flash": false, "gemini-3.5-flash": false, "gemini-3.5-flash-lite": true, "gemini-3.6-flash": true, "gemini-3.8-flash": true} {
		_, err := translate(&providers.ChatRequest{Model: model, Body: []byte(body)})
		if f, ok := fault.As(err); ok != refused || refused && f.Param != "messages[1]" {
			t.Errorf("%s: %v", model, err)
		}
	}
}

func TestMaxOutputTokensIsTheSmallestLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fields    string
		maxOutput int64
		want      int64
	}{
		{`"a":1`, 0, 0},
		{`"a":1`, 300, 300},
		{`"max_tokens":100`, 0, 100},
		{`"max_tokens":100`, 300, 100},
		{`"max_tokens":500`, 300, 300},
		{`"max_completion_tokens":500`, 300, 300},
		{`"max_tokens":50,"max_completion_tokens":80`, 300, 80},
		{`"max_tokens":9999999999`, 0, 1<<31 - 1},
	} {
		if got := translated(t, "m", say(`"Hi"`, c.fields), c.maxOutput).GenerationConfig.MaxOutputTokens; got != c.want {
			t.Errorf("%s within %d: %d, want %d", c.fields, c.maxOutput, got, c.want)
		}
	}
}

func TestLargeSeedsStayDistinct(t *testing.T) {
	t.Parallel()
	for seed, want := range map[string]int32{"0": 0, "-1": -1, "2147483647": 1<<31 - 1, "4294967296": 1, "8589934593": 3} {
		if got := translated(t, "m", say(`"Hi"`, `"seed":`+seed), 0).GenerationConfig.Seed; got == nil || *got != want {
			t.Errorf("seed %s: got %v, want %d", seed, got, want)
		}
	}
}

func TestReasoningEffortBecomesThinkingConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ model, effort, want string }{
		{"gemini-2.5-flash", "none", `budget 0`},
		{"gemini-2.5-flash", "minimal", `budget 1024 shown`},
		{"gemini-2.5-flash", "low", `budget 1024 shown`},
		{"gemini-2.5-flash", "medium", `budget 8192 shown`},
		{"gemini-2.5-flash", "high", `budget 24576 shown`},
		{"gemini-2.5-pro", "none", `budget 128`},
		{"gemini-2.5-pro", "xhigh", `budget 24576 shown`},
		{"gemini-flash-latest", "low", `budget 1024 shown`},
		{"gemini-3-flash-preview", "none", `level MINIMAL`},
		{"gemini-3-flash-preview", "minimal", `level MINIMAL shown`},
		{"gemini-3-flash-preview", "medium", `level MEDIUM shown`},
		{"gemini-3.5-flash-lite", "high", `level HIGH shown`},
		{"gemini-3-pro-preview", "none", `level LOW`},
		{"gemini-3-pro-preview", "medium", `level HIGH shown`},
		{"gemini-3.1-pro-preview", "medium", `level MEDIUM shown`},
		{"models/gemini-3.1-pro-preview", "low", `level LOW shown`},
		{"gemini-2.0-flash", "high", `nothing`},
		{"gemini-robotics-er-1.5-preview", "high", `nothing`},
		{"gemma-3-27b-it", "high", `nothing`},
		{"gemini-2.5-flash", "", `nothing`},
	} {
		got := "nothing"
		if g := translated(t, c.model, say(`"Hi"`, fmt.Sprintf(`"reasoning_effort":%q`, c.effort)), 0).GenerationConfig.ThinkingConfig; g != nil {
			got = "level " + g.Level
			if g.Budget != nil {
				got = fmt.Sprintf("budget %d", *g.Budget)
			}
			if g.IncludeThoughts {
				got += " shown"
			}
		}
		if got != c.want {
			t.Errorf("%s with %q: %s, want %s", c.model, c.effort, got, c.want)
		}
	}
}

func TestToolChoiceBecomesMode(t *testing.T) {
	t.Parallel()
	const tools = `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`
	for choice, want := range map[string]string{
		`null`:       "",
		`"auto"`:     "AUTO[]",
		`"none"`:     "NONE[]",
		`"required"`: "ANY[]",
		`{"type":"function","function":{"name":"g"}}`: "ANY[g]",
		`{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}}`: "ANY[f]",
	} {
		got := ""
		if c := translated(t, "m", say(`"Hi"`, tools, `"tool_choice":`+choice), 0).ToolConfig; c != nil {
			got = fmt.Sprint(c.FunctionCallingConfig.Mode, c.FunctionCallingConfig.AllowedFunctionNames)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", choice, got, want)
		}
	}
}

func TestToolResultsBecomeObjects(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	for text, want := range map[string]string{
		`{"a": 1}`:                   `{"a": 1}`,
		`12`:                         `{"output":12}`,
		`1.10`:                       `{"output":"1.10"}`,
		`{"id":1234567890123456789}`: `{"output":"{\"id\":1234567890123456789}"}`,
		`null`:                       `{"output":null}`,
		`"x"`:                        `{"output":"x"}`,
		`plain "text"`:               `{"output":"plain \"text\""}`,
		``:                           `{"output":""}`,
		`{"a":1,"a":2}`:              `{"output":"{\"a\":1,\"a\":2}"}`,
		`{"a":1} {"b":`:              `{"output":"{\"a\":1} {\"b\":"}`,
		deep:                         `{"output":"` + deep + `"}`,
	} {
		if got := string(resultObject(text)); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestMissingSignaturesAreReplacedWhereRequired(t *testing.T) {
	t.Parallel()
	body := `{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"1"},{"role":"tool","tool_call_id":"b","content":"2"}]}`
	for model, want := range map[string]string{
		"gemini-2.5-flash-native-audio-latest": "", "gemini-2.5-pro": "", "gemma-3-27b-it": "",
		"gemini-3-flash-preview": dummySignature, "gemini-3.6-flash": dummySignature, "gemini-pro-latest": dummySignature,
	} {
		parts := translated(t, model, body, 0).Contents[1].Parts
		if parts[0].ThoughtSignature != want || parts[1].ThoughtSignature != "" {
			t.Errorf("%s: signatures %q and %q, want %q on the first", model, parts[0].ThoughtSignature, parts[1].ThoughtSignature, want)
		}
	}
}

func TestSchemasAreCleaned(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{}`: `{}`,
		`{"$schema":"x","type":"object","properties":{"$schema":{"type":"string"},"definitions":{"type":"string"}}}`: `{"type":"object","properties":{"$schema":{"type":"string"},"definitions":{"type":"string"}}}`,
		`{"const":null}`:                                                     `{"enum":[null]}`,
		`{"enum":[1,2],"const":1}`:                                           `{"enum":[1,2]}`,
		`{"const":1,"enum":[1,2]}`:                                           `{"enum":[1]}`,
		`{"default":{"const":1},"const":{"const":2}}`:                        `{"default":{"const":1},"enum":[{"const":2}]}`,
		`{"items":[{"const":1},true],"prefixItems":{"const":1}}`:             `{"items":[{"enum":[1]},true],"prefixItems":{"enum":[1]}}`,
		`{"allOf":[{"not":{"const":1}}],"additionalProperties":{"const":2}}`: `{"allOf":[{"not":{"enum":[1]}}],"additionalProperties":{"enum":[2]}}`,
		`{"$ref":"#/definitions/A~1B","definitions":{"A/B":{"const":1}}}`:    `{"$ref":"#/$defs/A~1B","$defs":{"A/B":{"enum":[1]}}}`,
		`{"$ref":"#/definitions/A","definitions":{"A":{}},"$defs":{}}`:       `{"$ref":"#/definitions/A","definitions":{"A":{}},"$defs":{}}`,
		`{"properties":{"$ref":{"type":"string","title":"T"},"a":{"title":"A","$ref":"#/$defs/X","description":"d","nullable":true}}}`: `{"properties":{"$ref":{"type":"string","title":"T"},"a":{"$ref":"#/$defs/X","description":"d"}}}`,
		`{"$ref":17,"properties":[],"required":["b","a"]}`: `{"$ref":17,"properties":[],"required":["b","a"]}`,
	} {
		if got := cleanSchema([]byte(in)); string(got) != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}
