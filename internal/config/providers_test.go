package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

const providersFile = `
credit_usd: 0.01
providers:
  - name: openai
    type: openai
    api_key: sk-file
  - name: azure
    type: openai
    base_url: https://house.openai.azure.com/openai/
    api_key_env: AZURE_KEY
    api_version: 2024-10-21
    headers: {X-Team: "` + sentinel + `"}
    catalog: openai
    weight: 5
    default_price: {input: 1, output: "2.50", cached_input: 0.1, cache_write: 1.25}
    models:
      - id: gpt-4o
        upstream: my-gpt-4o
        price: {input: 0.15, output: 0.6}
        context_window: 1000
        max_output_tokens: 100
        capabilities: [tools, vision]
      - id: plain
  - {name: box, type: openai, base_url: "http://10.0.0.7:8000/v1", local: true, old_limit_field: true, no_stream_options: true}
routes:
  - name: fast
    models: [gpt-4o, plain]
`

func TestProvidersAndRoutesAreRead(t *testing.T) {
	t.Parallel()
	l := mustLoad(t, providersFile, []string{"AZURE_KEY= sk-azure\n", "OPENAI_API_KEY=sk-environment"}, nil)
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	want := []Provider{
		{Name: "openai", Type: "openai", BaseURL: "https://api.openai.com/v1", APIKey: "sk-file", Weight: 1}, // the file wins
		{Name: "azure", Type: "openai", BaseURL: "https://house.openai.azure.com/openai", APIKey: "sk-azure", APIKeyEnv: "AZURE_KEY",
			APIVersion: "2024-10-21", Headers: map[string]Secret{"X-Team": sentinel}, Catalog: "openai", Weight: 5,
			DefaultPrice: &ModelPrice{Input: "1", Output: "2.50", CachedInput: "0.1", CacheWrite: "1.25"},
			Models: []ProviderModel{
				{ID: "gpt-4o", Upstream: "my-gpt-4o", Price: &ModelPrice{Input: "0.15", Output: "0.6"}, ContextWindow: 1000, MaxOutputTokens: 100, Capabilities: []string{"tools", "vision"}},
				{ID: "plain", Upstream: "plain"},
			}},
		{Name: "box", Type: "openai", BaseURL: "http://10.0.0.7:8000/v1", Local: true, OldLimitField: true, NoStreamOptions: true, Weight: 1},
	}
	for i := range max(len(want), len(l.Providers)) {
		if i >= len(l.Providers) || i >= len(want) || !reflect.DeepEqual(l.Providers[i], want[i]) {
			t.Errorf("providers\n got %+v\nwant %+v", l.Providers, want)
			break
		}
	}
	if !reflect.DeepEqual(l.Routes, []Route{{Name: "fast", Models: []string{"gpt-4o", "plain"}}}) {
		t.Errorf("routes: %+v", l.Routes)
	}
	if got := l.Origin["providers[1]"]; got != "file turnpike.yaml:7" {
		t.Errorf("origin %q", got)
	}
	if got := l.Providers[1].Models[0].Price.Input.Rat().RatString(); got != "3/20" {
		t.Errorf("0.15 became %s", got)
	}
	if l.Providers[1].Models[0].Price.CacheWrite.Rat() != nil {
		t.Error("a price that was not given has a value")
	}
}

