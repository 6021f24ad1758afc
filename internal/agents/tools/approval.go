package tools

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// The string values of require_approval.
const (
	always = "always"
	never  = "never"
)

// Approval is the value of require_approval: which calls of a tool, or of an MCP
// server's tools, a person must approve.
type Approval struct {
	mode   string   // always, never, or empty for the lists
	always []string // tool names
	never  []string
}

type approvalLists struct {
	Always *toolNames `json:"always,omitempty"`
	Never  *toolNames `json:"never,omitempty"`
}

type toolNames struct {
	ToolNames []string `json:"tool_names"`
}

// MarshalJSON writes a string or the object.
func (a Approval) MarshalJSON() ([]byte, error) {
	if a.mode != "" {
		return json.Marshal(a.mode)
	}
	var lists approvalLists
	if len(a.always) > 0 {
		lists.Always = &toolNames{a.always}
	}
	if len(a.never) > 0 {
		lists.Never = &toolNames{a.never}
	}
	return json.Marshal(lists)
}

// UnmarshalJSON reads a string or the object. Its errors are faults.
func (a *Approval) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var mode string
		if err := json.Unmarshal(data, &mode); err != nil {
			return err
		}
		if mode != always && mode != never {
			return fault.Invalid("", "It must be %q, %q or an object with always and never.", always, never)
		}
		*a = Approval{mode: mode}
		return nil
	}
	var lists approvalLists
	if err := jsonbody.DecodeStrict(data, &lists); err != nil {
		return fault.Invalid("", `It must be "always", "never" or an object such as {"never":{"tool_names":["search"]}}.`)
	}
	*a = Approval{}
	if lists.Always != nil {
		a.always = lists.Always.ToolNames
	}
	if lists.Never != nil {
		a.never = lists.Never.ToolNames
	}
	for _, name := range a.never {
		if slices.Contains(a.always, name) {
			return fault.Invalid("", "A tool is listed under both always and never.")
		}
	}
	return nil
}

// lists reports whether it is the object form, which lists tools.
func (a *Approval) lists() bool { return a.mode == "" }

// ApproveAlways requires an approval for every call.
var ApproveAlways = Approval{mode: always}

// ApproveTools requires approvals for calls of the tools in always and of those in neither list.
func ApproveTools(always, never []string) Approval { return Approval{always: always, never: never} }

// ApprovalRule returns the rule with a name that Rule returns. Lists are empty.
func ApprovalRule(name string) Approval {
	if name == always || name == never {
		return Approval{mode: name}
	}
	return Approval{}
}

// Rule returns always, never or lists.
func (a Approval) Rule() string { return cmp.Or(a.mode, "lists") }

// Needed reports whether a call of an MCP server's tool needs an approval.
func (a *Approval) Needed(remote *mcp.Tool) bool {
	hints := remote.Annotations
	return a.needed(remote.Name, hints != nil && hints.DestructiveHint != nil && *hints.DestructiveHint)
}

// needed decides for one tool. destructive is the hint of its MCP server.
func (a *Approval) needed(name string, destructive bool) bool {
	switch {
	case a.mode == always, slices.Contains(a.always, name):
		return true
	case slices.Contains(a.never, name):
		return false
	case a.mode == never:
		return destructive
	}
	return true
}
