package config

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Provider is a model provider, or a server with a compatible API.
type Provider struct {
	Name            string            `key:"name"` // also the value of Service-Provider
	Type            string            `key:"type"` // the protocol: openai, anthropic or gemini
	BaseURL         Address           `key:"base_url"`
	APIKey          Secret            `key:"api_key"`
	APIKeyEnv       string            `key:"api_key_env"`     // the variable that has APIKey, if any
	APIKeyFile      string            `key:"api_key_file"`    // read again while the server runs
	APIKeyCommand   []string          `key:"api_key_command"` // prints the key
	APIKeys         []ProviderKey     `key:"api_keys"`        // several of one account
	SignIn          *SignIn           `key:"sign_in"`         // to a cloud, instead of a key
	APIVersion      string            `key:"api_version"`     // for Azure's dated API
	Headers         map[string]Secret `key:"headers"`
	Catalog         string            `key:"catalog"` // the provider in the model table; empty derives it from name or type
	Local           bool              `key:"local"`   // free unless priced
	OldLimitField   bool              `key:"old_limit_field"`
	NoStreamOptions bool              `key:"no_stream_options"`
	ResponsesAPI    *bool             `key:"responses_api"` // nil means only OpenAI itself
	Private         bool              `key:"private"`       // all clients may use the objects in the account
	Weight          int               `key:"weight" default:"1"`
	BatchPercent    int               `key:"batch_price_percent"` // 0 doesn't use its batch API
	DefaultPrice    *ModelPrice       `key:"default_price"`
	ToolPrices      *ToolPrices       `key:"tool_prices"`
	AllowFields     []string          `key:"allow_fields"`    // of requests, although they change prices
	IgnoreUnbilled  bool              `key:"ignore_unbilled"` // unbilled credits don't count toward limits
	Models          []ProviderModel   `key:"models"`          // nil means all models in the table
}

// ProviderKey is one of several keys of a provider.
type ProviderKey struct {
	APIKey    Secret `key:"api_key"`
	APIKeyEnv string `key:"api_key_env"` // the variable that has APIKey, if any
	Weight    int    `key:"weight" default:"1"`
}

// SignIn is how Turnpike signs in to a cloud. Missing fields come from the cloud's
// own variables and files.
type SignIn struct {
	With            string  `key:"with"`      // entra, google or aws
	TenantID        string  `key:"tenant_id"` // of Entra
	ClientID        string  `key:"client_id"`
	ClientSecret    Secret  `key:"client_secret"`
	TokenFile       string  `key:"federated_token_file"`
	Authority       Address `key:"authority"`
	CredentialsFile string  `key:"credentials_file"` // of Google
	Region          string  `key:"region"`           // of AWS
	Profile         string  `key:"profile"`
}

// Clouds that Turnpike can sign in to.
const (
	Entra  = "entra"
	Google = "google"
	AWS    = "aws"
)

// Cloud returns the cloud that the provider signs in to, or "".
func (p Provider) Cloud() string {
	if p.SignIn == nil {
		return ""
	}
	return p.SignIn.With
}

// ProviderModel is a model of a provider. Missing fields come from the model
// table.
type ProviderModel struct {
	ID              string      `key:"id"`
	Upstream        string      `key:"upstream"` // the provider's name for it
	Kind            string      `key:"kind"`     // the kind of output, if the table doesn't have the model
	Price           *ModelPrice `key:"price"`
	ContextWindow   int         `key:"context_window"`
	MaxOutputTokens int         `key:"max_output_tokens"`
	Capabilities    []string    `key:"capabilities"`
}

// ModelPrice is in US dollars: per million tokens, image, second of audio or
// video, character of speech, or search of a rerank model.
type ModelPrice struct {
	Input       Decimal `key:"input"`
	Output      Decimal `key:"output"`
	CachedInput Decimal `key:"cached_input"`
	CacheWrite  Decimal `key:"cache_write"`

	PerImage     Decimal `key:"per_image"`
	PerSecond    Decimal `key:"per_second"`
	PerCharacter Decimal `key:"per_character"`
	PerSearch    Decimal `key:"per_search"`
}

