package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/fault"
)

// exposedHeaders are those a script in a browser may read.
const exposedHeaders = "X-Request-Id, Service-Model, Service-Provider, Service-Credits, Retry-After, Retry-After-Ms, X-Should-Retry, Idempotent-Replayed, " +
	"X-Ratelimit-Limit-Requests, X-Ratelimit-Remaining-Requests, X-Ratelimit-Reset-Requests, X-Ratelimit-Limit-Tokens, X-Ratelimit-Remaining-Tokens, X-Ratelimit-Reset-Tokens"

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// answerPreflight allows every preflight: it carries no key, and what it asks
// about is decided when the real request comes with one.
func (c *Call) answerPreflight() {
	h := c.w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, POST, PATCH, DELETE")
	if wanted := c.r.Header.Get("Access-Control-Request-Headers"); wanted != "" {
		h.Set("Access-Control-Allow-Headers", wanted)
	}
	h.Set("Access-Control-Max-Age", "86400")
	h.Set("Vary", "Access-Control-Request-Headers")
	c.status, c.wrote = http.StatusNoContent, true
	c.w.WriteHeader(http.StatusNoContent)
}

// setCORS lets a browser read the answer, errors too, when the bearer is meant
// for browsers: a scoped token from anywhere, a test key from a developer's
// own machine. It goes by the bearer's prefix, so that an expired token's
// error can be read as well.
func (c *Call) setCORS(bearer string) {
	origin := c.r.Header.Get("Origin")
	if origin == "" {
		return
	}
	h := c.w.Header()
	h.Add("Vary", "Origin")
	if strings.HasPrefix(bearer, access.PrefixScoped) ||
		strings.HasPrefix(bearer, access.PrefixTest) && isLocalOrigin(origin) ||
		strings.HasPrefix(bearer, access.PrefixLive) && slices.Contains(c.s.AllowedOrigins, origin) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", exposedHeaders)
	}
}

func isLocalOrigin(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	switch host := u.Hostname(); {
	case host == "localhost", host == "127.0.0.1", host == "::1", strings.HasSuffix(host, ".localhost"):
		return true
	}
	return false
}

// checkBrowser refuses a live key that comes from a web page: whoever can read
// the page can read the key.
func (s *Server) checkBrowser(c *Call) error {
	origin := c.r.Header.Get("Origin")
	if origin == "" || c.Principal.Token != nil || !strings.HasPrefix(c.Principal.KeyHint, access.PrefixLive) || slices.Contains(s.AllowedOrigins, origin) {
		return nil
	}
	return fault.New(fault.LiveKeyInBrowser, "a live key must not be used in a browser: mint a scoped token on your backend with POST /v1/scoped_tokens and give the page that")
}
