package config

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	providerName = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
	routeName    = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	headerName   = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")
	keyForm      = regexp.MustCompile(`^[!-~]+$`)
	headerForm   = regexp.MustCompile(`^[ -~]+$`)
	modelForm    = regexp.MustCompile(`^[!-~]{1,200}$`)
)

// ownHeaders are headers that every call sets.
var ownHeaders = []string{"Host", "Connection", "Content-Length", "Content-Type", "Transfer-Encoding"}

// capabilityNames are the capabilities in the catalog.
var capabilityNames = []string{"vision", "tools", "json_schema", "reasoning", "audio_input", "prompt_caching"}

var modelKinds = []string{"chat", "embedding", "image", "video", "speech", "transcription", "moderation", "rerank"}

func providerProblems(providers []Provider) Problems {
	var all Problems
	for i, p := range providers {
		f := &faults{path: fmt.Sprintf("providers[%d]", i)}
		first := slices.IndexFunc(providers, func(other Provider) bool { return other.Name == p.Name })
		f.addIf(first < i && p.Name != "", "name", "is that of providers[%d] too; expected another one", first)
		p.check(f)
		all = append(all, f.all...)
	}
	return all
}

func (p Provider) check(f *faults) {
	switch {
	case p.Name == "simulator":
		f.add("name", "simulator is taken: it answers test keys")
	case !providerName.MatchString(p.Name):
		f.add("name", "is missing or not a name; expected 1 to 32 of a-z, 0-9 and -")
	}
	if !slices.Contains(providerTypes, p.Type) {
		f.addIf(p.Type == "", "type", "is missing; expected one of %s", strings.Join(providerTypes, ", "))
		f.addIf(p.Type != "", "type", "%q is not one of %s", p.Type, strings.Join(providerTypes, ", "))
		return // the other checks depend on it
	}
	p.checkAddress(f)
	p.checkKey(f)
	p.checkDialect(f)
	f.addIf(p.Catalog != "" && !providerName.MatchString(p.Catalog), "catalog", "is not a provider of the table of models; expected such as openai or mistral")
	f.addIf(p.Weight < 1 || p.Weight > 1000, "weight", "%d is out of range; expected 1 to 1000", p.Weight)
	p.DefaultPrice.check(f, "default_price", "")
	f.addIf(p.Models != nil && len(p.Models) == 0, "models", "is an empty list; expected models, or no list for all that the table has")
	for i, m := range p.Models {
		key := fmt.Sprintf("models[%d]", i)
		first := slices.IndexFunc(p.Models, func(other ProviderModel) bool { return other.ID == m.ID })
		f.addIf(first < i && m.ID != "", key+".id", "is that of models[%d] too; expected another one", first)
		m.check(f, key)
	}
}

func (p Provider) checkAddress(f *faults) {
	const expected = "; expected such as https://api.example.com/v1"
	fault := p.BaseURL.fault()
	if p.BaseURL == "" {
		fault = "is missing"
	}
	f.addIf(fault != "", "base_url", "%s%s", fault, expected)
}

func (p Provider) checkKey(f *faults) {
	if len(p.APIKeyCommand) > 0 {
		f.addIf(p.APIKeyCommand[0] == "", "api_key_command", "begins with an empty word; expected a program and its arguments, such as [gcloud, auth, print-access-token]")
	}
	p.checkKeySources(f)
	p.checkKeys(f)
	p.checkSignIn(f)
	names := slices.Collect(maps.Keys(p.Headers))
	authorized := slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, "Authorization") })
	switch {
	case p.APIKey == mask:
		f.add("api_key", "is the mask of a printout; expected the key itself, or its variable in api_key_env")
	case p.APIKey != "" && !keyForm.MatchString(string(p.APIKey)):
		f.add("api_key", "has a space, a line break or a character that is not ASCII in it; expected the key alone")
	case p.APIKeyEnv != "" && !variableName.MatchString(p.APIKeyEnv):
		f.add("api_key_env", "is not the name of an environment variable; the key itself belongs into api_key")
	case p.APIKeyEnv != "" && p.APIKey == "":
		f.add("api_key_env", "names the environment variable %s, which is empty or not set", p.APIKeyEnv)
	case !p.HasKey() && !p.Local && !authorized && p.BaseURL == vendorAddress[p.Type]:
		f.add("api_key", "is missing; expected the provider's key, or the name of its environment variable in api_key_env")
	}
}

// maxKeys limits the keys of a provider.
const maxKeys = 100

