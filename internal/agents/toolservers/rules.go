package toolservers

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"turnpike/internal/agents/tools"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// RulesOf returns the approval rules of a tool.
func (s *Server) RulesOf(tool string) tools.ApprovalRules { return s.policy().RulesOf(tool) }

func (s *Server) policy() *tools.Policy {
	return &tools.Policy{Approval: s.Approval, Rules: s.Rules, ToolRules: s.ToolRules}
}

// rulesOfListed returns the approval rules of a tool by the name under which clients see it.
func (s *Server) rulesOfListed(name string) tools.ApprovalRules {
	for tool := range s.ToolRules {
		if tools.ListedName(s.Label, tool) == name {
			return s.RulesOf(tool)
		}
	}
	return s.Rules
}

// storedRules returns the approval rules, or NULL for the defaults.
func (s *Server) storedRules() any {
	if s.Rules.IsZero() {
		return nil
	}
	return db.JSON(s.Rules)
}

// storedToolRules returns the rules of single tools, or NULL for none.
func (s *Server) storedToolRules() any {
	if len(s.ToolRules) == 0 {
		return nil
	}
	return db.JSON(s.ToolRules)
}

// RulesParam is the path of the server's approval rules in errors.
const RulesParam = "approval_rules"

// ToolRulesParam returns the path of a tool's approval rules in errors.
func ToolRulesParam(tool string) string { return "tool_settings." + tool + "." + RulesParam }

// CheckRules checks the approval rules that differ from before: members who could satisfy the others may have left. Who
// calls the tools isn't known yet.
func (s *Server) CheckRules(ctx context.Context, tx *db.Tx, before *Server, now time.Time) error {
	var invalid []error
	check := func(r, before tools.ApprovalRules, param string) {
		if reflect.DeepEqual(r, before) {
			return
		}
		err := r.Check(param)
		if err == nil {
			err = r.CheckSatisfiable(ctx, tx, param, tools.Approvers{Tenant: s.Tenant, Now: now})
		}
		invalid = append(invalid, err)
	}
	check(s.Rules, before.Rules, RulesParam)
	if len(s.ToolRules) > maxPrices {
		invalid = append(invalid, fault.Invalid("tool_settings", "tool_settings must have at most %d tools.", maxPrices))
	}
	for _, name := range slices.Sorted(maps.Keys(s.ToolRules)) {
		check(s.ToolRules[name], before.ToolRules[name], ToolRulesParam(name))
	}
	return errors.Join(invalid...)
}
