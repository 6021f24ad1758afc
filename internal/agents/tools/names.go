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

// exposed is the name that the model calls an MCP tool by: label__tool. What
// does not fit is changed, and a hash keeps it apart from others.
func exposed(label, tool string) string {
	whole := label + "__" + tool
	if validName(whole) {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	suffix := "_" + hex.EncodeToString(sum[:4])
	clean := strings.Map(func(r rune) rune {
		if foreign(r) {
			return '_'
		}
		return r
	}, whole)
	return clean[:min(len(clean), maxName-len(suffix))] + suffix
}
