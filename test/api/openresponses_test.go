package api_test

import (
	"encoding/json"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// These are the acceptance cases of the Open Responses specification (openresponses.org), written from its
// schema: its own suite isn't published as a package.

// checkResponseResource checks the fields that the specification requires of every response.
func checkResponseResource(t *testing.T, name string, r map[string]any) {
	t.Helper()
	for field, want := range map[string]string{
		"id": "string", "object": "string", "created_at": "number", "completed_at": "number", "status": "string", "incomplete_details": "null", "model": "string",
		"previous_response_id": "null", "output": "array", "error": "null", "tools": "array", "truncation": "string", "parallel_tool_calls": "boolean", "text": "object",
		"top_p": "number", "presence_penalty": "number", "frequency_penalty": "number", "top_logprobs": "number", "temperature": "number", "reasoning": "object", "usage": "object",
		"max_output_tokens": "null", "max_tool_calls": "null", "store": "boolean", "background": "boolean", "service_tier": "string", "metadata": "object", "safety_identifier": "null", "prompt_cache_key": "null",
	} {
		value, present := r[field]
		if got := jsonType(value); !present || got != want {
			t.Errorf("%s: %s is %s, want %s", name, field, got, want)
		}
	}
	for _, field := range []string{"instructions", "tool_choice", "user"} {
		if _, present := r[field]; !present {
			t.Errorf("%s: %s is missing", name, field)
		}
	}
	if r["status"] != "completed" || len(r["output"].([]any)) == 0 {
		t.Errorf("%s: got %v", name, r)
	}
}

func jsonType(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case []any:
		return "array"
	}
	return "object"
}

func TestOpenResponsesAcceptance(t *testing.T) {
	eachShared(t, sqlite, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Test)
		message := func(role string, content any) map[string]any {
			return map[string]any{"type": "message", "role": role, "content": content}
		}
		tools := []any{map[string]any{"type": "function", "name": "get_weather", "description": "Reads the weather.", "parameters": map[string]any{"type": "object", "properties": map[string]any{"location": map[string]any{"type": "string"}}, "required": []string{"location"}}}}
		for name, more := range map[string]map[string]any{
			"basic":         {"input": []any{message("user", "Say hello in exactly 3 words.")}},
			"system prompt": {"input": []any{message("system", "You are a pirate."), message("user", "Say hello.")}},
			"tool calling":  {"input": []any{message("user", "What's the weather? [[sim:tool=get_weather]]")}, "tools": tools},
			"image":         {"input": []any{message("user", []any{map[string]any{"type": "input_text", "text": "What is it?"}, map[string]any{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}})}},
			"multi-turn":    {"input": []any{message("user", "My name is Alice."), message("assistant", []any{map[string]any{"type": "output_text", "text": "Hello Alice!"}}), message("user", "What is my name?")}},
		} {
			more["model"] = "gpt-4o-mini"
			r := c.respond(t, more).Want(t, 200, "")
			var whole map[string]any
			if err := json.Unmarshal(r.Body, &whole); err != nil {
				t.Fatal(err)
			}
			checkResponseResource(t, name, whole)
			if name == "tool calling" && (r.Text("output.0.type") != "function_call" || r.Text("output.0.call_id") == "" || r.Text("output.0.status") != "completed") {
				t.Errorf("got %s", r.Body)
			}
			more["stream"] = true
			list := chunks(c.respond(t, more).Want(t, 200, ""))
			if list[0].Text("type") != "response.created" || list[1].Text("type") != "response.in_progress" {
				t.Errorf("%s: got first events %s, %s", name, list[0].Body, list[1].Body)
			}
			for i, event := range list {
				if count(event, "sequence_number") != int64(i) {
					t.Errorf("%s: event %d is %s", name, i, event.Body)
				}
			}
			checkResponseResource(t, name, list[len(list)-1].At("response").(map[string]any))
		}
	})
}
