package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"turnpike/internal/app"
	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/test/fakes/safehttptest"
)

const doctorKey = "sk-S3ntinelS3ntinel"

func loadProviders(t *testing.T, file string, environ ...string) config.Loaded {
	t.Helper()
	l, err := config.Load(config.Sources{Environ: append(environ, "TURNPIKE_CONFIG=f"), ReadFile: func(string) ([]byte, error) { return []byte(file), nil }})
	if err == nil {
		err = l.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fakeProvider expects a path and a header. Like real providers, it repeats the
// key in its errors.
func fakeProvider(t *testing.T, path, header, value string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.RequestURI() != path {
			http.Error(w, "no such page", http.StatusNotFound)
			return
		}
		if got := r.Header.Get(header); got != value {
			http.Error(w, "bad key "+got, http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"data":[]}`)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestDoctorChecksTheKeyOfEachProvider(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path, header, value string
		provider            string // %s is the server
		want                string
		fails               bool
	}{
		"openai":            {"/v1/models", "Authorization", "Bearer " + doctorKey, "{name: openai, type: openai, base_url: '%s/v1', api_key: " + doctorKey + "}", "openai (openai) at %s/v1, from file f:1: 117 models with a price, 14 without, it accepts the key", false},
		"openai, wrong key": {"/v1/models", "Authorization", "Bearer other", "{name: openai, type: openai, base_url: '%s/v1', api_key: " + doctorKey + "}", "it rejects the key (401); check api_key, or where it comes from", true},
		"azure":             {"/openai/models?api-version=2024-10-21", "Api-Key", doctorKey, "{name: azure, type: openai, catalog: openai, base_url: '%s/openai', api_version: 2024-10-21, api_key: " + doctorKey + "}", "it accepts the key", false},
		"own header":        {"/v1/models", "X-Team", doctorKey, "{name: a, type: openai, base_url: '%s/v1', headers: {x-team: " + doctorKey + "}, local: true}", "any model, it responds without a key", false},
		"anthropic":         {"/v1/models", "X-Api-Key", doctorKey, "{name: a, type: anthropic, base_url: '%s', api_key: " + doctorKey + "}", "24 models with a price, 0 without, it accepts the key", false},
		"anthropic with v1": {"/v1/models", "Anthropic-Version", "2023-06-01", "{name: a, type: anthropic, base_url: '%s/v1', api_key: " + doctorKey + "}", "it accepts the key", false},
		"gemini":            {"/v1beta/models", "X-Goog-Api-Key", doctorKey, "{name: g, type: gemini, base_url: '%s', api_key: " + doctorKey + "}", "it accepts the key", false},
		"no list":           {"/elsewhere", "", "", "{name: a, type: openai, base_url: '%s/v1', default_price: {input: 1, output: 1}}", "it responds, but has no list of models (404)", false},
		"no models":         {"/v1/models", "", "", "{name: a, type: openai, base_url: '%s/v1'}", "no models; set models, a default_price", true},
		"listed":            {"/v1/models", "", "", "{name: a, type: openai, base_url: '%s/v1', models: [{id: x}, {id: y, price: {input: 1, output: 1}}]}", "1 models with a price, 1 without", false},
		"default price":     {"/v1/models", "", "", "{name: a, type: openai, catalog: groq, base_url: '%s/v1', default_price: {input: 1, output: 1}}", "14 models with a price, 0 without, and any other, ", false},
		"unknown catalog":   {"/v1/models", "", "", "{name: a, type: openai, catalog: gorq, base_url: '%s/v1'}", `unknown table "gorq"; want one of anthropic,`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fakeProvider(t, tt.path, tt.header, tt.value)
			l := loadProviders(t, "providers: ["+strings.ReplaceAll(tt.provider, "%s", s.URL)+"]")
			got := checkProviders(t.Context(), l)
			if len(got) != 1 || got[0].OK == tt.fails || !strings.Contains(got[0].Message, strings.ReplaceAll(tt.want, "%s", s.URL)) {
				t.Errorf("got %+v, want %q", got, tt.want)
			}
			if strings.Contains(fmt.Sprint(got), doctorKey) {
				t.Errorf("the findings contain the key: %v", got)
			}
		})
	}
}

func TestDoctorInterpretsTheStatusOfAProvider(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind   string
		status int
		ok     bool
		want   string
	}{
		{config.OpenAI, 200, true, "accepts"},
		{config.OpenAI, 302, false, "status 302"},
		{config.OpenAI, 400, false, "status 400"},
		{config.Gemini, 400, false, "rejects the key (400)"},
		{config.OpenAI, 403, false, "rejects the key (403); a restricted key"},
		{config.OpenAI, 405, true, "not checked"},
		{config.OpenAI, 429, true, "limits requests"},
		{config.OpenAI, 500, false, "status 500"},
	} {
		state, err := interpretStatus(config.Provider{Type: tt.kind, APIKey: "k"}, tt.status)
		if (err == nil) != tt.ok || !strings.Contains(fmt.Sprint(state, err), tt.want) {
			t.Errorf("%s %d: got %q, %v", tt.kind, tt.status, state, err)
		}
	}
}

func TestDoctorDoesNotFollowARedirectWithTheKey(t *testing.T) {
	t.Parallel()
	called := make(chan string, 1)
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { called <- r.Header.Get("X-Api-Key") }))
	t.Cleanup(thief.Close)
	s := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusFound))
	t.Cleanup(s.Close)
	l := loadProviders(t, "", "ANTHROPIC_API_KEY="+doctorKey, "ANTHROPIC_BASE_URL="+s.URL)
	if got := checkProviders(t.Context(), l); got[0].OK || !strings.Contains(got[0].Message, "from environment ANTHROPIC_API_KEY") || !strings.Contains(got[0].Message, "status 302") {
		t.Errorf("got %+v", got)
	}
	if len(called) > 0 {
		t.Errorf("the other server was called, with key %q", <-called)
	}
}

func TestDoctorReportsAnUnreachableProvider(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	l := loadProviders(t, "", "OLLAMA_HOST="+gone.URL)
	got := checkProviders(t.Context(), l)
	if len(got) != 1 || got[0].OK || !strings.HasPrefix(got[0].Message, "ollama (openai) at "+gone.URL+"/v1, from environment OLLAMA_HOST: any model, cannot connect: ") {
		t.Errorf("got %+v", got)
	}
}

// switching is a server that switches protocols and then waits for the client to
// disconnect.
func switching(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(safehttptest.Switching))
	t.Cleanup(s.Close)
	return s
}

func TestCommandsFailIfAServerSwitchesProtocols(t *testing.T) {
	t.Parallel()
	const want = "101 Switching Protocols"
	s := switching(t)
	if got := checkProviders(t.Context(), loadProviders(t, "", "OLLAMA_HOST="+s.URL)); len(failures(got)) != 1 || !strings.Contains(got[0].Message, want) {
		t.Errorf("a provider: %+v", got)
	}
	l := loadProviders(t, "data: "+t.TempDir())
	l.OIDC.Issuer = s.URL
	if bad := failures(checkServices(t.Context(), l)); len(bad) != 1 || !strings.Contains(bad[0], want) {
		t.Errorf("the sign-in provider: %q", bad)
	}
	if code, _, errOut := jobsCommand(s, "wait", testBatch, "--timeout", "1s"); code != 1 || !strings.Contains(errOut, want) {
		t.Errorf("the API: exit %d, %s", code, errOut)
	}
}

func TestDoctorFindsRoutesWithoutAProvider(t *testing.T) {
	t.Parallel()
	s := fakeProvider(t, "/v1/models", "", "")
	l := loadProviders(t, `
providers: [{name: a, type: openai, base_url: "`+s.URL+`/v1", models: [{id: x, price: {input: 1, output: 1}}, {id: unpriced}]}]
routes: [{name: good, models: [x]}, {name: bad, models: [x, gone, unpriced]}]
`)
	got := checkProviders(t.Context(), l)
	if len(got) != 3 || !got[1].OK || got[1].Message != "good: x" || got[2].OK || got[2].Message != "bad: no provider offers gone, unpriced at a known price" {
		t.Errorf("got %+v", got)
	}
}

func TestDoctorWithoutProviders(t *testing.T) {
	t.Parallel()
	if got := checkProviders(t.Context(), loadProviders(t, "")); len(got) != 1 || !got[0].OK || !strings.HasPrefix(got[0].Message, "none configured") {
		t.Errorf("got %+v", got)
	}
}

func TestSettingsAndCatalogueAgree(t *testing.T) {
	t.Parallel()
	l := loadProviders(t, `
credit_usd: 0.01
markup_percent: 50
providers:
  - name: mine
    type: openai
    base_url: http://box/v1
    catalog: openai
    models:
      - {id: m, upstream: gpt-4o-mini, context_window: 7, max_output_tokens: 8, capabilities: [vision, tools, json_schema, reasoning, audio_input, prompt_caching]}
      - {id: n, price: {input: 1, output: 2, cached_input: 0.5, cache_write: "3"}}
  - {name: house, type: anthropic, api_key: k}
`)
	c, err := app.LoadCatalog(l.Config)
	if err != nil {
		t.Fatal(err)
	}
	all := catalog.Capabilities{Vision: true, Tools: true, JSONSchema: true, Reasoning: true, AudioInput: true, PromptCaching: true}
	if m := c.Offer("mine", "m"); m.Upstream != "gpt-4o-mini" || m.ContextWindow != 7 || m.MaxOutputTokens != 8 || m.Capabilities != all || m.Price.Input != 22_500_000 {
		t.Errorf("got %+v", m)
	}
	n := c.Offer("mine", "n").Price
	if want := (catalog.Price{Input: 150e6, Output: 300e6, CachedInput: 75e6, CacheWrite: 450e6, Tools: n.Tools}); n != want {
		t.Errorf("got %+v", n)
	}
	if c.Offer("house", "claude-opus-5") == nil {
		t.Error("a provider of type anthropic lacks Anthropic's models")
	}
}

// Many servers return a page for every path.
func TestDoctorDetectsAPageInsteadOfAnAPI(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<!doctype html><title>Hello</title>") }))
	t.Cleanup(s.Close)
	l := loadProviders(t, "providers: [{name: a, type: openai, base_url: '"+s.URL+"', api_key: "+doctorKey+", models: [{id: x, price: {input: 1, output: 1}}]}]")
	got := checkProviders(t.Context(), l)
	if len(got) != 1 || got[0].OK || !strings.Contains(got[0].Message, "is not JSON") {
		t.Errorf("got %+v", got)
	}
}
