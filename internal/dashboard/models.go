package dashboard

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/gateway"
	"turnpike/internal/spend"
)

// providerRow is a provider with its last day in this environment.
type providerRow struct {
	Name     string
	Failing  []gateway.FailingModel // as this node saw it
	Stats    gateway.ProviderStats  // as this node saw it
	Requests int64
	Errors   int64
	Share    int64 // of the requests, in percent
	Log      string
	Failures string // the failed requests in the log
	Test     string // the page with a test call, for operators; or empty
}

// ErrorRate returns the failed part of the requests.
func (p providerRow) ErrorRate() string { return rate(p.Errors, p.Requests) }

type modelRow struct {
	*catalog.Model
	Try string // the playground, or empty
	Log string
}

// HasTokenPrices reports whether tokens have a price. Most images and audio are paid by other units.
func (m modelRow) HasTokenPrices() bool {
	return m.Price.Input != 0 || m.Price.CachedInput != 0 || m.Price.Output != 0 || len(m.Prices()) == 0
}

// ShowContext returns the context window in thousands or millions of tokens.
func (m modelRow) ShowContext() string { return shortNumber(float64(m.ContextWindow)) }

// ShowCapabilities lists the capabilities.
func (m modelRow) ShowCapabilities() string {
	return strings.ReplaceAll(strings.Join(m.Capabilities.Names(), ", "), "_", " ")
}

// Prices returns the prices of the model's units, in credits.
func (m modelRow) Prices() (out []unitPrice) {
	for _, u := range []unitPrice{{"image", m.Price.PerImage}, {"second", m.Price.PerSecond}, {"character", m.Price.PerCharacter}, {"search", m.Price.PerSearch}} {
		if u.Amount != 0 {
			out = append(out, u)
		}
	}
	return out
}

type unitPrice struct {
	Unit   string
	Amount credits.Micro
}

type modelsData struct {
	Providers []providerRow
	Kinds     []catalog.Kind
	Kind      catalog.Kind // of the filter; empty for all
	Text      string       // of the search
	Models    []modelRow
	Found     int    // that match the search
	Total     int    // without it
	Next      string // the page of the following models, or empty
	Previous  string // the page of the models before, or empty
	Sort      modelSort
	Sorts     []modelSort
	Decimals  priceDecimals
}

// modelSort is an order of the models.
type modelSort string

const (
	byUse     modelSort = "used"
	byName    modelSort = "name"
	byInput   modelSort = "input"
	byContext modelSort = "context"
)

// Title names the order in the form.
func (s modelSort) Title() string {
	return map[modelSort]string{byUse: "most used", byName: "name", byInput: "input price", byContext: "context"}[s]
}

// knownProviders come first among models that aren't used.
var knownProviders = []string{"openai", "anthropic", "google", "gemini", "mistral", "xai", "deepseek"}

// sortModels sorts models in place.
func (req *request) sortModels(models []*catalog.Model, by modelSort) error {
	now := req.now().UTC()
	u := spend.UsageQuery{Tenant: req.workspace.In(req.env), Start: now.Truncate(day).AddDate(0, 0, 1-topDays), End: now, Bucket: spend.ByDay, GroupBy: []string{"model"}}
	used := map[string]int64{}
	if by == byUse {
		if _, err := u.Bound(req.Context(), req.usage(), maxTopUsage); err != nil {
			return err
		}
		list, err := spend.TopUsage(req.Context(), req.usage(), u, modelsShown)
		if err != nil {
			return err
		}
		for _, x := range list {
			used[x.Model] = x.Requests
		}
	}
	priceRank := func(m *catalog.Model) credits.Micro {
		if m.Price.Input == 0 {
			return credits.Max
		}
		return m.Price.Input
	}
	known := func(m *catalog.Model) int {
		if slices.Contains(knownProviders, m.Provider) && !strings.Contains(m.ID, "/") {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(models, func(a, b *catalog.Model) int {
		name := strings.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID))
		switch by {
		case byName:
			return name
		case byInput: // the cheapest first, and those without such a price last
			return cmp.Or(cmp.Compare(priceRank(a), priceRank(b)), name)
		case byContext:
			return cmp.Or(cmp.Compare(b.ContextWindow, a.ContextWindow), name)
		}
		return cmp.Or(cmp.Compare(used[b.ID], used[a.ID]), known(a)-known(b), name)
	})
	return nil
}

