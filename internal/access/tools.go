package access

import (
	"slices"
	"strings"

	"turnpike/internal/fault"
)

const (
	maxAllowedTools = 256
	maxToolPattern  = 64 // bytes; names of tools are no longer
)

// allTools is the end of a pattern that matches every name with the same beginning.
const allTools = "*"

// AllowsTool reports whether the key and its ancestors may call a tool of an MCP server.
func (p *Principal) AllowsTool(name string) bool {
	return matchesTool(p.AllowedTools, name) && allOf(p.Ancestors, func(a Ancestor) bool { return matchesTool(a.AllowedTools, name) })
}

// matchesTool reports whether a list allows a tool, or all tools of a pattern. A nil list allows all.
func matchesTool(patterns []string, name string) bool {
	return patterns == nil || slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, allTools)
		return pattern == name || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// firstWiderTool returns the first pattern that allows more than the owner may call.
func firstWiderTool(patterns, owner []string) (string, bool) {
	if owner != nil && patterns == nil {
		return "all tools", true
	}
	for _, pattern := range patterns {
		if !matchesTool(owner, pattern) {
			return pattern, true
		}
	}
	return "", false
}

func checkTools(patterns []string) error {
	if len(patterns) > maxAllowedTools {
		return fault.Invalid("allowed_tools", "allowed_tools may have at most %d entries.", maxAllowedTools)
	}
	for _, pattern := range patterns {
		name := strings.TrimSuffix(pattern, allTools)
		if pattern == "" || len(pattern) > maxToolPattern || strings.ContainsFunc(name, isNotInToolName) {
			return fault.Invalid("allowed_tools", "allowed_tools must have names of tools such as github__search, or the beginning of names such as github__*.")
		}
	}
	return nil
}

func isNotInToolName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_')
}
