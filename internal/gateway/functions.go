package gateway

import (
	"context"

	"turnpike/internal/openai"
	"turnpike/internal/providers"
)

// chat sends a chat request to a target. Functions, the predecessors of tools, become tools for all
// but providers with OpenAI's API, and tool calls become function calls again.
func (t target) chat(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
	p := t.provider.(providers.ChatCompleter)
	if _, hasAPI := t.provider.(providers.Completer); hasAPI || !openai.UsesFunctions(req.Body) {
		return p.Chat(ctx, req)
	}
	body, replaced, err := openai.ReplaceFunctions(req.Body)
	if err != nil {
		return nil, err
	}
	translated := *req
	translated.Body = body
	resp, err := p.Chat(ctx, &translated)
	if err != nil {
		return nil, openai.RenameField(err, openai.FunctionsFieldName)
	}
	switch {
	case !replaced:
	case resp.Stream != nil:
		resp.Stream = functionsStream{resp.Stream}
	default:
		resp.Body, err = openai.ToFunctionCalls(resp.Body)
	}
	return resp, err
}

// functionsStream turns the tool calls of a stream back into function calls.
type functionsStream struct{ providers.Stream }

// Next returns the next chunk.
func (s functionsStream) Next() (providers.Chunk, error) {
	chunk, err := s.Stream.Next()
	if err == nil {
		chunk.Data, err = openai.ToFunctionCalls(chunk.Data)
	}
	return chunk, err
}
