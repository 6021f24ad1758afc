package api

import (
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
)

// modelObject is OpenAI's shape and what Turnpike adds to it.
type modelObject struct {
	ID              string       `json:"id"`
	Object          string       `json:"object"`
	Created         int64        `json:"created"`
	OwnedBy         string       `json:"owned_by"`
	ContextWindow   *int64       `json:"context_window"`
	MaxOutputTokens *int64       `json:"max_output_tokens"`
	Modalities      []string     `json:"modalities"`
	Pricing         modelPricing `json:"pricing"`
}

// modelPricing is in credits per million tokens.
type modelPricing struct {
	Input       credits.Micro `json:"input_per_million"`
	Output      credits.Micro `json:"output_per_million"`
	CachedInput credits.Micro `json:"cached_input_per_million"`
}

func (c *Call) model(m *catalog.Model) *modelObject {
	return &modelObject{ID: m.ID, Object: "model", Created: c.s.Gateway.CatalogDate().Unix(), OwnedBy: m.OwnedBy,
		ContextWindow: positive(m.ContextWindow), MaxOutputTokens: positive(m.MaxOutputTokens), Modalities: m.Modalities,
		Pricing: modelPricing{m.Price.Input, m.Price.Output, m.Price.CachedInput}}
}

func positive(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// listModels answers with all of them on one page, as OpenAI does.
func listModels(c *Call) (any, error) {
	models := c.s.Gateway.Models(c.Principal)
	data := make([]*modelObject, len(models))
	for i, m := range models {
		data[i] = c.model(m)
	}
	return newList(data, func(m *modelObject) string { return m.ID }, false), nil
}

func getModel(c *Call) (any, error) {
	m, err := c.s.Gateway.Model(c.Principal, c.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return c.model(m), nil
}
