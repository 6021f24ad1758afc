package gemini

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

var _ providers.ModelLister = (*Provider)(nil)

// maxModelPages ends a list that never ends. A page has up to 1,000 models.
const maxModelPages = 10

// ListModels returns the names of the server's models.
func (p *Provider) ListModels(ctx context.Context) ([]string, error) {
	var names []string
	address, after := p.base+"/models?pageSize=1000", ""
	for range maxModelPages {
		resp, err := p.client.Do(ctx, wire.Call{Method: http.MethodGet, URL: address + after, Explain: explain})
		if err != nil {
			return nil, err
		}
		body, err := wire.ReadAll(resp)
		if err != nil {
			return nil, err
		}
		var page struct {
			Models []struct {
				Name string `json:"name"`
			} `json:"models"`
			Next string `json:"nextPageToken"`
		}
		if err := json.Unmarshal(body, &page, wire.Lenient); err != nil {
			return nil, wire.ProtocolFailure("the list of models is not JSON")
		}
		for _, m := range page.Models {
			names = append(names, strings.TrimPrefix(m.Name, "models/"))
		}
		if page.Next == "" {
			break
		}
		after = "&pageToken=" + url.QueryEscape(page.Next)
	}
	return names, nil
}
