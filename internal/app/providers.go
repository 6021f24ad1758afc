package app

import (
	"context"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/internal/gateway"
	"turnpike/internal/limits"
	"turnpike/internal/modelroutes"
	"turnpike/internal/operators"
	"turnpike/internal/providers"
	"turnpike/internal/providers/anthropic"
	"turnpike/internal/providers/bedrock"
	"turnpike/internal/providers/credentials"
	"turnpike/internal/providers/espeak"
	"turnpike/internal/providers/gemini"
	"turnpike/internal/providers/openai"
	"turnpike/internal/providers/simulator"
	"turnpike/internal/providers/wire"
)

// LoadGateway returns a gateway for commands that check the names of models and routes. It can't make calls.
func LoadGateway(ctx context.Context, s *Store, file config.Config) (*gateway.Gateway, error) {
	stored, err := operators.Definitions{Ring: s.Ring, Now: time.Now}.All(ctx, s.DB)
	if err != nil {
		return nil, err
	}
	all, err := mergeStored(file, stored)
	if err != nil {
		return nil, err
	}
	cfg := all.config
	return gateway.New(gateway.Options{Simulator: simulator.New(simulator.Options{}), Now: time.Now},
		gateway.Settings{Catalog: all.catalog, Upstreams: upstreams(cfg, providerClients(cfg, nil)), Routes: routes(cfg), Rates: modelRates(cfg.Limits)}), nil
}

// LoadCatalog returns the models of the configured providers with their prices.
func LoadCatalog(cfg config.Config) (*catalog.Catalog, error) { return loadCatalog(cfg, nil) }

// loadCatalog is LoadCatalog with another table than the embedded one.
func loadCatalog(cfg config.Config, table *catalog.Table) (*catalog.Catalog, error) {
	t := catalog.Terms{CreditUSD: cfg.CreditUSD.Rat(), MarkupPercent: cfg.MarkupPercent.Rat(), Table: table}
	for _, p := range cfg.Providers {
		s := catalog.Supplier{Name: p.Name, Table: p.Catalog, Vendor: p.Vendor(), Local: p.Local, Default: listPrice(p.DefaultPrice), Tools: toolPrices(p.ToolPrices)}
		for _, m := range p.Models {
			s.Models = append(s.Models, catalog.ListedModel{ID: m.ID, Upstream: m.Upstream, Known: tableName(p, m), Kind: catalog.Kind(m.Kind), Price: listPrice(m.Price),
				ContextWindow: int64(m.ContextWindow), MaxOutputTokens: int64(m.MaxOutputTokens), Capabilities: m.Capabilities})
		}
		t.Suppliers = append(t.Suppliers, s)
	}
	if _, found := findEspeak(cfg); found {
		t.Suppliers = append(t.Suppliers, catalog.Supplier{Name: espeak.Name, Local: true, Models: []catalog.ListedModel{{ID: espeak.Name, Kind: catalog.Speech}}})
	}
	return catalog.Load(t)
}

// cloudSuffix is the version at the end of Bedrock's names: anthropic.claude-sonnet-4-5-20250929-v1:0.
var cloudSuffix = regexp.MustCompile(`-v[0-9]+(:[0-9]+)?$`)

// tableName returns the vendor's own name of a model that a cloud has under another one.
func tableName(p config.Provider, m config.ProviderModel) string {
	switch {
	case p.Cloud() == config.AWS, p.Type == config.Bedrock: // with a region before it: us.anthropic.…
		if _, name, found := strings.Cut(m.Upstream, "anthropic."); found {
			return cloudSuffix.ReplaceAllString(name, "")
		}
	case p.Cloud() == config.Google: // claude-sonnet-4-5@20250929
		return strings.ReplaceAll(m.Upstream, "@", "-")
	}
	return m.Upstream
}

// findEspeak finds the local speech engine, unless it is turned off or a provider
// has its name.
func findEspeak(cfg config.Config) (path string, found bool) {
	if !cfg.Media.Espeak || slices.ContainsFunc(cfg.Providers, func(p config.Provider) bool { return p.Name == espeak.Name }) {
		return "", false
	}
	return espeak.Find()
}

func listPrice(p *config.ModelPrice) *catalog.ListPrice {
	if p == nil {
		return nil
	}
	return &catalog.ListPrice{Input: p.Input.Rat(), Output: p.Output.Rat(), CachedInput: p.CachedInput.Rat(), CacheWrite: p.CacheWrite.Rat(),
		PerImage: p.PerImage.Rat(), PerSecond: p.PerSecond.Rat(), PerCharacter: p.PerCharacter.Rat(), PerSearch: p.PerSearch.Rat()}
}

func toolPrices(p *config.ToolPrices) (out catalog.ToolListPrices) {
	if p != nil {
		out[catalog.WebSearch], out[catalog.WebSearchPreview], out[catalog.FileSearch] = p.WebSearch.Rat(), p.WebSearchPreview.Rat(), p.FileSearch.Rat()
		out[catalog.CodeInterpreter], out[catalog.ImageGeneration] = p.CodeInterpreter.Rat(), p.ImageGeneration.Rat()
	}
	return out
}

// providerClient is a client of a configured provider, with its own connections.
type providerClient struct {
	config   config.Provider // without models and prices
	timeouts wire.Timeouts
	provider providers.Provider
}

