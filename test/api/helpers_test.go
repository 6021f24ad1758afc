package api_test

import (
	"net/netip"
	"testing"

	"turnpike/internal/db/dbtest"
	"turnpike/test/harness"
)

// A test runs on both engines if its guarantee depends on transactions, locks,
// leases, paging or several nodes. Otherwise SQLite is enough: the packages'
// own tests run every query on both.
var (
	both   = dbtest.Engines
	sqlite = []string{"sqlite"}
)

// eachEngine makes the test parallel and runs fn on each engine.
func eachEngine(t *testing.T, engines []string, fn func(t *testing.T, engine string)) {
	t.Helper()
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fn(t, engine)
		})
	}
}

// each runs fn against a new server on each engine.
func each(t *testing.T, engines []string, fn func(t *testing.T, s *harness.Server)) {
	t.Helper()
	eachEngine(t, engines, func(t *testing.T, engine string) {
		fn(t, harness.Start(t, harness.Config(t, engine), harness.NewClock()))
	})
}

// eachShared runs fn against the shared server of each engine, see harness.Shared.
func eachShared(t *testing.T, engines []string, fn func(t *testing.T, s *harness.Server)) {
	t.Helper()
	eachEngine(t, engines, func(t *testing.T, engine string) { fn(t, harness.Shared(engine)) })
}

func prefixes(t *testing.T, list ...string) []netip.Prefix {
	t.Helper()
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func chatBody(prompt string) map[string]any {
	return map[string]any{"model": "gpt-4o-mini", "messages": []map[string]string{{"role": "user", "content": prompt}}}
}
