package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/internal/operators"
	"turnpike/internal/safehttp"
)

// probeTimeout is how long a service may take to respond.
const probeTimeout = 5 * time.Second

// checkProviders requests the list of models from every provider, which is free
// and needs the key.
func checkProviders(ctx context.Context, l config.Loaded) []finding {
	l, models, stored := addStored(ctx, l)
	if len(l.Providers) == 0 {
		return append([]finding{{"providers", true, "none configured: requests with live keys fail with 503 no_provider, the simulator answers test keys"}}, stored...)
	}
	if models == nil {
		var err error
		if models, err = app.LoadCatalog(l.Config); err != nil {
			return []finding{{"providers", false, err.Error()}}
		}
	}
	findings := make([]finding, len(l.Providers))
	var wg sync.WaitGroup
	for i, p := range l.Providers {
		wg.Go(func() { findings[i] = checkProvider(ctx, p, l.Origin[fmt.Sprintf("providers[%d]", i)], models) })
	}
	wg.Wait()
	return slices.Concat(findings, checkRoutes(l.Config, models), stored)
}

// addStored adds the providers and routes in the database to the configuration, and reports those that servers don't
// use. Without a database there are none, and no catalog; the checks of the storage report why.
func addStored(ctx context.Context, l config.Loaded) (config.Loaded, *catalog.Catalog, []finding) {
	s, err := openExisting(ctx, l.Config)
	if err != nil {
		return l, nil, nil
	}
	defer s.Close()
	merged, err := app.WithStored(ctx, s, l.Config)
	if err != nil {
		return l, nil, nil // loading the catalog reports why
	}
	l.Origin = maps.Clone(l.Origin)
	for i := len(l.Providers); i < len(merged.Config.Providers); i++ {
		l.Origin[fmt.Sprintf("providers[%d]", i)] = "the database"
	}
	l.Config = merged.Config
	var findings []finding
	for _, ref := range slices.SortedFunc(maps.Keys(merged.Problems), func(a, b operators.Ref) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name))
	}) {
		findings = append(findings, finding{string(ref.Kind), true, fmt.Sprintf("%s in the database is not used: %s; to remove it, run: turnpike %s", ref.Name, merged.Problems[ref], removal(ref))})
	}
	return l, merged.Catalog, findings
}

// removal returns the command that removes a stored definition.
func removal(ref operators.Ref) string {
	switch ref.Kind {
	case operators.Pricing:
		return "pricing reset"
	case operators.Catalog:
		return "catalog reset"
	}
	return fmt.Sprintf("%ss remove %s", ref.Kind, ref.Name)
}

func checkProvider(ctx context.Context, p config.Provider, origin string, models *catalog.Catalog) finding {
	text := fmt.Sprintf("%s (%s) at %s, from %s: ", p.Name, p.Type, p.BaseURL, origin)
	offers, err := countOffers(p.Name, models)
	state := ""
	if err == nil {
		text += offers + ", "
		state, err = probe(ctx, p)
	}
	f := newFinding("provider", err, state)
	f.Message = text + f.Message
	return f
}

func countOffers(supplier string, models *catalog.Catalog) (string, error) {
	offers := models.Offers(supplier)
	priced := 0
	for _, o := range offers {
		if o.Priced {
			priced++
		}
	}
	text := fmt.Sprintf("%d models with a price, %d without", priced, len(offers)-priced)
	switch {
	case models.OffersAny(supplier) && len(offers) == 0:
		return "any model", nil
	case models.OffersAny(supplier):
		return text + ", and any other", nil
	case len(offers) == 0:
		return "", errors.New("no models; set models, a default_price, or catalog to the name of a provider with the same models")
	}
	return text, nil
}

// checkRoutes finds routes to models that no provider offers.
func checkRoutes(c config.Config, models *catalog.Catalog) []finding {
	var findings []finding
	for _, r := range c.Routes {
		f := finding{"route", true, fmt.Sprintf("%s: %s", r.Name, strings.Join(r.Models, ", "))}
		if missing := app.NotOffered(c, models, r); len(missing) > 0 {
			f = finding{"route", false, fmt.Sprintf("%s: no provider offers %s at a known price", r.Name, strings.Join(missing, ", "))}
		}
		findings = append(findings, f)
	}
	return findings
}

// probe requests the list of models. Its results contain nothing of the
// response, because some servers repeat the key.
func probe(ctx context.Context, p config.Provider) (state string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := probeRequest(ctx, p)
	if err != nil {
		return "", errors.New("invalid base_url")
	}
	if err := app.Credential(p).Authenticate(req, nil); err != nil {
		return "", fmt.Errorf("no key: %w", err)
	}
	if p.SignIn == nil && p.Type == config.Bedrock {
		return "its key was not checked, because Bedrock lists its models elsewhere", nil
	}
	if p.SignIn != nil { // clouds list their models elsewhere
		return "it signs in with " + p.SignIn.With, nil
	}
	// A redirect could send the key to another server.
	client := &http.Client{Transport: safehttp.WithoutUpgrades(nil), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("cannot connect: %w", errors.Unwrap(err)) // without the URL
	}
	defer resp.Body.Close()
	// Reading the whole body spares the server a broken connection.
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if text = bytes.TrimSpace(text); resp.StatusCode == http.StatusOK && !bytes.HasPrefix(text, []byte("{")) && !bytes.HasPrefix(text, []byte("[")) {
		return "", errors.New("the response is not JSON; check that base_url is complete")
	}
	return interpretStatus(p, resp.StatusCode)
}

func interpretStatus(p config.Provider, status int) (state string, err error) {
	switch {
	case status >= 200 && status < 300 && !p.HasKey():
		return "it responds without a key", nil
	case status >= 200 && status < 300:
		return "it accepts the key", nil
	case status == http.StatusUnauthorized, p.Type == config.Gemini && status == http.StatusBadRequest: // Gemini's status for a wrong key
		return "", fmt.Errorf("it rejects the key (%d); check api_key, or where it comes from", status)
	case status == http.StatusForbidden:
		return "", fmt.Errorf("it rejects the key (%d); a restricted key needs the permission to list models", status)
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return fmt.Sprintf("it responds, but has no list of models (%d), so the key was not checked; if requests fail, check that base_url is complete", status), nil
	case status == http.StatusTooManyRequests:
		return fmt.Sprintf("it responds, but limits requests (%d), so the key was not checked", status), nil
	}
	return "", fmt.Errorf("it returns status %d", status)
}

// probeRequest authenticates like the provider's own package.
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
	switch {
	case p.Type == config.Anthropic:
		req.Header.Set("Anthropic-Version", "2023-06-01")
	case p.APIVersion != "":
		query := req.URL.Query()
		query.Set("api-version", p.APIVersion)
		req.URL.RawQuery = query.Encode()
	}
	for name, value := range p.Headers {
		req.Header.Set(name, string(value))
	}
	return req, nil
}
