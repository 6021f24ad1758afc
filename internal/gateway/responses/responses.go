// Package responses translates OpenAI's Responses API to chat completions, and plain or streamed
// completions back to responses. Nothing is stored, so references to earlier responses are rejected.
package responses

import (
	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// Request is a Responses request and its translation.
type Request struct {
	Chat   []byte // the body of the chat completion request
	Stream bool
	Model  string // as in the request, or ""
	// ID is the source of the response's IDs: req_abc gives resp_abc, msg_abc_0 and so on. If
	// empty, they derive from the completion's ID, which not every server makes unique.
	ID string

	in      *request
	origins []origin // of the chat messages, for TranslateFault
}

// requestNames are the fields of a Responses request.
var requestNames = jsonbody.NamesOf[request]()

// ToChat translates a Responses request. Errors name the field as in the request.
func ToChat(body []byte) (*Request, error) {
	in := &request{}
	if err := jsonbody.DecodeForwarded(body, in, requestNames); err != nil {
		return nil, err
	}
	if err := in.rejectUnsupported(); err != nil {
		return nil, err
	}
	out := &chat{Model: in.Model, Extra: in.Extra}
	if err := in.copySettings(out); err != nil {
		return nil, err
	}
	if err := in.translateTools(out); err != nil {
		return nil, err
	}
	if err := in.translateText(out); err != nil {
		return nil, err
	}
	messages, err := in.messages()
	if err != nil {
		return nil, err
	}
	out.Messages = messages
	text, err := json.Marshal(out)
	if err != nil { // the translation nests deeper than the limit of JSON
		return nil, fault.New(fault.InvalidJSON, "The body is nested too deeply.").Because(err)
	}
	r := &Request{Chat: text, Stream: in.Stream, in: in}
	if in.Model != nil {
		r.Model = *in.Model
	}
	for _, m := range messages {
		r.origins = append(r.origins, m.from)
	}
	return r, nil
}
