// Package providers holds what the gateway needs of a model provider. Each
// sub-package is one provider; none of them knows of keys, credits or the log.
package providers

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Provider is somebody who can be asked for something: what, is said by the
// interfaces that it has beside this one.
type Provider interface {
	// Name is the word the audit log and the Service-Provider header use.
	Name() string
}

// Chatter answers chat completions.
type Chatter interface {
	// Chat answers one chat completion. A refusal that the caller can act on
	// is a *fault.Error; an upstream failure is a *Failure.
	Chat(ctx context.Context, req *ChatRequest) (*Answer, error)
}

// ChatRequest is one chat completion call as a provider sees it.
type ChatRequest struct {
	Model  string // the provider's own name for the model
	ID     string // the model as the caller knows it: the other may be a deployment's
	Body   []byte // the caller's JSON; read it, never change it
	Stream bool
	// MaxOutput bounds the tokens of the answer, whatever the body says; 0 for
	// no bound. The gateway has reserved credits for so many.
	MaxOutput int64
}

// Usage is what a call consumed, in tokens. Cached and written input are part
// of the input, and have prices of their own. Media are counted in their own
// units beside that.
type Usage struct {
	InputTokens  int64
	OutputTokens int64
	CachedInput  int64 // read from the provider's cache
	CacheWrite   int64 // written to it
	Estimated    bool  // the provider has not counted some of these

	Images       int64
	Characters   int64 // read aloud
	Milliseconds int64 // of video or sound
}

// Answer is a provider's answer: Body for a plain call, Stream for a streamed
// one, Content for a file as it arrives.
type Answer struct {
	Body    []byte
	Usage   Usage // of a plain call; a stream carries its own
	Stream  Stream
	Content *Content
}

// Stream is a streamed answer. Next returns io.EOF after the last chunk; the
// "[DONE]" line is the gateway's to write.
type Stream interface {
	Next() (Chunk, error)
	// SoFar is what was used by what Next has returned: the charge for a
	// stream that ends before its usage chunk.
	SoFar() Usage
	Close() error
}

// Chunk is the JSON of one server-sent event. Usage is set on the chunk that
// carries it, which every stream sends last, asked for or not: the gateway
// meters by it and withholds it from a client that did not ask. Whole is set
// from a provider that counts at the end alone, when all choices have said why
// they ended: then only the count is still to come.
type Chunk struct {
	Data  []byte
	Usage *Usage
	Whole bool
}

// Kind is in which way an upstream call failed.
type Kind string

// The kinds. What the gateway does with each stands there.
const (
	KindConnect     Kind = "connect"      // nobody was reached
	KindTimeout     Kind = "timeout"      // no answer in time, or 408
	KindRateLimited Kind = "rate_limited" // 429
	KindOverloaded  Kind = "overloaded"   // 503, 529
	KindServer      Kind = "server_error" // other 5xx, 409
	KindAuth        Kind = "auth"         // 401, 403: the operator's key is not accepted
	KindNoModel     Kind = "no_model"     // 404: the provider does not know the model
	KindInvalid     Kind = "invalid"      // 400, 413, 422: the caller's request is at fault
	KindTooLong     Kind = "too_long"     // and it is, for the model
	KindProtocol    Kind = "protocol"     // an answer that cannot be understood
	KindCut         Kind = "cut"          // a stream that ended before its end
	KindLocal       Kind = "local"        // this server had no file descriptor for the call

	KindBlockedInput  Kind = "blocked_input"  // a filter refused what the caller asked for
	KindBlockedOutput Kind = "blocked_output" // or what the model made of it
)

// Failure is an upstream call that failed. Its Error is for the log: what a
// provider says never reaches the caller.
type Failure struct {
	Kind       Kind
	Status     int           // of the answer, or 0
	RetryAfter time.Duration // as the provider asked, or 0
	Param      string        // for KindInvalid: the field that the provider named, if any
	Err        error
}

func (f *Failure) Error() string {
	if f.Status != 0 {
		return fmt.Sprintf("%s (%d): %v", f.Kind, f.Status, f.Err)
	}
	return fmt.Sprintf("%s: %v", f.Kind, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// Momentary reports whether the same call may do better in a moment. A provider
// that has let our own patience run out is not waited for again.
func (f *Failure) Momentary() bool {
	switch f.Kind {
	case KindConnect, KindRateLimited, KindOverloaded, KindServer:
		return f.Status != http.StatusNotImplemented
	case KindTimeout:
		return f.Status != 0
	}
	return false
}
