package tools

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"turnpike/internal/safehttp"
	"turnpike/test/fakes/safehttptest"
)

// local is an executor that may reach the tests' own servers.
func local() *Executor {
	return NewExecutor(safehttp.New(safehttp.Policy{AllowHTTP: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}), "1.2.3")
}

// public is an executor as operators have it.
func public() *Executor { return NewExecutor(safehttp.New(safehttp.Policy{}), "1.2.3") }

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

var switching http.HandlerFunc = safehttptest.Switching

func list(t *testing.T, tools ...any) []json.RawMessage {
	t.Helper()
	var out []json.RawMessage
	for _, tool := range tools {
		if text, ok := tool.(string); ok {
			out = append(out, json.RawMessage(text))
			continue
		}
		raw, err := json.Marshal(tool)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, raw)
	}
	return out
}

// parsed is a list of tools that must be fine.
func parsed(t *testing.T, x *Executor, tools ...any) ([]Spec, Secrets) {
	t.Helper()
	specs, secrets, err := x.Parse(list(t, tools...))
	if err != nil {
		t.Fatal(err)
	}
	return specs, secrets
}

type object = map[string]any
