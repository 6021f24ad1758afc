package tools

import (
	"encoding/json"
	"slices"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// The two words of require_approval.
const (
	always = "always"
	never  = "never"
)

// Approval says which calls of a tool, or of which tools of an MCP server, a
// person must approve. It is written as the customer writes require_approval.
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

// MarshalJSON writes one of the words, or the object.
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

// UnmarshalJSON reads one of the words, or the object. Its errors are faults.
func (a *Approval) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var word string
		if err := json.Unmarshal(data, &word); err != nil {
			return err
		}
		if word != always && word != never {
			return fault.Invalid("", "it must be %q, %q or an object with always and never", always, never)
		}
		*a = Approval{mode: word}
		return nil
	}
	var lists approvalLists
	if err := jsonbody.DecodeStrict(data, &lists); err != nil {
		return fault.Invalid("", `it must be "always", "never" or an object such as {"never":{"tool_names":["search"]}}`)
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
			return fault.Invalid("", "a tool is both under always and under never")
		}
	}
	return nil
}

// lists reports the object form, which names tools.
func (a *Approval) lists() bool { return a.mode == "" }

// needed decides for one tool. destructive is its server's own word.
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
