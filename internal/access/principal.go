// Package access authenticates and authorizes requests: keys, scopes, scoped tokens and roles, all of
// which result in a Principal.
package access

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/visibility"
)

// Principal is an authenticated key, scoped token or person. Requests share it, so it must not be changed.
type Principal struct {
	accounts.Tenant
	UserID        string // of a person; empty for keys
	KeyID         string
	KeyHint       string // prefix and last four characters
	Scopes        []string
	Grant         Grant
	Project       string // pinned to; empty for none
	AllowedIPs    []netip.Prefix
	MonthlyBudget *credits.Micro
	Raise         *accounts.Raise // of the monthly budget; nil for none
	Limits        []accounts.Limit
	RateLimit     *int64
	AllowedTools  []string     // nil allows all
	ModelLimits   []ModelLimit // of the key, its ancestors and the token
	ForToken      bool         // a scoped token, or the key that does a token's work
	EndUserID     string       // of the token, or empty
	ExpiresAt     *time.Time
	ContentDays   *int64         // of the content log; nil for the project's
	ContentOptOut bool           // requests can leave themselves out of the content log
	Token         *TokenIdentity // nil for a key
	Ancestors     []Ancestor     // the parent first; their limits apply as well
}

// TokenIdentity is what a scoped token adds to its parent key.
type TokenIdentity struct {
	ID           string
	Metadata     json.RawMessage
	MetadataHash string
	Allowed      catalog.Allowed
	EndUserID    string
}

// PersonPrincipal returns the principal of a member in one environment.
func PersonPrincipal(userID string, role accounts.Role, t accounts.Tenant) *Principal {
	return &Principal{Tenant: t, UserID: userID, Scopes: RoleScopes(role, t.Environment), Grant: RoleGrant(role, t.Environment)}
}

// WithContent adds the scope for the content of requests, which no role has.
func (p *Principal) WithContent() *Principal {
	with := *p
	with.Scopes, with.Grant = append(slices.Clone(p.Scopes), string(ContentRead)), p.Grant|grantOf(ContentRead)
	return &with
}

// ID returns the ID of the person, the token or the key.
func (p *Principal) ID() string {
	if p.UserID != "" {
		return p.UserID
	}
	if p.Token != nil {
		return p.Token.ID
	}
	return p.KeyID
}

// RootID returns the topmost key that this principal descends from. A key's descendants and tokens
// share its limits on streams.
func (p *Principal) RootID() string {
	if n := len(p.Ancestors); n > 0 {
		return p.Ancestors[n-1].KeyID
	}
	return cmp.Or(p.KeyID, p.ID())
}

// Reader returns the mark of a scoped token's jobs and runs, which tokens of the same key with the same
// metadata share. It is empty for a key, which sees everything.
func (p *Principal) Reader() string {
	if p.Token == nil {
		return ""
	}
	return p.KeyID + "/" + p.Token.MetadataHash
}

// Visibility returns what the principal can see. Entries of the admin log without an environment are
// visible to people and to live keys that aren't pinned.
func (p *Principal) Visibility() visibility.Filter {
	return visibility.Filter{Tenant: p.Tenant, Project: p.Project, Reader: p.Reader(),
		Shared: p.UserID != "" || p.Environment == accounts.Live && p.Project == ""}
}

// Require returns an error that names the scope if the principal lacks it.
func (p *Principal) Require(s Scope) error {
	if p.Grant.Allows(s) {
		return nil
	}
	if p.Token != nil && !delegable.Allows(s) {
		return fault.New(fault.ScopedTokenNotAllowed, "A scoped token cannot do this. Call it from your backend with a key that has the scope %s.", s)
	}
	if p.UserID != "" {
		return fault.New(fault.InsufficientScope, "Your role does not allow this: it needs the scope %s. Ask an owner or an admin.", s)
	}
	return fault.New(fault.InsufficientScope, "This request needs the scope %s, which the key does not have.", s)
}

// AllowsIP checks the allowed addresses of the key and its ancestors. An empty list allows all.
func (p *Principal) AllowsIP(ip netip.Addr) bool {
	return containsIP(p.AllowedIPs, ip) && allOf(p.Ancestors, func(a Ancestor) bool { return containsIP(a.AllowedIPs, ip) })
}

func containsIP(list []netip.Prefix, ip netip.Addr) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(n netip.Prefix) bool { return n.Contains(ip.Unmap()) })
}