func TestProvidersAreFoundInTheEnvironment(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file    string
		environ []string
		want    []Provider
	}{
		"none": {environ: []string{"OPENAI_BASE_URL=https://x.example", "ANTHROPIC_API_KEY=", "OLLAMA_HOST= "}},
		"all at their own address": {
			environ: []string{"OPENAI_API_KEY=a", "ANTHROPIC_API_KEY= b ", "GEMINI_API_KEY=c", "OLLAMA_HOST=gpu"},
			want: []Provider{
				{Name: "openai", Type: "openai", BaseURL: "https://api.openai.com/v1", APIKey: "a", APIKeyEnv: "OPENAI_API_KEY", Weight: 1},
				{Name: "anthropic", Type: "anthropic", BaseURL: "https://api.anthropic.com", APIKey: "b", APIKeyEnv: "ANTHROPIC_API_KEY", Weight: 1},
				{Name: "gemini", Type: "gemini", BaseURL: "https://generativelanguage.googleapis.com/v1beta", APIKey: "c", APIKeyEnv: "GEMINI_API_KEY", Weight: 1},
				{Name: "ollama", Type: "openai", BaseURL: "http://gpu:11434/v1", Local: true, OldLimitField: true, Weight: 1},
			}},
		"elsewhere": {
			environ: []string{"OPENAI_API_KEY=a", "OPENAI_BASE_URL=http://proxy:1/v1/", "ANTHROPIC_API_KEY=b", "ANTHROPIC_BASE_URL=http://proxy:2", "GEMINI_API_KEY=c", "GEMINI_BASE_URL=http://proxy:3/"},
			want: []Provider{
				{Name: "openai", Type: "openai", BaseURL: "http://proxy:1/v1", APIKey: "a", APIKeyEnv: "OPENAI_API_KEY", Weight: 1},
				{Name: "anthropic", Type: "anthropic", BaseURL: "http://proxy:2", APIKey: "b", APIKeyEnv: "ANTHROPIC_API_KEY", Weight: 1},
				{Name: "gemini", Type: "gemini", BaseURL: "http://proxy:3/v1beta", APIKey: "c", APIKeyEnv: "GEMINI_API_KEY", Weight: 1},
			}},
		"beside one of the file": {
			file:    "providers: [{name: ollama, type: openai, base_url: \"http://a/v1\", local: true}]",
			environ: []string{"OLLAMA_HOST=gpu", "GEMINI_API_KEY=c"},
			want: []Provider{
				{Name: "ollama", Type: "openai", BaseURL: "http://a/v1", Local: true, Weight: 1},
				{Name: "gemini", Type: "gemini", BaseURL: "https://generativelanguage.googleapis.com/v1beta", APIKey: "c", APIKeyEnv: "GEMINI_API_KEY", Weight: 1},
			}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := mustLoad(t, tt.file, tt.environ, nil)
			if !reflect.DeepEqual(l.Providers, tt.want) {
				t.Errorf("got %+v\nwant %+v", l.Providers, tt.want)
			}
			if err := l.Validate(); err != nil {
				t.Error(err)
			}
			if len(l.Warnings) > 0 {
				t.Errorf("warnings: %v", l.Warnings)
			}
		})
	}
	l := mustLoad(t, "", []string{"GEMINI_API_KEY=c", "GEMINI_BASE_URL=proxy"}, nil)
	if err := l.Validate(); err == nil || !strings.Contains(err.Error(), "providers[0].base_url: is not an absolute") || !strings.Contains(err.Error(), "(environment GEMINI_BASE_URL)") {
		t.Errorf("got %v", err)
	}
}

func TestOllamaHostIsParsedAsOllamaDoes(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]Address{
		"gpu":                      "http://gpu:11434/v1",
		"gpu:1234":                 "http://gpu:1234/v1",
		":1234":                    "http://127.0.0.1:1234/v1",
		"0.0.0.0":                  "http://127.0.0.1:11434/v1",
		"0.0.0.0:1234":             "http://127.0.0.1:1234/v1",
		"[::]:1234":                "http://127.0.0.1:1234/v1",
		"::1":                      "http://[::1]:11434/v1",
		"[::1]":                    "http://[::1]:11434/v1",
		"[::1]:1234":               "http://[::1]:1234/v1",
		"http://gpu:1234":          "http://gpu:1234/v1",
		"http://gpu:1234/":         "http://gpu:1234/v1",
		"http://gpu":               "http://gpu:80/v1",
		"https://gpu.example":      "https://gpu.example:443/v1",
		"https://gpu.example/llm/": "https://gpu.example:443/llm/v1",
	} {
		l := mustLoad(t, "", []string{"OLLAMA_HOST=" + host}, nil)
		if got := l.Providers[0].BaseURL; string(got) != string(want) {
			t.Errorf("%s: got %s, want %s", host, string(got), string(want))
		}
		if err := l.Validate(); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"u:" + sentinel + "@gpu:1", "http://u:" + sentinel + "@gpu", "ftp://gpu", "gpu:port", "http://gpu/?k=" + sentinel} {
		l := mustLoad(t, "", []string{"OLLAMA_HOST=" + host}, nil)
		err := l.Validate()
		if err == nil || !strings.Contains(err.Error(), "providers[0].base_url: ") || strings.Contains(err.Error(), sentinel) || strings.Contains(fmt.Sprint(l.Config), sentinel) {
			t.Errorf("%s: got %v", host, err)
		}
	}
}

