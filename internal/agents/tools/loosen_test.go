package tools

import (
	"encoding/json"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/fault"
)

// N7: one function decides which changes of a server's approvals are looser, and who may make them.
func TestApprovalRulesAreLoosenedOnlyByThoseWhoSatisfyThem(t *testing.T) {
	read := func(text string) *Policy {
		var in struct {
			Approval  Approval                 `json:"require_approval"`
			Rules     ApprovalRules            `json:"approval_rules"`
			ToolRules map[string]ApprovalRules `json:"tool_rules"`
		}
		if err := json.Unmarshal([]byte(text), &in); err != nil {
			t.Fatal(text, err)
		}
		return &Policy{in.Approval, in.Rules, in.ToolRules}
	}
	tenant := accounts.Tenant{WorkspaceID: "ws_1", Environment: accounts.Live}
	by := map[string]Decider{}
	for _, role := range accounts.Roles {
		by[string(role)] = Decider{Principal: access.PersonPrincipal("usr_1", role, tenant), Role: role}
	}
	by["key"] = Decider{Principal: &access.Principal{Tenant: tenant, KeyID: "key_1", Grant: access.RoleGrant(accounts.Owner, accounts.Live)}}
	_, narrow, err := access.ParseScopes([]string{"tool_servers:write", "mcp.tools:call"})
	if err != nil {
		t.Fatal(err)
	}
	by["narrow key"] = Decider{Principal: &access.Principal{Tenant: tenant, KeyID: "key_2", Grant: narrow}}

	all := []string{"owner", "admin", "developer", "key", "narrow key"}
	approvers, managers, owners := all[:4], all[:2], all[:1]
	const always, never = `"require_approval":"always"`, `"require_approval":"never"`
	const roles, two, other = `"approval_rules":{"roles":["owner"]}`, `"approval_rules":{"approvers":2}`, `"approval_rules":{"exclude_creator":true}`
	const over, overTwo = `"approval_rules":{"conditions":[{"path":"/n","operator":"gt","value":1}]}`, `"approval_rules":{"conditions":[{"path":"/n","operator":"gt","value":1},{"path":"/n","operator":"eq","value":0}]}`
	for _, x := range []struct {
		before, after string
		allowed       []string
	}{
		// Changes that loosen nothing.
		{always, always, all}, {never, always, all}, {always, always + "," + two, all}, {always + "," + two, always + `,"approval_rules":{"approvers":2,"on_expiry":"report"}`, all},
		{always + "," + over, always, all}, {always + "," + over, always + "," + overTwo, all}, {always + `,"approval_rules":{"roles":["owner","admin"]}`, always + "," + roles, all},
		{`"require_approval":{"never":{"tool_names":["a"]}}`, always, all},
		// Default rules.
		{always, never, approvers}, {always, `"require_approval":{"never":{"tool_names":["a"]}}`, approvers}, {never, `"require_approval":{"never":{"tool_names":["a"]}}`, approvers},
		{always, always + "," + over, approvers}, {always + "," + overTwo, always + "," + over, approvers},
		{always + "," + over, always + `,"approval_rules":{"conditions":[{"path":"/n","operator":"gt","value":2}]}`, approvers},
		// Roles, two persons, and the creator.
		{always + "," + roles, never, owners}, {always + "," + roles, always, owners}, {always + "," + roles, always + `,"approval_rules":{"roles":["owner","admin"]}`, owners},
		{never + "," + roles, never, owners}, // for destructive tools
		{always + `,"approval_rules":{"roles":["admin","developer"]}`, always, []string{"owner", "admin", "developer"}},
		{always + "," + two, always, managers}, {always + "," + other, always, managers}, {always + "," + two, always + "," + other, managers},
		{always + "," + roles, `"require_approval":{"never":{"tool_names":["a"]}},` + roles, owners},
		// Rules of one tool.
		{always + "," + roles, always + "," + roles + `,"tool_rules":{"a":{}}`, owners}, {always + `,"tool_rules":{"a":{"approvers":2}}`, always, managers},
		{always + `,"tool_rules":{"a":{"approvers":2}}`, always + `,"tool_rules":{"a":{"approvers":2},"b":{"approvers":2}}`, all},
		{always + "," + two + `,"tool_rules":{"a":{}}`, always + "," + two, all},
	} {
		for name, decider := range by {
			want := false
			for _, a := range x.allowed {
				want = want || a == name
			}
			if name == string(accounts.Viewer) {
				continue // can't change servers
			}
			err := read("{"+x.before+"}").CheckReplacement(decider, read("{"+x.after+"}"))
			if want != (err == nil) || err != nil && !fault.Is(err, fault.InsufficientScope) {
				t.Errorf("%s changes %s to %s: got %v, want it allowed: %v", name, x.before, x.after, err, want)
			}
		}
	}
}