func (p Provider) checkKeys(f *faults) {
	f.addIf(len(p.APIKeys) > maxKeys, "api_keys", "has %d keys; at most %d are possible", len(p.APIKeys), maxKeys)
	for i, k := range p.APIKeys {
		key := fmt.Sprintf("api_keys[%d]", i)
		first := slices.IndexFunc(p.APIKeys, func(other ProviderKey) bool { return other.APIKey == k.APIKey })
		f.addIf(k.Weight < 1 || k.Weight > 1000, key+".weight", "%d is out of range; expected 1 to 1000", k.Weight)
		switch {
		case k.APIKeyEnv != "" && !variableName.MatchString(k.APIKeyEnv):
			f.add(key+".api_key_env", "is not the name of an environment variable; the key itself belongs into api_key")
		case k.APIKey == "":
			f.add(key+".api_key", "is missing; expected the provider's key, or the name of its environment variable in api_key_env")
		case k.APIKey == mask:
			f.add(key+".api_key", "is the mask of a printout; expected the key itself")
		case !keyForm.MatchString(string(k.APIKey)):
			f.add(key+".api_key", "has a space, a line break or a character that is not ASCII in it; expected the key alone")
		case first < i:
			f.add(key+".api_key", "is that of api_keys[%d] too; expected another one", first)
		}
	}
}

// cloudTypes are the protocols of each cloud.
var cloudTypes = map[string][]string{Entra: {OpenAI}, Google: {Anthropic, Gemini}, AWS: {Anthropic, Bedrock}}

func (p Provider) checkSignIn(f *faults) {
	s := p.SignIn
	if s == nil {
		return
	}
	types, known := cloudTypes[s.With]
	if !known {
		f.add("sign_in.with", "is missing or not one of aws, entra, google")
		return
	}
	f.addIf(!slices.Contains(types, p.Type), "sign_in.with", "%s is for type %s alone", s.With, strings.Join(types, " or "))
	f.addIf(s.ClientSecret == mask, "sign_in.client_secret", "is the mask of a printout; expected the secret itself")
	f.addIf(s.ClientSecret != "" && s.TokenFile != "", "sign_in.federated_token_file", "is set beside client_secret; expected one of the two")
	f.addIf(s.Authority != "" && s.Authority.fault() != "", "sign_in.authority", "%s; expected such as https://login.microsoftonline.us", s.Authority.fault())
	for _, field := range []struct {
		name, cloud string
		set         bool
	}{
		{"tenant_id", Entra, s.TenantID != ""}, {"client_id", Entra, s.ClientID != ""}, {"client_secret", Entra, s.ClientSecret != ""},
		{"federated_token_file", Entra, s.TokenFile != ""}, {"authority", Entra, s.Authority != ""},
		{"credentials_file", Google, s.CredentialsFile != ""}, {"region", AWS, s.Region != ""}, {"profile", AWS, s.Profile != ""},
	} {
		f.addIf(field.set && field.cloud != s.With, "sign_in."+field.name, "is for %s alone", field.cloud)
	}
}

// checkKeySources rejects a second source of the key. api_key_env has set api_key already.
func (p Provider) checkKeySources(f *faults) {
	first := ""
	for _, source := range []struct {
		name string
		set  bool
	}{{"api_key", p.APIKey != ""}, {"api_key_file", p.APIKeyFile != ""}, {"api_key_command", len(p.APIKeyCommand) > 0}, {"api_keys", len(p.APIKeys) > 0}, {"sign_in", p.SignIn != nil}} {
		f.addIf(source.set && first != "", source.name, "is set beside %s; expected one of the two", first)
		if source.set {
			first = source.name
		}
	}
}

// checkDialect rejects settings that the provider's type doesn't support, and
// checks the headers.
func (p Provider) checkDialect(f *faults) {
	f.addIf(p.BatchPercent < 0 || p.BatchPercent > 100, "batch_price_percent", "%d is out of range; expected 1 to 100, or 0 to not use the provider's batch API", p.BatchPercent)
	f.addIf(p.BatchPercent != 0 && (p.Type == Gemini || p.Type == Bedrock || p.APIVersion != "" || p.SignIn != nil && p.Type == Anthropic), "batch_price_percent", "is for OpenAI's and Anthropic's batch APIs; remove it")
	f.addIf(p.Private && p.Type != OpenAI && p.Type != Anthropic, "private", "is for the types openai and anthropic, whose requests can name objects in the account; remove it")
	if p.Type != OpenAI {
		const only = "is for type openai alone"
		f.addIf(p.APIVersion != "", "api_version", only)
		f.addIf(len(p.Headers) > 0, "headers", only)
		f.addIf(p.OldLimitField, "old_limit_field", only)
		f.addIf(p.NoStreamOptions, "no_stream_options", only)
		f.addIf(p.ResponsesAPI != nil, "responses_api", only)
		return
	}
	f.addIf(p.APIVersion != "" && !modelForm.MatchString(p.APIVersion), "api_version", "is not a version; expected such as 2024-10-21")
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		value, canonical := p.Headers[name], http.CanonicalHeaderKey(name)
		switch {
		case !headerName.MatchString(name):
			f.add("headers", "has a key that is not the name of a header")
			continue
		case seen[canonical]:
			f.add("headers."+name, "is there twice")
		case slices.Contains(ownHeaders, canonical):
			f.add("headers."+name, "is set by each call itself; remove it")
		case value == mask:
			f.add("headers."+name, "is the mask of a printout; expected the value itself")
		case !headerForm.MatchString(string(value)):
			f.add("headers."+name, "is empty or has a character that a header cannot carry")
		}
		seen[canonical] = true
	}
}