// modelsShown is how many models a page has.
const modelsShown = 50

// modelsPage lists the models that the person can call, and the providers behind them.
func modelsPage(req *request) (*view, error) {
	callable, err := req.s.Gateway.Models(req.Context(), gateway.Owner{Principal: req.principal})
	if err != nil {
		return nil, err
	}
	d := &modelsData{Kind: catalog.Kind(req.query("kind")), Text: strings.TrimSpace(req.query("q")), Total: len(callable.Models), Sort: byUse, Sorts: []modelSort{byUse, byName, byInput, byContext}}
	if s := modelSort(req.query("sort")); slices.Contains(d.Sorts, s) {
		d.Sort = s
	}
	models := slices.Clone(callable.Models)
	if err := req.sortModels(models, d.Sort); err != nil {
		return nil, err
	}
	if d.Providers, err = req.providerRows(); err != nil {
		return nil, err
	}
	from, _ := strconv.Atoi(req.query("from")) // 0 if it isn't a number
	for _, m := range models {
		if !slices.Contains(d.Kinds, m.Kind) {
			d.Kinds = append(d.Kinds, m.Kind)
		}
		if d.Kind != "" && m.Kind != d.Kind || !d.matches(m) {
			continue
		}
		if d.Found++; d.Found <= from || d.Found > from+modelsShown {
			continue
		}
		row := modelRow{Model: m, Log: req.logLink("model", m.ID)}
		if slices.Contains(playgroundKinds, m.Kind) {
			row.Try = req.to("playground?" + url.Values{"model": {m.ID}}.Encode())
		}
		d.Models = append(d.Models, row)
	}
	var prices []credits.Micro
	for _, m := range d.Models {
		prices = append(prices, m.Price.Input, m.Price.CachedInput, m.Price.Output)
	}
	d.Decimals = req.priceDecimals(prices)
	slices.Sort(d.Kinds)
	page := func(from int) string {
		q := req.R.URL.Query()
		q.Set("from", strconv.Itoa(max(0, from)))
		return req.to("models?" + q.Encode())
	}
	if d.Found > from+modelsShown {
		d.Next = page(from + modelsShown)
	}
	if from > 0 {
		d.Previous = page(from - modelsShown)
	}
	return &view{template: "models", title: "Models", data: d}, nil
}

// matches reports whether a model has all words of the search in its name, provider, kind
// or capabilities.
func (d *modelsData) matches(m *catalog.Model) bool {
	about := strings.ToLower(m.ID + " " + m.Provider + " " + string(m.Kind) + " " + strings.Join(m.Capabilities.Names(), " "))
	for word := range strings.FieldsSeq(strings.ToLower(d.Text)) {
		if !strings.Contains(about, word) {
			return false
		}
	}
	return true
}

// providerRows returns the connected providers and those with requests in the last day.
func (req *request) providerRows() ([]providerRow, error) {
	used, err := req.usageSince(req.now().Add(-24*time.Hour), spend.UsageQuery{Bucket: spend.ByHour, GroupBy: []string{"provider"}})
	if err != nil {
		return nil, err
	}
	rows := map[string]*providerRow{}
	row := func(name string) *providerRow {
		if rows[name] == nil {
			rows[name] = &providerRow{Name: name, Log: req.logLink("provider", name, "last", "24h"), Failures: req.logLink("provider", name, "status", "failed", "last", "24h")}
		}
		return rows[name]
	}
	operator, err := req.isOperator()
	if err != nil {
		return nil, err
	}
	for _, name := range req.s.Facts().Providers {
		if p := row(name); operator {
			p.Test = providerPath(name)
		}
	}
	var total int64
	for _, u := range used {
		if u.Provider == "" {
			continue // it never reached one
		}
		p := row(u.Provider)
		p.Requests += u.Requests
		p.Errors += u.Errors
		total += u.Requests
	}
	for _, f := range req.s.Gateway.Failing() {
		if p := rows[f.Provider]; p != nil {
			p.Failing = append(p.Failing, f)
		}
	}
	for name, stats := range req.s.Gateway.ProviderStats() {
		if p := rows[name]; p != nil {
			p.Stats = stats
		}
	}
	out := make([]providerRow, 0, len(rows))
	for _, p := range rows {
		p.Share = percent(p.Requests, total)
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b providerRow) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
