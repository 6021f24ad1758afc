package gemini

import (
	"strings"
	"testing"

	"turnpike/internal/providers"
)

func TestModelIsOnePathSegment(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"gemini-2.5-flash":        "gemini-2.5-flash",
		"models/gemini-2.5-flash": "gemini-2.5-flash",
		"a/../b":                  "a%2F..%2Fb",
		"a:generateContent?x=1#y": "a%3AgenerateContent%3Fx=1%23y",
		"ü %":                     "%C3%BC%20%25",
	} {
		p, server := start(t)
		if _, err := p.Chat(t.Context(), &providers.ChatRequest{Model: model, Body: []byte(hello)}); err != nil {
			t.Errorf("%s: %v", model, err)
		}
		if r := server.Requests()[0]; r.Path != "/v1beta/models/"+want+":generateContent" || len(r.Query) != 0 {
			t.Errorf("%s called %s?%s", model, r.Path, r.Query.Encode())
		}
	}
}

func TestResponsesHaveTurnpikeIDs(t *testing.T) {
	t.Parallel()
	_, server := start(t)
	p := New(Options{Name: "google", BaseURL: server.BaseURL(), Key: testKey})
	if p.Name() != "google" || New(Options{}).Name() != "gemini" {
		t.Errorf("named %s and %s", p.Name(), New(Options{}).Name())
	}
	answer, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(hello)})
	if err != nil {
		t.Fatal(err)
	}
	if body := string(answer.Body); !strings.HasPrefix(body, `{"id":"chatcmpl-`) || strings.Contains(body, "mock-response-id") {
		t.Errorf("answer %s", body)
	}
	if got, want := answer.Usage, (providers.Usage{InputTokens: 10, OutputTokens: 3}); got != want {
		t.Errorf("usage %+v, want %+v", got, want)
	}
}