func TestUnknownOrInvalidKeysAreReported(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ file, want string }{
		"section":            {"provider: []", "provider: is not a setting; did you mean providers?"},
		"not a list":         {"providers: {openai: {}}", "providers: expected a list"},
		"not an entry":       {"providers: [openai]", "providers[0]: expected name, type, base_url, api_key, api_key_env"},
		"key":                {"providers:\n  - name: a\n    modles: []", "providers[0].modles: is not known here; did you mean models?; expected name, type, base_url"},
		"key of a model":     {"providers: [{models: [{}, {nmae: x}]}]", "providers[0].models[1].nmae: is not known here; expected id, upstream, kind, price"},
		"key of a price":     {"providers: [{default_price: {in: 1}}]", "providers[0].default_price.in: is not known here"},
		"key of a route":     {"routes: [{nam: x}]", "routes[0].nam: is not known here; did you mean name?; expected name, models"},
		"key twice":          {"routes: [{name: x, name: y}]", "routes[0].name: is set twice, first in line 1"},
		"header twice":       {"providers: [{headers: {X: 1, X: 2}}]", "providers[0].headers.X: is set twice"},
		"headers":            {"providers: [{headers: [X]}]", "providers[0].headers: expected names with values"},
		"header's value":     {"providers: [{headers: {X: {y: " + sentinel + "}}}]", "providers[0].headers: expected a single value"},
		"bool":               {"providers: [{local: perhaps}]", `providers[0].local: "perhaps" is neither true nor false`},
		"weight":             {"providers: [{weight: heavy}]", `providers[0].weight: "heavy" is not a whole number`},
		"price":              {"providers: [{default_price: {input: -1}}]", `providers[0].default_price.input: "-1" is not a decimal number; expected such as 12 or 0.15`},
		"price in exponents": {"providers: [{default_price: {input: 1e-7}}]", `"1e-7" is not a decimal number`},
		"price too fine":     {"providers: [{default_price: {input: 0.0000000001}}]", "is not a decimal number"},
		"price as a word":    {"providers: [{default_price: free}]", "providers[0].default_price: expected input, output, cached_input, cache_write, per_image, per_second, per_character, per_search"},
		"tag":                {"providers: [{name: !x y}]", "providers[0].name: has a YAML tag"},
		"merge key":          {"providers: [{<<: {name: x}}]", "providers[0].a key: is not known here"},
		"secret as a key":    {"providers: [{api_key, " + sentinel + "/+: x}]", "providers[0].a key: is not known here"},
		"two keys":           {"providers: [{name: a, type: gemini, api_key: " + sentinel + ", api_key_env: K}]", "providers[0].api_key_env: is set beside api_key; expected one of the two (file turnpike.yaml:1)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tt.file, []string{"K=" + sentinel}, nil)
			var ps Problems
			if !errors.As(err, &ps) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "(file turnpike.yaml:") || strings.Contains(err.Error(), sentinel) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestProvidersAreValidated(t *testing.T) {
	t.Parallel()
	good := func() Provider {
		return Provider{Name: "house", Type: "openai", BaseURL: "https://api.example.com/v1", APIKey: "k", Weight: 1}
	}
	vendor := func(kind string) Provider {
		return Provider{Name: kind, Type: kind, BaseURL: vendorAddress[kind], Weight: 1}
	}
	tests := map[string]struct {
		change func(*Provider)
		want   string // "" for valid
	}{
		"good":                 {func(*Provider) {}, ""},
		"no name":              {func(p *Provider) { p.Name = "" }, "providers[0].name: is missing or not a name; expected 1 to 32 of a-z, 0-9 and -"},
		"name in capitals":     {func(p *Provider) { p.Name = "OpenAI" }, "providers[0].name: "},
		"name too long":        {func(p *Provider) { p.Name = strings.Repeat("a", 33) }, "providers[0].name: "},
		"longest name":         {func(p *Provider) { p.Name = strings.Repeat("a", 32) }, ""},
		"simulator":            {func(p *Provider) { p.Name = "simulator" }, "providers[0].name: simulator is taken"},
		"no type":              {func(p *Provider) { p.Type = "" }, "providers[0].type: is missing; expected one of openai, anthropic, gemini, bedrock"},
		"unknown type":         {func(p *Provider) { p.Type = "openia" }, "providers[0].type: \"openia\" is not one of openai, anthropic, gemini, bedrock"},
		"another type":         {func(p *Provider) { p.Type = "azure" }, "providers[0].type: "},
		"no address":           {func(p *Provider) { p.BaseURL = "" }, "providers[0].base_url: is missing; expected such as https://"},
		"relative address":     {func(p *Provider) { p.BaseURL = "api.example.com" }, "providers[0].base_url: is not an absolute"},
		"another scheme":       {func(p *Provider) { p.BaseURL = "ftp://a" }, "providers[0].base_url: is not an absolute"},
		"no host":              {func(p *Provider) { p.BaseURL = "http://:80/v1" }, "providers[0].base_url: is not an absolute"},
		"bad port":             {func(p *Provider) { p.BaseURL = "http://a:0" }, "providers[0].base_url: has a bad port"},
		"bad host":             {func(p *Provider) { p.BaseURL = "http://bücher" }, "providers[0].base_url: has a bad host name"},
		"password":             {func(p *Provider) { p.BaseURL = "http://u:" + sentinel + "@a" }, "providers[0].base_url: has a user name"},
		"odd password":         {func(p *Provider) { p.BaseURL = "http://u:x/" + sentinel + "@a" }, "providers[0].base_url: "},
		"query":                {func(p *Provider) { p.BaseURL = "http://a?key=" + sentinel }, "providers[0].base_url: has a query"},
		"no key elsewhere":     {func(p *Provider) { p.APIKey = "" }, ""},
		"masked key":           {func(p *Provider) { p.APIKey = mask }, "providers[0].api_key: is the mask of a printout"},
		"key of two lines":     {func(p *Provider) { p.APIKey = "a\nb" + sentinel }, "providers[0].api_key: has a space, a line break"},
		"key in Unicode":       {func(p *Provider) { p.APIKey = "ключ" }, "providers[0].api_key: "},
		"key as its variable":  {func(p *Provider) { p.APIKey, p.APIKeyEnv = "", "sk-"+sentinel }, "providers[0].api_key_env: is not the name of an environment variable"},
		"variable not set":     {func(p *Provider) { p.APIKey, p.APIKeyEnv = "", "HOUSE_KEY" }, "providers[0].api_key_env: names the environment variable HOUSE_KEY, which is empty or not set"},
		"key in a file":        {func(p *Provider) { *p = vendor(OpenAI); p.APIKeyFile = "/run/secrets/key" }, ""},
		"key of a command":     {func(p *Provider) { *p = vendor(OpenAI); p.APIKeyCommand = []string{"gcloud", "auth"} }, ""},
		"key and its file":     {func(p *Provider) { p.APIKeyFile = "/key" }, "providers[0].api_key_file: is set beside api_key; expected one of the two"},
		"file and command":     {func(p *Provider) { p.APIKey, p.APIKeyFile, p.APIKeyCommand = "", "/key", []string{"x"} }, "providers[0].api_key_command: is set beside api_key_file"},
		"empty program":        {func(p *Provider) { p.APIKey, p.APIKeyCommand = "", []string{""} }, "providers[0].api_key_command: begins with an empty word"},
		"sign-in":              {func(p *Provider) { p.APIKey, p.SignIn = "", &SignIn{With: Entra, TenantID: "t", ClientID: "c"} }, ""},
		"key and sign-in":      {func(p *Provider) { p.SignIn = &SignIn{With: Entra} }, "providers[0].sign_in: is set beside api_key; expected one of the two"},
		"unknown cloud":        {func(p *Provider) { p.APIKey, p.SignIn = "", &SignIn{With: "ibm"} }, "providers[0].sign_in.with: is missing or not one of aws, entra, google"},
		"cloud of another":     {func(p *Provider) { p.APIKey, p.SignIn = "", &SignIn{With: AWS} }, "providers[0].sign_in.with: aws is for type anthropic or bedrock alone"},
		"field of another":     {func(p *Provider) { p.APIKey, p.SignIn = "", &SignIn{With: Entra, Region: "x"} }, "providers[0].sign_in.region: is for aws alone"},
		"two secrets":          {func(p *Provider) { p.APIKey, p.SignIn = "", &SignIn{With: Entra, ClientSecret: "x", TokenFile: "y"} }, "providers[0].sign_in.federated_token_file: is set beside client_secret"},
		"masked secret":        {func(p *Provider) { p.APIKey, p.SignIn = "", &SignIn{With: Entra, ClientSecret: mask} }, "providers[0].sign_in.client_secret: is the mask of a printout"},
		"sign-in, no address":  {func(p *Provider) { p.APIKey, p.Type, p.BaseURL, p.SignIn = "", Gemini, "", &SignIn{With: Google} }, "providers[0].base_url: is missing"},
		"openai without key":   {func(p *Provider) { *p = vendor(OpenAI) }, "providers[0].api_key: is missing"},
		"openai, own header":   {func(p *Provider) { *p = vendor(OpenAI); p.Headers = map[string]Secret{"authorization": "x"} }, ""},
		"anthropic, no key":    {func(p *Provider) { *p = vendor(Anthropic) }, "providers[0].api_key: is missing"},
		"gemini without key":   {func(p *Provider) { *p = vendor(Gemini) }, "providers[0].api_key: is missing"},
		"version elsewhere":    {func(p *Provider) { p.Type, p.APIVersion = Anthropic, "1" }, "providers[0].api_version: is for type openai alone"},
		"headers elsewhere":    {func(p *Provider) { p.Type, p.Headers = Gemini, map[string]Secret{"X": "y"} }, "providers[0].headers: is for type openai alone"},
		"old limit elsewhere":  {func(p *Provider) { p.Type, p.OldLimitField = Gemini, true }, "providers[0].old_limit_field: is for"},
		"no options elsewhere": {func(p *Provider) { p.Type, p.NoStreamOptions = Gemini, true }, "providers[0].no_stream_options: is for"},
		"bad version":          {func(p *Provider) { p.APIVersion = "a b" }, "providers[0].api_version: is not a version"},
		"header":               {func(p *Provider) { p.Headers = map[string]Secret{"X-Team": "a b"} }, ""},
		"bad header":           {func(p *Provider) { p.Headers = map[string]Secret{"X Team": "a"} }, "providers[0].headers: has a key that is not the name of a header"},
		"header in two cases":  {func(p *Provider) { p.Headers = map[string]Secret{"X-Team": "a", "x-team": "b"} }, "providers[0].headers.x-team: is there twice"},
		"header of our own":    {func(p *Provider) { p.Headers = map[string]Secret{"content-type": "a"} }, "providers[0].headers.content-type: is set by each call itself"},
		"masked header":        {func(p *Provider) { p.Headers = map[string]Secret{"X": mask} }, "providers[0].headers.X: is the mask"},
		"split header":         {func(p *Provider) { p.Headers = map[string]Secret{"X": sentinel + "\r\nY: z"} }, "providers[0].headers.X: is empty or has a character"},
		"empty header":         {func(p *Provider) { p.Headers = map[string]Secret{"X": ""} }, "providers[0].headers.X: is empty"},
		"catalog":              {func(p *Provider) { p.Catalog = "Open AI" }, "providers[0].catalog: "},
		"weight 0":             {func(p *Provider) { p.Weight = 0 }, "providers[0].weight: 0 is out of range; expected 1 to 1000"},
		"weight 1001":          {func(p *Provider) { p.Weight = 1001 }, "providers[0].weight: "},
		"weight 1000":          {func(p *Provider) { p.Weight = 1000 }, ""},
		"half a price":         {func(p *Provider) { p.DefaultPrice = &ModelPrice{Input: "1"} }, "providers[0].default_price.output: is missing; expected US dollars per million tokens"},
		"other half":           {func(p *Provider) { p.DefaultPrice = &ModelPrice{Output: "1"} }, "providers[0].default_price.input: is missing"},
		"free":                 {func(p *Provider) { p.DefaultPrice = &ModelPrice{Input: "0", Output: "0"} }, ""},
		"no models":            {func(p *Provider) { p.Models = []ProviderModel{} }, "providers[0].models: is an empty list"},
		"model":                {func(p *Provider) { p.Models = []ProviderModel{{ID: "org/m:1"}} }, ""},
		"model without id":     {func(p *Provider) { p.Models = []ProviderModel{{Upstream: "x"}} }, "providers[0].models[0].id: is missing"},
		"model with a space":   {func(p *Provider) { p.Models = []ProviderModel{{ID: "a b"}} }, "providers[0].models[0].id: "},
		"upstream of lines":    {func(p *Provider) { p.Models = []ProviderModel{{ID: "a", Upstream: "b\n"}} }, "providers[0].models[0].upstream: "},
		"two of an id":         {func(p *Provider) { p.Models = []ProviderModel{{ID: "a"}, {ID: "a"}} }, "providers[0].models[1].id: is that of models[0] too"},
		"model auto":           {func(p *Provider) { p.Models = []ProviderModel{{ID: "auto"}} }, "providers[0].models[0].id: is a name of the router"},
		"model auto:x":         {func(p *Provider) { p.Models = []ProviderModel{{ID: "auto:x"}} }, "is a name of the router"},
		"model route/x":        {func(p *Provider) { p.Models = []ProviderModel{{ID: "route/x"}} }, "is a name of the router"},
		"model's price":        {func(p *Provider) { p.Models = []ProviderModel{{ID: "a", Price: &ModelPrice{Input: "1"}}} }, "providers[0].models[0].price.output: is missing"},
		"embedding's price": {func(p *Provider) {
			p.Models = []ProviderModel{{ID: "a", Kind: "embedding", Price: &ModelPrice{Input: "1"}}}
		}, ""},
		"negative window": {func(p *Provider) { p.Models = []ProviderModel{{ID: "a", ContextWindow: -1}} }, "providers[0].models[0].context_window: -1 is out"},
		"negative output": {func(p *Provider) { p.Models = []ProviderModel{{ID: "a", MaxOutputTokens: -1}} }, "providers[0].models[0].max_output_tokens: -1 is out"},
		"capability":      {func(p *Provider) { p.Models = []ProviderModel{{ID: "a", Capabilities: []string{"tools", "flight"}}} }, "providers[0].models[0].capabilities: has a word that is not one of vision, tools"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Default()
			c.Providers = []Provider{good()}
			tt.change(&c.Providers[0])
			wantProblem(t, c, tt.want)
		})
	}
	c := Default()
	c.Providers = []Provider{good(), good()}
	wantProblem(t, c, "providers[1].name: is that of providers[0] too")
}

