package operators

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"turnpike/internal/fault"
)

// Scope is what an admin key may do: read or write a kind of resource. Writing includes reading.
type Scope string

// The scopes. Routes belong to the providers. AllScopes is every scope, including future ones.
const (
	WorkspacesRead  Scope = "workspaces:read"
	WorkspacesWrite Scope = "workspaces:write"
	MembersRead     Scope = "members:read"
	MembersWrite    Scope = "members:write"
	ProvidersRead   Scope = "providers:read"
	ProvidersWrite  Scope = "providers:write"
	PricesRead      Scope = "prices:read"
	PricesWrite     Scope = "prices:write"
	ReadAll         Scope = "*:read"
	WriteAll        Scope = "*:write"
	AllScopes       Scope = "*"
)

// Scopes returns every scope.
func Scopes() []Scope {
	return []Scope{WorkspacesRead, WorkspacesWrite, MembersRead, MembersWrite, ProvidersRead, ProvidersWrite, PricesRead, PricesWrite, ReadAll, WriteAll, AllScopes}
}

const (
	// DefaultRateLimit and maxRateLimit are requests per minute.
	DefaultRateLimit = 300
	maxRateLimit     = 100_000
	maxAllowedIPs    = 100
)

// Require returns an error that names the scope if the credential lacks it.
func (c *Credential) Require(s Scope) error {
	resource, verb, _ := strings.Cut(string(s), ":")
	for _, allowed := range []Scope{s, Scope(resource + ":write"), WriteAll, AllScopes} {
		if slices.Contains(c.Scopes, allowed) {
			return nil
		}
	}
	if verb == "read" && slices.Contains(c.Scopes, ReadAll) {
		return nil
	}
	return fault.New(fault.InsufficientScope, "This request needs an admin key with the scope %s. To create one on the server, run: turnpike admin-keys create --scopes %s", s, s)
}

// AllowsIP reports whether the credential works from an address. An empty list allows all.
func (c *Credential) AllowsIP(ip netip.Addr) bool {
	return len(c.AllowedIPs) == 0 || slices.ContainsFunc(c.AllowedIPs, func(n netip.Prefix) bool { return n.Contains(ip.Unmap()) })
}

// checkLimits completes and checks what the credential may do.
func (c *Credential) checkLimits() error {
	if len(c.Scopes) == 0 {
		c.Scopes = []Scope{AllScopes}
	}
	if c.RateLimit == 0 {
		c.RateLimit = DefaultRateLimit
	}
	var invalid []error
	for _, s := range c.Scopes {
		if !slices.Contains(Scopes(), s) {
			invalid = append(invalid, fault.Invalid("scopes", "Unknown scope %.40q. Allowed scopes: %s.", string(s), scopeList()))
		}
	}
	if len(c.AllowedIPs) > maxAllowedIPs {
		invalid = append(invalid, fault.Invalid("allowed_ips", "allowed_ips may have at most %d entries.", maxAllowedIPs))
	}
	if c.RateLimit < 1 || c.RateLimit > maxRateLimit {
		invalid = append(invalid, fault.Invalid("rate_limit", "rate_limit must be from 1 to %d requests per minute.", maxRateLimit))
	}
	return errors.Join(invalid...)
}

func scopeList() string {
	var names []string
	for _, s := range Scopes() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}
