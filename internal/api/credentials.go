package api

import (
	"net/http"
	"slices"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/gateway/messages"
)

// credential returns the key that a request sends in its Authorization header or, on some paths, in
// another one. ok is false if there is none. It is an error to send different ones.
func credential(r *http.Request) (value string, ok bool, err error) {
	value, ok = bearerOf(r)
	name := keyHeader(r)
	if name == "" {
		return value, ok, nil
	}
	for _, key := range r.Header.Values(name) {
		if key = strings.TrimSpace(key); key == "" || key == value {
			continue
		}
		if value != "" {
			return value, true, fault.New(fault.Authentication, "The headers Authorization and %s contain different keys. Send one of them.", name)
		}
		value, ok = key, true
	}
	return value, ok, nil
}

// keyHeader returns the other header that can have the key: clients of Azure and of Anthropic's API
// have their own.
func keyHeader(r *http.Request) string {
	switch path := r.URL.Path; {
	case azureOf(r) != nil || isUnder(path, azurePath):
		return "api-key"
	case isUnder(path, "/v1/messages") || isUnder(path, "/v1/models"):
		return "x-api-key"
	}
	return ""
}

// isUnder reports whether a path is the root or below it.
func isUnder(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '/')
}

func bearerOf(r *http.Request) (value string, ok bool) {
	scheme, value, found := strings.Cut(r.Header.Get("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(value), true
}

// usesAnthropicFormat reports whether the client uses Anthropic's API: by the path, or on paths that
// OpenAI's has too, by the header.
func usesAnthropicFormat(r *http.Request) bool {
	return isUnder(r.URL.Path, "/v1/messages") || isUnder(r.URL.Path, "/v1/models") && len(r.Header.Values(versionHeader)) > 0
}

const versionHeader = "Anthropic-Version"

// readAnthropicVersion returns the version of Anthropic's API that the client uses. Without the header
// it is the first one, as every client meant it for years.
func readAnthropicVersion(r *http.Request) (string, error) {
	version := messages.Versions[0]
	for _, v := range r.Header.Values(versionHeader) {
		if version = strings.TrimSpace(v); !slices.Contains(messages.Versions, version) {
			return "", fault.Invalid("anthropic-version", "The anthropic-version header must be %s.", strings.Join(messages.Versions, " or "))
		}
	}
	return version, nil
}
