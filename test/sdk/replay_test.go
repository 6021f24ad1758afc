//go:build clients

package sdk_test

import (
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// replayed is a request of a client that the tests don't install.
type replayed struct {
	client, what string
	path         string // GET if there is no body
	header       http.Header
	body         string
	status       int      // 200 if it is 0
	want         []string // parts of the response
}

const (
	sayHello    = `[[sim:text=Hello.]]`
	helloTool   = `{"type":"function","function":{"name":"read_thermometer","description":"Reads the temperature of a city.","parameters":{"additionalProperties":false,"properties":{"city":{"type":"string"}},"required":["city"],"type":"object"},"strict":true}}`
	finalResult = `{"type":"function","function":{"name":"final_result","description":"The final response which ends this conversation","parameters":{"properties":{"city":{"type":"string"},"degrees":{"type":"integer"}},"required":["city","degrees"],"title":"Weather","type":"object"}}}`
	agentScript = `How warm is Oslo? [[sim:script=tool:read_thermometer{\"city\":\"Oslo\"};tool:final_result{\"city\":\"Oslo\",\"degrees\":21}]]`
)

// The requests follow the source code and the documentation of the clients.
var replays = []replayed{
	{client: "Open WebUI", what: "lists models", path: "/v1/models", want: []string{`"object":"list"`, `"id":"gpt-5.4"`, `"owned_by"`}},
	{client: "Open WebUI", what: "streams a chat with an image and tools", path: "/v1/chat/completions",
		header: http.Header{"X-Openwebui-User-Name": {"Ada"}, "X-Openwebui-User-Id": {"1b4e28ba"}, "Http-Referer": {"https://openwebui.com/"}, "X-Title": {"Open WebUI"}},
		body: `{"stream":true,"model":"gpt-5.4","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"What is this? ` + sayHello + `"},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,` + pixel + `"}}]}],"stream_options":{"include_usage":true},"tools":[` + helloTool + `]}`,
		want: []string{`"content":"Hello`, `"total_tokens"`, "data: [DONE]"}},
	{client: "Open WebUI", what: "creates a title", path: "/v1/chat/completions",
		body: `{"model":"gpt-5.4-mini","messages":[{"role":"user","content":"### Task: write a title ` + sayHello + `"}],"stream":false,"max_completion_tokens":1000}`,
		want: []string{`"content":"Hello."`}},
	{client: "Open WebUI", what: "embeds documents", path: "/v1/embeddings", body: `{"input":["one","two"],"model":"text-embedding-3-small"}`, want: []string{`"embedding"`, `"index":1`}},

	{client: "LibreChat", what: "lists models", path: "/v1/models", want: []string{`"id":"claude-sonnet-5"`}},
	{client: "LibreChat", what: "streams a chat", path: "/v1/chat/completions",
		body: `{"model":"claude-sonnet-5","user":"65f0c2a7e4b0a1b2c3d4e5f6","stream":true,"stream_options":{"include_usage":true},"temperature":1,"top_p":1,"presence_penalty":0,"frequency_penalty":0,
			"messages":[{"role":"user","content":[{"type":"text","text":"` + sayHello + `"}]}]}`,
		want: []string{`"content":"Hello`, `"total_tokens"`, "data: [DONE]"}},
	{client: "LibreChat", what: "creates a title with a schema", path: "/v1/chat/completions",
		body: `{"model":"gpt-5.4-mini","stream":false,"messages":[{"role":"user","content":"Write a title."}],"tool_choice":{"type":"function","function":{"name":"title"}},
			"tools":[{"type":"function","function":{"name":"title","parameters":{"type":"object","properties":{"title":{"type":"string"}},"required":["title"],"additionalProperties":false,"$schema":"http://json-schema.org/draft-07/schema#"}}}]}`,
		want: []string{`"name":"title"`}},
	{client: "LibreChat", what: "streams messages in Anthropic's format", path: "/v1/messages", header: http.Header{"Anthropic-Version": {"2023-06-01"}},
		body: `{"model":"claude-sonnet-5","max_tokens":8192,"stream":true,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"` + sayHello + `"}]}]}`,
		want: []string{"event: message_start", `"text":"Hello`, "event: message_stop"}},

	{client: "Pydantic AI", what: "calls a tool", path: "/v1/chat/completions", header: http.Header{"User-Agent": {"pydantic-ai/1.40.0"}, "X-Stainless-Lang": {"python"}},
		body: `{"messages":[{"role":"user","content":"` + agentScript + `"}],"model":"claude-sonnet-5","stream":false,"tool_choice":"required","tools":[` + helloTool + `,` + finalResult + `]}`,
		want: []string{`"name":"read_thermometer"`, `"finish_reason":"tool_calls"`}},
	{client: "Pydantic AI", what: "gets the output after the tool", path: "/v1/chat/completions",
		body: `{"messages":[{"role":"user","content":"` + agentScript + `"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"read_thermometer","arguments":"{\"city\":\"Oslo\"}"}}]},
			{"role":"tool","tool_call_id":"call_1","content":"21"}],"model":"claude-sonnet-5","stream":false,"tool_choice":"required","tools":[` + helloTool + `,` + finalResult + `]}`,
		want: []string{`"name":"final_result"`, `\"degrees\":21`}},
	{client: "Pydantic AI", what: "streams text", path: "/v1/chat/completions",
		body: `{"messages":[{"role":"user","content":"` + sayHello + `"}],"model":"gpt-5.4","stream":true,"stream_options":{"include_usage":true}}`, want: []string{`"content":"Hello`, `"total_tokens"`, "data: [DONE]"}},
	{client: "Pydantic AI", what: "gets native structured output", path: "/v1/chat/completions",
		body: `{"messages":[{"role":"user","content":"Describe Oslo."}],"model":"gpt-5.4","stream":false,"response_format":{"type":"json_schema","json_schema":{"name":"Weather","strict":true,
			"schema":{"type":"object","properties":{"city":{"type":"string"},"degrees":{"type":"integer"}},"required":["city","degrees"],"additionalProperties":false}}}}`,
		want: []string{`\"degrees\":`}},
	{client: "Pydantic AI", what: "uses the Responses API", path: "/v1/responses",
		body: `{"input":[{"role":"user","content":"` + agentScript + `"}],"model":"gpt-5.4","stream":false,"include":["reasoning.encrypted_content"],"parallel_tool_calls":true,"tool_choice":"required",
			"tools":[{"type":"function","name":"read_thermometer","description":"Reads.","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false},"strict":true},
			{"type":"function","name":"final_result","parameters":{"type":"object","properties":{"city":{"type":"string"},"degrees":{"type":"integer"}},"required":["city","degrees"]},"strict":false}]}`,
		want: []string{`"type":"function_call"`, `"name":"read_thermometer"`}},

	{client: "Cursor", what: "verifies the key", path: "/v1/chat/completions", body: `{"messages":[{"role":"user","content":"Test prompt using gpt-5.4 ` + sayHello + `"}],"model":"gpt-5.4","max_tokens":10,"stream":false}`, want: []string{`"content":"Hello."`}},
	{client: "Cursor", what: "streams a chat", path: "/v1/chat/completions",
		body: `{"messages":[{"role":"system","content":"You are an assistant in Cursor."},{"role":"user","content":"` + sayHello + `"}],"model":"gpt-5.4","temperature":0,"user":"google-oauth2|1","stream":true,"stream_options":{"include_usage":true}}`,
		want: []string{`"content":"Hello`, "data: [DONE]"}},
	{client: "Cursor", what: "is rejected in agent mode", path: "/v1/chat/completions", status: 400,
		body: `{"input":[{"role":"user","content":[{"type":"input_text","text":"Edit the file."}]}],"model":"gpt-5.4","stream":true,"reasoning":{"effort":"medium"},"tools":[{"type":"function","name":"edit_file","parameters":{"type":"object"}}]}`,
		want: []string{`"param":"tools[0].function"`}},
}

func TestReplayedClients(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	for _, r := range replays {
		t.Run(r.client+" "+r.what, func(t *testing.T) {
			t.Parallel()
			method, body := "GET", any(nil)
			if r.body != "" {
				method, body = "POST", r.body
			}
			res := s.Do(t, harness.Request{Method: method, Path: r.path, Key: key, Header: r.header, Body: body}).Want(t, max(r.status, 200), map[bool]string{true: "missing_parameter"}[r.status == 400])
			for _, part := range r.want {
				if !strings.Contains(string(res.Body), part) {
					t.Errorf("the response has no %s:\n%s", part, res.Body)
				}
			}
		})
	}
}
