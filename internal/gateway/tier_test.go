package gateway

import (
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/providers"
)

// TestDearerTierIsNotSoldAtThePlainPrice: nobody knows here what it costs.
func TestDearerTierIsNotSoldAtThePlainPrice(t *testing.T) {
	t.Parallel()
	base := newRig(t, nil)
	local := catalog.Supplier{Local: true, Models: []catalog.Supply{{ID: "small"}}}
	for name, tt := range map[string]struct {
		tier      string
		env       accounts.Environment
		suppliers []catalog.Supplier
		code      string
	}{
		"priority":          {`"priority"`, accounts.Live, nil, "invalid_parameter"},
		"in other letters":  {`"Priority"`, accounts.Live, nil, "invalid_parameter"},
		"in escapes":        {`"prior\u0069ty"`, accounts.Live, nil, "invalid_parameter"},
		"with a test key":   {`"priority"`, accounts.Test, nil, "invalid_parameter"},
		"where all is free": {`"priority"`, accounts.Live, []catalog.Supplier{local}, ""},
		"cheaper":           {`"flex"`, accounts.Live, nil, ""},
		"the usual":         {`"default"`, accounts.Live, nil, ""},
		"none":              {`null`, accounts.Live, nil, ""},
		"not for us":        {`7`, accounts.Live, nil, ""},
	} {
		p := doer("one", says(10, 5))
		r := base.serving(t, []providers.Provider{p}, tt.suppliers...)
		call := plainCall
		if r.env = tt.env; tt.env == accounts.Test {
			call = strings.Replace(call, "small", "gpt-4o-mini", 1)
		}
		out := r.chat(strings.Replace(call, `"messages"`, `"service_tier":`+tt.tier+`,"messages"`, 1))
		if out.code != tt.code || tt.code != "" && p.calls() > 0 {
			t.Errorf("%s: %q after %d calls (%v)", name, out.code, p.calls(), out.err)
		}
	}
}
