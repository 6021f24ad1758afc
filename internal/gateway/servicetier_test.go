package gateway

import (
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/providers"
)

func TestPriorityTierIsRejectedForPricedModels(t *testing.T) {
	t.Parallel()
	base := newFixture(t, nil)
	local := catalog.Supplier{Local: true, Models: []catalog.ListedModel{{ID: "small"}}}
	for name, tt := range map[string]struct {
		tier      string
		env       accounts.Environment
		suppliers []catalog.Supplier
		code      string
	}{
		"priority":         {`"priority"`, accounts.Live, nil, "invalid_parameter"},
		"in other case":    {`"Priority"`, accounts.Live, nil, "invalid_parameter"},
		"in escapes":       {`"prior\u0069ty"`, accounts.Live, nil, "invalid_parameter"},
		"with a test key":  {`"priority"`, accounts.Test, nil, "invalid_parameter"},
		"with free models": {`"priority"`, accounts.Live, []catalog.Supplier{local}, ""},
		"flex":             {`"flex"`, accounts.Live, nil, ""},
		"default":          {`"default"`, accounts.Live, nil, ""},
		"none":             {`null`, accounts.Live, nil, ""},
		"not a string":     {`7`, accounts.Live, nil, ""},
	} {
		p := newFake("one", respond(10, 5))
		r := base.withProviders(t, []providers.Provider{p}, tt.suppliers...)
		call := plainBody
		if r.env = tt.env; tt.env == accounts.Test {
			call = strings.Replace(call, "small", "gpt-4o-mini", 1)
		}
		out := r.chat(strings.Replace(call, `"messages"`, `"service_tier":`+tt.tier+`,"messages"`, 1))
		if out.code != tt.code || tt.code != "" && p.calls() > 0 {
			t.Errorf("%s: got %q after %d calls, want %q (%v)", name, out.code, p.calls(), tt.code, out.err)
		}
	}
}
