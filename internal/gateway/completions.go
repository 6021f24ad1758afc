package gateway

import (
	"context"

	"turnpike/internal/catalog"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
)

// Completions makes a text completion. Providers with OpenAI's API get the client's bytes, and all
// others a chat completion.
func (g *Gateway) Completions(ctx context.Context, c Call) (*Response, error) {
	in, routing, err := openai.ReadCompletion(c.Body)
	if err != nil {
		return nil, err
	}
	r := &request{operation: "chat", endpoint: "completions", body: c.Body, choices: routing.Choices, stream: routing.Stream, includeUsage: routing.IncludeUsage,
		maxOutput: min(routing.MaxOutput, maxTokenCount), priorityTier: routing.PriorityService}
	if r.models, err = modelList(&routing.Model, routing.Models); err != nil {
		return nil, err
	}
	r.maxInput = maxTextTokens(c.Body, r.needs)
	r.session = c.session(r)
	s := g.current.Load()
	targets, err := s.route(ctx, c.owner(), r.models, catalog.Chat, r)
	if err != nil {
		return nil, err
	}
	if r.lacksTierPrice(targets) {
		r.body = withDefaultTier(r.body)
	}
	c.TransformBody = openai.ToTextCompletion
	response, err := s.run(ctx, c, r, targets, func(ctx context.Context, t target, maxOutput int64) (*providers.Response, error) {
		req := &providers.ChatRequest{Model: t.offer.Upstream, ID: t.offer.ID, Body: r.body, Index: r.indexed, Stream: r.stream, MaxOutput: maxOutput, BeforeWait: c.BeforeWait}
		if p, ok := t.provider.(providers.Completer); ok {
			return p.Complete(ctx, req)
		}
		body, err := in.Chat()
		if err != nil {
			return nil, err
		}
		req.Body = body
		return t.provider.(providers.ChatCompleter).Chat(ctx, req)
	})
	if err == nil && response.Stream != nil {
		response.Stream.transform = openai.ToTextCompletion
	}
	return response, err
}
