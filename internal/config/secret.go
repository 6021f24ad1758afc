package config

import (
	"fmt"
	"io"
	"net/url"
	"strings"
)

// mask stands for a secret that is set. It is no valid master key, so a
// printout that is used as a file is refused instead of half working.
const mask = "***"

// Secret is masked by fmt, log/slog and encoders; string(s) reveals it.
type Secret string

// String masks the whole value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// Format masks under every verb: fmt prints the bare value for a verb that
// does not fit, String or not.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// MarshalText masks in JSON, YAML and log records.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// SecretURL is an address with a password in it. Printed, it shows where it
// points without the password; string(u) reveals all of it.
type SecretURL string

// String masks the password, or everything when it is not certain which part
// the password is.
func (u SecretURL) String() string {
	if u == "" {
		return ""
	}
	if u.fault() != "" {
		return mask
	}
	scheme, rest, _ := strings.Cut(string(u), "://")
	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, path, hasPath := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if user, _, ok := strings.Cut(authority[:at], ":"); ok {
			authority = user + ":" + mask + authority[at:]
		}
	}
	out := scheme + "://" + authority
	if hasPath {
		out += "/" + path
	}
	if hasQuery {
		out += "?" + maskQuery(query)
	}
	return out
}

// maskQuery hides the values of password, sslpassword and their like.
func maskQuery(query string) string {
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		key, _, _ := strings.Cut(pair, "=")
		if k, err := url.QueryUnescape(key); err != nil || strings.Contains(strings.ToLower(k), "pass") {
			pairs[i] = key + "=" + mask
		}
	}
	return strings.Join(pairs, "&")
}

// Format masks under every verb.
func (u SecretURL) Format(f fmt.State, _ rune) { io.WriteString(f, u.String()) }

// MarshalText masks in JSON, YAML and log records.
func (u SecretURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// hasPassword reports whether the address holds a password, or may.
func (u SecretURL) hasPassword() bool {
	parsed, err := url.Parse(string(u))
	if err != nil {
		return true
	}
	_, password := parsed.User.Password()
	return password || maskQuery(parsed.RawQuery) != parsed.RawQuery
}

// fault says, without quoting it, what is wrong with a database address.
func (u SecretURL) fault() string {
	const expected = "expected postgres://user:password@host/database"
	scheme, rest, ok := strings.Cut(string(u), "://")
	if !ok || scheme != "postgres" && scheme != "postgresql" {
		return "does not start with postgres:// or postgresql://; " + expected
	}
	// An unescaped / ? or # in the password ends the authority early; the
	// rest of the password, up to its @, is then taken for something else.
	// Of two @ before that some readers take the first and others the last.
	end := strings.IndexAny(rest, "/?#")
	if end >= 0 && strings.ContainsAny(rest[end:], "@#") || strings.Count(rest, "@") > 1 {
		return "has a # or a misplaced @; " + expected + ", with special characters in the password percent-encoded (# is %23, / is %2F, ? is %3F, @ is %40)"
	}
	if _, err := url.Parse(string(u)); err != nil {
		return "is not a URL; " + expected + ", with special characters in the password percent-encoded"
	}
	return ""
}
