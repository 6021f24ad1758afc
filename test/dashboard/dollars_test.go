package dashboard_test

import (
	"regexp"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

func TestDollarsAreShownBesideCredits(t *testing.T) {
	t.Parallel()
	for rate, spent := range map[config.Decimal]string{"0.01": "100", "": "1,000"} {
		t.Run("rate "+string(rate), func(t *testing.T) {
			t.Parallel()
			upstream := upstreams.NewOpenAI(t, "sk-one")
			cfg := harness.Config(t, "sqlite")
			cfg.CreditUSD = rate
			cfg.Providers = []config.Provider{{Name: "first", Type: config.OpenAI, BaseURL: config.Address(upstream.BaseURL()), APIKey: "sk-one", Weight: 1,
				Models: []config.ProviderModel{{ID: "small", Price: &config.ModelPrice{Input: "2000", Output: "8000"}}, {ID: "tiny", Price: &config.ModelPrice{Input: "0.02", Output: "0"}}}}}
			s := harness.Start(t, cfg, harness.NewClock())
			w := s.Workspace(t, "acme")
			b := member(t, s, w, accounts.Owner)
			budget := 123_456 * credits.Credit
			key, keyID := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "web", Scopes: []string{"*"}, MonthlyBudget: &budget})
			s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: key, Body: map[string]any{"id": "shop", "monthly_budget": 200}}).Want(t, 200, "")
			upstream.Queue(upstreams.OpenAIReply{Usage: &upstreams.OpenAIUsage{Input: 100, Output: 100}}) // $1
			body := chatWith("small", "hi")
			body["max_tokens"] = 1000
			id := s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: body}).Want(t, 200, "").Header.Get("X-Request-Id")
			billing := b.in(accounts.Live, "billing")
			s.Eventually(t, func() bool { return strings.Contains(b.get(t, billing).body, `<span class="stat">`+spent+`</span>`) })
			for page, text := range map[string]string{
				"":               `100</span> <span class="usd">$1.00</span>`,
				"billing":        `100</span> <span class="usd">$1.00</span>`,
				"usage":          `100.0000 <span class="usd">$1.0000</span>`,
				"requests":       `100.0000 <span class="usd">$1.000000</span>`,
				"requests/" + id: `100 <span class="usd">$1.00</span>`,
				"keys":           `100 of 123,456</span> <span class="usd">$1.00 of $1,234.56</span>`,
				"keys/" + keyID:  `100 of 123,456</span> <span class="usd">$1.00 of $1,234.56</span>`,
				"projects":       `0 of 200</span> <span class="usd">$0.00 of $2.00</span>`,
				"playground":     "credit_usd&#34;:0.01",
				"projects/shop":  `0 of 200</span> <span class="usd">$0.00 of $2.00</span>`,
			} {
				a := b.get(t, b.in(accounts.Live, page))
				if rate == "" {
					a.is(t, 200).hides(t, `class="usd"`, "$0.", "$1", "credit_usd")
				} else {
					a.shows(t, text)
				}
			}
			upstream.Queue(upstreams.OpenAIReply{Usage: &upstreams.OpenAIUsage{Input: 100, Output: 100}})
			id = s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatWith("tiny", "hi")}).Want(t, 200, "").Header.Get("X-Request-Id")
			if rate != "" { // parts of a cent are still numbers
				s.Eventually(t, func() bool {
					return strings.Contains(b.get(t, b.in(accounts.Live, "requests")).body, `0.0002 <span class="usd">$0.000002</span>`)
				})
				b.get(t, b.in(accounts.Live, "requests/"+id)).shows(t, `0.0002 <span class="usd">$0.000002</span>`)
				b.get(t, b.in(accounts.Live, "requests")).shows(t, `Credits <span class="usd">Dollars</span>`)
				// A column of sums has one precision, also for sums that round to zero.
				b.until(t, b.in(accounts.Live, "usage?group=model"), `0.0002 <span class="usd">&lt;$0.0001</span>`).shows(t, `100.0000 <span class="usd">$1.0000</span>`)
				failed := s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatWith("none", "hi")}).Want(t, 404, "model_not_found").Header.Get("X-Request-Id")
				b.until(t, b.in(accounts.Live, "requests/"+failed), "<dt>Credits</dt><dd>0</dd>").hides(t, "$0.00")
			}
			upstream.Queue(upstreams.OpenAIReply{Usage: &upstreams.OpenAIUsage{Input: 100, Output: 100}})
			s.Do(t, harness.Request{Method: "POST", Path: "/v1/agents/runs", Key: key, Body: map[string]any{"model": "small", "input": "hi", "max_steps": 1}}).Want(t, 200, "")
			s.Eventually(t, func() bool { return strings.Contains(b.get(t, b.in(accounts.Live, "runs")).body, "completed</span>") })
			if runs := b.get(t, b.in(accounts.Live, "runs")); rate == "" {
				runs.hides(t, `class="usd"`)
			} else {
				runs.shows(t, `100.0000 <span class="usd">$1.0000</span>`)
				run := regexp.MustCompile(`runs/(run_\w+)`).FindStringSubmatch(runs.body)[1]
				b.get(t, b.in(accounts.Live, "runs/"+run)).shows(t, `<span>100 credits <span class="usd">$1.00</span></span>`)
			}
		})
	}
}
