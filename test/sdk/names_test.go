//go:build clients

package sdk_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db/dbtest"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// TestOddModelNames sends unusual model names, as local servers have them. The
// response, the header and the log have the exact name, or the request is rejected.
func TestOddModelNames(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg := harness.Config(t, engine)
			cfg.Providers = []config.Provider{{Name: "local", Type: config.OpenAI, BaseURL: config.Address(upstreams.NewOpenAI(t, "").BaseURL()), Local: true, Weight: 1}}
			s := harness.Start(t, cfg, harness.NewClock())
			key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)
			for _, name := range []string{"llama3:8b", "hf.co/org/model-GGUF:Q4_K_M", "../../v1/models", "モデル", "a b?c=d&e#f%20", `quote"back\slash`, "<script>", strings.Repeat("x", 256)} {
				p := ask("hi")
				p.Model = name
				var resp *http.Response
				r, err := clientOf(s, key).Chat.Completions.New(t.Context(), p, option.WithResponseInto(&resp))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				if r.Model != name || resp.Header.Get("Service-Model") != name {
					t.Errorf("%s came back as %q and %q", name, r.Model, resp.Header.Get("Service-Model"))
				}
				s.Eventually(t, func() bool {
					return s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?model=" + url.QueryEscape(name), Key: key}).Text("data.0.model") == name
				})
			}
			for _, name := range []string{"nul\x00", "line\r\nX-Injected: yes", "\x7f", strings.Repeat("x", 257)} {
				p := ask("hi")
				p.Model = name
				_, err := clientOf(s, key).Chat.Completions.New(t.Context(), p)
				var e *openai.Error
				if !errors.As(err, &e) || e.StatusCode != 400 || e.Param != "model" {
					t.Errorf("%q gave %v", name, err)
				}
			}
		})
	}
}
