package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// liteLLMConfig is the part of LiteLLM's config.yaml that has an equivalent.
type liteLLMConfig struct {
	ModelList []struct {
		ModelName string `yaml:"model_name"`
		Params    struct {
			Model        string  `yaml:"model"`
			APIKey       string  `yaml:"api_key"`
			APIBase      string  `yaml:"api_base"`
			APIVersion   string  `yaml:"api_version"`
			Weight       float64 `yaml:"weight"`
			Input        string  `yaml:"input_cost_per_token"`
			Output       string  `yaml:"output_cost_per_token"`
			liteLLMCloud `yaml:",inline"`
		} `yaml:"litellm_params"`
		Info struct {
			Input  string `yaml:"input_cost_per_token"`
			Output string `yaml:"output_cost_per_token"`
		} `yaml:"model_info"`
	} `yaml:"model_list"`
	Router   liteLLMRouting `yaml:"router_settings"`
	Settings liteLLMRouting `yaml:"litellm_settings"`
}

type liteLLMRouting struct {
	Fallbacks        []map[string][]string `yaml:"fallbacks"`
	DefaultFallbacks []string              `yaml:"default_fallbacks"`
	ContextFallbacks []map[string][]string `yaml:"context_window_fallbacks"`
	Strategy         string                `yaml:"routing_strategy"`
	Aliases          map[string]any        `yaml:"model_group_alias"`
}

// vendor is a provider by the prefix of LiteLLM's model names.
type vendor struct{ kind, url string }

var liteLLMVendors = map[string]vendor{
	"openai": {"openai", ""}, "text-completion-openai": {"openai", ""}, "anthropic": {"anthropic", ""}, "gemini": {"gemini", ""},
	"azure": {"openai", ""}, "azure_ai": {"openai", ""}, "hosted_vllm": {"openai", ""}, "openai_like": {"openai", ""}, "lm_studio": {"openai", ""}, "xinference": {"openai", ""},
	"ollama": {"openai", "http://127.0.0.1:11434/v1"}, "ollama_chat": {"openai", "http://127.0.0.1:11434/v1"},
	"groq": {"openai", "https://api.groq.com/openai/v1"}, "mistral": {"openai", "https://api.mistral.ai/v1"}, "deepseek": {"openai", "https://api.deepseek.com/v1"},
	"openrouter": {"openai", "https://openrouter.ai/api/v1"}, "together_ai": {"openai", "https://api.together.xyz/v1"}, "fireworks_ai": {"openai", "https://api.fireworks.ai/inference/v1"},
	"xai": {"openai", "https://api.x.ai/v1"}, "perplexity": {"openai", "https://api.perplexity.ai"}, "cerebras": {"openai", "https://api.cerebras.ai/v1"}, "nvidia_nim": {"openai", "https://integrate.api.nvidia.com/v1"},
}

// localVendors are servers that run on the operator's machines and are free unless priced.
var localVendors = []string{"ollama", "ollama_chat", "hosted_vllm", "lm_studio", "xinference"}

// The sections of Turnpike's configuration file.
type (
	turnpikeSections struct {
		Providers []*turnpikeProvider `yaml:"providers"`
		Routes    []turnpikeRoute     `yaml:"routes,omitempty"`
	}
	turnpikeProvider struct {
		Name       string          `yaml:"name"`
		Type       string          `yaml:"type"`
		BaseURL    string          `yaml:"base_url,omitempty"`
		APIKeyEnv  string          `yaml:"api_key_env,omitempty"`
		APIVersion string          `yaml:"api_version,omitempty"`
		SignIn     *turnpikeSignIn `yaml:"sign_in,omitempty"`
		Local      bool            `yaml:"local,omitempty"`
		Weight     int             `yaml:"weight,omitempty"`
		Models     []turnpikeModel `yaml:"models"`
	}
	turnpikeModel struct {
		ID       string         `yaml:"id"`
		Upstream string         `yaml:"upstream,omitempty"`
		Price    *turnpikePrice `yaml:"price,omitempty"`
	}
	turnpikePrice struct {
		Input  yaml.Node `yaml:"input"`
		Output yaml.Node `yaml:"output"`
	}
	turnpikeRoute struct {
		Name   string   `yaml:"name"`
		Models []string `yaml:"models,flow"`
	}
)

