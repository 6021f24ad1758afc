package tools

import (
	"context"
	"slices"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// Decider is who decides about a call.
type Decider struct {
	Principal *access.Principal
	Actor     audit.Actor
	Role      accounts.Role // of a person; empty for a key
}

// AllowDecision checks that someone may decide about a call that a key has made. A simple decision approves or denies
// the call as it is.
func (r *ApprovalRules) AllowDecision(ctx context.Context, q db.Querier, by Decider, keyID string, simple bool) error {
	if len(r.Roles) > 0 && !slices.Contains(r.Roles, by.Role) {
		return fault.New(fault.InsufficientScope, "Only members with these roles may decide about calls of this tool, in the dashboard: %s.", joinRoles(r.Roles))
	}
	if r.Approvers > 1 && !simple {
		return fault.Invalid("decision", "Calls of this tool need two approvers, so they can only be approved or denied.")
	}
	if !r.ExcludeCreator {
		return nil
	}
	creators, err := access.CreatorsOf(ctx, q, keyID)
	if err != nil {
		return err
	}
	if by.Principal.DescendsFrom(creators) {
		return fault.New(fault.InsufficientScope, "The creator of the call may not decide about calls of this tool. Ask someone else.")
	}
	return nil
}

func joinRoles(roles []accounts.Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// Approvers are the members of a workspace who can decide about calls.
type Approvers struct {
	accounts.Tenant
	KeyID      string // makes the calls; empty if that isn't known yet
	PeopleOnly bool   // keys can't decide
}

// CheckSatisfiable rejects rules that no one can satisfy. param is the path of the rules.
func (r *ApprovalRules) CheckSatisfiable(ctx context.Context, q db.Querier, param string, a Approvers) error {
	roles := r.Roles
	switch {
	case len(roles) > 0:
	case !a.PeopleOnly || r.Approvers < 2 && !r.ExcludeCreator:
		return nil
	default:
		roles = accounts.Roles
	}
	people, err := accounts.ListUsers(ctx, q, a.WorkspaceID)
	if err != nil {
		return err
	}
	var creators []string
	if a.KeyID != "" {
		if creators, err = access.CreatorsOf(ctx, q, a.KeyID); err != nil {
			return err
		}
	}
	var able, others int64
	for _, p := range people {
		if !slices.Contains(roles, p.Role) || !access.RoleGrant(p.Role, a.Environment).Allows(access.AgentRunsApprove) {
			continue
		}
		able++
		if !slices.Contains(creators, p.ID) {
			others++
		}
	}
	switch need := max(1, r.Approvers); {
	case able == 0:
		return fault.Invalid(param+".roles", "%s.roles must include the role of a member who may approve calls.", param)
	case able < need:
		return fault.Invalid(param+".approvers", "%s.approvers must be at most %d, because only that many members with these roles may approve calls.", param, able)
	case r.ExcludeCreator && others < need:
		return fault.Invalid(param+".exclude_creator", "%s.exclude_creator leaves too few members who may decide: %d of %d.", param, others, need)
	}
	return nil
}
