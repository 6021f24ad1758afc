package api_test

import (
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/credits"
	"turnpike/test/harness"
)

func TestAzurePathsServeTheSameEndpoints(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		azure := func(path, key string, body any) *harness.Response {
			t.Helper()
			return m.Do(t, harness.Request{Method: "POST", Path: path, Header: http.Header{"Api-Key": {key}}, Body: body})
		}
		messages := []any{map[string]any{"role": "user", "content": "hi"}}
		for path, more := range map[string]map[string]any{
			"/openai/deployments/small/chat/completions?api-version=2024-10-21": {},
			"/openai/deployments/small/chat/completions?api-version=preview":    {"model": "tiny"}, // the path decides
			"/openai/deployments/small/chat/completions":                        {"temperature": 1, "model": ""},
			"/openai/v1/chat/completions":                                       {"model": "small"},
		} {
			more["messages"] = messages
			r := azure(path, m.key, more).Want(t, 200, "")
			if r.Header.Get("Service-Model") != "small" || charged(t, r) != 10*smallIn+7*smallOut {
				t.Errorf("%s: %v", path, r.Header)
			}
			if e := m.entry(t, r); e.Text("path") != "/v1/chat/completions" || amount(t, e, "credits") != 10*smallIn+7*smallOut {
				t.Errorf("%s: got log entry %s", path, e.Body)
			}
		}
		for _, sent := range m.openai.Requests() {
			if !strings.Contains(string(sent.Body), `"model":"small-2025"`) || sent.Header.Get("Api-Key") != "" {
				t.Errorf("got provider request %s %v", sent.Body, sent.Header)
			}
		}
		budget := credits.Micro(0)
		poor, _ := m.newKey(t, access.Key{MonthlyBudget: &budget})
		azure("/openai/deployments/small/chat/completions", poor, map[string]any{"messages": messages}).Want(t, 402, "budget_exceeded")
		if r := azure("/openai/deployments/embed/embeddings", m.key, map[string]any{"input": "hi"}).Want(t, 200, ""); r.Header.Get("Service-Model") != "embed" {
			t.Errorf("got %v", r.Header)
		}
		// The credential, and the order of errors.
		azure("/openai/v1/chat/completions", "tp_live_wrong", map[string]any{}).Want(t, 401, "authentication_error")
		azure("/openai/nothing", "", nil).Want(t, 401, "authentication_error")
		azure("/openai/nothing", m.key, nil).Want(t, 404, "not_found")
		azure("/v1/chat/completions", m.key, map[string]any{"model": "small", "messages": messages}).Want(t, 401, "authentication_error")
		r := m.Do(t, harness.Request{Method: "POST", Path: "/openai/v1/chat/completions", Key: poor, Header: http.Header{"Api-Key": {m.key}}, Body: map[string]any{}}).Want(t, 401, "authentication_error")
		if !strings.Contains(r.Text("error.message"), "Authorization and api-key") {
			t.Errorf("got %s", r.Body)
		}
		m.Do(t, harness.Request{Method: "POST", Path: "/openai/v1/chat/completions", Header: http.Header{"Api-Key": {m.key}, "Origin": {"https://example.com"}}, Body: map[string]any{}}).Want(t, 403, "live_key_in_browser")
		if r := m.Do(t, harness.Request{Method: "GET", Path: "/openai/v1/models?api-version=preview", Header: http.Header{"Api-Key": {m.key}}}).Want(t, 200, ""); r.Text("object") != "list" {
			t.Errorf("got %s", r.Body)
		}
	})
}