// translateLiteLLM returns the providers and routes of a LiteLLM configuration. Values of keys are never
// copied.
func translateLiteLLM(text []byte) (out []byte, warnings []string, err error) {
	var in liteLLMConfig
	if err := yaml.Unmarshal(text, &in); err != nil {
		return nil, nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(in.ModelList) == 0 {
		return nil, nil, errors.New("model_list is missing or empty")
	}
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	var made turnpikeSections
	for i, m := range in.ModelList {
		prefix, name, found := strings.Cut(m.Params.Model, "/")
		if !found {
			prefix, name = "openai", m.Params.Model
			if strings.HasPrefix(name, "claude") {
				prefix = "anthropic"
			}
		}
		v, known := liteLLMVendors[prefix]
		var signIn *turnpikeSignIn
		if isCloud(prefix) {
			var problem string
			if v, signIn, problem = m.Params.translate(prefix, &name); problem != "" {
				warn("model %s (%s): %s", m.ModelName, m.Params.Model, problem)
				continue
			}
			known = true
		}
		switch {
		case m.ModelName == "" || name == "":
			return nil, nil, fmt.Errorf("model_list[%d]: model_name and litellm_params.model are required", i)
		case !known:
			warn("model %s (%s): there is no equivalent of the provider %s", m.ModelName, m.Params.Model, prefix)
			continue
		case strings.Contains(m.ModelName, "*") || strings.Contains(name, "*"):
			warn("model %s: list its models instead of a wildcard, or leave out models to offer all that Turnpike knows", m.ModelName)
			continue
		}
		p := turnpikeProvider{Type: v.kind, BaseURL: cmp.Or(m.Params.APIBase, v.url), APIVersion: m.Params.APIVersion, SignIn: signIn, Local: slices.Contains(localVendors, prefix), Weight: int(m.Params.Weight)}
		if variable, isVariable := strings.CutPrefix(m.Params.APIKey, "os.environ/"); isVariable {
			p.APIKeyEnv = variable
		} else if m.Params.APIKey != "" {
			warn("the API key of %s: it is in the file. Set it in a variable, and name that as api_key_env", m.ModelName)
		}
		made.add(prefix, p, turnpikeModel{ID: m.ModelName, Upstream: differs(name, m.ModelName),
			Price: priceOf(cmp.Or(m.Params.Input, m.Info.Input), cmp.Or(m.Params.Output, m.Info.Output))})
	}
	for _, settings := range []liteLLMRouting{in.Settings, in.Router} {
		for _, pair := range settings.Fallbacks {
			for _, name := range slices.Sorted(maps.Keys(pair)) {
				made.addRoute(turnpikeRoute{routeName(name), append([]string{name}, pair[name]...)})
			}
		}
		for _, alias := range slices.Sorted(maps.Keys(settings.Aliases)) {
			if target, ok := settings.Aliases[alias].(string); ok {
				made.addRoute(turnpikeRoute{routeName(alias), []string{target}})
			}
		}
		if len(settings.DefaultFallbacks) > 0 {
			warn("default_fallbacks: add them to the routes that need them")
		}
		if len(settings.ContextFallbacks) > 0 {
			warn("context_window_fallbacks: use a route with the larger model")
		}
		if settings.Strategy != "" && settings.Strategy != "simple-shuffle" {
			warn("routing_strategy %s", settings.Strategy)
		}
	}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(made), encoder.Close()); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), warnings, nil
}

func differs(name, from string) string {
	if name == from {
		return ""
	}
	return name
}

