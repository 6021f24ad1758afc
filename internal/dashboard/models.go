package dashboard

import (
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

// Prices returns the prices of the model's units, in credits.
func (m modelRow) Prices() (out []unitPrice) {
	for _, u := range []unitPrice{{"image", m.Price.PerImage}, {"second", m.Price.PerSecond}, {"character", m.Price.PerCharacter}} {
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
}

// modelsShown is how many models a page has.
const modelsShown = 65

// modelsPage lists the models that the person can call, and the providers behind them.
func modelsPage(req *request) (*view, error) {
	callable, err := req.s.Gateway.Models(req.Context(), gateway.Owner{Principal: req.principal})
	if err != nil {
		return nil, err
	}
	d := &modelsData{Kind: catalog.Kind(req.query("kind")), Text: strings.TrimSpace(req.query("q")), Total: len(callable.Models)}
	if d.Providers, err = req.providerRows(); err != nil {
		return nil, err
	}
	from, _ := strconv.Atoi(req.query("from")) // 0 if it isn't a number
	for _, m := range callable.Models {
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
	slices.Sort(d.Kinds)
	if next := from + modelsShown; d.Found > next {
		q := req.R.URL.Query()
		q.Set("from", strconv.Itoa(next))
		d.Next = req.to("models?" + q.Encode())
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