func TestRoutesAreValidated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		routes []Route
		want   string
	}{
		"good":        {[]Route{{Name: "a", Models: []string{"m"}}, {Name: "b", Models: []string{"m", "n"}}}, ""},
		"longest":     {[]Route{{Name: strings.Repeat("a", 64), Models: []string{"m"}}}, ""},
		"no name":     {[]Route{{Name: "", Models: []string{"m"}}}, "routes[0].name: is missing or not a name; expected 1 to 64"},
		"bad name":    {[]Route{{Name: "a/b", Models: []string{"m"}}}, "routes[0].name: "},
		"too long":    {[]Route{{Name: strings.Repeat("a", 65), Models: []string{"m"}}}, "routes[0].name: "},
		"two":         {[]Route{{Name: "a", Models: []string{"m"}}, {Name: "a", Models: []string{"m"}}}, "routes[1].name: is that of routes[0] too"},
		"no models":   {[]Route{{Name: "a", Models: nil}}, "routes[0].models: is missing or empty"},
		"empty model": {[]Route{{Name: "a", Models: []string{""}}}, "routes[0].models: has an entry that is not a model"},
		"twice":       {[]Route{{Name: "a", Models: []string{"m", "m"}}}, "routes[0].models: has m twice"},
		"nested":      {[]Route{{Name: "a", Models: []string{"route/b"}}}, "routes[0].models: has an entry of the router"},
		"strategy":    {[]Route{{Name: "a", Models: []string{"m", "n"}, Strategy: "price", Weights: []int{3, 1}, Timeout: time.Minute}}, ""},
		"no strategy": {[]Route{{Name: "a", Models: []string{"m"}, Strategy: "best"}}, "routes[0].strategy: is not one of order, weight, latency, price"},
		"few weights": {[]Route{{Name: "a", Models: []string{"m", "n"}, Strategy: "weight", Weights: []int{3}}}, "routes[0].weights: has 1 entries for 2 models; expected one for each"},
		"weight of 0": {[]Route{{Name: "a", Models: []string{"m"}, Strategy: "weight", Weights: []int{0}}}, "routes[0].weights: 0 is out of range; expected 1 to 1000"},
		"idle weight": {[]Route{{Name: "a", Models: []string{"m"}, Weights: []int{1}}}, "routes[0].weights: have no effect on the strategy order"},
		"short time":  {[]Route{{Name: "a", Models: []string{"m"}, Timeout: time.Millisecond}}, "routes[0].timeout: 1ms is out of range; expected 100ms to 1h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Default()
			c.Routes = tt.routes
			wantProblem(t, c, tt.want)
		})
	}
}