// add adds a model to the provider with these settings. A provider has each model once, so several
// deployments of a model become several providers, between which Turnpike balances.
func (s *turnpikeSections) add(prefix string, p turnpikeProvider, m turnpikeModel) {
	names := 0
	for _, have := range s.Providers {
		if strings.TrimRight(have.Name, "-0123456789") == strings.TrimRight(providerName(prefix), "-0123456789") {
			names++
		}
		same := have.Type == p.Type && have.BaseURL == p.BaseURL && have.APIKeyEnv == p.APIKeyEnv && have.APIVersion == p.APIVersion && have.Weight == p.Weight && reflect.DeepEqual(have.SignIn, p.SignIn)
		if same && !slices.ContainsFunc(have.Models, func(other turnpikeModel) bool { return other.ID == m.ID }) {
			have.Models = append(have.Models, m)
			return
		}
	}
	p.Name = providerName(prefix)
	if names > 0 {
		p.Name = fmt.Sprintf("%s-%d", p.Name, names+1)
	}
	p.Models = []turnpikeModel{m}
	s.Providers = append(s.Providers, &p)
}

func (s *turnpikeSections) addRoute(r turnpikeRoute) {
	if !slices.ContainsFunc(s.Routes, func(have turnpikeRoute) bool { return have.Name == r.Name }) {
		s.Routes = append(s.Routes, r)
	}
}

var notInNames = regexp.MustCompile(`[^a-z0-9-]+`)

func providerName(prefix string) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(prefix), "-"), "-")
}

func routeName(name string) string { return providerName(name) }

// priceOf returns prices per million tokens. It returns nil without prices.
func priceOf(input, output string) *turnpikePrice {
	if input == "" && output == "" {
		return nil
	}
	perMillion := func(text string) (n yaml.Node) {
		price, ok := new(big.Rat).SetString(cmp.Or(text, "0"))
		if !ok {
			price = new(big.Rat)
		}
		value := strings.TrimRight(strings.TrimRight(price.Mul(price, big.NewRat(1_000_000, 1)).FloatString(9), "0"), ".")
		return yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: cmp.Or(value, "0")}
	}
	return &turnpikePrice{perMillion(input), perMillion(output)}
}

// liteLLMTables are the rows of LiteLLM's database that have an equivalent.
type liteLLMTables struct {
	Teams []struct {
		ID       string `json:"team_id"`
		Alias    string `json:"team_alias"`
		Blocked  bool   `json:"blocked"`
		Models   []string
		Budget   json.Number `json:"max_budget"`
		Duration string      `json:"budget_duration"`
		RPM      *int64      `json:"rpm_limit"`
		TPM      *int64      `json:"tpm_limit"`
	} `json:"LiteLLM_TeamTable"`
	Budgets []struct {
		ID       string      `json:"budget_id"`
		Budget   json.Number `json:"max_budget"`
		Duration string      `json:"budget_duration"`
		RPM      *int64      `json:"rpm_limit"`
		TPM      *int64      `json:"tpm_limit"`
	} `json:"LiteLLM_BudgetTable"`
	Keys []liteLLMKey `json:"LiteLLM_VerificationToken"`
}

type liteLLMKey struct {
	Token    string      `json:"token"`    // a hash
	Hint     string      `json:"key_name"` // sk-...abcd
	Alias    string      `json:"key_alias"`
	TeamID   string      `json:"team_id"`
	BudgetID string      `json:"budget_id"`
	Models   []string    `json:"models"`
	Blocked  bool        `json:"blocked"`
	Expires  string      `json:"expires"`
	Budget   json.Number `json:"max_budget"`
	Duration string      `json:"budget_duration"`
	RPM      *int64      `json:"rpm_limit"`
	TPM      *int64      `json:"tpm_limit"`
	Parallel *int64      `json:"max_parallel_requests"`
}

