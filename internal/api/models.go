package api

import (
	"context"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/gateway"
)

// modelObject has OpenAI's fields and those that Turnpike adds.
type modelObject struct {
	ID              string        `json:"id"`
	Object          string        `json:"object"`
	Created         int64         `json:"created"`
	OwnedBy         string        `json:"owned_by"`
	ContextWindow   *int64        `json:"context_window"`
	MaxOutputTokens *int64        `json:"max_output_tokens"`
	Kind            *string       `json:"kind"`
	Modalities      []string      `json:"modalities"`
	Capabilities    []string      `json:"capabilities"`
	Pricing         *modelPricing `json:"pricing"` // nil for router names and models without a price
}

// owner returns whose limits apply to the choice of a model.
func (c *Call) owner() gateway.Owner {
	return gateway.Owner{Principal: c.Principal, Project: c.Project}
}

// modelPricing is in credits: per million tokens, or for media per image, second of
// audio or video, character of speech, and search.
type modelPricing struct {
	Input       credits.Micro `json:"input_per_million"`
	Output      credits.Micro `json:"output_per_million"`
	CachedInput credits.Micro `json:"cached_input_per_million"`
	CacheWrite  credits.Micro `json:"cache_write_per_million"`

	PerImage     credits.Micro `json:"per_image,omitzero"`
	PerSecond    credits.Micro `json:"per_second,omitzero"`
	PerCharacter credits.Micro `json:"per_character,omitzero"`
	PerSearch    credits.Micro `json:"per_search,omitzero"`

	PerToolCall map[string]credits.Micro `json:"per_tool_call,omitempty"` // of tools that run at the provider
}

func (c *Call) model(m *catalog.Model) *modelObject {
	o := &modelObject{ID: m.ID, Object: "model", Created: c.s.Gateway.CatalogDate().Unix(), OwnedBy: m.Provider, Kind: orNil(string(m.Kind)),
		ContextWindow: orNil(m.ContextWindow), MaxOutputTokens: orNil(m.MaxOutputTokens), Modalities: m.Modalities, Capabilities: m.Capabilities.Names()}
	if m.Priced {
		o.Pricing = &modelPricing{m.Price.Input, m.Price.Output, m.Price.CachedInput, m.Price.CacheWrite, m.Price.PerImage, m.Price.PerSecond, m.Price.PerCharacter, m.Price.PerSearch, m.Price.Tools.Named()}
	}
	return o
}

// listModels returns all models on one page, as OpenAI does.
func listModels(ctx context.Context, c *Call) (any, error) {
	if usesAnthropicFormat(c.R) {
		return c.listAnthropicModels(ctx)
	}
	models, err := c.s.Gateway.Models(ctx, c.owner())
	if err != nil {
		return nil, err
	}
	var data []*modelObject
	for _, name := range models.Router {
		data = append(data, c.routerValue(name))
	}
	for _, m := range models.Models {
		data = append(data, c.model(m))
	}
	return newList(data, func(m *modelObject) string { return m.ID }, false), nil
}

// routerValue describes a router name as a model. Requests cost the price of the
// model that the router picks.
func (c *Call) routerValue(name string) *modelObject {
	return &modelObject{ID: name, Object: "model", Created: c.s.Gateway.CatalogDate().Unix(), OwnedBy: "turnpike", Modalities: []string{"text", "image"}, Capabilities: []string{}}
}

func getModel(ctx context.Context, c *Call) (any, error) {
	if usesAnthropicFormat(c.R) {
		return c.getAnthropicModel(ctx)
	}
	m, err := c.s.Gateway.Model(ctx, c.owner(), c.id())
	if err == nil && m == nil {
		return c.routerValue(c.id()), nil
	}
	return show(m, err, c.model)
}
