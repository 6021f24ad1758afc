package catalog_test

import (
	"strings"
	"testing"

	"turnpike/internal/catalog"
)

func TestPatternsMatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		patterns catalog.Patterns
		name     string
		want     bool
	}{
		{nil, "gpt-5", true},
		{nil, "route/fast", true},
		{catalog.Patterns{}, "gpt-5", false},
		{catalog.Patterns{"gpt-5"}, "gpt-5", true},
		{catalog.Patterns{"gpt-5"}, "gpt-5-mini", false},
		{catalog.Patterns{"gpt-5"}, "GPT-5", false},
		{catalog.Patterns{"claude-*"}, "claude-opus-4", true},
		{catalog.Patterns{"claude-*"}, "Claude-opus-4", false},
		{catalog.Patterns{"claude-*"}, "claude", false},
		{catalog.Patterns{"claude-*"}, "anthropic/claude-opus-4", false},
		{catalog.Patterns{"*"}, "gpt-5", true},
		{catalog.Patterns{"*"}, "route/fast", false},
		{catalog.Patterns{"r*"}, "route/fast", false},
		{catalog.Patterns{"route/fast"}, "route/fast", true},
		{catalog.Patterns{"route/*"}, "route/fast", true},
		{catalog.Patterns{"route/*"}, "gpt-5", false},
	}
	for _, tt := range tests {
		if got := tt.patterns.Match(tt.name); got != tt.want {
			t.Errorf("%q.Match(%q) = %v, want %v", tt.patterns, tt.name, got, tt.want)
		}
	}
}

// TestWildcardDoesNotAllowAliasOfAnotherModel is why a key for claude-* can't call an alias such as
// claude-cheap for a model of another vendor.
func TestWildcardDoesNotAllowAliasOfAnotherModel(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(catalog.Terms{Suppliers: []catalog.Supplier{{Name: "own", Table: "openai", Models: []catalog.ListedModel{
		{ID: "claude-cheap", Upstream: "gpt-4o-mini"}, {ID: "gpt-cheap", Upstream: "gpt-4o-mini"}, {ID: "gpt-4o"},
		{ID: "claude-team", Upstream: "team-deployment"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		patterns catalog.Patterns
		model    string
		want     bool
	}{
		{catalog.Patterns{"claude-*"}, "claude-cheap", false},
		{catalog.Patterns{"claude-*", "gpt-4o-mini"}, "claude-cheap", true},
		{catalog.Patterns{"claude-cheap"}, "claude-cheap", true},
		{catalog.Patterns{"gpt-*"}, "gpt-cheap", true},
		{catalog.Patterns{"gpt-*"}, "gpt-4o", true},
		{catalog.Patterns{"gpt-4o-mini"}, "gpt-cheap", false},
		{catalog.Patterns{"claude-*"}, "claude-team", false}, // no one knows the model behind it
		{catalog.Patterns{"claude-team"}, "claude-team", true},
		{catalog.Patterns{"claude-*", "team-*"}, "claude-team", true},
		{catalog.Patterns{"*"}, "claude-team", true},
		{nil, "claude-cheap", true},
		{catalog.Patterns{}, "gpt-4o", false},
	}
	for _, tt := range tests {
		o := c.Offer("own", tt.model)
		if o == nil {
			t.Fatalf("no offer of %s", tt.model)
		}
		if got := tt.patterns.Allow(o); got != tt.want {
			t.Errorf("%q.Allow(%s) = %v, want %v", tt.patterns, tt.model, got, tt.want)
		}
	}
}

func TestFirstWider(t *testing.T) {
	t.Parallel()
	tests := []struct {
		child, parent catalog.Patterns
		want          string
	}{
		{nil, nil, ""},
		{catalog.Patterns{"gpt-5"}, nil, ""},
		{nil, catalog.Patterns{"gpt-5"}, "*"},
		{catalog.Patterns{}, catalog.Patterns{"gpt-5"}, ""},
		{catalog.Patterns{"claude-opus-*", "claude-opus-4"}, catalog.Patterns{"claude-*"}, ""},
		{catalog.Patterns{"claude-*"}, catalog.Patterns{"claude-opus-*"}, "claude-*"},
		{catalog.Patterns{"gpt-5", "route/fast"}, catalog.Patterns{"*"}, "route/fast"},
		{catalog.Patterns{"*"}, catalog.Patterns{"claude-*"}, "*"},
		{catalog.Patterns{"*"}, catalog.Patterns{"*"}, ""},
		{catalog.Patterns{"gpt-5"}, catalog.Patterns{}, "gpt-5"},
	}
	for _, tt := range tests {
		if got, found := tt.child.FirstWider(tt.parent); got != tt.want || found != (tt.want != "") {
			t.Errorf("%q.FirstWider(%q) = %q, %v, want %q", tt.child, tt.parent, got, found, tt.want)
		}
	}
}

func TestPatternForm(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]bool{"gpt-5": true, "claude-*": true, "*": true, "route/fast": true, "route/*": true, "openai/gpt-oss-120b": true,
		"": false, "*-mini": false, "a**": false, "route/": false, "a\nb": false, strings.Repeat("a", 257): false} {
		if err := (catalog.Patterns{pattern}).Check("allowed_models"); (err == nil) != want {
			t.Errorf("Check(%q) = %v, want valid %v", pattern, err, want)
		}
	}
	if err := make(catalog.Patterns, 101).Check("allowed_models"); err == nil {
		t.Error("101 entries were accepted")
	}
}
