package webhooks

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"turnpike/internal/fault"
)

const (
	maxHeaders     = 20
	maxHeaderName  = 128
	maxHeaderValue = 4096
)

// reservedHeaders are set by Turnpike or belong to the connection.
var reservedHeaders = []string{"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "User-Agent", "X-Idempotency-Key"}

// reservedPrefixes begin the names of Turnpike's own headers.
var reservedPrefixes = []string{"Service-", "Webhook-", "Proxy-"}

// HeaderChanges are changes to an endpoint's own headers: a new value, or nil to remove it.
type HeaderChanges map[string]*string

// NewHeaders returns the changes that add headers to a new endpoint.
func NewHeaders(values map[string]string) HeaderChanges {
	c := make(HeaderChanges, len(values))
	for name, value := range values {
		c[name] = &value
	}
	return c
}

// ReplaceHeaders returns the changes that leave the endpoint with these headers only.
func (e *Endpoint) ReplaceHeaders(values map[string]string) HeaderChanges {
	c := NewHeaders(values)
	for name := range e.headers {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(values)), func(v string) bool { return http.CanonicalHeaderKey(v) == name }) {
			c[name] = nil
		}
	}
	return c
}

// HeaderNames returns the names of the endpoint's own headers. Their values can't be read.
func (e *Endpoint) HeaderNames() []string {
	return append([]string{}, slices.Sorted(maps.Keys(e.headers))...)
}

// headerContext binds the sealed value of a header to its endpoint.
func headerContext(endpointID, name string) string {
	return "endpoint " + endpointID + " header " + name
}

// check validates the changes and returns them with canonical names.
func (c HeaderChanges) check() (HeaderChanges, error) {
	canonical := make(HeaderChanges, len(c))
	for _, given := range slices.Sorted(maps.Keys(c)) {
		value, name := c[given], http.CanonicalHeaderKey(given)
		switch {
		case len(name) > maxHeaderName || !httpguts.ValidHeaderFieldName(name):
			return nil, fault.Invalid("headers", "headers has the name %q, which is no valid HTTP header name of at most %d bytes.", given, maxHeaderName)
		case slices.Contains(reservedHeaders, name) || slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }):
			return nil, fault.Invalid("headers", "headers can't set %s, which Turnpike sets itself. Use another name.", name)
		case value != nil && (len(*value) > maxHeaderValue || strings.TrimSpace(*value) != *value || !httpguts.ValidHeaderFieldValue(*value)):
			return nil, fault.Invalid("headers", "The value of %s must be text of at most %d bytes, without line breaks and without spaces at its ends.", name, maxHeaderValue)
		}
		if _, twice := canonical[name]; twice {
			return nil, fault.Invalid("headers", "headers has %s twice. HTTP header names don't distinguish upper and lower case.", name)
		}
		canonical[name] = value
	}
	return canonical, nil
}

// SetHeaders changes the endpoint's own headers. Create or Change stores them.
func (e *Endpoint) SetHeaders(changes HeaderChanges) { e.headerChanges = changes }

// keepsHeadersAtHome rejects a URL of another server that keeps headers: their values are secrets that someone who
// changes the URL may not know.
func (e *Endpoint) keepsHeadersAtHome(before *Endpoint) error {
	if origin(e.URL) == origin(before.URL) {
		return nil
	}
	given := map[string]bool{}
	for name := range e.headerChanges {
		given[http.CanonicalHeaderKey(name)] = true
	}
	for _, name := range before.HeaderNames() {
		if !given[name] {
			return fault.Missing("headers", "The endpoint has the header %s, which must not be sent to another server unnoticed. Set it again or remove it in the same change.", name)
		}
	}
	return nil
}

// origin returns the scheme, host and port of a URL.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// applyHeaders seals the changed headers of an endpoint that has its ID.
func (s *Service) applyHeaders(e *Endpoint) error {
	changes, err := e.headerChanges.check()
	if err != nil {
		return err
	}
	if e.Kind == Tunnel && len(changes) > 0 {
		return fault.Invalid("headers", "A tunnel can't have headers. Its client gets Turnpike's headers only.")
	}
	headers := maps.Clone(e.headers)
	if headers == nil {
		headers = map[string]string{}
	}
	for name, value := range changes {
		delete(headers, name)
		if value != nil {
			headers[name] = s.Ring.Seal([]byte(*value), headerContext(e.ID, name))
		}
	}
	if len(headers) > maxHeaders {
		return fault.Invalid("headers", "headers can have at most %d entries.", maxHeaders)
	}
	e.headers, e.headerChanges = headers, nil
	return nil
}

// hidden replaces the values of the endpoint's own headers in text that is stored: a
// receiver may return what it got.
func (t *target) hidden(text string) string {
	for _, value := range t.headers {
		if len(value) >= minHiddenValue {
			text = strings.ReplaceAll(text, value, hiddenValue)
		}
	}
	return text
}

// hideIn is hidden for the headers of a response.
func (t *target) hideIn(h http.Header) http.Header {
	if len(t.headers) == 0 {
		return h
	}
	out := make(http.Header, len(h))
	for name, values := range h {
		for _, value := range values {
			out.Add(name, t.hidden(value))
		}
	}
	return out
}

const (
	hiddenValue = "[hidden]"
	// minHiddenValue keeps short values such as "1" from hiding half of a text.
	minHiddenValue = 6
)

// HasHeaders reports whether the endpoint's own headers are exactly these.
func (s *Service) HasHeaders(e *Endpoint, values map[string]string) (bool, error) {
	if len(values) != len(e.headers) {
		return false, nil
	}
	for given, value := range values {
		name := http.CanonicalHeaderKey(given)
		sealed, ok := e.headers[name]
		if !ok {
			return false, nil
		}
		plain, err := s.Ring.Open(sealed, headerContext(e.ID, name))
		if err != nil || string(plain) != value {
			return false, err
		}
	}
	return true, nil
}
