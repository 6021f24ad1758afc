// Package providers defines what a model provider does for the gateway. Each
// subpackage is a provider. They know nothing of keys, credits or the log.
package providers

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"turnpike/internal/catalog"
	"turnpike/internal/jsonbody"
)

// Provider is a model provider. Its other interfaces say what it can do.
type Provider interface {
	// Name returns the name in the request log and the Service-Provider header.
	Name() string
}

// ChatCompleter makes chat completions.
type ChatCompleter interface {
	// Chat makes a chat request. An error that the client can fix is a
	// *fault.Error, and an upstream failure a *Failure.
	Chat(ctx context.Context, req *ChatRequest) (*Response, error)
}

// Completer makes text completions, the predecessor of chat completions, in OpenAI's format.
type Completer interface {
	Complete(ctx context.Context, req *ChatRequest) (*Response, error)
}

// Moderator classifies texts and images as harmful or not, in OpenAI's format.
type Moderator interface {
	Moderate(ctx context.Context, model string, body []byte) (*Response, error)
}

// Reranker orders documents by their relevance to a query, in the format of Cohere and Jina.
type Reranker interface {
	Rerank(ctx context.Context, model string, body []byte) (*Response, error)
}

// ChatRequest is a chat request for a provider.
type ChatRequest struct {
	Model  string          // the provider's name for the model, or a deployment's
	ID     string          // the client's name for the model
	Body   []byte          // the client's JSON, which must not be changed
	Index  *jsonbody.Index // of a body that was read before; may be nil
	Stream bool
	// MaxOutput limits the output tokens, regardless of the body. 0 means no limit.
	// The gateway has reserved credits for that many.
	MaxOutput int64
	// BeforeWait, if set, is called by a stream's Next before it waits for the rest of the response,
	// so that chunks that arrived together can be sent together. Its error ends the stream.
	BeforeWait func() error
}

// MessageCreator serves Anthropic's Messages API itself. Other providers get a translated chat
// request.
type MessageCreator interface {
	// Messages makes a request to the Messages API. The response and its events stay as the provider
	// sends them.
	Messages(ctx context.Context, req *MessagesRequest) (*Response, error)
	// CountMessageTokens counts the input tokens of a request without a call of the model.
	CountMessageTokens(ctx context.Context, req *MessagesRequest) (*Response, error)
}

// MessagesRequest is a request in Anthropic's format for a provider.
type MessagesRequest struct {
	Model     string          // the provider's name for the model
	Body      []byte          // the client's JSON, which must not be changed
	Index     *jsonbody.Index // of a body that was read before; may be nil
	Stream    bool
	MaxOutput int64    // limits the output tokens, as in ChatRequest
	Version   string   // the client's version of the API; the first one if empty
	Beta      []string // the client's anthropic-beta headers
	BetaQuery bool     // the client's URL has ?beta=true
	// BeforeWait is called by a stream before it waits, as in ChatRequest.
	BeforeWait func() error
}

// TokenCounter counts the input tokens of a chat request.
type TokenCounter interface {
	CountTokens(ctx context.Context, body []byte) (int64, error)
}

// Usage counts the tokens of a request, and media in their own units. Cached and
// written input is part of the input and has its own price.
type Usage struct {
	InputTokens  int64
	OutputTokens int64
	CachedInput  int64 // read from the provider's cache
	CacheWrite   int64 // written to it
	HourWrite    int64 // the part of CacheWrite that it keeps for an hour
	Estimated    bool  // the provider hasn't counted some of these

	ImageInput   int64 // the part of InputTokens that is images, where it is counted
	Images       int64
	Characters   int64 // turned into speech
	Milliseconds int64 // of video or audio
	Searches     int64 // of documents

	ToolCalls catalog.ToolCalls // of tools that the provider ran
}

// Response is a provider's response: Body if it isn't streamed, Stream if it is,
// and Content for a file.
type Response struct {
	Body    []byte
	Usage   Usage // of Body; a stream has its own
	Stream  Stream
	Content *Content
	Native  bool // Body or Stream is in the format of the Responses API

	ContentType string // of Body; JSON if empty
	// Ignored are the fields of the request that the provider's format can't express.
	Ignored []string
}

// Stream is a streamed response. Next returns io.EOF after the last chunk, and calls
// ChatRequest.BeforeWait before it waits. The API writes the "[DONE]" line.
type Stream interface {
	Next() (Chunk, error)
	// SoFar returns the usage of the chunks that Next has returned: the charge for
	// a stream that ends before its usage chunk.
	SoFar() Usage
	Close() error
}

// Chunk is the JSON of a server-sent event, valid until the next call of Next. Usage is set on the last chunk of
// every stream. The gateway charges by it, and drops the chunk if the client
// didn't ask for it. Whole is set by providers that count only at the end, once
// all choices have a finish reason: only the usage is missing then.
type Chunk struct {
	Data  []byte
	Event string // the event's name, if it has one
	Usage *Usage
	Whole bool
}

// Kind says how an upstream request failed.
type Kind string

// The kinds of failures. The gateway decides what to do about each.
const (
	KindConnect     Kind = "connect"      // no connection
	KindTimeout     Kind = "timeout"      // no response in time, or 408
	KindRateLimited Kind = "rate_limited" // 429
	KindOverloaded  Kind = "overloaded"   // 503, 529
	KindServer      Kind = "server_error" // other 5xx, 409
	KindAuth        Kind = "auth"         // 401, 403: the operator's key was rejected
	KindNoModel     Kind = "no_model"     // 404: the provider doesn't have the model
	KindInvalid     Kind = "invalid"      // 400, 413, 422: the client's request is invalid
	KindTooLong     Kind = "too_long"     // it exceeds the model's context window
	KindProtocol    Kind = "protocol"     // a response that doesn't follow the protocol
	KindCut         Kind = "cut"          // a response that ended too early
	KindLocal       Kind = "local"        // this server is out of file descriptors

	KindBlockedInput  Kind = "blocked_input"  // a filter rejected the input
	KindBlockedOutput Kind = "blocked_output" // a filter rejected the output
)

// Failure is a failed upstream request. Its Error is for the log.
type Failure struct {
	Kind       Kind
	Status     int           // of the response, or 0
	RetryAfter time.Duration // as the provider requested, or 0
	Param      string        // for KindInvalid: the field that the provider names, if any
	// Message is what the provider says about the client's request, for the client: without IDs of the
	// operator's account, and empty if the failure isn't about the request.
	Message string
	Err     error
}

func (f *Failure) Error() string {
	if f.Status != 0 {
		return fmt.Sprintf("%s (%d): %v", f.Kind, f.Status, f.Err)
	}
	return fmt.Sprintf("%s: %v", f.Kind, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// Transient reports whether a retry may succeed. A request that exceeded
// Turnpike's own timeout isn't retried.
func (f *Failure) Transient() bool {
	switch f.Kind {
	case KindConnect, KindRateLimited, KindOverloaded, KindServer:
		return f.Status != http.StatusNotImplemented
	case KindTimeout:
		return f.Status != 0
	}
	return false
}
