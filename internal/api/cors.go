package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// exposedHeaders are the response headers that scripts in a browser may read.
const exposedHeaders = "X-Request-Id, Request-Id, Service-Model, Service-Provider, Service-Credits, Service-Ignored-Fields, Service-Warning, Retry-After, Retry-After-Ms, X-Should-Retry, Idempotent-Replayed, " +
	"X-Ratelimit-Limit-Requests, X-Ratelimit-Remaining-Requests, X-Ratelimit-Reset-Requests, X-Ratelimit-Limit-Tokens, X-Ratelimit-Remaining-Tokens, X-Ratelimit-Reset-Tokens"

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// answerPreflight allows every preflight: it has no key, so access is decided
// when the actual request arrives with one.
func (c *Call) answerPreflight() {
	h := c.W.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", "GET, POST, PATCH, DELETE")
	if wanted := c.R.Header.Get("Access-Control-Request-Headers"); wanted != "" {
		h.Set("Access-Control-Allow-Headers", wanted)
	}
	h.Set("Access-Control-Max-Age", "86400")
	h.Set("Vary", "Access-Control-Request-Headers")
	c.WriteHeader(http.StatusNoContent)
}

// setCORS lets a browser read the response, errors included, if the bearer is
// meant for browsers: a scoped token from anywhere, or a test key from the
// developer's own machine. It decides by the bearer's prefix, so that the error
// for an expired token can be read as well.
func (c *Call) setCORS(bearer string) {
	origin := c.R.Header.Get("Origin")
	if origin == "" {
		return
	}
	h := c.W.Header()
	h.Add("Vary", "Origin")
	kind, _ := keyring.KindOf(bearer)
	if kind == keyring.ScopedToken ||
		kind == keyring.TestKey && isLocalOrigin(origin) ||
		kind == keyring.LiveKey && slices.Contains(c.AllowedOrigins, origin) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", exposedHeaders)
	}
}

func isLiveKey(s string) bool {
	kind, _ := keyring.KindOf(s)
	return kind == keyring.LiveKey
}

func isLocalOrigin(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	host := u.Hostname()
	return host == "localhost" || host == "127.0.0.1" || host == "::1" || strings.HasSuffix(host, ".localhost")
}

// checkBrowser rejects live keys sent by web pages: anyone who can read the page
// can read the key.
func (c *Call) checkBrowser() error {
	origin := c.R.Header.Get("Origin")
	if origin == "" || c.Principal.Token != nil || !isLiveKey(c.Principal.KeyHint) || slices.Contains(c.AllowedOrigins, origin) {
		return nil
	}
	return fault.New(fault.LiveKeyInBrowser, "Live keys cannot be used in a browser. Create a scoped token on your backend with POST /v1/scoped_tokens and give that to the page.")
}
