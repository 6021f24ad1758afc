// Package access decides who is calling and what they may do: keys, their
// scopes and secrets, scoped tokens, and the Principal that they become.
package access

import (
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/visibility"
)

// Principal is an authenticated caller: a key, a scoped token of one, or a
// person. It is shared between requests and never changed.
type Principal struct {
	WorkspaceID   string
	Environment   accounts.Environment
	UserID        string // of a person, who has no key
	KeyID         string
	KeyHint       string // prefix and last four: all that may be shown
	Scopes        []string
	Grant         Grant
	Project       string // pinned; empty when free
	AllowedIPs    []netip.Prefix
	MonthlyBudget *credits.Micro
	RateLimit     *int64
	ExpiresAt     *time.Time
	Token         *TokenIdentity // nil for a key
	Ancestors     []Ancestor     // the parent first; their bounds apply as well
}

// TokenIdentity is what a scoped token adds to its parent key.
type TokenIdentity struct {
	ID           string
	Metadata     json.RawMessage
	MetadataHash string
}

// PersonPrincipal is a person who looks at one environment of a workspace.
func PersonPrincipal(userID string, role accounts.Role, workspaceID string, env accounts.Environment) *Principal {
	return &Principal{WorkspaceID: workspaceID, Environment: env, UserID: userID, Scopes: RoleScopes(role, env), Grant: RoleGrant(role, env)}
}

// ID is the id of the key, the token or the person.
func (p *Principal) ID() string {
	if p.UserID != "" {
		return p.UserID
	}
	if p.Token != nil {
		return p.Token.ID
	}
	return p.KeyID
}

// Reader is what a scoped token's work is marked with: tokens of the same key
// with the same metadata see each other's. It is empty for a key, which sees
// all of its workspace.
func (p *Principal) Reader() string {
	if p.Token == nil {
		return ""
	}
	return p.KeyID + "/" + p.Token.MetadataHash
}

// Visibility is what the principal can see. Entries of the admin log that belong
// to no environment are for people and for live keys that are not pinned.
func (p *Principal) Visibility() visibility.Filter {
	return visibility.Filter{WorkspaceID: p.WorkspaceID, Environment: string(p.Environment), Project: p.Project, Reader: p.Reader(),
		Shared: p.UserID != "" || p.Environment == accounts.Live && p.Project == ""}
}

// Require returns an error that names the scope when the principal lacks it.
func (p *Principal) Require(s Scope) error {
	if p.Grant.Allows(s) {
		return nil
	}
	if p.Token != nil && !delegable.Allows(s) {
		return fault.New(fault.ScopedTokenNotAllowed, "a scoped token cannot do this; call it from your backend with a key that has the scope %s", s)
	}
	if p.UserID != "" {
		return fault.New(fault.InsufficientScope, "your role does not allow this; ask an owner or an admin (it needs %s)", s)
	}
	return fault.New(fault.InsufficientScope, "this needs the scope %s, which the key does not have", s)
}

// AllowsIP checks the address lists of the key and its ancestors; an empty list
// allows every address.
func (p *Principal) AllowsIP(ip netip.Addr) bool {
	return containsIP(p.AllowedIPs, ip) && allOf(p.Ancestors, func(a Ancestor) bool { return containsIP(a.AllowedIPs, ip) })
}

func containsIP(list []netip.Prefix, ip netip.Addr) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(n netip.Prefix) bool { return n.Contains(ip.Unmap()) })
}

// ProjectFor settles which project a request belongs to, from the header and
// the key's pin.
func (p *Principal) ProjectFor(header string) (string, error) {
	if !allOf(p.Ancestors, func(a Ancestor) bool { return a.Project == "" || a.Project == p.Project }) {
		return "", fault.New(fault.ProjectNotAllowed, "This key is restricted to the project %q, and a key that created it is restricted to another one. Change either restriction.", p.Project)
	}
	if p.Project != "" && header != "" && header != p.Project {
		return "", fault.Param(fault.ProjectNotAllowed, "Service-Project", "this key is for the project %q alone", p.Project)
	}
	if header != "" {
		return header, nil
	}
	return p.Project, nil
}

// covers refuses a key that would be wider than the principal in any way.
func (p *Principal) covers(k *Key) error {
	if name := beyond(k.Scopes, p.Scopes, p.Grant); name != "" {
		if p.UserID != "" {
			return fault.Param(fault.InsufficientScope, "scopes", "your role does not have the scope %s, so you cannot manage a key that has it", name)
		}
		return fault.Param(fault.InsufficientScope, "scopes", "a key may only manage keys that are no wider than itself, and it does not have the scope %s", name)
	}
	if err := p.managesIn(k.Project); err != nil {
		return err
	}
	wider := func(param, what string) error {
		return fault.Param(fault.InsufficientScope, param, "a key may only manage keys that are no wider than itself: %s", what)
	}
	if p.MonthlyBudget != nil && (k.MonthlyBudget == nil || *k.MonthlyBudget > *p.MonthlyBudget) {
		return wider("monthly_budget", "set monthly_budget to at most "+p.MonthlyBudget.String())
	}
	if p.RateLimit != nil && (k.RateLimit == nil || *k.RateLimit > *p.RateLimit) {
		return wider("rate_limit", "set rate_limit to at most its own")
	}
	if p.ExpiresAt != nil && (k.ExpiresAt == nil || k.ExpiresAt.After(*p.ExpiresAt)) {
		return wider("expires_at", "set expires_at no later than its own")
	}
	if len(p.AllowedIPs) > 0 {
		inside := func(n netip.Prefix) bool {
			return slices.ContainsFunc(p.AllowedIPs, func(own netip.Prefix) bool {
				return own.Bits() <= n.Bits() && own.Contains(n.Addr())
			})
		}
		if len(k.AllowedIPs) == 0 || !allOf(k.AllowedIPs, inside) {
			return wider("allowed_ips", "set allowed_ips to addresses within its own")
		}
	}
	return nil
}

// managesIn refuses keys of another project than the principal's own.
func (p *Principal) managesIn(project string) error {
	if p.Project == "" || project == p.Project {
		return nil
	}
	return fault.Param(fault.ProjectNotAllowed, "project", "this key is for the project %q alone, and so must be the keys it manages", p.Project)
}

func allOf[T any](list []T, ok func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !ok(v) })
}
