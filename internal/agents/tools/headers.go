package tools

import (
	"net/http"
	"strings"

	"turnpike/internal/fault"
)

const (
	maxHeaders     = 32
	maxHeaderBytes = 8 << 10 // of one name or value
)

// reserved headers belong to the connection or to the server.
var reserved = map[string]bool{
	"Host": true, "Content-Length": true, "Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Expect": true, "Proxy-Connection": true, "Proxy-Authorization": true,
	"Proxy-Authenticate": true, "User-Agent": true, "Idempotency-Key": true,
	"X-Idempotency-Key": true, // net/http repeats requests that have it
}

// reservedForMCP headers belong to the protocol, as do those that begin with Mcp-.
var reservedForMCP = map[string]bool{"Accept": true, "Content-Type": true, "Last-Event-Id": true}

// checkHeaders validates headers and normalizes their names. Its errors contain no
// names or values except reserved names, because they may be secret.
func checkHeaders(param string, kind Kind, given map[string]string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	if len(given) > maxHeaders {
		return nil, fault.Invalid(param, "%s must have at most %d headers.", param, maxHeaders)
	}
	headers := make(map[string]string, len(given))
	for name, value := range given {
		if !validHeaderName(name) {
			return nil, fault.Invalid(param, "%s has an invalid name. Names consist of letters, digits and hyphens.", param)
		}
		name = http.CanonicalHeaderKey(name)
		if reserved[name] || kind == MCP && (reservedForMCP[name] || strings.HasPrefix(name, "Mcp-")) {
			return nil, fault.Invalid(param, "%s must not have %s, which the server sets.", param, name)
		}
		if !validHeaderValue(value) {
			return nil, fault.Invalid(param, "%s has an invalid value. Values have at most %d bytes, no line breaks or control characters, and no spaces at the ends.", param, maxHeaderBytes)
		}
		if _, twice := headers[name]; twice {
			return nil, fault.Invalid(param, "%s has a name twice. Names are case-insensitive.", param)
		}
		headers[name] = value
	}
	return headers, nil
}

func validHeaderName(name string) bool {
	if name == "" || len(name) > maxHeaderBytes {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

func validHeaderValue(value string) bool {
	if len(value) > maxHeaderBytes || strings.TrimSpace(value) != value {
		return false
	}
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
