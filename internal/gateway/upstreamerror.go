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

// upstreamFault returns the error of a failed call for the client. It has the provider's words only if they are
// about the request; the log has the cause.
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
	return faultOf(f).Because(err)
}

func faultOf(f *providers.Failure) *fault.Error {
	switch f.Kind {
	case providers.KindInvalid:
		if f.Param != "" && f.Message == "" {
			return fault.Param(fault.InvalidParameter, f.Param, "The model provider rejected the value of %s. Check what the model supports.", f.Param)
		}
		return rejection(f, f.Param, "The model provider rejected the request", "Check what the model supports.")
	case providers.KindTooLong:
		out := rejection(f, f.Param, "The request is longer than the model's context window", "Shorten it, request fewer tokens, or use a model with a larger context_window (GET /v1/models).")
		out.Code = fault.ContextLengthExceeded
		return out
	case providers.KindBlockedInput:
		return rejection(f, "prompt", "The model provider's content filter rejected the prompt", "")
	case providers.KindBlockedOutput:
		return rejection(f, "prompt", "The model provider's content filter rejected the output for this prompt", "")
	case providers.KindTimeout:
		return fault.New(fault.UpstreamTimeout, "The model provider timed out.")
	case providers.KindRateLimited:
		return retryAfter(f.RetryAfter, fault.New(fault.RateLimitExceeded, "The model provider's rate limit is reached. Retry shortly."))
	case providers.KindOverloaded:
		return retryAfter(f.RetryAfter, fault.New(fault.Overloaded, "The model provider is overloaded. Retry shortly."))
	case providers.KindLocal:
		return retryAfter(localRetryAfter, fault.New(fault.Overloaded, "This server is out of file descriptors and cannot call the model provider. Retry shortly. An operator can %s.", safehttp.MoreDescriptors))
	case providers.KindAuth:
		out := fault.New(fault.Upstream, "The model provider rejected this server's API key or account. An operator can check it with: turnpike doctor")
		out.Retry = fault.RetryIsFutile
		return out
	case providers.KindNoModel:
		if f.Message != "" {
			out := rejection(f, "model", "The model provider did not find the model, or an object that the request names", "")
			out.Code = fault.ModelNotFound
			return out
		}
		return fault.New(fault.Upstream, "The model provider does not have this model, although the catalog lists it.")
	case providers.KindConnect:
		return fault.New(fault.Upstream, "The model provider is unreachable.")
	}
	return fault.New(fault.Upstream, "The model provider failed.")
}

// rejection says that the provider rejected the request, in its own words or with other advice.
func rejection(f *providers.Failure, param, what, advice string) *fault.Error {
	if f.Message != "" {
		return fault.Param(fault.InvalidParameter, param, "%s: %s", what, f.Message)
	}
	return fault.Param(fault.InvalidParameter, param, "%s", strings.TrimSpace(what+". "+advice))
}

func retryAfter(delay time.Duration, f *fault.Error) *fault.Error {
	f.RetryAfter = max(delay, time.Second)
	return f
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