// providerClients returns clients of the configured providers. A client that
// would be the same as one before is used again.
func providerClients(cfg config.Config, before []providerClient) []providerClient {
	var list []providerClient
	timeouts := wire.Timeouts{Connect: cfg.Gateway.ConnectTimeout, FirstByte: cfg.Gateway.FirstByteTimeout, Idle: cfg.Gateway.IdleTimeout}
	for _, p := range cfg.Providers {
		p.Models, p.DefaultPrice, p.ToolPrices, p.Weight, p.BatchPercent, p.Catalog, p.Local, p.AllowFields, p.IgnoreUnbilled = nil, nil, nil, 0, 0, "", false, nil, false
		same := slices.IndexFunc(before, func(c providerClient) bool { return c.timeouts == timeouts && reflect.DeepEqual(c.config, p) })
		if same >= 0 {
			list = append(list, before[same])
			continue
		}
		list = append(list, providerClient{p, timeouts, upstream(p, wire.NewClient(timeouts))})
	}
	return list
}

func upstreams(cfg config.Config, clients []providerClient) []gateway.Upstream {
	var list []gateway.Upstream
	for n, p := range cfg.Providers {
		list = append(list, gateway.Upstream{Provider: clients[n].provider, Weight: p.Weight, BatchPercent: p.BatchPercent, AllowFields: p.AllowFields, IgnoreUnbilled: p.IgnoreUnbilled})
	}
	if path, found := findEspeak(cfg); found {
		list = append(list, gateway.Upstream{Provider: espeak.New(path), Weight: 1})
	}
	return list
}

// Credential returns what authenticates requests to a provider.
func Credential(p config.Provider) providers.Credential {
	set := openai.SetKey(p.APIVersion)
	switch p.Type {
	case config.Anthropic:
		set = anthropic.SetKey
	case config.Gemini:
		set = gemini.SetKey
	case config.Bedrock:
		set = bedrock.SetKey
	}
	if s := p.SignIn; s != nil {
		switch s.With {
		case config.Entra:
			return credentials.NewEntra(credentials.Entra{TenantID: s.TenantID, ClientID: s.ClientID, ClientSecret: string(s.ClientSecret), TokenFile: s.TokenFile, Authority: string(s.Authority)})
		case config.Google:
			return credentials.NewGoogle(s.CredentialsFile)
		case config.AWS:
			return credentials.NewAWS(s.Region, s.Profile)
		}
	}
	switch {
	case p.APIKeyFile != "":
		return credentials.NewRefreshing(set, credentials.File(p.APIKeyFile))
	case len(p.APIKeyCommand) > 0:
		return credentials.NewRefreshing(set, credentials.Command(p.APIKeyCommand))
	}
	if len(p.APIKeys) > 0 {
		keys := make([]credentials.Key, len(p.APIKeys))
		for i, k := range p.APIKeys {
			keys[i] = credentials.Key{Value: string(k.APIKey), Weight: k.Weight}
		}
		return credentials.NewKeys(set, keys)
	}
	return providers.StaticKey{Key: string(p.APIKey), Set: set}
}

// platforms are where clouds run Anthropic's models.
var platforms = map[string]anthropic.Platform{config.Google: anthropic.Vertex, config.AWS: anthropic.Bedrock}

func upstream(p config.Provider, client *wire.Client) providers.Provider {
	base, credential := string(p.BaseURL), Credential(p)
	switch p.Type {
	case config.Anthropic:
		return anthropic.New(anthropic.Options{Name: p.Name, BaseURL: base, Credential: credential, Platform: platforms[p.Cloud()], Private: p.Private, Client: client})
	case config.Bedrock:
		return bedrock.New(bedrock.Options{Name: p.Name, BaseURL: base, Credential: credential, Client: client})
	case config.Gemini:
		return gemini.New(gemini.Options{Name: p.Name, BaseURL: base, Credential: credential, Client: client})
	}
	headers := make(map[string]string, len(p.Headers))
	for name, value := range p.Headers {
		headers[name] = string(value)
	}
	return openai.New(openai.Options{Name: p.Name, BaseURL: base, Credential: credential, Headers: headers, APIVersion: p.APIVersion,
		MaxTokensOnly: p.OldLimitField, NoStreamOptions: p.NoStreamOptions, HasResponses: p.HasResponses(), Private: p.Private, Client: client})
}

func routes(cfg config.Config) []gateway.Route {
	list := make([]gateway.Route, len(cfg.Routes))
	for i, r := range cfg.Routes {
		list[i] = gateway.Route{Name: r.Name, Spec: modelroutes.Spec{Models: r.Models, Strategy: modelroutes.Strategy(r.Strategy), Weights: r.Weights, Timeout: r.Timeout}}
	}
	return list
}

func modelRates(l config.Limits) gateway.Rates {
	live := limits.Limits{RequestsPerMinute: int64(l.LiveRequestsPerMinute), TokensPerMinute: int64(l.LiveTokensPerMinute), InFlight: int64(l.LiveInFlight)}
	n := int64(l.TestFactor)
	return gateway.Rates{Live: live, Test: limits.Limits{RequestsPerMinute: int64(l.TestRequests()), TokensPerMinute: n * live.TokensPerMinute, InFlight: n * live.InFlight}}
}
