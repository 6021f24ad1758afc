package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	maxName       = 64  // the limit of model providers
	maxRemoteName = 256 // of a tool at its MCP server
)

func validName(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, invalidInName)
}

// invalidInName reports whether model providers reject a character in a name.
func invalidInName(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-')
}

// ValidName returns a valid tool name for one that a model may have invented.
func ValidName(name string) string {
	if validName(name) {
		return name
	}
	clean := strings.Map(validInName, name)
	if clean == "" {
		clean = "no_name"
	}
	return clean[:min(len(clean), maxName)]
}

// validInName replaces an invalid character.
func validInName(r rune) rune {
	if invalidInName(r) {
		return '_'
	}
	return r
}

// mcpToolName returns the name by which the model calls an MCP tool: label__tool.
// An invalid name is changed and gets a hash, which keeps it unique.
func mcpToolName(label, tool string) string {
	whole := label + "__" + tool
	if validName(whole) {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	suffix := "_" + hex.EncodeToString(sum[:4])
	clean := strings.Map(validInName, whole)
	return clean[:min(len(clean), maxName-len(suffix))] + suffix
}
