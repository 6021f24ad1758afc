package access

import (
	"math/bits"
	"slices"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// Scope is the name of a permission. Anything not granted is denied.
type Scope string

// The permissions that keys, tokens and roles can have.
const (
	ModelsRead            Scope = "models:read"
	ChatCompletionsCreate Scope = "chat.completions:create"
	ResponsesCreate       Scope = "responses:create"
	MessagesCreate        Scope = "messages:create"
	EmbeddingsCreate      Scope = "embeddings:create"
	ModerationsCreate     Scope = "moderations:create"
	RerankCreate          Scope = "rerank:create"
	ImagesCreate          Scope = "images:create"
	ImagesRead            Scope = "images:read"
	VideosCreate          Scope = "videos:create"
	VideosRead            Scope = "videos:read"
	VoiceCreate           Scope = "voice:create"
	VoiceRead             Scope = "voice:read"
	FilesCreate           Scope = "files:create"
	FilesRead             Scope = "files:read"
	TranscriptionsCreate  Scope = "audio.transcriptions:create"
	BatchesCreate         Scope = "batches:create"
	BatchesRead           Scope = "batches:read"
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
	MCPToolsCall          Scope = "mcp.tools:call"
	ToolServersRead       Scope = "tool_servers:read"
	ToolServersWrite      Scope = "tool_servers:write"
	RoutesRead            Scope = "routes:read"
	RoutesWrite           Scope = "routes:write"
	UsersRead             Scope = "users:read"
	UsersWrite            Scope = "users:write"
	ContentRead           Scope = "content:read"
)

// wildcard grants all scopes but ContentRead, including future ones.
const wildcard = "*"

var registry = []Scope{
	ModelsRead, ChatCompletionsCreate, ResponsesCreate, MessagesCreate, EmbeddingsCreate, ModerationsCreate, RerankCreate, ImagesCreate, ImagesRead,
	VideosCreate, VideosRead, VoiceCreate, VoiceRead, TranscriptionsCreate, FilesCreate, FilesRead, BatchesCreate, BatchesRead, AgentRunsCreate, AgentRunsRead, AgentRunsApprove,
	WebhooksRead, WebhooksWrite, EventsRead, EventsReplay, ScopedTokensCreate, KeysRead, KeysWrite,
	ProjectsRead, ProjectsWrite, UsageRead, AuditRead, BillingRead, BillingWrite,
	MCPToolsCall, ToolServersRead, ToolServersWrite, RoutesRead, RoutesWrite, UsersRead, UsersWrite, ContentRead,
}

// byNameOnly are the scopes that no wildcard and no role includes.
var byNameOnly = grantOf(ContentRead)

// delegable are the scopes that a scoped token may have.
var delegable = grantOf(ModelsRead, ChatCompletionsCreate, ResponsesCreate, MessagesCreate, EmbeddingsCreate, ModerationsCreate, RerankCreate, ImagesCreate, ImagesRead,
	VideosCreate, VideosRead, VoiceCreate, VoiceRead, TranscriptionsCreate, AgentRunsCreate, AgentRunsRead)

// Scopes returns every scope.
func Scopes() []Scope { return slices.Clone(registry) }

// Grant is a set of scopes. It is computed from the names at each read, so that wildcards include
// new scopes.
type Grant uint64

var bitOf = func() map[Scope]Grant {
	m := make(map[Scope]Grant, len(registry))
	for i, s := range registry {
		m[s] = 1 << i
	}
	return m
}()

func grantOf(scopes ...Scope) Grant {
	var g Grant
	for _, s := range scopes {
		g |= bitOf[s]
	}
	return g
}

// Allows reports whether the grant includes the scope.
func (g Grant) Allows(s Scope) bool { return g&bitOf[s] != 0 }

// first returns the first scope of the grant, for messages.
func (g Grant) first() Scope {
	if g == 0 {
		return ""
	}
	return registry[bits.TrailingZeros64(uint64(g))]
}

// Without returns the first scope that g has and other lacks, or "".
func (g Grant) Without(other Grant) Scope { return (g &^ other).first() }

// expand returns what a scope or wildcard grants; zero if it is unknown.
func expand(name string) Grant {
	if name == wildcard {
		return grantOf(registry...) &^ byNameOnly
	}
	resource, verb, ok := strings.Cut(name, ":")
	if !ok {
		return 0
	}
	if verb == wildcard {
		var g Grant
		for _, s := range registry {
			if strings.HasPrefix(string(s), resource+":") {
				g |= bitOf[s]
			}
		}
		return g &^ byNameOnly
	}
	g := bitOf[Scope(name)]
	if g != 0 && verb == "create" {
		g |= bitOf[Scope(resource+":read")] // create includes read
	}
	return g
}

// ParseScopes returns the scopes without duplicates, and the grant that they
// add up to.
func ParseScopes(names []string) ([]string, Grant, error) {
	if len(names) == 0 {
		return nil, 0, fault.Missing("scopes", "scopes must contain at least one scope. Allowed scopes: %s.", scopeList())
	}
	var out []string
	var all Grant
	for _, name := range names {
		g := expand(name)
		if g == 0 {
			return nil, 0, fault.Invalid("scopes", "Unknown scope %q. Allowed scopes: %s, a wildcard for one resource such as images:*, and *.", keyring.Mask(name), scopeList())
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
		all |= g
	}
	return out, all, nil
}

func scopeList() string {
	return strings.Join(namesOf(func(Scope) bool { return true }), ", ")
}

// firstWiderScope returns the first name that grants more than the owner has, or "". A wildcard is
// wider than the scopes that it includes today, because it includes future ones.
func firstWiderScope(names, owner []string, owned Grant) string {
	for _, name := range names {
		if expand(name)&^owned != 0 {
			return name
		}
		if strings.HasSuffix(name, wildcard) && !slices.Contains(owner, wildcard) && !slices.Contains(owner, name) {
			return name
		}
	}
	return ""
}
