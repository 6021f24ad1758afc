package upstreams

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Anthropic serves Anthropic's Messages API, version 2023-06-01. It rejects other
// keys than its own, unknown fields, and fields that the model doesn't accept. It
// returns the replies that the test has queued, and otherwise repeats the last text.
type Anthropic struct {
	server *httptest.Server
	key    string

	mu           sync.Mutex
	replies      []AnthropicReply
	requests     []AnthropicRequest
	allowUnknown bool

	Batches AnthropicBatches
}

// AnthropicReply is a response set by a test.
type AnthropicReply struct {
	Status int         // default: 200
	Header http.Header // additional headers
	Body   string      // of a plain response
	Events []string    // of a stream: the data of each, which includes its type
	Cut    bool        // break the connection after them
	// Hold, if set, pauses the response after the events until it is closed or
	// the request ends.
	Hold chan struct{}
}

type AnthropicRequest struct {
	Path   string
	Query  string
	Header http.Header
	Body   []byte
	Gone   <-chan struct{} // closed when the request has ended
}

// NewAnthropic starts a server that runs until the test ends.
func NewAnthropic(t testing.TB, key string) *Anthropic {
	a := &Anthropic{key: key}
	a.server = httptest.NewServer(a)
	t.Cleanup(a.server.Close)
	return a
}

// BaseURL returns the URL without the version, as Anthropic's clients expect it.
func (a *Anthropic) BaseURL() string { return a.server.URL }

func (a *Anthropic) Queue(replies ...AnthropicReply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replies = append(a.replies, replies...)
}

// AllowUnknown makes the server accept fields that it doesn't know, as a newer version would.
func (a *Anthropic) AllowUnknown() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.allowUnknown = true
}

func (a *Anthropic) Requests() []AnthropicRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]AnthropicRequest(nil), a.requests...)
}

// AnthropicError returns an error body in Anthropic's format, which is also the
// data of an error event.
func AnthropicError(kind, message string) string {
	return fmt.Sprintf(`{"type":"error","error":{"type":%s,"message":%s},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}`, anthropicQuote(kind), anthropicQuote(message))
}

func anthropicQuote(s string) []byte {
	b, _ := jsontext.AppendQuote(nil, s)
	return b
}

func (a *Anthropic) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has disconnected
	}
	if r.Header.Get("X-Api-Key") == a.key && r.Header.Get("Anthropic-Version") != "" && a.Batches.serve(w, r, body) {
		return
	}
	a.mu.Lock()
	a.requests = append(a.requests, AnthropicRequest{Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header.Clone(), Body: body, Gone: r.Context().Done()})
	var reply *AnthropicReply
	if len(a.replies) > 0 {
		reply, a.replies = &a.replies[0], a.replies[1:]
	}
	strict := !a.allowUnknown
	a.mu.Unlock()

	reject := func(status int, kind, message string) {
		sendAnthropic(w, r, AnthropicReply{Status: status, Body: AnthropicError(kind, message)})
	}
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/v1/messages" && r.URL.Path != countPath:
		reject(404, "not_found_error", "Not found")
		return
	case r.Header.Get("X-Api-Key") != a.key:
		reject(401, "authentication_error", "invalid x-api-key")
		return
	case r.Header.Get("Anthropic-Version") != "2023-06-01" && r.Header.Get("Anthropic-Version") != "2026-10-21":
		reject(400, "invalid_request_error", "anthropic-version: header is required")
		return
	}
	var m anthropicMessages
	if err := json.Unmarshal(body, &m, json.RejectUnknownMembers(strict)); err != nil {
		reject(400, "invalid_request_error", err.Error())
		return
	}
	if r.URL.Path == countPath {
		m.MaxTokens = max(1, m.MaxTokens)
	}
	if err := m.check(); strict && err != nil {
		reject(400, "invalid_request_error", err.Error())
		return
	}
	if r.URL.Path == countPath && reply == nil {
		sendAnthropic(w, r, AnthropicReply{Body: fmt.Sprintf(`{"input_tokens":%d}`, 7+len(strings.Fields(m.lastText())))})
		return
	}
	if reply == nil {
		echo := anthropicSay(m.Model, m.lastText(), m.Stream)
		reply = &echo
	}
	sendAnthropic(w, r, *reply)
}

const countPath = "/v1/messages/count_tokens"

func sendAnthropic(w http.ResponseWriter, r *http.Request, reply AnthropicReply) {
	w.Header().Set("Content-Type", "application/json")
	if reply.Events != nil {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	w.Header().Set("Request-Id", "req_011CSHoEeqs5C35K2UUqR7Fy")
	for name, values := range reply.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(max(200, reply.Status))
	_, _ = io.WriteString(w, reply.Body)
	for _, data := range reply.Events {
		var event struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal([]byte(data), &event)
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event.Type, data)
		_ = http.NewResponseController(w).Flush()
	}
	if reply.Hold != nil {
		select {
		case <-reply.Hold:
		case <-r.Context().Done():
		}
	}
	if reply.Cut {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// anthropicSay returns a response with a text: 10 input tokens, and one output
// token for each word.
func anthropicSay(model, text string, stream bool) AnthropicReply {
	words := strings.SplitAfter(text, " ")
	const start = `{"id":"msg_013Zva2CMHLNnXjNJJKqJ2EF","type":"message","role":"assistant","model":%s,"content":[%s],"stop_reason":%s,"stop_sequence":null,` +
		`"usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":%d,"service_tier":"standard"}}`
	if !stream {
		return AnthropicReply{Body: fmt.Sprintf(start, anthropicQuote(model), fmt.Sprintf(`{"type":"text","text":%s}`, anthropicQuote(text)), `"end_turn"`, len(words))}
	}
	events := []string{
		`{"type":"message_start","message":` + fmt.Sprintf(start, anthropicQuote(model), "", "null", 1) + `}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"ping"}`,
	}
	for _, word := range words {
		events = append(events, fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}`, anthropicQuote(word)))
	}
	return AnthropicReply{Events: append(events,
		`{"type":"content_block_stop","index":0}`,
		fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":%d}}`, len(words)),
		`{"type":"message_stop"}`,
	)}
}
