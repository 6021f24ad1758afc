package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/internal/safehttp"
)

// probeTimeout is how long a provider may take to say what models it has.
const probeTimeout = 5 * time.Second

// examineProviders says which providers are set up, and asks each for its list
// of models, which costs nothing and needs the key.
func examineProviders(ctx context.Context, l config.Loaded) []finding {
	if len(l.Providers) == 0 {
		return []finding{{"providers", true, "none set up: live keys get 503 no_provider, test keys the simulator"}}
	}
	models, err := app.LoadCatalog(l.Config)
	if err != nil {
		return []finding{{"providers", false, err.Error()}}
	}
	findings := make([]finding, len(l.Providers))
	var wg sync.WaitGroup
	for i, p := range l.Providers {
		wg.Go(func() { findings[i] = examineProvider(ctx, p, l.Origin[fmt.Sprintf("providers[%d]", i)], models) })
	}
	wg.Wait()
	return append(findings, examineRoutes(l.Config, models)...)
}

func examineProvider(ctx context.Context, p config.Provider, origin string, models *catalog.Catalog) finding {
	what := fmt.Sprintf("%s (%s) at %s, from %s", p.Name, p.Type, p.BaseURL, origin)
	offered, err := countOffers(p.Name, models)
	if err != nil {
		return finding{"provider", false, what + "; " + err.Error()}
	}
	state, err := probe(ctx, p)
	if err != nil {
		return finding{"provider", false, what + "; " + offered + "; " + err.Error()}
	}
	return finding{"provider", true, what + "; " + offered + "; " + state}
}

func countOffers(supplier string, models *catalog.Catalog) (string, error) {
	offers := models.Offers(supplier)
	priced := 0
	for _, o := range offers {
		if o.Priced {
			priced++
		}
	}
	text := fmt.Sprintf("%d models priced, %d not", priced, len(offers)-priced)
	switch {
	case models.OffersAny(supplier) && len(offers) == 0:
		return "any model", nil
	case models.OffersAny(supplier):
		return text + ", and any other", nil
	case len(offers) == 0:
		return "", errors.New("it offers no model; give it models, a default_price, or in catalog the name of a provider whose models it has")
	}
	return text, nil
}

// examineRoutes finds routes to models that nobody offers.
func examineRoutes(c config.Config, models *catalog.Catalog) []finding {
	var findings []finding
	for _, r := range c.Routes {
		var missing []string
		for _, m := range r.Models {
			if !offered(c, models, m) {
				missing = append(missing, m)
			}
		}
		if len(missing) > 0 {
			findings = append(findings, finding{"route", false, fmt.Sprintf("%s: no provider offers %s at a known price", r.Name, strings.Join(missing, ", "))})
			continue
		}
		findings = append(findings, finding{"route", true, fmt.Sprintf("%s: %s", r.Name, strings.Join(r.Models, ", "))})
	}
	return findings
}

func offered(c config.Config, models *catalog.Catalog, model string) bool {
	for _, p := range c.Providers {
		if o := models.Offer(p.Name, model); o != nil && o.Priced {
			return true
		}
	}
	return false
}

// probe asks for the list of models. Neither the state nor the error has
// anything of the answer in it: some servers repeat the key.
func probe(ctx context.Context, p config.Provider) (state string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := probeRequest(ctx, p)
	if err != nil {
		return "", errors.New("its address cannot be called")
	}
	// A redirect could lead the key to another server.
	client := &http.Client{Transport: safehttp.WithoutUpgrades(nil), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("it cannot be reached: %w", errors.Unwrap(err)) // without the request's address
	}
	defer resp.Body.Close()
	// Read whole, so that the server does not see a broken connection.
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if text = bytes.TrimSpace(text); resp.StatusCode == http.StatusOK && !bytes.HasPrefix(text, []byte("{")) && !bytes.HasPrefix(text, []byte("[")) {
		return "", errors.New("what answers there is no model provider's API; see whether base_url is complete")
	}
	return judge(p, resp.StatusCode)
}

func judge(p config.Provider, status int) (state string, err error) {
	switch {
	case status >= 200 && status < 300 && p.APIKey == "":
		return "it answers without a key", nil
	case status >= 200 && status < 300:
		return "the key is accepted", nil
	case status == http.StatusUnauthorized, p.Type == config.Gemini && status == http.StatusBadRequest: // its word for a wrong key
		return "", fmt.Errorf("the key is not accepted (%d); check api_key or its variable", status)
	case status == http.StatusForbidden:
		return "", fmt.Errorf("the key is not accepted (%d); one of limited rights needs that of listing models", status)
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return fmt.Sprintf("it answers, but has no list of models (%d), so the key was not tried; if calls fail, see whether base_url is complete", status), nil
	case status == http.StatusTooManyRequests:
		return fmt.Sprintf("it answers, but wants fewer calls (%d), so the key was not tried", status), nil
	}
	return "", fmt.Errorf("it answers with status %d", status)
}

// probeRequest asks as the provider's own package does.
func probeRequest(ctx context.Context, p config.Provider) (*http.Request, error) {
	address := string(p.BaseURL) + "/models"
	if p.Type == config.Anthropic {
		address = strings.TrimSuffix(string(p.BaseURL), "/v1") + "/v1/models"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "turnpike/"+version)
	key := string(p.APIKey)
	switch {
	case p.Type == config.Anthropic:
		req.Header.Set("Anthropic-Version", "2023-06-01")
		setUnlessEmpty(req.Header, "X-Api-Key", key)
	case p.Type == config.Gemini:
		setUnlessEmpty(req.Header, "X-Goog-Api-Key", key)
	case p.APIVersion != "":
		query := req.URL.Query()
		query.Set("api-version", p.APIVersion)
		req.URL.RawQuery = query.Encode()
		setUnlessEmpty(req.Header, "Api-Key", key)
	case key != "":
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for name, value := range p.Headers {
		req.Header.Set(name, string(value))
	}
	return req, nil
}

func setUnlessEmpty(h http.Header, name, value string) {
	if value != "" {
		h.Set(name, value)
	}
}
