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
	"turnpike/internal/safehttp/safehttptest"
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

// fakeProvider wants a request to a path with a header, and repeats the key in
// every refusal, as real ones do.
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

func TestDoctorTriesEachProvidersKey(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path, header, value string
		provider            string // %s is the server
		want                string
		wrong               bool
	}{
		"openai":            {"/v1/models", "Authorization", "Bearer " + doctorKey, "{name: openai, type: openai, base_url: '%s/v1', api_key: " + doctorKey + "}", "openai (openai) at %s/v1, from file f:1; 109 models priced, 14 not; the key is accepted", false},
		"openai, wrong key": {"/v1/models", "Authorization", "Bearer other", "{name: openai, type: openai, base_url: '%s/v1', api_key: " + doctorKey + "}", "the key is not accepted (401); check api_key or its variable", true},
		"azure":             {"/openai/models?api-version=2024-10-21", "Api-Key", doctorKey, "{name: azure, type: openai, catalog: openai, base_url: '%s/openai', api_version: 2024-10-21, api_key: " + doctorKey + "}", "the key is accepted", false},
		"own header":        {"/v1/models", "X-Team", doctorKey, "{name: a, type: openai, base_url: '%s/v1', headers: {x-team: " + doctorKey + "}, local: true}", "any model; it answers without a key", false},
		"anthropic":         {"/v1/models", "X-Api-Key", doctorKey, "{name: a, type: anthropic, base_url: '%s', api_key: " + doctorKey + "}", "24 models priced, 0 not; the key is accepted", false},
		"anthropic with v1": {"/v1/models", "Anthropic-Version", "2023-06-01", "{name: a, type: anthropic, base_url: '%s/v1', api_key: " + doctorKey + "}", "the key is accepted", false},
		"gemini":            {"/v1beta/models", "X-Goog-Api-Key", doctorKey, "{name: g, type: gemini, base_url: '%s', api_key: " + doctorKey + "}", "the key is accepted", false},
		"no list":           {"/elsewhere", "", "", "{name: a, type: openai, base_url: '%s/v1', default_price: {input: 1, output: 1}}", "it answers, but has no list of models (404)", false},
		"no models":         {"/v1/models", "", "", "{name: a, type: openai, base_url: '%s/v1'}", "it offers no model; give it models, a default_price", true},
		"listed":            {"/v1/models", "", "", "{name: a, type: openai, base_url: '%s/v1', models: [{id: x}, {id: y, price: {input: 1, output: 1}}]}", "1 models priced, 1 not", false},
		"default price":     {"/v1/models", "", "", "{name: a, type: openai, catalog: groq, base_url: '%s/v1', default_price: {input: 1, output: 1}}", "12 models priced, 0 not, and any other; ", false},
		"unknown catalog":   {"/v1/models", "", "", "{name: a, type: openai, catalog: gorq, base_url: '%s/v1'}", `unknown table "gorq"; want one of anthropic,`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fakeProvider(t, tt.path, tt.header, tt.value)
			l := loadProviders(t, "providers: ["+strings.ReplaceAll(tt.provider, "%s", s.URL)+"]")
			got := examineProviders(t.Context(), l)
			if len(got) != 1 || got[0].OK == tt.wrong || !strings.Contains(got[0].Message, strings.ReplaceAll(tt.want, "%s", s.URL)) {
				t.Errorf("got %+v, want %q", got, tt.want)
			}
			if strings.Contains(fmt.Sprint(got), doctorKey) {
				t.Errorf("the key was printed: %v", got)
			}
		})
	}
}

func TestDoctorJudgesWhatAProviderAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind   string
		status int
		ok     bool
		want   string
	}{
		{config.OpenAI, 200, true, "accepted"},
		{config.OpenAI, 302, false, "status 302"},
		{config.OpenAI, 400, false, "status 400"},
		{config.Gemini, 400, false, "not accepted (400)"},
		{config.OpenAI, 403, false, "not accepted (403); one of limited rights"},
		{config.OpenAI, 405, true, "not tried"},
		{config.OpenAI, 429, true, "wants fewer calls"},
		{config.OpenAI, 500, false, "status 500"},
	} {
		state, err := judge(config.Provider{Type: tt.kind, APIKey: "k"}, tt.status)
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
	if got := examineProviders(t.Context(), l); got[0].OK || !strings.Contains(got[0].Message, "from environment ANTHROPIC_API_KEY") || !strings.Contains(got[0].Message, "status 302") {
		t.Errorf("got %+v", got)
	}
	if len(called) > 0 {
		t.Errorf("the other server was called, with key %q", <-called)
	}
}

