package access

import (
	"slices"
	"testing"

	"turnpike/internal/fault"
)

func TestScopesGrantExactlyWhatTheyName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		names  []string
		allows []Scope
	}{
		{[]string{"models:read"}, []Scope{ModelsRead}},
		{[]string{"images:create"}, []Scope{ImagesCreate, ImagesRead}},
		{[]string{"images:read"}, []Scope{ImagesRead}},
		{[]string{"images:*"}, []Scope{ImagesCreate, ImagesRead}},
		{[]string{"keys:write"}, []Scope{KeysWrite}},
		{[]string{"agents.runs:create"}, []Scope{AgentRunsCreate, AgentRunsRead}},
		{[]string{"agents.runs:*"}, []Scope{AgentRunsCreate, AgentRunsRead, AgentRunsApprove}},
		{[]string{"*"}, slices.DeleteFunc(Scopes(), func(s Scope) bool { return s == ContentRead })},
		{[]string{"*", "content:read"}, Scopes()},
		{[]string{"webhooks:read", "webhooks:read", "usage:read"}, []Scope{WebhooksRead, UsageRead}},
	} {
		_, got, err := ParseScopes(c.names)
		if err != nil {
			t.Fatal(err)
		}
		if want := grantOf(c.allows...); got != want {
			t.Errorf("%v grants %b, want %b", c.names, got, want)
		}
	}
}

func TestUnknownScopesAreRejected(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "images", "images:", "images:delete", "image:*", "*:*", ":*", "models:read ", "Models:read", "**", "content:*"} {
		if _, _, err := ParseScopes([]string{"models:read", name}); !fault.Is(err, fault.InvalidParameter) {
			t.Errorf("%q gave %v", name, err)
		}
	}
	if _, _, err := ParseScopes(nil); !fault.Is(err, fault.MissingParameter) {
		t.Errorf("no scopes gave %v", err)
	}
}

func TestWildcardIsWiderThanItsCurrentScopes(t *testing.T) {
	t.Parallel()
	all := make([]string, len(registry))
	for i, s := range registry {
		all[i] = string(s)
	}
	_, grant, _ := ParseScopes(all)
	if firstWiderScope([]string{"*"}, all, grant) != "*" || firstWiderScope([]string{"images:*"}, all, grant) != "images:*" {
		t.Error("a key with every scope by name could make one with a wildcard")
	}
	_, star, _ := ParseScopes([]string{"*"})
	if name := firstWiderScope([]string{"*", "images:*", "keys:write"}, []string{"*"}, star); name != "" {
		t.Errorf("a key with wildcard could not pass on %s", name)
	}
}
