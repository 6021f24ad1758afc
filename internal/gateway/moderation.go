package gateway

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// Moderate classifies texts and images as harmful or not. Without a model the router chooses the
// cheapest one, because OpenAI's API has a free default as well.
func (g *Gateway) Moderate(ctx context.Context, c Call) (*Response, error) {
	r, err := readModeration(c.Body)
	if err != nil {
		return nil, err
	}
	return g.forward(ctx, c, r, catalog.Moderation, func(ctx context.Context, t target, _ int64) (*providers.Response, error) {
		return t.provider.(providers.Moderator).Moderate(ctx, t.offer.Upstream, r.body)
	})
}

type moderationFields struct {
	Model  *string        `json:"model"`
	Models []string       `json:"models"`
	Input  jsontext.Value `json:"input"`
}

func readModeration(body []byte) (*request, error) {
	var in moderationFields
	if err := jsonbody.DecodeForwarded(body, &in, providers.ModerationNames); err != nil {
		return nil, err
	}
	if len(in.Input) == 0 || in.Input.Kind() == 'n' {
		return nil, fault.Missing("input", "input is required: a string, an array of strings, or an array of text and image_url parts.")
	}
	r := &request{operation: "moderation", body: body, models: []string{AutoCheapest}} // no choices: the output isn't charged
	if in.Model != nil && *in.Model != "" || len(in.Models) > 0 {
		var err error
		if r.models, err = modelList(in.Model, in.Models); err != nil {
			return nil, err
		}
	}
	r.maxInput = maxTextTokens(body, r.needs)
	r.addContent("input")
	return r, nil
}