func TestDoctorSaysWhoCannotBeReached(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	l := loadProviders(t, "", "OLLAMA_HOST="+gone.URL)
	got := examineProviders(t.Context(), l)
	if len(got) != 1 || got[0].OK || !strings.HasPrefix(got[0].Message, "ollama (openai) at "+gone.URL+"/v1, from environment OLLAMA_HOST; any model; it cannot be reached: ") {
		t.Errorf("got %+v", got)
	}
}

// switching is a server that answers with another protocol, and then waits
// until it is left.
func switching(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(safehttptest.Switching))
	t.Cleanup(s.Close)
	return s
}

func TestNoCommandWaitsForAServerThatSwitchesProtocols(t *testing.T) {
	t.Parallel()
	const said = "101 Switching Protocols, which was not asked for"
	s := switching(t)
	if got := examineProviders(t.Context(), loadProviders(t, "", "OLLAMA_HOST="+s.URL)); len(wrong(got)) != 1 || !strings.Contains(got[0].Message, said) {
		t.Errorf("a provider: %+v", got)
	}
	l := loadProviders(t, "data: "+t.TempDir())
	l.OIDC.Issuer = s.URL
	if bad := wrong(examineServices(t.Context(), l)); len(bad) != 1 || !strings.Contains(bad[0], said) {
		t.Errorf("the sign-in provider: %q", bad)
	}
	if code, _, errOut := jobsCommand(s, "wait", aBatch, "--timeout", "1s"); code != 1 || !strings.Contains(errOut, said) {
		t.Errorf("the API: exit %d, %s", code, errOut)
	}
}

func TestDoctorFindsRoutesToNowhere(t *testing.T) {
	t.Parallel()
	s := fakeProvider(t, "/v1/models", "", "")
	l := loadProviders(t, `
providers: [{name: a, type: openai, base_url: "`+s.URL+`/v1", models: [{id: x, price: {input: 1, output: 1}}, {id: unpriced}]}]
routes: [{name: good, models: [x]}, {name: bad, models: [x, gone, unpriced]}]
`)
	got := examineProviders(t.Context(), l)
	if len(got) != 3 || !got[1].OK || got[1].Message != "good: x" || got[2].OK || got[2].Message != "bad: no provider offers gone, unpriced at a known price" {
		t.Errorf("got %+v", got)
	}
}

func TestDoctorWithoutProviders(t *testing.T) {
	t.Parallel()
	if got := examineProviders(t.Context(), loadProviders(t, "")); len(got) != 1 || !got[0].OK || !strings.HasPrefix(got[0].Message, "none set up") {
		t.Errorf("got %+v", got)
	}
}

// What the settings accept, the catalogue understands.
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
	if n := c.Offer("mine", "n").Price; n != (catalog.Price{Input: 150e6, Output: 300e6, CachedInput: 75e6, CacheWrite: 450e6}) {
		t.Errorf("got %+v", n)
	}
	if c.Offer("house", "claude-opus-5") == nil {
		t.Error("a provider of type anthropic does not have Anthropic's models")
	}
}

// TestDoctorKnowsAPageFromAnAPI: many servers answer any path with their page.
func TestDoctorKnowsAPageFromAnAPI(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<!doctype html><title>Hello</title>") }))
	t.Cleanup(s.Close)
	l := loadProviders(t, "providers: [{name: a, type: openai, base_url: '"+s.URL+"', api_key: "+doctorKey+", models: [{id: x, price: {input: 1, output: 1}}]}]")
	got := examineProviders(t.Context(), l)
	if len(got) != 1 || got[0].OK || !strings.Contains(got[0].Message, "no model provider's API") {
		t.Errorf("got %+v", got)
	}
}