// wantProblem requires exactly one problem, without the secret, or none if want
// is empty.
func wantProblem(t *testing.T, c Config, want string) {
	t.Helper()
	err := c.Validate()
	if want == "" {
		if err != nil {
			t.Error(err)
		}
		return
	}
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 1 || !strings.Contains(ps[0].String(), want) || strings.Contains(err.Error(), sentinel) {
		t.Errorf("got %v, want one problem with %q", err, want)
	}
}

func TestMissingPartsNameTheirOrigin(t *testing.T) {
	t.Parallel()
	l := mustLoad(t, "providers:\n  - name: a\n    type: openai\n  - name: b\n    type: gemini\n    api_key_env: GONE\n", nil, nil)
	err := l.Validate()
	for _, want := range []string{
		"providers[0].base_url: is missing; expected such as https://api.example.com/v1 (file turnpike.yaml:2)",
		"providers[1].api_key_env: names the environment variable GONE, which is empty or not set (file turnpike.yaml:6)",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestProvidersArePrintedWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	file := strings.Replace(providersFile, "sk-file", sentinel, 1) +
		"  - name: x\n    models: [m]\n"
	file = strings.Replace(file, "routes:", "  - {name: bad, type: openai, base_url: 'https://u:"+sentinel+"@h/v1'}\nroutes:", 1)
	l := mustLoad(t, file, []string{"AZURE_KEY=" + sentinel, "GEMINI_API_KEY=" + sentinel}, nil)
	var yaml, all bytes.Buffer
	if err := l.Print(&yaml); err != nil {
		t.Fatal(err)
	}
	for _, write := range []func() error{
		func() error { return l.PrintJSON(&all) },
		func() error { return json.NewEncoder(&all).Encode(l) },
		func() error { slog.New(slog.NewJSONHandler(&all, nil)).Info("config", "config", l); return nil },
		func() error { slog.New(slog.NewTextHandler(&all, nil)).Info("config", "config", l.Config); return nil },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&all, verb+verb+verb+"\n", l.Config, l.Providers, l.Providers[0])
	}
	fmt.Fprint(&all, l.Validate(), yaml.String())
	for _, secret := range []string{sentinel, fmt.Sprintf("%x", sentinel)} {
		if strings.Contains(all.String(), secret) {
			t.Fatalf("a secret was printed:\n%s", all.String())
		}
	}
	for _, part := range []string{
		"providers:\n  # file turnpike.yaml:4\n  - name: openai\n    type: openai\n    base_url: https://api.openai.com/v1\n    api_key: '***'\n    weight: 1\n",
		"    api_key_env: AZURE_KEY\n", "    headers:\n      X-Team: '***'\n", "        price:\n          input: \"0.15\"\n",
		"    base_url: '***'\n",
		"  # environment GEMINI_API_KEY\n  - name: gemini\n",
		"routes:\n  # file turnpike.yaml:",
	} {
		if !strings.Contains(yaml.String(), part) {
			t.Errorf("output lacks %q:\n%s", part, yaml.String())
		}
	}
	again, err := load(t, yaml.String(), []string{"AZURE_KEY=k"}, nil)
	if err != nil {
		t.Fatalf("the printout is no file: %v", err)
	}
	for _, want := range []string{"providers[0].api_key: is the mask", "providers[1].headers.X-Team: is the mask", "providers[3].base_url: "} {
		if err := again.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a printout with masks gave %v, want %q", err, want)
		}
	}
	if got, want := again.Providers[1].Models, l.Providers[1].Models; !reflect.DeepEqual(got, want) {
		t.Errorf("read back\n got %+v\nwant %+v", got, want)
	}
	var printed struct{ Providers, Routes []map[string]any }
	if err := json.NewDecoder(bytes.NewReader(all.Bytes())).Decode(&printed); err != nil {
		t.Fatal(err)
	}
	if len(printed.Providers) != 5 || printed.Providers[4]["origin"] != "environment GEMINI_API_KEY" || len(printed.Routes) != 2 {
		t.Errorf("JSON has %v", printed)
	}
}

