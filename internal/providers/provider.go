// Package providers holds what the gateway needs of a model provider. Each
// sub-package is one provider; none of them knows of keys, credits or the log.
package providers

import (
	"context"
)

// Provider answers model calls.
type Provider interface {
	// Name is the word the audit log and the Service-Provider header use.
	Name() string
	// Chat answers one chat completion. A refusal that the caller can act on
	// is a *fault.Error; anything else is an upstream failure.
	Chat(ctx context.Context, req *ChatRequest) (*Answer, error)
}

// ChatRequest is one chat completion call as a provider sees it.
type ChatRequest struct {
	Model  string // the provider's own name for the model
	Body   []byte // the caller's JSON; read it, never change it
	Stream bool
}

// Usage is what a call consumed, in tokens.
type Usage struct {
	InputTokens  int64
	OutputTokens int64
}

// Answer is a provider's answer: Body for a plain call, Stream for a streamed one.
type Answer struct {
	Body   []byte
	Usage  Usage // of a plain call; a stream carries its own
	Stream Stream
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
// meters by it and withholds it from a client that did not ask.
type Chunk struct {
	Data  []byte
	Usage *Usage
}