// ProjectFor returns the project of a request by its header and the key's pin.
func (p *Principal) ProjectFor(header string) (string, error) {
	if !allOf(p.Ancestors, func(a Ancestor) bool { return a.Project == "" || a.Project == p.Project }) {
		return "", fault.New(fault.ProjectNotAllowed, "This key is restricted to the project %q, and a key that created it is restricted to another one. Change either restriction.", p.Project)
	}
	if p.Project != "" && header != "" && header != p.Project {
		return "", fault.Param(fault.ProjectNotAllowed, "Service-Project", "This key is restricted to the project %q.", p.Project)
	}
	if header != "" {
		return header, nil
	}
	return p.Project, nil
}

// checkBounds returns an error if the key exceeds the principal's permissions
// in any way.
func (p *Principal) checkBounds(k *Key) error {
	if name := firstWiderScope(k.Scopes, p.Scopes, p.Grant); name != "" {
		if p.UserID != "" {
			return fault.Param(fault.InsufficientScope, "scopes", "Your role does not have the scope %s, so you cannot manage a key that has it.", name)
		}
		return fault.Param(fault.InsufficientScope, "scopes", "A key may only manage keys that are no wider than itself, and it does not have the scope %s.", name)
	}
	if err := p.checkProject(k.Project); err != nil {
		return err
	}
	if p.MonthlyBudget != nil && (k.MonthlyBudget == nil || *k.MonthlyBudget > *p.MonthlyBudget) {
		return tooWide("monthly_budget", "set monthly_budget to at most "+p.MonthlyBudget.String())
	}
	if p.MonthlyBudget != nil && k.Raise != nil && k.Raise.Budget > *p.MonthlyBudget && !k.Raise.IsWithin(p.Raise) {
		return tooWide("temporary_raise", "set temporary_raise.budget to at most "+p.MonthlyBudget.String())
	}
	if at := accounts.FirstMissingLimit(k.Limits, p.Limits); at >= 0 {
		return tooWide(accounts.LimitsField, fmt.Sprintf("add a limit for at least the same models as %s that is no higher", p.Limits[at].ID))
	}
	if p.RateLimit != nil && (k.RateLimit == nil || *k.RateLimit > *p.RateLimit) {
		return tooWide("rate_limit", "set rate_limit to at most its own")
	}
	if name, is := firstWiderTool(k.AllowedTools, p.AllowedTools); is {
		return tooWide("allowed_tools", "it may not call "+name)
	}
	if err := p.checkModels(k.Allowed); err != nil {
		return err
	}
	if p.ExpiresAt != nil && (k.ExpiresAt == nil || k.ExpiresAt.After(*p.ExpiresAt)) {
		return tooWide("expires_at", "set expires_at no later than its own")
	}
	if len(p.AllowedIPs) > 0 {
		inside := func(n netip.Prefix) bool {
			return slices.ContainsFunc(p.AllowedIPs, func(own netip.Prefix) bool {
				return own.Bits() <= n.Bits() && own.Contains(n.Addr())
			})
		}
		if len(k.AllowedIPs) == 0 || !allOf(k.AllowedIPs, inside) {
			return tooWide("allowed_ips", "set allowed_ips to addresses within its own")
		}
	}
	return nil
}

// checkContentLog returns an error if the key hides more from the content log than the key that manages it. Whoever
// can change the setting of projects decides what is hidden.
func (p *Principal) checkContentLog(k *Key) error {
	switch own := p.ContentDays; {
	case p.UserID != "" || p.Grant.Allows(ProjectsWrite):
		return nil
	case k.ContentOptOut && !p.ContentOptOut:
		return tooWide("content_log_opt_out", "set content_log_opt_out to false, or use a key with the scope projects:write")
	case own == nil && k.ContentDays != nil:
		return tooWide("content_log_days", "set content_log_days to null, or use a key with the scope projects:write")
	case own != nil && (k.ContentDays == nil || *k.ContentDays < *own):
		return tooWide("content_log_days", fmt.Sprintf("set content_log_days to at least %d, or use a key with the scope projects:write", *own))
	}
	return nil
}

// tooWide returns the error that a key would exceed the key that manages it.
func tooWide(param, what string) error {
	return fault.Param(fault.InsufficientScope, param, "A key may only manage keys that are no wider than itself: %s.", what)
}

// checkProject rejects keys that belong to a project other than the
// principal's.
func (p *Principal) checkProject(project string) error {
	if p.Project == "" || project == p.Project {
		return nil
	}
	return fault.Param(fault.ProjectNotAllowed, "project", "This key is restricted to the project %q, and so must be the keys that it manages.", p.Project)
}

func allOf[T any](list []T, ok func(T) bool) bool {
	return !slices.ContainsFunc(list, func(v T) bool { return !ok(v) })
}
