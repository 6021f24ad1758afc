package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	maxName       = 64  // models take no longer ones
	maxRemoteName = 256 // of a tool at its MCP server
)

func validName(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, foreign)
}

// foreign are the characters that models do not take in a name.
func foreign(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-')
}

// Callable is a name that a model may have made up as one that a tool could
// have.
func Callable(name string) string {
	if validName(name) {
		return name
	}
	clean := strings.Map(usual, name)
	if clean == "" {
		clean = "no_name"
	}
	return clean[:min(len(clean), maxName)]
}

// usual is a character, or one that stands for it in a name.
func usual(r rune) rune {
	if foreign(r) {
		return '_'
	}
	return r
}

// exposed is the name that the model calls an MCP tool by: label__tool. What
// does not fit is changed, and a hash keeps it apart from others.
func exposed(label, tool string) string {
	whole := label + "__" + tool
	if validName(whole) {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	suffix := "_" + hex.EncodeToString(sum[:4])
	clean := strings.Map(usual, whole)
	return clean[:min(len(clean), maxName-len(suffix))] + suffix
}
