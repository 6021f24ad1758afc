package catalog

import (
	"slices"
	"strings"
	"unicode"

	"turnpike/internal/fault"
)

const (
	// RoutePrefix begins the names of routes.
	RoutePrefix = "route/"

	maxPatterns      = 100
	maxPatternLength = 256 // bytes, as of names in requests
	anyEnding        = "*"
)

// Patterns select models by name: exact names, beginnings such as claude-*, and routes such as
// route/fast. Names are case-sensitive, as in requests. A nil list selects everything.
type Patterns []string

// Match reports whether a pattern selects the name of a model or, with its prefix, of a route.
func (p Patterns) Match(name string) bool {
	for _, pattern := range p {
		if covers(pattern, name) {
			return true
		}
	}
	return p == nil
}

// Allow reports whether the patterns select an offer. An alias is selected by its exact name. A pattern
// with * must select the name behind the alias as well, because the supplier decides what it runs by that name.
func (p Patterns) Allow(o *Offer) bool {
	return slices.Contains(p, o.ID) || p.Match(o.ID) && (o.AliasOf == "" || p.Match(o.AliasOf))
}

// FirstWider returns the first pattern that selects more than the owner's patterns.
func (p Patterns) FirstWider(owner Patterns) (pattern string, found bool) {
	if owner == nil {
		return "", false
	}
	if p == nil {
		return anyEnding, true
	}
	at := slices.IndexFunc(p, func(pattern string) bool { return !owner.Match(pattern) })
	if at < 0 {
		return "", false
	}
	return p[at], true
}

// covers reports whether a pattern selects a name, or everything that another pattern selects. Only
// patterns with the prefix of routes select routes.
func covers(pattern, name string) bool {
	if pattern == name {
		return true
	}
	prefix, isPrefix := strings.CutSuffix(pattern, anyEnding)
	return isPrefix && strings.HasPrefix(name, prefix) && strings.HasPrefix(name, RoutePrefix) == strings.HasPrefix(prefix, RoutePrefix)
}

// Check checks the form of the patterns, which a client sent as param.
func (p Patterns) Check(param string) error {
	if len(p) > maxPatterns {
		return fault.Invalid(param, "%s may have at most %d entries.", param, maxPatterns)
	}
	for _, pattern := range p {
		name := strings.TrimSuffix(pattern, anyEnding)
		if pattern == "" || pattern == RoutePrefix || len(pattern) > maxPatternLength || strings.ContainsFunc(name, isNotInPattern) {
			return fault.Invalid(param, "%s must have names of models such as gpt-5, the beginning of names such as claude-*, or routes such as route/fast.", param)
		}
	}
	return nil
}

func isNotInPattern(r rune) bool { return r == '*' || unicode.IsControl(r) }

// Allowed limits the models of a key, a token or a project, and the providers that may run them. A nil
// list allows all.
type Allowed struct {
	Models    Patterns `json:"allowed_models,omitzero"`
	Providers []string `json:"allowed_providers,omitzero"`
}

// IsUnlimited reports whether everything is allowed.
func (a Allowed) IsUnlimited() bool { return a.Models == nil && a.Providers == nil }

// Join returns the lists with the entries of both. A nil list adds nothing.
func (a Allowed) Join(b Allowed) Allowed {
	return Allowed{joinLists(a.Models, b.Models), joinLists(a.Providers, b.Providers)}
}

func joinLists[S ~[]string](a, b S) S {
	joined := slices.Clip(a)
	for _, entry := range b {
		if !slices.Contains(joined, entry) {
			joined = append(joined, entry)
		}
	}
	return joined
}

// Fields of the API that have the two lists.
const (
	AllowedModelsField    = "allowed_models"
	AllowedProvidersField = "allowed_providers"
)

// Wider is what a list allows in addition to its owner's.
type Wider struct{ Field, Entry string }

// FirstWider returns the first entry that allows more than the owner's lists, or nil.
func (a Allowed) FirstWider(owner Allowed) *Wider {
	if pattern, found := a.Models.FirstWider(owner.Models); found {
		return &Wider{AllowedModelsField, pattern}
	}
	if owner.Providers == nil {
		return nil
	}
	if a.Providers == nil {
		return &Wider{AllowedProvidersField, anyEnding}
	}
	for _, name := range a.Providers {
		if !slices.Contains(owner.Providers, name) {
			return &Wider{AllowedProvidersField, name}
		}
	}
	return nil
}

const maxAllowedProviders = 100

// Check checks the form of the lists. Which models and providers exist, the gateway knows.
func (a Allowed) Check() error {
	if err := a.Models.Check(AllowedModelsField); err != nil {
		return err
	}
	if len(a.Providers) > maxAllowedProviders {
		return fault.Invalid(AllowedProvidersField, "allowed_providers may have at most %d entries.", maxAllowedProviders)
	}
	return nil
}
