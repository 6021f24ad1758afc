// Package responses puts OpenAI's Responses API on top of chat completions: a
// request becomes a chat request, and the chat's answer, plain or streamed,
// becomes a response. It translates and does nothing else: nothing is stored,
// so whatever refers to an earlier response is refused.
package responses

import (
	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// Request is a Responses request and the chat request made of it.
type Request struct {
	Chat   []byte // the body of the chat completion request
	Stream bool
	Model  string // as the caller wrote it, or ""
	// ID makes the answer's ids: req_abc gives resp_abc, msg_abc_0 and so on.
	// It may be set before the answer is made; without it they are made of the
	// chat's id, which not every server makes unique.
	ID string

	in      *request
	origins []origin // of the chat's messages, for Fault
}

// names are the fields of a Responses request.
var names = jsonbody.NamesOf[request]()

// ToChat reads a Responses request. An error is a *fault.Error that names the
// field as the caller wrote it.
func ToChat(body []byte) (*Request, error) {
	in := &request{}
	if err := jsonbody.DecodeForwarded(body, in, names); err != nil {
		return nil, err
	}
	if err := in.refuse(); err != nil {
		return nil, err
	}
	out := &chat{Model: in.Model, Extra: in.Extra}
	if err := in.settings(out); err != nil {
		return nil, err
	}
	if err := in.tools(out); err != nil {
		return nil, err
	}
	if err := in.format(out); err != nil {
		return nil, err
	}
	messages, err := in.messages()
	if err != nil {
		return nil, err
	}
	out.Messages = messages
	text, err := json.Marshal(out)
	if err != nil { // a value that sits deeper in a chat request than JSON may be deep
		return nil, fault.New(fault.InvalidJSON, "the body nests too deep").Because(err)
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
