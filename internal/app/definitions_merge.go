package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/internal/fault"
	"turnpike/internal/operators"
)

// effective is the configuration together with the definitions in the database.
type effective struct {
	config   config.Config
	table    *catalog.Table // nil for the embedded one
	catalog  *catalog.Catalog
	problems map[operators.Ref]string // why a stored definition isn't used
}

// mergeStored adds the stored definitions to the configuration. An invalid one is left out, because it must not keep
// the server from starting: a newer file or version may contradict what was valid once.
func mergeStored(file config.Config, stored []*operators.Stored) (*effective, error) {
	all := newEffective(file, stored)
	models, err := loadCatalog(all.config, all.table)
	if err == nil {
		all.catalog = models
		return all, nil
	}
	var valid []*operators.Stored
	problems := all.problems
	for _, d := range stored {
		next := newEffective(file, append(slices.Clip(valid), d))
		if _, err := loadCatalog(next.config, next.table); err != nil {
			problems[operators.Ref{Kind: d.Kind, Name: d.Name}] = messageOf(err)
			continue
		}
		valid = append(valid, d)
	}
	out := newEffective(file, valid)
	maps.Copy(problems, out.problems)
	out.problems = problems
	out.catalog, err = loadCatalog(out.config, out.table)
	return out, err
}

func newEffective(file config.Config, stored []*operators.Stored) *effective {
	e := &effective{problems: map[operators.Ref]string{}}
	var list []config.Provider
	var routes []config.Route
	var prices config.Pricing
	for _, d := range stored {
		ref := operators.Ref{Kind: d.Kind, Name: d.Name}
		parsed, err := parseStored(d)
		switch {
		case isConfigured(file, ref):
			e.problems[ref] = fmt.Sprintf("The configuration also defines %s, and wins.", d.Name)
		case err != nil:
			e.problems[ref] = messageOf(err)
		case parsed.provider != nil:
			list = append(list, *parsed.provider)
		case parsed.route != nil:
			routes = append(routes, *parsed.route)
		case parsed.prices != nil:
			prices = *parsed.prices
		case parsed.table != nil:
			if problem := outdated(parsed.table); problem != "" {
				e.problems[ref] = problem
				continue
			}
			e.table = parsed.table
		}
	}
	e.config = file.WithStored(list, routes, prices)
	return e
}

// outdated returns why a stored table isn't used: a new version of Turnpike can have a newer one.
func outdated(t *catalog.Table) string {
	if builtIn, err := catalog.Embedded(); err == nil && builtIn.AsOf.After(t.AsOf) {
		return fmt.Sprintf("The built-in table of %s is newer than the stored one of %s, and is used.", builtIn.AsOf.Format(time.DateOnly), t.AsOf.Format(time.DateOnly))
	}
	return ""
}

func messageOf(err error) string {
	if f, ok := fault.As(err); ok {
		return f.Message
	}
	return err.Error()
}

func isConfigured(file config.Config, ref operators.Ref) bool {
	switch ref.Kind {
	case operators.Provider:
		return file.HasProvider(ref.Name)
	case operators.Route:
		return file.HasRoute(ref.Name)
	case operators.Pricing:
		return file.MarkupPercent != ""
	}
	return false
}

// parsedDefinition has what a stored definition defines.
type parsedDefinition struct {
	provider *config.Provider
	route    *config.Route
	prices   *config.Pricing
	table    *catalog.Table
}

// fields returns the definition without secrets.
func (p parsedDefinition) fields() map[string]any {
	switch {
	case p.provider != nil:
		return describeProvider(*p.provider)
	case p.route != nil:
		return config.Describe(*p.route)
	case p.prices != nil:
		return config.Describe(*p.prices)
	case p.table != nil:
		return map[string]any{"as_of": p.table.AsOf.Format(time.DateOnly)}
	}
	return map[string]any{}
}

func parseStored(d *operators.Stored) (parsedDefinition, error) {
	if d.Document == nil {
		return parsedDefinition{}, fault.New(fault.InvalidState, "It cannot be decrypted with this master key.")
	}
	switch d.Kind {
	case operators.Provider:
		p, err := config.ParseProvider(d.Document)
		return parsedDefinition{provider: &p}, documentFault(err)
	case operators.Route:
		r, err := config.ParseRoute(d.Document)
		return parsedDefinition{route: &r}, documentFault(err)
	case operators.Pricing:
		p, err := config.ParsePricing(d.Document)
		return parsedDefinition{prices: &p}, documentFault(err)
	case operators.Catalog:
		t, err := catalog.ParseTable(d.Document)
		return parsedDefinition{table: t}, err
	}
	return parsedDefinition{}, fault.New(fault.InvalidState, "This version does not know the kind %q.", d.Kind)
}

// documentFault makes the problems of a document errors of the API.
func documentFault(err error) error {
	problems, ok := errors.AsType[config.Problems](err)
	if !ok {
		return err
	}
	errs := make([]error, len(problems))
	for i, p := range problems {
		if p.Setting == "" {
			return fault.New(fault.InvalidJSON, "The body must be a JSON object.")
		}
		errs[i] = fault.Invalid(p.Setting, "%s %s.", p.Setting, p.Message)
	}
	return errors.Join(errs...)
}
