package config

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
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

// fileSuffix is the suffix of variables that name a file with a secret, as
// containers mount them.
const fileSuffix = "_FILE"

// EnvSecret returns the secret in the variable, or in the file named by the
// variable with the suffix _FILE. It returns "" if neither is set.
func EnvSecret(name string) (string, error) {
	value, _, err := secretVariable(variables(os.Environ()), name, os.ReadFile)
	return value, err
}

// SecretVariableOf returns the environment variable of a secret setting that
// would have this flag, or "".
func SecretVariableOf(flag string) string {
	var c Config
	for _, s := range c.settings() {
		if !s.hasFlag() && s.flag() == flag {
			return s.env()
		}
	}
	return ""
}

// secretVariable is EnvSecret with the origin of the value.
func secretVariable(env map[string]string, name string, readFile func(string) ([]byte, error)) (value, origin string, err error) {
	path := env[name+fileSuffix]
	if path == "" {
		return env[name], "environment " + name, nil
	}
	origin = "environment " + name + fileSuffix
	if env[name] != "" {
		return "", origin, fmt.Errorf("is set by %s and by %s; expected one of the two", name, name+fileSuffix)
	}
	text, err := readFile(path)
	if err != nil {
		return "", origin, fmt.Errorf("cannot be read from its file: %w", err)
	}
	if value = strings.TrimSpace(string(text)); value == "" {
		return "", origin, errors.New("is expected in " + path + ", which is empty")
	}
	return value, origin, nil
}

func (l *loader) setSecret(s setting, env map[string]string) {
	value, origin, err := secretVariable(env, s.env(), l.readFile)
	if err == nil && value == "" {
		return
	}
	if err == nil {
		err = setText(s.value, value)
	}
	l.set(s, origin, err)
}
