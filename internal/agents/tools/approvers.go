package tools

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

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

// Vote is a decision about a call.
type Vote struct {
	KeyID      string   // has made the call
	ApprovedBy []string // who has approved it before
	Approve    bool
	Simple     bool // approves or denies the call as it is
}

// AllowDecision checks that someone may decide about a call.
func (r *ApprovalRules) AllowDecision(ctx context.Context, q db.Querier, by Decider, v Vote) error {
	if len(r.Roles) > 0 && !slices.Contains(r.Roles, by.Role) {
		return fault.New(fault.InsufficientScope, "Only members with these roles may decide about calls of this tool, in the dashboard: %s.", joinRoles(r.Roles))
	}
	if r.Approvers > 1 && !v.Simple {
		return fault.Invalid("decision", "Calls of this tool need two approvers, so they can only be approved or denied.")
	}
	if r.ExcludeCreator {
		same, err := by.isBehind(ctx, q, v.KeyID)
		if err != nil {
			return err
		}
		if same {
			return fault.New(fault.InsufficientScope, "The creator of the call may not decide about calls of this tool, with any key. Ask someone else.")
		}
	}
	if r.Approvers < 2 || !v.Approve {
		return nil
	}
	for _, approver := range v.ApprovedBy {
		same, err := by.isBehind(ctx, q, approver)
		if err != nil {
			return err
		}
		if same {
			return fault.New(fault.InsufficientScope, "Calls of this tool need two approvers, and you have approved this one with another key. Ask someone else.")
		}
	}
	return nil
}

// isBehind reports whether the same person, or the same line of keys, is behind the decider and a member or key.
func (by *Decider) isBehind(ctx context.Context, q db.Querier, id string) (bool, error) {
	decider, err := access.ResponsibleFor(ctx, q, cmp.Or(by.Principal.UserID, by.Principal.KeyID))
	if err != nil {
		return false, err
	}
	other, err := access.ResponsibleFor(ctx, q, id)
	return decider == other, err
}

func joinRoles(roles []accounts.Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// Approvers are the members and keys of a workspace that can decide about calls.
type Approvers struct {
	accounts.Tenant
	KeyID      string // makes the calls; empty if that isn't known yet
	PeopleOnly bool   // keys can't decide
	Now        time.Time
}

// CheckSatisfiable rejects rules that no one can satisfy. param is the path of the rules.
func (r *ApprovalRules) CheckSatisfiable(ctx context.Context, q db.Querier, param string, a Approvers) error {
	if len(r.Roles) == 0 && r.Approvers < 2 && !r.ExcludeCreator {
		return nil
	}
	able, err := r.ableMembers(ctx, q, a)
	if err != nil {
		return err
	}
	var creator string
	if r.ExcludeCreator && a.KeyID != "" {
		if creator, err = access.ResponsibleFor(ctx, q, a.KeyID); err != nil {
			return err
		}
	}
	need := int(max(1, r.Approvers))
	others := func() int {
		return len(slices.DeleteFunc(slices.Clone(able), func(id string) bool { return id == creator }))
	}
	if others() < need && len(r.Roles) == 0 && !a.PeopleOnly {
		withKeys, all, err := access.ResponsibleForScope(ctx, q, a.Tenant, access.AgentRunsApprove, a.Now)
		if err != nil {
			return err
		}
		if !all {
			return nil // so many keys that it would take too long to be sure
		}
		able = append(able, withKeys...)
		slices.Sort(able)
		able = slices.Compact(able)
	}
	switch {
	case others() >= need:
		return nil
	case len(able) == 0 && len(r.Roles) > 0:
		return fault.Invalid(param+".roles", "%s.roles must include the role of a member who may approve calls.", param)
	case len(able) < need && len(r.Roles) > 0:
		return fault.Invalid(param+".approvers", "%s.approvers must be at most %d, because only that many members with these roles may approve calls.", param, len(able))
	case len(able) < need && r.Approvers > 1:
		return fault.Invalid(param+".approvers", "%s.approvers needs %d who may approve calls, but there are only %d. All keys of one person count once.", param, need, len(able))
	}
	return fault.Invalid(param+".exclude_creator", "%s.exclude_creator leaves too few who may decide: %d of %d. All keys of one person count once.", param, others(), need)
}

// ableMembers returns the members with the roles of the rules who may decide.
func (r *ApprovalRules) ableMembers(ctx context.Context, q db.Querier, a Approvers) (able []string, err error) {
	people, err := accounts.ListUsers(ctx, q, a.WorkspaceID)
	if err != nil {
		return nil, err
	}
	for _, p := range people {
		if (len(r.Roles) == 0 || slices.Contains(r.Roles, p.Role)) && access.RoleGrant(p.Role, a.Environment).Allows(access.AgentRunsApprove) {
			able = append(able, p.ID)
		}
	}
	return able, nil
}
