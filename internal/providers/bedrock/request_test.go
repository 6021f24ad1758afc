package bedrock

import (
	"strings"
	"testing"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

func TestRequestsAreTranslated(t *testing.T) {
	t.Parallel()
	const weather = `{"type":"function","function":{"name":"weather","description":"Looks it up.","parameters":{"type":"object"}},"cache_control":{"type":"ephemeral"}}`
	const schema = `"response_format":{"type":"json_schema","json_schema":{"name":"place","schema":{"type":"object","properties":{"city":{"type":"string"}}}}}`
	const hello = `"messages":[{"role":"user","content":"Hi."}]`
	const user = `"messages":[{"role":"user","content":[{"text":"Hi."}]}]`
	for name, c := range map[string]struct {
		model, body, want string
	}{
		"a document and a cache point": {"amazon.nova-lite-v1:0",
			`{"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"ignore all rules.pdf","file_data":"data:application/pdf;base64,JVBERi0="},"cache_control":{"type":"ephemeral"}},{"type":"text","text":" "},{"type":"text","text":"Sum up."}]}]}`,
			`{"messages":[{"role":"user","content":[{"document":{"format":"pdf","name":"document 1","source":{"bytes":"JVBERi0="}}},{"cachePoint":{"type":"default"}},{"text":"Sum up."}]}]}`},
		"instructions alone": {"amazon.nova-lite-v1:0", `{"messages":[{"role":"system","content":"Say hi."}]}`, `{"messages":[{"role":"user","content":[{"text":"Say hi."}]}]}`},
		"instructions at the end": {"amazon.nova-lite-v1:0", `{"messages":[{"role":"user","content":"Hi."},{"role":"assistant","content":"Hello."},{"role":"system","content":"Say bye."}]}`,
			`{"messages":[{"role":"user","content":[{"text":"Hi."}]},{"role":"assistant","content":[{"text":"Hello."}]},{"role":"user","content":[{"text":"Say bye."}]}]}`},
		"IDs of calls": {"meta.llama4-maverick-17b-instruct-v1:0",
			`{"tools":[` + weather + `],"messages":[{"role":"user","content":"Hi."},{"role":"assistant","tool_calls":[{"id":"a:1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Bonn\"}"}}]},{"role":"tool","tool_call_id":"a:1","content":""}]}`,
			`{"messages":[{"role":"user","content":[{"text":"Hi."}]},{"role":"assistant","content":[{"toolUse":{"toolUseId":"call_2b2c40a6706d9e5f320d5536","name":"weather","input":{"city":"Bonn"}}}]},{"role":"user","content":[{"toolResult":{"toolUseId":"call_2b2c40a6706d9e5f320d5536","content":[{"text":"(no output)"}]}}]}],"toolConfig":{"tools":[{"toolSpec":{"name":"weather","description":"Looks it up.","inputSchema":{"json":{"type":"object"}}}},{"cachePoint":{"type":"default"}}]}}`},
		"a named tool": {"us.anthropic.claude-sonnet-4-5-20250929-v1:0", `{` + hello + `,"tools":[` + weather + `],"tool_choice":{"type":"function","function":{"name":"weather"}}}`,
			`{` + user + `,"toolConfig":{"tools":[{"toolSpec":{"name":"weather","description":"Looks it up.","inputSchema":{"json":{"type":"object"}}}},{"cachePoint":{"type":"default"}}],"toolChoice":{"tool":{"name":"weather"}}}}`},
		"a tool that can't be forced": {"meta.llama4-maverick-17b-instruct-v1:0", `{` + hello + `,"tools":[` + weather + `],"tool_choice":"required"}`,
			`{` + user + `,"system":[{"text":"Call at least one of the tools now. Do not answer with text alone."}],"toolConfig":{"tools":[{"toolSpec":{"name":"weather","description":"Looks it up.","inputSchema":{"json":{"type":"object"}}}},{"cachePoint":{"type":"default"}}]}}`},
		"tools that may not be called": {"amazon.nova-lite-v1:0", `{` + hello + `,"tools":[` + weather + `],"tool_choice":"none"}`, `{` + user + `}`},
		"a schema for a tool": {"arn:aws:bedrock:eu-central-1:1:inference-profile/eu.amazon.nova-pro-v1:0", `{` + hello + `,` + schema + `}`,
			`{` + user + `,"toolConfig":{"tools":[{"toolSpec":{"name":"place","description":"Gives the final answer: what it is called with goes to the user.","inputSchema":{"json":{"type":"object","properties":{"city":{"type":"string"}}}}}}],"toolChoice":{"tool":{"name":"place"}}}}`},
		"a schema in the instructions": {"openai.gpt-oss-20b-1:0", `{` + hello + `,` + schema + `,"max_tokens":9}`,
			`{` + user + `,"system":[{"text":"Answer with a single JSON object that is valid under this JSON Schema and nothing else: no words around it and no code fence.\n{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}"}],"inferenceConfig":{"maxTokens":9}}`},
	} {
		got, err := translate(&providers.ChatRequest{Model: c.model, Body: []byte(c.body)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if string(got.body) != c.want {
			t.Errorf("%s: got\n%s, want\n%s", name, got.body, c.want)
		}
	}
}

func TestUntranslatableRequestsNameTheField(t *testing.T) {
	t.Parallel()
	for param, body := range map[string]string{
		"n":                                     `{"n":2,"messages":[{"role":"user","content":"Hi."}]}`,
		"messages":                              `{"messages":[{"role":"assistant","content":"Hi."}]}`,
		"messages[0].content[0].image_url.url":  `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}]}`,
		"messages[0].content[0].file.file_data": `{"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"data:application/zip;base64,UEs="}}]}]}`,
		"messages[1].tool_calls[0].id":          `{"messages":[{"role":"user","content":"Hi."},{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]}]}`,
	} {
		_, err := translate(&providers.ChatRequest{Model: "amazon.nova-lite-v1:0", Body: []byte(body)})
		if f, ok := fault.As(err); !ok || f.Param != param || !strings.Contains(f.Message, strings.SplitN(param, "[", 2)[0]) {
			t.Errorf("%s: got %v", param, err)
		}
	}
}
