package gateway

import (
	"strings"

	"turnpike/internal/providers"
)

// tooLong are the words by which providers say that a request does not fit into
// a model's context window. Only OpenAI has a code for it, and many servers
// that speak its language have not.
var tooLong = []string{
	"context_length_exceeded",
	"maximum context length",               // OpenAI, vLLM, Mistral, OpenRouter
	"context window",                       // OpenAI, LM Studio
	"longer than the maximum model length", // vLLM
	"available context size",               // llama.cpp
	"prompt is too long",                   // Anthropic
	"exceed context limit",                 // Anthropic, together with max_tokens
	"exceeds the maximum number of tokens", // Gemini
}

// saysTooLong reports whether a provider refuses a request for its length.
func saysTooLong(f *providers.Failure) bool {
	if f.Kind != providers.KindInvalid {
		return false
	}
	said := strings.ToLower(f.Error())
	for _, words := range tooLong {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}
