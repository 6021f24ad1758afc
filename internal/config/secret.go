package config

import (
	"fmt"
	"io"
	"net/url"
	"strings"
)

// mask replaces a secret that is set. It isn't a valid master key, so a
// printout used as a file is rejected.
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

// Format masks for every verb: for an unsuitable verb, fmt prints the bare
// value despite String.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// MarshalText masks in JSON, YAML and log records.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// SecretURL is a URL with a password. It is printed without the password;
// string(u) reveals it.
type SecretURL string

// String masks the password, or everything if the password can't be located.
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

// maskQuery masks the values of password, sslpassword and similar parameters.
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

// Format masks for every verb.
func (u SecretURL) Format(f fmt.State, _ rune) { io.WriteString(f, u.String()) }

// MarshalText masks in JSON, YAML and log records.
func (u SecretURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// hasPassword reports whether the URL has or may have a password.
func (u SecretURL) hasPassword() bool {
	parsed, err := url.Parse(string(u))
	if err != nil {
		return true
	}
	_, password := parsed.User.Password()
	return password || maskQuery(parsed.RawQuery) != parsed.RawQuery
}

// fault describes what is wrong with a database URL, without quoting it.
func (u SecretURL) fault() string {
	const expected = "expected postgres://user:password@host/database"
	scheme, rest, ok := strings.Cut(string(u), "://")
	if !ok || scheme != "postgres" && scheme != "postgresql" {
		return "does not start with postgres:// or postgresql://; " + expected
	}
	// An unescaped / ? or # in the password ends the authority early. The rest of
	// the password is then parsed as something else. With two @, some parsers use
	// the first and others the last.
	end := strings.IndexAny(rest, "/?#")
	if end >= 0 && strings.ContainsAny(rest[end:], "@#") || strings.Count(rest, "@") > 1 {
		return "has a # or a misplaced @; " + expected + ", with special characters in the password percent-encoded (# is %23, / is %2F, ? is %3F, @ is %40)"
	}
	if _, err := url.Parse(string(u)); err != nil {
		return "is not a URL; " + expected + ", with special characters in the password percent-encoded"
	}
	return ""
}
