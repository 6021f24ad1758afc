package anthropic

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

var _ providers.ModelLister = (*Provider)(nil)

// maxModelPages ends a list that never ends. A page has up to 1,000 models.
const maxModelPages = 10

// ListModels returns the names of the server's models.
func (p *Provider) ListModels(ctx context.Context) ([]string, error) {
	if p.platform != Direct {
		return nil, errors.New("this cloud has no list of models in Anthropic's format")
	}
	var names []string
	address := strings.TrimSuffix(p.url, "/messages") + "/models?limit=1000"
	after := ""
	for range maxModelPages {
		var page struct {
			Data []struct {
				ID string `json:"id"`
			} `json:"data"`
			HasMore bool   `json:"has_more"`
			LastID  string `json:"last_id"`
		}
		if err := p.exchange(ctx, wire.Call{Method: http.MethodGet, URL: address + after}, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Data {
			names = append(names, m.ID)
		}
		if !page.HasMore || page.LastID == "" {
			break
		}
		after = "&after_id=" + url.QueryEscape(page.LastID)
	}
	return names, nil
}
