package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/safehttp"
)

// localRetryAfter is the Retry-After when this server has no file descriptor left: calls end
// within seconds and free theirs.
const localRetryAfter = 5 * time.Second

// upstreamFault hides a provider's message: the client gets one of our codes, the log the cause.
func upstreamFault(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	var f *providers.Failure
	if !errors.As(err, &f) {
		switch {
		case errors.Is(err, context.Canceled):
			return err
		case errors.Is(err, context.DeadlineExceeded):
			return fault.New(fault.UpstreamTimeout, "The model provider timed out.").Because(err)
		}
		return fault.New(fault.Upstream, "The model provider failed.").Because(err)
	}
	switch f.Kind {
	case providers.KindInvalid:
		if f.Param != "" {
			return fault.Param(fault.InvalidParameter, f.Param, "The model provider rejected the value of %s. Check what the model supports.", f.Param).Because(err)
		}
		return fault.New(fault.InvalidParameter, "The model provider rejected the request. Check what the model supports.").Because(err)
	case providers.KindTooLong:
		return fault.Param(fault.ContextLengthExceeded, f.Param, "The request is longer than the model's context window. Shorten it, request fewer tokens, or use a model with a larger context_window (GET /v1/models).").Because(err)
	case providers.KindBlockedInput:
		return fault.Param(fault.InvalidParameter, "prompt", "The model provider's content filter rejected the prompt.").Because(err)
	case providers.KindBlockedOutput:
		return fault.Param(fault.InvalidParameter, "prompt", "The model provider's content filter rejected the output for this prompt.").Because(err)
	case providers.KindTimeout:
		return fault.New(fault.UpstreamTimeout, "The model provider timed out.").Because(err)
	case providers.KindRateLimited, providers.KindOverloaded:
		out := fault.New(fault.Overloaded, "The model provider is overloaded. Retry shortly.").Because(err)
		out.RetryAfter = max(f.RetryAfter, time.Second)
		return out
	case providers.KindLocal:
		out := fault.New(fault.Overloaded, "This server is out of file descriptors and cannot call the model provider. Retry shortly. An operator can %s.", safehttp.MoreDescriptors).Because(err)
		out.RetryAfter = localRetryAfter
		return out
	case providers.KindAuth:
		return fault.New(fault.Upstream, "The model provider rejected this server's API key. An operator can check it with: turnpike doctor").Because(err)
	case providers.KindNoModel:
		return fault.New(fault.Upstream, "The model provider does not have this model, although the catalog lists it.").Because(err)
	case providers.KindConnect:
		return fault.New(fault.Upstream, "The model provider is unreachable.").Because(err)
	}
	return fault.New(fault.Upstream, "The model provider failed.").Because(err)
}

func modelNotFound(param, name string) *fault.Error {
	return fault.Param(fault.ModelNotFound, param, "Unknown model %q. List the available models with GET /v1/models.", name)
}

// contextLengthPhrases are how providers report that a request exceeds the model's context
// window. Only OpenAI has a code for it, and many compatible servers don't send it.
var contextLengthPhrases = []string{
	"context_length_exceeded",
	"maximum context length",               // OpenAI, vLLM, Mistral, OpenRouter
	"context window",                       // OpenAI, LM Studio
	"longer than the maximum model length", // vLLM
	"available context size",               // llama.cpp
	"prompt is too long",                   // Anthropic
	"exceed context limit",                 // Anthropic, together with max_tokens
	"exceeds the maximum number of tokens", // Gemini
}

func isContextLengthError(f *providers.Failure) bool {
	if f.Kind != providers.KindInvalid {
		return false
	}
	message := strings.ToLower(f.Error())
	for _, phrase := range contextLengthPhrases {
		if strings.Contains(message, phrase) {
			return true
		}
	}
	return false
}
