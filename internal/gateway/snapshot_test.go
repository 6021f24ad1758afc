package gateway

import (
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/providers"
)

func TestCallInProgressKeepsItsSettings(t *testing.T) {
	t.Parallel()
	first, second := newFake("first", respond(10, 5)), newFake("second", respond(10, 5))
	r := newFixture(t, []providers.Provider{first})
	before := r.current.Load()
	free, err := catalog.Load(catalog.Terms{Suppliers: []catalog.Supplier{{Name: "second", Models: []catalog.ListedModel{{ID: "small", Price: dollars(0, 0)}}}}})
	if err != nil {
		t.Fatal(err)
	}
	r.Apply(Settings{Catalog: free, Upstreams: []Upstream{{Provider: second, Weight: 1}}, Rates: before.Rates, DefaultMaxOutput: before.DefaultMaxOutput})

	old := before.targetsFor(accounts.Live, "small", catalog.Chat)
	if len(old) != 1 || old[0].provider != first || old[0].price() == 0 {
		t.Errorf("a call that began before sees %+v, want the first provider at its price", old)
	}
	if out := r.chat(plainBody); out.err != nil || out.Provider != "second" || first.calls() != 0 {
		t.Errorf("the next call went to %q (%v), want second", out.Provider, out.err)
	}
}

func TestReplacedProviderStartsHealthy(t *testing.T) {
	t.Parallel()
	kept, replaced := newFake("kept", respond(10, 5)), newFake("replaced", respond(10, 5))
	r := newFixture(t, []providers.Provider{kept, replaced})
	before := r.current.Load()
	now := time.Now()
	for _, name := range []string{"kept", "replaced"} {
		before.health.listed[modelKey{name, "small"}].recordFailure(&providers.Failure{Kind: providers.KindAuth}, now)
	}
	next := before.Settings
	next.Upstreams = []Upstream{{Provider: kept, Weight: 1}, {Provider: newFake("replaced", respond(10, 5)), Weight: 1}}
	r.Apply(next)
	after := r.current.Load()
	for name, want := range map[string]int{"kept": 1, "replaced": 0} {
		if got := after.health.listed[modelKey{name, "small"}].rank(now); got != want {
			t.Errorf("rank of %s: got %d, want %d", name, got, want)
		}
	}
}