func TestKeysThatAreVariablesSurviveBeingPrinted(t *testing.T) {
	t.Parallel()
	environ := []string{"OPENAI_API_KEY=a", "OLLAMA_HOST=gpu"}
	l := mustLoad(t, "", environ, nil)
	var out bytes.Buffer
	if err := l.Print(&out); err != nil {
		t.Fatal(err)
	}
	again := mustLoad(t, out.String(), environ, nil)
	if !reflect.DeepEqual(again.Providers, l.Providers) {
		t.Errorf("read back\n got %+v\nwant %+v", again.Providers, l.Providers)
	}
}

func TestVendorFollowsTypeAndAddress(t *testing.T) {
	t.Parallel()
	for want, ps := range map[string][]Provider{
		OpenAI:    {{Type: OpenAI, BaseURL: "https://api.openai.com/v1"}, {Type: OpenAI, BaseURL: "https://eu.api.openai.com:443/v1"}},
		Anthropic: {{Type: Anthropic, BaseURL: "http://proxy"}},
		Gemini:    {{Type: Gemini}},
		"":        {{Type: OpenAI, BaseURL: "http://box/v1"}, {Type: OpenAI, BaseURL: "https://notapi.openai.com.example/v1"}, {Type: OpenAI}},
	} {
		for _, p := range ps {
			if got := p.Vendor(); got != want {
				t.Errorf("%+v: got %q, want %q", p, got, want)
			}
		}
	}
}

