package openai

import (
	"context"
	"net/http"
	"net/url"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

var _ providers.ModelLister = (*Provider)(nil)

// ListModels returns the names of the server's models. Azure's dated API lists models and not deployments.
func (p *Provider) ListModels(ctx context.Context) ([]string, error) {
	address := p.base + "/models"
	if p.apiVersion != "" {
		address += "?api-version=" + url.QueryEscape(p.apiVersion)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := p.exchange(ctx, wire.Call{Method: http.MethodGet, URL: address}, &list); err != nil {
		return nil, err
	}
	var names []string
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, nil
}
