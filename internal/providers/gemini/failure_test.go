package gemini

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/providers"
	"turnpike/test/fakes/upstreams"
)

func failureOf(t *testing.T, err error) *providers.Failure {
	t.Helper()
	var f *providers.Failure
	if !errors.As(err, &f) {
		t.Fatalf("%v is no failure", err)
	}
	return f
}

func TestErrorsHaveTheirKind(t *testing.T) {
	t.Parallel()
	const keyInvalid = `[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com","metadata":{"service":"generativelanguage.googleapis.com"}}]`
	const retry = `[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"x"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"37.5s"}]`
	violation := func(field string) string {
		return `[{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"` + field + `","description":"Invalid"}]}]`
	}
	for _, c := range []struct {
		code                     int
		status, message, details string
		kind                     providers.Kind
		param                    string
		after                    time.Duration
	}{
		{400, "INVALID_ARGUMENT", "Request contains an invalid argument.", "", providers.KindInvalid, "", 0},
		{400, "INVALID_ARGUMENT", "Invalid value", violation("generation_config.temperature"), providers.KindInvalid, "temperature", 0},
		{400, "INVALID_ARGUMENT", "Invalid value", violation("tools[0].function_declarations[2].parameters_json_schema"), providers.KindInvalid, "tools[2].function", 0},
		{400, "INVALID_ARGUMENT", "Invalid value at 'generation_config.response_json_schema' (x)", "", providers.KindInvalid, "response_format.json_schema.schema", 0},
		{400, "INVALID_ARGUMENT", "* GenerateContentRequest.contents[0].parts: must not be empty", "", providers.KindInvalid, "messages", 0},
		{400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "", providers.KindInvalid, "messages", 0},
		{400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", keyInvalid, providers.KindAuth, "", 0},
		{400, "INVALID_ARGUMENT", "API key expired. Please renew the API key.", "", providers.KindAuth, "", 0},
		{400, "FAILED_PRECONDITION", "The File abc is not in an ACTIVE state.", "", providers.KindInvalid, "", 0},
		{400, "FAILED_PRECONDITION", "User location is not supported for the API use.", "", providers.KindAuth, "", 0},
		{401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", "", providers.KindAuth, "", 0},
		{403, "PERMISSION_DENIED", "Permission denied", "", providers.KindAuth, "", 0},
		{404, "NOT_FOUND", "models/x is not found for API version v1beta", "", providers.KindNoModel, "", 0},
		{429, "RESOURCE_EXHAUSTED", "You exceeded your current quota", retry, providers.KindRateLimited, "", 37500 * time.Millisecond},
		{500, "INTERNAL", "An internal error has occurred.", "", providers.KindServer, "", 0},
		{503, "UNAVAILABLE", "The model is overloaded.", "", providers.KindOverloaded, "", 0},
		{504, "DEADLINE_EXCEEDED", "Deadline expired", "", providers.KindTimeout, "", 0},
		{499, "CANCELLED", "The operation was cancelled.", "", providers.KindServer, "", 0},
		{409, "ABORTED", "Aborted", "", providers.KindServer, "", 0},
		{418, "TEAPOT", "", "", providers.KindProtocol, "", 0},
	} {
		body := upstreams.GeminiError(c.code, c.status, c.message, c.details)
		check := func(how string, f *providers.Failure) {
			if f.Kind != c.kind || f.Status != c.code || f.Param != c.param || f.RetryAfter != c.after || !strings.Contains(f.Error(), c.message) {
				t.Errorf("%s %s: kind %s, status %d, param %q, after %v, %v; want %+v", c.status, how, f.Kind, f.Status, f.Param, f.RetryAfter, f, c)
			}
		}
		for _, body := range []string{body, "[" + body + "]"} {
			p, server := start(t)
			server.Queue(upstreams.GeminiReply{Status: c.code, Body: body})
			_, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(hello), Stream: true})
			check("as an answer", failureOf(t, err))
		}
		p, server := start(t)
		server.Queue(upstreams.GeminiReply{Events: []string{body}})
		answer, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(hello), Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = answer.Stream.Next()
		check("in a stream", failureOf(t, err))
	}
}

func TestUnknownErrorsKeepStatusAndRetryAfter(t *testing.T) {
	t.Parallel()
	p, server := start(t)
	server.Queue(upstreams.GeminiReply{Status: 503, Body: "<html>busy</html>", Header: http.Header{"Retry-After": {"7"}}})
	_, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(hello)})
	if f := failureOf(t, err); f.Kind != providers.KindOverloaded || f.RetryAfter != 7*time.Second {
		t.Errorf("%+v", f)
	}
}

// Google quotes the key when it denies one.
func TestErrorsAndURLsDoNotContainTheKey(t *testing.T) {
	t.Parallel()
	says := func(code int, status string) string {
		return upstreams.GeminiError(code, status, "Permission denied: Consumer 'api_key:"+testKey+"' has been suspended.", "")
	}
	event := upstreams.GeminiReply{Events: []string{says(403, "PERMISSION_DENIED")}}
	for name, reply := range map[string]upstreams.GeminiReply{
		"an error":          {Status: 403, Body: says(403, "PERMISSION_DENIED")},
		"a text":            {Status: 500, Body: "key " + testKey},
		"an error in a 200": {Body: says(403, "PERMISSION_DENIED")},
		"nonsense":          {Body: `{"candidates":"` + testKey + `"}`},
		"a stream":          event,
		"nonsense streamed": {Events: []string{`{"` + testKey + `":`}},
	} {
		for _, call := range []string{"plain", "stream", "embeddings"} {
			p, server := start(t)
			server.Queue(reply)
			var answer *providers.Response
			var err error
			if call == "embeddings" {
				answer, err = p.Embeddings(t.Context(), "m", []byte(`{"input":"x"}`))
			} else {
				answer, err = p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(hello), Stream: call == "stream"})
			}
			if err == nil && answer.Stream != nil {
				_, err = answer.Stream.Next()
			}
			if err == nil {
				t.Errorf("%s (%s) is accepted", name, call)
			}
			if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, testKey) {
				t.Errorf("%s (%s) shows the key: %s", name, call, text)
			}
			for _, r := range server.Requests() {
				if strings.Contains(r.Path+r.Query.Encode()+string(r.Body), testKey) || r.Header.Get("X-Goog-Api-Key") != testKey {
					t.Errorf("%s (%s): the key is not in its header alone", name, call)
				}
			}
		}
	}
	p := New(Options{BaseURL: "http://127.0.0.1:1/v1beta", Key: testKey})
	_, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(hello)})
	if f := failureOf(t, err); f.Kind != providers.KindConnect || strings.Contains(fmt.Sprintf("%+v", f), testKey) {
		t.Errorf("nobody there: %v", f)
	}
}

func TestWrongKeyIsAnAuthFailure(t *testing.T) {
	t.Parallel()
	server := upstreams.NewGemini(t, "another key")
	p := New(Options{BaseURL: server.BaseURL(), Key: testKey})
	_, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(hello)})
	if f := failureOf(t, err); f.Kind != providers.KindAuth {
		t.Errorf("%v", f)
	}
}