// ToolPrices are the prices of tools that the provider runs, in US dollars per call. Code interpreters
// are counted by container.
type ToolPrices struct {
	WebSearch        Decimal `key:"web_search"`
	WebSearchPreview Decimal `key:"web_search_preview"`
	FileSearch       Decimal `key:"file_search"`
	CodeInterpreter  Decimal `key:"code_interpreter"`
	ImageGeneration  Decimal `key:"image_generation"`
}

// Route is a list of models behind one name, route/NAME.
type Route struct {
	Name     string        `key:"name"`
	Models   []string      `key:"models"`
	Strategy string        `key:"strategy"` // one of routeStrategies; empty is order
	Weights  []int         `key:"weights"`  // of the models
	Timeout  time.Duration `key:"timeout"`  // of each attempt; 0 for none
}

// Types of providers. Each but Bedrock, which has one per region, has a default address.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Gemini    = "gemini"
	Bedrock   = "bedrock"
)

var (
	providerTypes = []string{OpenAI, Anthropic, Gemini, Bedrock}
	vendorAddress = map[string]Address{
		OpenAI:    "https://api.openai.com/v1",
		Anthropic: "https://api.anthropic.com",
		Gemini:    "https://generativelanguage.googleapis.com" + geminiVersion,
	}
)

const geminiVersion = "/v1beta"

// Vendor returns the vendor whose models a provider most likely has. Many
// servers speak OpenAI's protocol, so there the address decides.
func (p Provider) Vendor() string {
	if p.Type == Bedrock { // which has models of many
		return ""
	}
	if p.Type != OpenAI {
		return p.Type
	}
	u, err := url.Parse(string(p.BaseURL))
	if err == nil && (u.Hostname() == "api.openai.com" || strings.HasSuffix(u.Hostname(), ".api.openai.com")) {
		return OpenAI
	}
	return ""
}

// HasKey reports whether requests to the provider are authenticated with a key.
func (p Provider) HasKey() bool {
	return p.APIKey != "" || p.APIKeyFile != "" || len(p.APIKeyCommand) > 0 || len(p.APIKeys) > 0 || p.SignIn != nil
}

// HasResponses reports whether a provider gets requests in the format of the Responses API.
func (p Provider) HasResponses() bool {
	if p.ResponsesAPI != nil {
		return *p.ResponsesAPI
	}
	return p.Vendor() == OpenAI
}

// Address is a provider's base URL. It is masked if it may contain credentials,
// which don't belong there.
type Address string

// String returns the address, or a mask if a part may be a secret.
func (a Address) String() string {
	if a == "" || a.fault() == "" {
		return string(a)
	}
	return mask
}

// Format masks for every verb.
func (a Address) Format(f fmt.State, _ rune) { io.WriteString(f, a.String()) }

// MarshalText masks in JSON, YAML and log records.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// fault describes what is wrong with the address, without quoting it.
func (a Address) fault() string {
	u, err := url.Parse(string(a))
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return "is not an absolute http:// or https:// address"
	case strings.Contains(string(a), "@"):
		return "has a user name or an @ in it; credentials belong into api_key or headers"
	case strings.ContainsAny(string(a), "?#"):
		return "has a query or a fragment"
	case !validHost(u.Hostname()):
		return "has a bad host name"
	case hasBadPort(u):
		return "has a bad port"
	}
	return ""
}

// discover adds providers from the environment, unless the file has one with
// the same name.
func (l *loader) discover(env map[string]string) {
	for _, kind := range []string{OpenAI, Anthropic, Gemini} {
		prefix := strings.ToUpper(kind)
		if strings.TrimSpace(env[prefix+"_API_KEY"]) == "" && env[prefix+"_API_KEY"+fileSuffix] == "" {
			continue
		}
		l.found(Provider{Name: kind, Type: kind, APIKeyEnv: prefix + "_API_KEY", BaseURL: Address(strings.TrimSpace(env[prefix+"_BASE_URL"]))},
			prefix+"_API_KEY", prefix+"_BASE_URL")
	}
	if host := strings.TrimSpace(env["OLLAMA_HOST"]); host != "" {
		l.found(Provider{Name: "ollama", Type: OpenAI, BaseURL: ollamaAddress(host), Local: true, OldLimitField: true}, "OLLAMA_HOST", "OLLAMA_HOST")
	}
}

