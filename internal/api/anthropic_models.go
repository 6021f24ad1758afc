package api

import (
	"context"
	"slices"
	"time"

	"turnpike/internal/catalog"
	"turnpike/internal/fault"
)

// anthropicModel has the fields of Anthropic's models.
type anthropicModel struct {
	Type           string `json:"type"`
	ID             string `json:"id"`
	DisplayName    string `json:"display_name"`
	CreatedAt      string `json:"created_at"`
	MaxInputTokens *int64 `json:"max_input_tokens"`
	MaxTokens      *int64 `json:"max_tokens"`
}

type anthropicModelList struct {
	Data    []anthropicModel `json:"data"`
	HasMore bool             `json:"has_more"`
	FirstID *string          `json:"first_id"`
	LastID  *string          `json:"last_id"`
}

func (c *Call) anthropicModel(m *catalog.Model) anthropicModel {
	out := c.anthropicRouterValue(m.ID)
	out.MaxInputTokens, out.MaxTokens = orNil(m.ContextWindow), orNil(m.MaxOutputTokens)
	return out
}

func (c *Call) anthropicRouterValue(name string) anthropicModel {
	return anthropicModel{Type: "model", ID: name, DisplayName: name, CreatedAt: c.s.Gateway.CatalogDate().UTC().Format(time.RFC3339)}
}

const maxAnthropicPage = 1000

// listAnthropicModels returns a page of the models that generate text: Anthropic's API has no others.
func (c *Call) listAnthropicModels(ctx context.Context) (any, error) {
	if _, err := readAnthropicVersion(c.R); err != nil {
		return nil, err
	}
	q := c.query("limit", "after_id", "before_id", "beta")
	limit := int(q.number("limit", 1, maxAnthropicPage, defaultLimit))
	if q.err != nil {
		return nil, q.err
	}
	models, err := c.s.Gateway.Models(ctx, c.owner())
	if err != nil {
		return nil, err
	}
	var all []anthropicModel
	for _, name := range models.Router {
		all = append(all, c.anthropicRouterValue(name))
	}
	for _, m := range models.Models {
		if m.Kind == catalog.Chat {
			all = append(all, c.anthropicModel(m))
		}
	}
	page, more := all, false
	for _, cursor := range []string{"after_id", "before_id"} {
		id := q.text(cursor)
		if id == "" {
			continue
		}
		at := slices.IndexFunc(page, func(m anthropicModel) bool { return m.ID == id })
		if at < 0 {
			return nil, fault.Invalid(cursor, "%s must be an ID from this list, such as last_id of the previous page.", cursor)
		}
		if cursor == "after_id" {
			page = page[at+1:]
		} else {
			page = page[:at]
		}
	}
	if more = len(page) > limit; more {
		if q.text("before_id") != "" {
			page = page[len(page)-limit:]
		} else {
			page = page[:limit]
		}
	}
	list := anthropicModelList{Data: page, HasMore: more}
	if len(page) > 0 {
		list.FirstID, list.LastID = &page[0].ID, &page[len(page)-1].ID
	}
	return list, nil
}

func (c *Call) getAnthropicModel(ctx context.Context) (any, error) {
	if _, err := readAnthropicVersion(c.R); err != nil {
		return nil, err
	}
	m, err := c.s.Gateway.Model(ctx, c.owner(), c.id())
	if err == nil && m == nil {
		return c.anthropicRouterValue(c.id()), nil
	}
	return show(m, err, c.anthropicModel)
}
