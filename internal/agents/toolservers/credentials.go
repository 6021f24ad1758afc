package toolservers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"turnpike/internal/agents/tools"
	"turnpike/internal/fault"
	"turnpike/internal/safehttp"
)

// Credentials are what Turnpike sends to a server and never shows.
type Credentials struct {
	Headers map[string]string `json:"headers,omitempty"`
	OAuth   *OAuth            `json:"oauth,omitempty"`
}

// GrantType is how Turnpike gets access tokens for a server.
type GrantType string

// The grant types. With authorization_code, a member connects the server in the dashboard.
const (
	ClientCredentials GrantType = "client_credentials"
	AuthorizationCode GrantType = "authorization_code"
)

// OAuth is a client of an OAuth server. Its access token is the server's Authorization header.
type OAuth struct {
	GrantType    GrantType `json:"grant_type"` // empty for client_credentials
	TokenURL     string    `json:"token_url"`
	ClientID     string    `json:"client_id"`
	ClientSecret string    `json:"client_secret"`
	Scope        string    `json:"scope"`
	Issuer       string    `json:"issuer,omitempty"` // the authorization server of ClientID; empty until the first connection
}

const (
	maxOAuthField = 4 << 10 // bytes
	// tokenTimeout limits a request for a token.
	tokenTimeout = 10 * time.Second
	// tokenMargin is how long before its expiry a token is replaced.
	tokenMargin = 30 * time.Second
	maxTokens   = 10_000 // in memory
)

// connection returns the state of a new connection.
func (o *OAuth) connection() ConnectionState {
	if o == nil || o.GrantType != AuthorizationCode {
		return ""
	}
	return NeedsAuthorization
}

func (o *OAuth) check(guard *safehttp.Guard, headers map[string]string) error {
	if o == nil {
		return nil
	}
	if headers["Authorization"] != "" {
		return fault.Invalid("oauth", "oauth and the header Authorization exclude each other. Send one of them.")
	}
	for name, value := range map[string]string{"client_id": o.ClientID, "client_secret": o.ClientSecret, "scope": o.Scope, "issuer": o.Issuer} {
		if len(value) > maxOAuthField {
			return fault.Invalid("oauth."+name, "oauth.%s must have at most %d bytes.", name, maxOAuthField)
		}
	}
	if err := o.checkIssuer(guard); err != nil {
		return err
	}
	switch o.GrantType {
	case AuthorizationCode:
		return o.checkAuthorizationCode()
	case ClientCredentials, "":
		return o.checkClientCredentials(guard)
	}
	return fault.Invalid("oauth.grant_type", "oauth.grant_type must be %s or %s.", AuthorizationCode, ClientCredentials)
}

func (o *OAuth) checkAuthorizationCode() error {
	switch {
	case o.TokenURL != "":
		return fault.Invalid("oauth.token_url", "oauth.token_url must be empty with %s. Turnpike asks the tool server for its authorization server.", AuthorizationCode)
	case o.ClientSecret != "" && o.ClientID == "":
		return fault.Missing("oauth.client_id", "oauth.client_id is required with oauth.client_secret.")
	}
	return nil
}

func (o *OAuth) checkClientCredentials(guard *safehttp.Guard) error {
	for _, field := range []struct{ name, value string }{{"token_url", o.TokenURL}, {"client_id", o.ClientID}, {"client_secret", o.ClientSecret}} {
		if field.value == "" {
			return fault.Missing("oauth."+field.name, "oauth.%s is required.", field.name)
		}
	}
	_, err := guard.CheckURL("oauth.token_url", o.TokenURL)
	return err
}

func (m *Service) seal(s *Server, c Credentials) error {
	s.headers = ""
	if len(c.Headers) == 0 && c.OAuth == nil {
		return nil
	}
	plain, err := json.Marshal(c)
	if err != nil {
		return err
	}
	s.headers = m.Ring.Seal(plain, s.location())
	return nil
}

func (m *Service) credentials(s *Server) (c Credentials, err error) {
	if s.headers == "" {
		return c, nil
	}
	plain, err := m.Ring.Open(s.headers, s.location())
	if err == nil {
		err = json.Unmarshal(plain, &c)
	}
	if err != nil {
		return c, fmt.Errorf("headers of %s: %w", s.ID, err)
	}
	return c, nil
}

// Headers returns the secret headers of requests to the server. It returns a *tools.Failure if an OAuth server
// gives no token.
func (m *Service) Headers(ctx context.Context, s *Server) (map[string]string, error) {
	c, err := m.credentials(s)
	if err != nil || c.OAuth == nil {
		return c.Headers, err
	}
	headers := maps.Clone(c.Headers)
	if headers == nil {
		headers = map[string]string{}
	}
	if c.OAuth.GrantType == AuthorizationCode {
		headers["Authorization"], err = m.connectedAuthorization(ctx, s)
		return headers, err
	}
	token, err := m.tokens.get(ctx, s, c.OAuth)
	if err != nil {
		return nil, err
	}
	headers["Authorization"] = cmp.Or(token.Type(), "Bearer") + " " + token.AccessToken
	return headers, nil
}

// oauthTokens are access tokens in memory, by server and sealed credentials.
type oauthTokens struct {
	client *http.Client
	now    func() time.Time

	mu sync.Mutex
	by map[[2]string]*oauth2.Token
}

func (t *oauthTokens) get(ctx context.Context, s *Server, o *OAuth) (*oauth2.Token, error) {
	key := [2]string{s.ID, s.headers}
	t.mu.Lock()
	token := t.by[key]
	t.mu.Unlock()
	if token != nil && (token.Expiry.IsZero() || t.now().Before(token.Expiry.Add(-tokenMargin))) {
		return token, nil
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, t.client), tokenTimeout)
	defer cancel()
	config := clientcredentials.Config{ClientID: o.ClientID, ClientSecret: o.ClientSecret, TokenURL: o.TokenURL, Scopes: strings.Fields(o.Scope)}
	token, err := config.Token(ctx)
	if err != nil {
		return nil, oauthFailure(s, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.by) >= maxTokens {
		clear(t.by)
	}
	t.by[key] = token
	return token, nil
}

// oauthFailure leaves out what the OAuth server returned, which may be secret.
func oauthFailure(s *Server, err error) error {
	problem := safehttp.Explain(err)
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		problem = "it returned " + refused.Response.Status + "; check the client ID and the secret"
	}
	return &tools.Failure{Message: fmt.Sprintf("the OAuth server of %s gives no token: %s", s.Label, problem), Cause: err}
}