// A missing address must never send another server's key to OpenAI.
func TestOnlyVendorsHaveADefaultAddress(t *testing.T) {
	t.Parallel()
	l := mustLoad(t, "providers: [{name: groq, type: openai}, {name: mine, type: openai, catalog: openai}, {name: claude, type: anthropic}]", nil, nil)
	for i, want := range []Address{"", vendorAddress[OpenAI], vendorAddress[Anthropic]} {
		if got := l.Providers[i].BaseURL; got != want {
			t.Errorf("%s: got %v, want %v", l.Providers[i].Name, got, want)
		}
	}
}

func TestPriceSettingsAreValidated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"least worth": {[]string{"--credit-usd=0.000001"}, ""},
		"worthless":   {[]string{"--credit-usd=0"}, "credit_usd: 0 is out of range; expected 0.000001 to 1000"},
		"too little":  {[]string{"--credit-usd=0.000000999"}, "credit_usd: "},
		"too much":    {[]string{"--credit-usd=1000.000000001"}, "credit_usd: "},
		"markup":      {[]string{"--markup-percent=1000"}, ""},
		"part":        {[]string{"--markup-percent=12.5"}, ""},
		"much markup": {[]string{"--markup-percent=1000.5"}, "markup_percent: 1000.5 is out of range; expected 0 to 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantProblem(t, mustLoad(t, "", nil, tt.args).Config, tt.want)
		})
	}
	for _, bad := range []string{"--markup-percent=-1", "--markup-percent=1e2", "--credit-usd=.5", "--credit-usd=1/3", "--credit-usd=0x1"} {
		if _, err := load(t, "", nil, []string{bad}); err == nil || !strings.Contains(err.Error(), "is not a decimal number") {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}

func TestShortVariablesSetTheirSettings(t *testing.T) {
	t.Parallel()
	l := mustLoad(t, "", []string{"TURNPIKE_RATE_LIMIT_LIVE=7", "TURNPIKE_MAX_IN_FLIGHT=8"}, nil)
	if l.Limits.LiveRequestsPerMinute != 7 || l.Limits.LiveInFlight != 8 || len(l.Warnings) > 0 || l.Origin["limits.live_in_flight"] != "environment TURNPIKE_MAX_IN_FLIGHT" {
		t.Errorf("got %+v, %v", l.Limits, l.Warnings)
	}
	if n := l.Limits.TestRequests(); n != 70 {
		t.Errorf("a test key has %d, expected ten times as many", n)
	}
	for text, want := range map[string]int{"5": 5, "0": 0} {
		l := mustLoad(t, "", []string{"TURNPIKE_RATE_LIMIT_TEST=" + text}, nil)
		if got := l.Limits.TestRequests(); got != want || len(l.Warnings) > 0 {
			t.Errorf("got %d for %s, %v", got, text, l.Warnings)
		}
	}
	l = mustLoad(t, "", []string{"TURNPIKE_RATE_LIMIT_LIVE=7", "TURNPIKE_LIMITS_LIVE_REQUESTS_PER_MINUTE=9"}, nil)
	if l.Limits.LiveRequestsPerMinute != 9 {
		t.Errorf("the full name does not win: %d", l.Limits.LiveRequestsPerMinute)
	}
}