func (l *loader) found(p Provider, variable, addressVariable string) {
	if slices.ContainsFunc(l.Providers, func(have Provider) bool { return have.Name == p.Name }) {
		return
	}
	path := fmt.Sprintf("providers[%d]", len(l.Providers))
	l.Origin[path] = "environment " + variable
	l.Origin[path+".base_url"] = "environment " + addressVariable
	p.Weight = 1
	l.Providers = append(l.Providers, p)
}

// ollamaAddress parses OLLAMA_HOST as Ollama does: a host, a host with a port,
// or a URL. The default port is 11434, or that of the URL's scheme.
func ollamaAddress(host string) Address {
	scheme, rest, isURL := strings.Cut(host, "://")
	port := "11434"
	switch {
	case !isURL:
		scheme, rest = "http", host
	case scheme == "http":
		port = "80"
	case scheme == "https":
		port = "443"
	}
	rest, path, _ := strings.Cut(rest, "/")
	name, given, err := net.SplitHostPort(rest)
	if err != nil {
		name, given = strings.Trim(rest, "[]"), port
	}
	// A server may listen on the unspecified address, but clients can't connect to
	// it.
	if ip, err := netip.ParseAddr(name); name == "" || err == nil && ip.IsUnspecified() {
		name = "127.0.0.1"
	}
	return Address(scheme + "://" + net.JoinHostPort(name, given) + strings.TrimRight("/"+path, "/") + "/v1")
}

// completeProviders reads API keys from the environment and sets defaults.
func (l *loader) completeProviders(env map[string]string) {
	for i := range l.Providers {
		p := &l.Providers[i]
		if p.APIKeyEnv != "" {
			if p.APIKey != "" {
				path := fmt.Sprintf("providers[%d].api_key_env", i)
				l.problems = append(l.problems, Problem{Setting: path, Message: "is set beside api_key; expected one of the two", Origin: l.origin(path)})
			}
			value, origin, err := secretVariable(env, p.APIKeyEnv, l.readFile)
			if err != nil {
				l.problems = append(l.problems, Problem{Setting: fmt.Sprintf("providers[%d].api_key", i), Message: err.Error(), Origin: origin})
			}
			p.APIKey = Secret(strings.TrimSpace(value))
		}
		for j := range p.APIKeys {
			l.completeKey(&p.APIKeys[j], fmt.Sprintf("providers[%d].api_keys[%d]", i, j), env)
		}
		p.complete()
	}
}

// completeKey reads one of several keys from its environment variable.
func (l *loader) completeKey(k *ProviderKey, path string, env map[string]string) {
	if k.APIKeyEnv == "" {
		return
	}
	if k.APIKey != "" {
		l.problems = append(l.problems, Problem{Setting: path + ".api_key_env", Message: "is set next to api_key; expected one of the two", Origin: l.origin(path)})
	}
	value, origin, err := secretVariable(env, k.APIKeyEnv, l.readFile)
	if err != nil {
		l.problems = append(l.problems, Problem{Setting: path + ".api_key", Message: err.Error(), Origin: origin})
	}
	k.APIKey = Secret(strings.TrimSpace(value))
}

// complete sets the values that depend on others.
func (p *Provider) complete() {
	p.completeAddress()
	for i := range p.Models {
		if p.Models[i].Upstream == "" {
			p.Models[i].Upstream = p.Models[i].ID
		}
	}
}

func (p *Provider) completeAddress() {
	// Another server with OpenAI's protocol must not get OpenAI's address and send
	// its key there.
	if p.BaseURL == "" && p.SignIn == nil && (p.Type != OpenAI || p.Name == OpenAI || p.Catalog == OpenAI) {
		p.BaseURL = vendorAddress[p.Type]
	}
	p.BaseURL = Address(strings.TrimRight(string(p.BaseURL), "/"))
	if u, err := url.Parse(string(p.BaseURL)); err == nil && p.Type == Gemini && u.Host != "" && u.Path == "" && p.BaseURL.fault() == "" {
		p.BaseURL += geminiVersion
	}
}
