package gateway

import (
	"context"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/providers"
)

// A tier whose price isn't known would cost the operator more than it is sold for.
func TestPriorityTierBecomesTheDefaultForPricedModels(t *testing.T) {
	t.Parallel()
	base := newFixture(t, nil)
	local := catalog.Supplier{Local: true, Models: []catalog.ListedModel{{ID: "small"}}}
	for name, tt := range map[string]struct {
		tier      string
		env       accounts.Environment
		suppliers []catalog.Supplier
		want      string // the tier that the provider gets
	}{
		"priority":         {`"priority"`, accounts.Live, nil, `"default"`},
		"in other case":    {`"Priority"`, accounts.Live, nil, `"default"`},
		"in escapes":       {`"prior\u0069ty"`, accounts.Live, nil, `"default"`},
		"with a test key":  {`"priority"`, accounts.Test, nil, `"default"`},
		"with free models": {`"priority"`, accounts.Live, []catalog.Supplier{local}, `"priority"`},
		"flex":             {`"flex"`, accounts.Live, nil, `"flex"`},
		"none":             {`null`, accounts.Live, nil, `null`},
		"not a string":     {`7`, accounts.Live, nil, `7`},
	} {
		var got string
		p := newFake("one", func(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
			got = string(req.Body)
			return respond(10, 5)(ctx, req)
		})
		r := base.withProviders(t, []providers.Provider{p}, tt.suppliers...)
		body := strings.Replace(plainBody, `"messages"`, `"service_tier":`+tt.tier+`,"messages"`, 1)
		if r.env = tt.env; tt.env == accounts.Test {
			body = strings.Replace(body, "small", "gpt-4o-mini", 1)
		}
		out := r.chat(body)
		if out.err != nil || tt.env == accounts.Live && !strings.Contains(got, `"service_tier":`+tt.want+`,`) {
			t.Errorf("%s: the provider got %s (%v)", name, got, out.err)
			continue
		}
		if ignored := slices.Contains(out.Ignored, "service_tier"); ignored != (tt.want != tt.tier) {
			t.Errorf("%s: the ignored fields are %v", name, out.Ignored)
		}
	}
}
