package tools

import (
	"maps"
	"slices"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/fault"
)

// Policy says which calls of a server's tools need a decision, and whose.
type Policy struct {
	Approval  Approval
	Rules     ApprovalRules            // of tools without their own
	ToolRules map[string]ApprovalRules // by the tool's own name
}

// RulesOf returns the approval rules of a tool.
func (p *Policy) RulesOf(tool string) ApprovalRules {
	if own, ok := p.ToolRules[tool]; ok {
		return own
	}
	return p.Rules
}

// anyOther stands for the tools that a policy doesn't name.
const anyOther = ""

// CheckReplacement checks that someone may replace the policy with another one: rules that would become looser for any
// tool must be satisfied. A member or key that calls the tools could otherwise remove the rules about the calls.
func (p *Policy) CheckReplacement(by Decider, after *Policy) error {
	names := slices.Concat([]string{anyOther}, p.Approval.always, p.Approval.never, after.Approval.always, after.Approval.never,
		slices.Collect(maps.Keys(p.ToolRules)), slices.Collect(maps.Keys(after.ToolRules)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		before, then := p.RulesOf(name), after.RulesOf(name)
		for _, destructive := range []bool{false, true} { // the server can change the hint at any time
			if !p.Approval.needed(name, destructive) || after.Approval.needed(name, destructive) && !then.looserThan(&before) {
				continue
			}
			if err := before.AllowLoosening(by); err != nil {
				return err
			}
		}
	}
	return nil
}

// looserThan reports whether the rules let a call pass that other rules might have stopped. What happens when no one
// decides doesn't count: the call isn't made.
func (r *ApprovalRules) looserThan(before *ApprovalRules) bool {
	switch {
	case max(1, r.Approvers) < max(1, before.Approvers), before.ExcludeCreator && !r.ExcludeCreator:
		return true
	case len(before.Roles) > 0 && (len(r.Roles) == 0 || slices.ContainsFunc(r.Roles, func(role accounts.Role) bool { return !slices.Contains(before.Roles, role) })):
		return true
	case len(r.Conditions) == 0:
		return false // every call needs a decision
	case len(before.Conditions) == 0:
		return true
	}
	return slices.ContainsFunc(before.Conditions, func(c Condition) bool { return !slices.ContainsFunc(r.Conditions, c.equal) })
}

func (c Condition) equal(other Condition) bool {
	return c.Path == other.Path && c.Operator == other.Operator && string(c.Value) == string(other.Value)
}

// AllowLoosening checks that someone satisfies the rules, and so may loosen them. No one satisfies rules alone that
// need a second person, so that takes a member who could add one. Owners could give themselves every role.
func (r *ApprovalRules) AllowLoosening(by Decider) error {
	if err := by.Principal.Require(access.AgentRunsApprove); err != nil {
		return err
	}
	switch {
	case by.Role == accounts.Owner:
		return nil
	case len(r.Roles) > 0 && !slices.Contains(r.Roles, by.Role):
		return fault.Param(fault.InsufficientScope, "approval_rules", "Only owners and members with these roles may loosen the approval rules, in the dashboard: %s.", joinRoles(r.Roles))
	case (r.Approvers > 1 || r.ExcludeCreator) && !access.ManagesMembers(by.Role):
		return fault.Param(fault.InsufficientScope, "approval_rules", "Only owners and admins may loosen approval rules that need a second person, in the dashboard.")
	}
	return nil
}
