package providers

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/jsonbody"
)

// Responder serves OpenAI's Responses API itself. Other providers get a translated chat request.
type Responder interface {
	// HasResponses reports whether the server has the API.
	HasResponses() bool
	// Respond makes a response. Its body and its events stay as the provider sends them, except for
	// the fields of the request.
	Respond(ctx context.Context, req *ResponsesRequest) (*Response, error)
}

// ResponsesRequest is a request in the format of the Responses API for a provider. The provider
// stores nothing: earlier items are part of the input.
type ResponsesRequest struct {
	Model  string          // the provider's name for the model
	ID     string          // the client's name for the model
	Body   []byte          // the client's JSON, which must not be changed
	Index  *jsonbody.Index // of a body that was read before; may be nil
	Stream bool
	// Input replaces the input of the body; nil keeps it.
	Input jsontext.Value
	// MaxOutput limits the output tokens, as in ChatRequest.
	MaxOutput int64
	// MaxToolCalls limits the calls of hosted tools, for which credits are reserved. 0 means no limit.
	MaxToolCalls int64
	// Tools replaces the tools of the body; nil keeps them.
	Tools jsontext.Value
	// Stored asks for reasoning in a form that can be sent back, because Turnpike stores the response.
	Stored bool
	// BeforeWait is that of ChatRequest.
	BeforeWait func() error
	// Fields replace fields of the response object.
	Fields []Field
}

// Field is a member of a JSON object.
type Field struct {
	Name  string
	Value jsontext.Value
}