func parseLiteLLMTables(text []byte) (*liteLLMTables, error) {
	var t liteLLMTables
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, err
	}
	if len(t.Teams) == 0 && len(t.Keys) == 0 {
		return nil, errors.New("the file has neither LiteLLM_TeamTable nor LiteLLM_VerificationToken")
	}
	for i, k := range t.Keys {
		if k.Token == "" {
			return nil, fmt.Errorf("LiteLLM_VerificationToken[%d]: token is missing", i)
		}
	}
	return &t, nil
}

// externalID identifies a key of LiteLLM, so that a second import finds it. It is a part of the hash.
func (k liteLLMKey) externalID() string { return "litellm:" + k.Token[:min(len(k.Token), 32)] }

func (k liteLLMKey) name() string { return cmp.Or(k.Alias, k.Hint, k.externalID()) }

// oldKeys returns the keys of LiteLLM by external ID, for the file that maps them.
func (t *liteLLMTables) oldKeys() map[string]oldKey {
	out := map[string]oldKey{}
	for _, k := range t.Keys {
		out[k.externalID()] = oldKey{k.Token, k.Hint, k.Alias}
	}
	return out
}

// oldKey is a key of another gateway.
type oldKey struct {
	Hash  string `json:"hash"`
	Hint  string `json:"hint"`
	Alias string `json:"alias"`
}

// creditPrice is the price of a credit in US dollars.
type creditPrice string

// modelScopes are the scopes of imported keys: LiteLLM's keys call models.
var modelScopes = []string{"models:read", "chat.completions:create", "responses:create", "messages:create", "embeddings:create", "images:create", "audio.transcriptions:create",
	"voice:create", "moderations:create", "rerank:create"}

// translate returns a file for turnpike apply.
func (t *liteLLMTables) translate(workspace string, usd creditPrice) (state []byte, warnings []string, err error) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	projects, projectOf := []map[string]any{}, map[string]string{}
	for _, team := range t.Teams {
		id := projectID(cmp.Or(team.Alias, team.ID))
		if slices.Contains(slices.Collect(maps.Values(projectOf)), id) {
			id = projectID(team.ID)
		}
		projectOf[team.ID] = id
		p := map[string]any{"id": id, "name": cmp.Or(team.Alias, team.ID)}
		budget, err := usd.credits(team.Budget)
		if err != nil {
			return nil, nil, fmt.Errorf("LiteLLM_TeamTable: max_budget of %s: %w", team.ID, err)
		}
		limit := setBudget(p, budget, team.Duration, func() { warnDuration(warn, "team "+id, team.Duration) })
		for field, n := range map[string]*int64{"requests_per_minute": team.RPM, "tokens_per_minute": team.TPM} {
			if n != nil && *n > 0 {
				limit[field] = *n
			}
		}
		if len(limit) > 0 {
			p["limits"] = []any{limit}
		}
		if models := namedModels(team.Models); len(models) > 0 {
			p["allowed_models"] = models
		}
		if team.Blocked {
			warn("team %s is blocked in LiteLLM; archive the project", id)
		}
		projects = append(projects, p)
	}
	keys := []map[string]any{}
	for _, k := range t.Keys {
		if k.Blocked || k.expired(time.Now()) {
			warn("key %s, which is blocked or has expired", k.name())
			continue
		}
		one, err := t.translateKey(k, projectOf, usd, warn)
		if err != nil {
			return nil, nil, fmt.Errorf("LiteLLM_VerificationToken: key %s: %w", k.name(), err)
		}
		keys = append(keys, one)
	}
	state, err = json.Marshal(map[string]any{"workspaces": []any{map[string]any{"name": workspace, "projects": projects, "keys": keys}}})
	return state, warnings, err
}

func (k liteLLMKey) expired(now time.Time) bool {
	at, err := parseLiteLLMTime(k.Expires)
	return err == nil && !at.IsZero() && !at.After(now)
}

// parseLiteLLMTime reads a time as PostgreSQL's JSON has it, in UTC if it has no zone.
func parseLiteLLMTime(text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999", "2006-01-02 15:04:05.999999", "2006-01-02 15:04:05.999999-07"} {
		if at, err = time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return at, fmt.Errorf("%q is not a time", text)
}

