package providers

import "net/http"

// Credential authenticates requests to a provider: with a key, a token or a signature. It must be
// safe for concurrent use.
type Credential interface {
	// Authenticate adds the headers that authenticate a request, which is sent next. body is the
	// request's body, for credentials that sign it. Errors other than a *Failure count as KindAuth.
	Authenticate(req *http.Request, body []byte) error
	// Secrets returns what must be removed from a provider's messages before they are logged.
	Secrets() []string
}

// Renewer is a Credential that may have another key or a newer token after a rejection.
type Renewer interface {
	Credential
	// Renew is called if the provider answers an authenticated request with 401, 403 or 429. It
	// reports whether the request is authenticated differently from now on and can be sent again.
	Renew(rejected *http.Request, status int) bool
}

// SetKey puts a key into the header that a protocol has for it.
type SetKey func(h http.Header, key string)

// BearerKey puts a key or a token into the Authorization header.
func BearerKey(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) }

// HeaderKey returns a SetKey for a header that contains only the key.
func HeaderKey(name string) SetKey { return func(h http.Header, key string) { h.Set(name, key) } }

// StaticKey is a key that never changes. An empty one authenticates nothing.
type StaticKey struct {
	Key string
	Set SetKey
}

// Authenticate adds the key, unless the operator configured another Authorization header.
func (k StaticKey) Authenticate(req *http.Request, _ []byte) error {
	if k.Key != "" && req.Header.Get("Authorization") == "" {
		k.Set(req.Header, k.Key)
	}
	return nil
}

// Secrets returns the key.
func (k StaticKey) Secrets() []string { return []string{k.Key} }
