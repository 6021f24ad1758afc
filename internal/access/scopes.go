package access

import (
	"math/bits"
	"slices"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// Scope is the name of a permission. The registry is closed and everything
// that is not granted is denied.
type Scope string

// The registry.
const (
	ModelsRead            Scope = "models:read"
	ChatCompletionsCreate Scope = "chat.completions:create"
	ResponsesCreate       Scope = "responses:create"
	EmbeddingsCreate      Scope = "embeddings:create"
	ImagesCreate          Scope = "images:create"
	ImagesRead            Scope = "images:read"
	VideosCreate          Scope = "videos:create"
	VideosRead            Scope = "videos:read"
	VoiceCreate           Scope = "voice:create"
	VoiceRead             Scope = "voice:read"
	AgentRunsCreate       Scope = "agents.runs:create"
	AgentRunsRead         Scope = "agents.runs:read"
	AgentRunsApprove      Scope = "agents.runs:approve"
	WebhooksRead          Scope = "webhooks:read"
	WebhooksWrite         Scope = "webhooks:write"
	EventsRead            Scope = "events:read"
	EventsReplay          Scope = "events:replay"
	ScopedTokensCreate    Scope = "scoped_tokens:create"
	KeysRead              Scope = "keys:read"
	KeysWrite             Scope = "keys:write"
	ProjectsRead          Scope = "projects:read"
	ProjectsWrite         Scope = "projects:write"
	UsageRead             Scope = "usage:read"
	AuditRead             Scope = "audit:read"
	BillingRead           Scope = "billing:read"
	BillingWrite          Scope = "billing:write"
)

// everything is the wildcard over the whole registry, later additions included.
const everything = "*"

var registry = []Scope{
	ModelsRead, ChatCompletionsCreate, ResponsesCreate, EmbeddingsCreate, ImagesCreate, ImagesRead,
	VideosCreate, VideosRead, VoiceCreate, VoiceRead, AgentRunsCreate, AgentRunsRead, AgentRunsApprove,
	WebhooksRead, WebhooksWrite, EventsRead, EventsReplay, ScopedTokensCreate, KeysRead, KeysWrite,
	ProjectsRead, ProjectsWrite, UsageRead, AuditRead, BillingRead, BillingWrite,
}

// delegable is what a scoped token may carry to a browser.
var delegable = grantOf(ModelsRead, ChatCompletionsCreate, ResponsesCreate, EmbeddingsCreate, ImagesCreate, ImagesRead,
	VideosCreate, VideosRead, VoiceCreate, VoiceRead, AgentRunsCreate, AgentRunsRead)

// Scopes lists the registry.
func Scopes() []Scope { return slices.Clone(registry) }

// Grant is a set of permissions: a bit for each scope of the registry, made
// from the names whenever they are read, so that a wildcard follows the registry.
type Grant uint64

func bit(s Scope) Grant {
	i := slices.Index(registry, s)
	if i < 0 {
		return 0
	}
	return 1 << i
}

func grantOf(scopes ...Scope) Grant {
	var g Grant
	for _, s := range scopes {
		g |= bit(s)
	}
	return g
}

// bits1 caches bit per scope: the check runs on every request.
var bitOf = func() map[Scope]Grant {
	m := make(map[Scope]Grant, len(registry))
	for _, s := range registry {
		m[s] = bit(s)
	}
	return m
}()

// Allows reports whether the grant includes the scope.
func (g Grant) Allows(s Scope) bool { return g&bitOf[s] != 0 }

// first names one of the scopes in the grant, for messages.
func (g Grant) first() Scope {
	if g == 0 {
		return ""
	}
	return registry[bits.TrailingZeros64(uint64(g))]
}

// expand turns one scope name or wildcard into what it grants; zero is unknown.
func expand(name string) Grant {
	if name == everything {
		return grantOf(registry...)
	}
	resource, verb, ok := strings.Cut(name, ":")
	if !ok {
		return 0
	}
	if verb == everything {
		var g Grant
		for _, s := range registry {
			if strings.HasPrefix(string(s), resource+":") {
				g |= bit(s)
			}
		}
		return g
	}
	g := bit(Scope(name))
	if g != 0 && verb == "create" {
		g |= bit(Scope(resource + ":read")) // creating includes reading the same resource
	}
	return g
}

// ParseScopes checks a list of scope names and returns them without
// duplicates, in the order given, with what they grant together.
func ParseScopes(names []string) ([]string, Grant, error) {
	if len(names) == 0 {
		return nil, 0, fault.Missing("scopes", "scopes must name at least one scope; the scopes are %s", scopeList())
	}
	var out []string
	var all Grant
	for _, name := range names {
		g := expand(name)
		if g == 0 {
			return nil, 0, fault.Invalid("scopes", "%q is not a scope; the scopes are %s, a wildcard for one resource such as images:*, and *", keyring.Mask(name), scopeList())
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
		all |= g
	}
	return out, all, nil
}

func scopeList() string {
	names := make([]string, len(registry))
	for i, s := range registry {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// beyond returns the first of the names that reaches further than the owner's.
// A wildcard counts as wider than the list of what it means today, because it
// will also mean what comes tomorrow.
func beyond(names, owner []string, owned Grant) string {
	for _, name := range names {
		if expand(name)&^owned != 0 {
			return name
		}
		if strings.HasSuffix(name, everything) && !slices.Contains(owner, everything) && !slices.Contains(owner, name) {
			return name
		}
	}
	return ""
}