func (t *liteLLMTables) translateKey(k liteLLMKey, projectOf map[string]string, usd creditPrice, warn func(string, ...any)) (map[string]any, error) {
	for _, b := range t.Budgets {
		if k.BudgetID != "" && b.ID == k.BudgetID {
			k.Budget, k.Duration = cmp.Or(k.Budget, b.Budget), cmp.Or(k.Duration, b.Duration)
			k.RPM, k.TPM = cmp.Or(k.RPM, b.RPM), cmp.Or(k.TPM, b.TPM)
		}
	}
	one := map[string]any{"name": k.name(), "external_id": k.externalID(), "scopes": modelScopes, "metadata": map[string]string{"imported_from": "litellm"}}
	if project := projectOf[k.TeamID]; project != "" {
		one["project"] = project
	}
	budget, err := usd.credits(k.Budget)
	if err != nil {
		return nil, err
	}
	limit := setBudget(one, budget, k.Duration, func() { warnDuration(warn, "key "+k.name(), k.Duration) })
	if k.RPM != nil && *k.RPM > 0 {
		one["rate_limit"] = *k.RPM
	}
	if k.TPM != nil {
		limit["tokens_per_minute"] = *k.TPM
	}
	if k.Parallel != nil {
		limit["concurrent_requests"] = *k.Parallel
	}
	if len(limit) > 0 {
		one["limits"] = []any{limit}
	}
	if models := namedModels(k.Models); len(models) > 0 {
		one["allowed_models"] = models
	}
	at, err := parseLiteLLMTime(k.Expires)
	if err != nil {
		return nil, fmt.Errorf("expires: %w", err)
	}
	if !at.IsZero() {
		one["expires_at"] = at.Unix()
	}
	return one, nil
}

// setBudget sets the budget of a key or a project, per month or as the limit that it returns. warn is called if the
// duration has no equivalent.
func setBudget(of map[string]any, budget, duration string, warn func()) (limit map[string]any) {
	limit = map[string]any{}
	window, known := liteLLMWindows[duration]
	switch {
	case budget == "":
	case known && window != "month":
		limit["budget"], limit["window"] = json.RawMessage(budget), window
	default:
		of["monthly_budget"] = json.RawMessage(budget)
		warn()
	}
	return limit
}

// namedModels leaves out the names that stand for all models.
func namedModels(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(m string) bool { return m == "all-team-models" || m == "all-proxy-models" || m == "*" })
}

// liteLLMWindows are the windows of LiteLLM's budget durations. Budgets without one never start again.
var liteLLMWindows = map[string]string{"30d": "month", "31d": "month", "1mo": "month", "1d": "day", "24h": "day", "7d": "week", "1w": "week", "": "lifetime"}

func warnDuration(warn func(string, ...any), what, duration string) {
	if liteLLMWindows[duration] != "month" {
		warn("the budget duration %q of %s; its budget is per month now", duration, what)
	}
}

var notInProjectIDs = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// projectID returns a valid project ID that is like the text.
func projectID(text string) string {
	id := strings.Trim(notInProjectIDs.ReplaceAllString(text, "-"), "-._")
	return cmp.Or(id[:min(len(id), 64)], "team")
}

// credits converts US dollars. It returns "" if there is no budget.
func (usd creditPrice) credits(dollars json.Number) (string, error) {
	if dollars == "" {
		return "", nil
	}
	amount, ok := new(big.Rat).SetString(string(dollars))
	price, valid := new(big.Rat).SetString(string(usd))
	if !ok || amount.Sign() < 0 {
		return "", fmt.Errorf("max_budget %s is not an amount", dollars)
	}
	if !valid || price.Sign() <= 0 {
		return "", fmt.Errorf("credit_usd %s is not a price", usd)
	}
	text := amount.Quo(amount, price).FloatString(6)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), "."), nil
}