func (m ProviderModel) check(f *faults, key string) {
	f.addIf(!modelForm.MatchString(m.ID), key+".id", "is missing or not a name; expected at most 200 characters without spaces")
	f.addIf(reserved(m.ID), key+".id", "is a name of the router: auto, auto:… and route/… are taken")
	f.addIf(m.ID != "" && m.Upstream != "" && !modelForm.MatchString(m.Upstream), key+".upstream", "is not a name; expected at most 200 characters without spaces")
	f.addIf(m.ContextWindow < 0, key+".context_window", "%d is out of range; expected a number of tokens", m.ContextWindow)
	f.addIf(m.MaxOutputTokens < 0, key+".max_output_tokens", "%d is out of range; expected a number of tokens", m.MaxOutputTokens)
	f.addIf(m.Kind != "" && !slices.Contains(modelKinds, m.Kind), key+".kind", "is not one of %s", strings.Join(modelKinds, ", "))
	m.Price.check(f, key+".price", m.Kind)
	for _, c := range m.Capabilities {
		f.addIf(!slices.Contains(capabilityNames, c), key+".capabilities", "has a word that is not one of %s", strings.Join(capabilityNames, ", "))
	}
}

// reserved reports whether the name belongs to the router.
func reserved(model string) bool {
	return model == "auto" || strings.HasPrefix(model, "auto:") || strings.HasPrefix(model, "route/")
}

// check requires input and output prices, or a media price: a forgotten price
// would make the model free. Some kinds have no output.
func (p *ModelPrice) check(f *faults, key, kind string) {
	if p == nil || p.PerImage != "" || p.PerSecond != "" || p.PerCharacter != "" || p.PerSearch != "" {
		return
	}
	const expected = "is missing; expected US dollars per million tokens, such as 0.15, or 0"
	f.addIf(p.Input == "", key+".input", expected)
	f.addIf(p.Output == "" && !slices.Contains([]string{"embedding", "moderation", "rerank"}, kind), key+".output", expected)
}

// routeStrategies are how a route orders its models.
var routeStrategies = []string{"order", "weight", "latency", "price"}

const (
	minRouteTimeout = 100 * time.Millisecond
	maxRouteTimeout = time.Hour
)

func (r Route) checkStrategy(f *faults) {
	f.addIf(r.Strategy != "" && !slices.Contains(routeStrategies, r.Strategy), "strategy", "is not one of %s", strings.Join(routeStrategies, ", "))
	f.addIf(len(r.Weights) > 0 && (r.Strategy == "" || r.Strategy == "order"), "weights", "have no effect on the strategy order; set strategy to weight, latency or price")
	f.addIf(len(r.Weights) > 0 && len(r.Weights) != len(r.Models), "weights", "has %d entries for %d models; expected one for each", len(r.Weights), len(r.Models))
	for _, w := range r.Weights {
		f.addIf(w < 1 || w > 1000, "weights", "%d is out of range; expected 1 to 1000", w)
	}
	f.addIf(r.Timeout != 0 && (r.Timeout < minRouteTimeout || r.Timeout > maxRouteTimeout), "timeout", "%s is out of range; expected %s to %s", r.Timeout, minRouteTimeout, maxRouteTimeout)
}

func routeProblems(routes []Route) Problems {
	var all Problems
	for i, r := range routes {
		f := &faults{path: fmt.Sprintf("routes[%d]", i)}
		first := slices.IndexFunc(routes, func(other Route) bool { return other.Name == r.Name })
		f.addIf(first < i && r.Name != "", "name", "is that of routes[%d] too; expected another one", first)
		f.addIf(!routeName.MatchString(r.Name), "name", "is missing or not a name; expected 1 to 64 of a-z, 0-9 and -")
		r.checkStrategy(f)
		f.addIf(len(r.Models) == 0, "models", "is missing or empty; expected the models to try, in their order")
		for j, m := range r.Models {
			switch {
			case !modelForm.MatchString(m):
				f.add("models", "has an entry that is not a model; expected at most 200 characters without spaces")
			case reserved(m):
				f.add("models", "has an entry of the router; a route is made of models")
			case slices.Contains(r.Models[:j], m):
				f.add("models", "has %s twice", m)
			}
		}
		all = append(all, f.all...)
	}
	return all
}
