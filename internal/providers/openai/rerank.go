package openai

import (
	"context"

	"github.com/go-json-experiment/json"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// Rerank makes a request to the API that Cohere, Jina, vLLM and others have in common.
func (p *Provider) Rerank(ctx context.Context, model string, body []byte) (*providers.Response, error) {
	resp, err := p.forward(ctx, model, "/rerank", body)
	if err != nil {
		return nil, err
	}
	out, err := p.readResponse(resp, "results")
	if err == nil {
		out.Usage = rerankUsage(out.Body)
	}
	return out, err
}

// rerankUsage returns the usage of a response: Cohere counts searches, and Jina and vLLM all tokens.
func rerankUsage(body []byte) (u providers.Usage) {
	var in struct {
		Usage struct {
			Total  float64 `json:"total_tokens"`
			Prompt float64 `json:"prompt_tokens"`
		} `json:"usage"`
		Meta struct {
			Billed struct {
				Searches float64 `json:"search_units"`
			} `json:"billed_units"`
			Tokens struct {
				Input float64 `json:"input_tokens"`
			} `json:"tokens"`
		} `json:"meta"`
	}
	if json.Unmarshal(body, &in, wire.Lenient) != nil {
		return u
	}
	plausible := func(n float64) int64 {
		if n < 0 || n > maxPlausible {
			return 0
		}
		return int64(n)
	}
	u.InputTokens = plausible(max(in.Usage.Total, in.Usage.Prompt, in.Meta.Tokens.Input))
	u.Searches = plausible(in.Meta.Billed.Searches)
	return u
}
