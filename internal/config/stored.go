package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// storedProviderKeys are the keys of a provider that operators can also set while
// the server runs. Keys that read the server's environment or files, or run a
// command, are only for the file.
var storedProviderKeys = []string{"name", "type", "base_url", "api_key", "api_keys", "api_version", "headers", "catalog", "local", "old_limit_field",
	"no_stream_options", "responses_api", "private", "weight", "batch_price_percent", "default_price", "tool_prices", "allow_fields", "ignore_unbilled", "models"}

// StoredProviderKeys returns the keys of a provider that don't belong to the file
// alone.
func StoredProviderKeys() []string { return slices.Clone(storedProviderKeys) }

// StoredRouteKeys returns the keys of a route that don't belong to the file alone.
func StoredRouteKeys() []string { return recordKeys(reflect.TypeFor[Route]()) }

// ParseProvider reads and checks a provider from a JSON object with the keys of
// the file. Its error is Problems with names inside of the provider, such as
// models[0].id.
func ParseProvider(document []byte) (Provider, error) {
	var p Provider
	problems := parseRecord(document, reflect.ValueOf(&p).Elem(), storedProviderKeys)
	if len(problems) == 0 {
		p.complete()
		f := &faults{}
		for i, k := range p.APIKeys {
			f.addIf(k.APIKeyEnv != "", fmt.Sprintf("api_keys[%d].api_key_env", i), "belongs into the configuration file")
		}
		p.check(f)
		problems = f.all
	}
	if len(problems) > 0 {
		return Provider{}, problems
	}
	return p, nil
}

// ParseRoute is ParseProvider for a route.
func ParseRoute(document []byte) (Route, error) {
	var r Route
	problems := parseRecord(document, reflect.ValueOf(&r).Elem(), StoredRouteKeys())
	if len(problems) == 0 {
		for _, p := range routeProblems([]Route{r}) {
			p.Setting = strings.TrimPrefix(p.Setting, "routes[0].")
			problems = append(problems, p)
		}
	}
	if len(problems) > 0 {
		return Route{}, problems
	}
	return r, nil
}

// Pricing is the part of the prices that operators can set while the server runs.
type Pricing struct {
	MarkupPercent Decimal `key:"markup_percent"`
}

// StoredPricingKeys returns the keys of Pricing.
func StoredPricingKeys() []string { return recordKeys(reflect.TypeFor[Pricing]()) }

// ParsePricing is ParseProvider for prices.
func ParsePricing(document []byte) (Pricing, error) {
	var p Pricing
	problems := parseRecord(document, reflect.ValueOf(&p).Elem(), StoredPricingKeys())
	if len(problems) == 0 {
		c := Config{MarkupPercent: p.MarkupPercent}
		f := &faults{}
		for _, s := range c.settings() {
			if s.value == &c.MarkupPercent {
				f.note(s.name, s.fault())
			}
		}
		problems = f.all
	}
	if len(problems) > 0 {
		return Pricing{}, problems
	}
	return p, nil
}

// parseRecord reads a JSON object, which is YAML, as an entry of a section.
func parseRecord(document []byte, into reflect.Value, keys []string) (problems Problems) {
	var doc yaml.Node
	if err := yaml.Unmarshal(document, &doc); err != nil || len(doc.Content) != 1 {
		return Problems{{Message: "is not a JSON object"}}
	}
	r := fileReader{loader: &loader{Loaded: Loaded{Origin: map[string]string{}}}, seen: map[string]int{}}
	setDefaults(into)
	r.record("", doc.Content[0], into)
	problems = r.problems
	for i, p := range problems {
		problems[i] = Problem{Setting: strings.TrimPrefix(p.Setting, "."), Message: p.Message}
	}
	for i, key := range recordKeys(into.Type()) {
		if !slices.Contains(keys, key) && !into.Field(i).IsZero() {
			problems = append(problems, Problem{Setting: key, Message: "belongs into the configuration file"})
		}
	}
	return problems
}

// Describe returns a definition with the keys of the file and without its
// secrets.
func Describe[T Provider | Route | Pricing](record T) map[string]any {
	return describe(reflect.ValueOf(record)).(map[string]any)
}

func describe(v reflect.Value) any {
	switch value := v.Interface().(type) {
	case Decimal:
		return jsontext.Value(value) // a number, exactly as written
	case Secret:
		return value.String()
	case Address:
		return value.String()
	case time.Duration:
		return value.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		return describe(v.Elem())
	case reflect.Struct:
		out := map[string]any{}
		for i, key := range recordKeys(v.Type()) {
			if field := v.Field(i); !field.IsZero() {
				out[key] = describe(field)
			}
		}
		return out
	case reflect.Slice:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = describe(v.Index(i))
		}
		return out
	case reflect.Map:
		out := map[string]any{}
		for name, value := range v.Seq2() {
			out[name.String()] = describe(value)
		}
		return out
	}
	return v.Interface()
}

// WithStored returns the configuration with providers and routes that are stored in
// the database, and their prices. The file's win over stored ones of the same name.
func (c Config) WithStored(providers []Provider, routes []Route, prices Pricing) Config {
	c.Providers, c.Routes = slices.Clone(c.Providers), slices.Clone(c.Routes)
	for _, p := range providers {
		if !c.HasProvider(p.Name) {
			c.Providers = append(c.Providers, p)
		}
	}
	for _, r := range routes {
		if !c.HasRoute(r.Name) {
			c.Routes = append(c.Routes, r)
		}
	}
	if c.MarkupPercent == "" {
		c.MarkupPercent = prices.MarkupPercent
	}
	return c
}

// HasProvider reports whether a provider has the name.
func (c Config) HasProvider(name string) bool {
	return slices.ContainsFunc(c.Providers, func(p Provider) bool { return p.Name == name })
}

// HasRoute reports whether a route has the name.
func (c Config) HasRoute(name string) bool {
	return slices.ContainsFunc(c.Routes, func(r Route) bool { return r.Name == name })
}
