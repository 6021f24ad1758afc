// Package oauth is an authorization server for tests, with metadata, client registration, PKCE, resource
// indicators and rotating refresh tokens. It protects MCP servers.
package oauth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Server is an authorization server. Everyone who opens its authorization page allows the access.
type Server struct {
	*httptest.Server
	// Registers is whether clients can register themselves, and ExpiresIn the lifetime of access tokens in
	// seconds. They are set before the first request.
	Registers bool
	ExpiresIn int
	// OnRefresh runs before a refresh token is used, if it isn't nil. A status other than 0 is the response.
	OnRefresh func() (status int)

	mu        sync.Mutex
	clients   map[string]client // by ID
	codes     map[string]authorization
	refresh   map[string]authorization // by refresh token
	access    map[string]authorization // by access token
	refreshes int                      // successful ones
}

type client struct {
	secret    string
	redirects []string
}

type authorization struct {
	client, redirect, challenge, resource, scope string
}

// New starts a server with one client that is registered already.
func New(t testing.TB, clientID, clientSecret, redirect string) *Server {
	t.Helper()
	s := &Server{Registers: true, ExpiresIn: 3600, clients: map[string]client{}, codes: map[string]authorization{}, refresh: map[string]authorization{}, access: map[string]authorization{}}
	if clientID != "" {
		s.clients[clientID] = client{clientSecret, []string{redirect}}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", s.metadata)
	mux.HandleFunc("POST /register", s.register)
	mux.HandleFunc("GET /authorize", s.authorize)
	mux.HandleFunc("POST /token", s.token)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	m := map[string]any{"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token", "response_types_supported": []string{"code"},
		"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"client_secret_basic", "none"},
		"authorization_response_iss_parameter_supported": true, "scopes_supported": []string{"tools", "offline_access"}}
	if s.Registers {
		m["registration_endpoint"] = s.URL + "/register"
	}
	reply(w, http.StatusOK, m)
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var in map[string]any
	if json.NewDecoder(r.Body).Decode(&in) != nil || !s.Registers {
		reply(w, http.StatusBadRequest, map[string]string{"error": "invalid_client_metadata"})
		return
	}
	c := client{secret: "registered-" + rand.Text()}
	redirects, _ := in["redirect_uris"].([]any)
	for _, u := range redirects {
		c.redirects = append(c.redirects, u.(string))
	}
	id := "client-" + rand.Text()
	s.mu.Lock()
	s.clients[id] = c
	s.mu.Unlock()
	in["client_id"], in["client_secret"] = id, c.secret
	reply(w, http.StatusCreated, in)
}

// authorize redirects back with a code.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known := s.clients[q.Get("client_id")]
	if !known || !slices.Contains(c.redirects, q.Get("redirect_uri")) || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		q.Get("code_challenge") == "" || q.Get("state") == "" || q.Get("resource") == "" {
		http.Error(w, "invalid_request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	s.codes[code] = authorization{q.Get("client_id"), q.Get("redirect_uri"), q.Get("code_challenge"), q.Get("resource"), q.Get("scope")}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {s.URL}}.Encode(), http.StatusFound)
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	invalid := func(reason string) { reply(w, http.StatusBadRequest, map[string]string{"error": reason}) }
	id, secret, basic := r.BasicAuth()
	if !basic {
		id = r.FormValue("client_id")
	}
	refreshing := r.FormValue("grant_type") == "refresh_token"
	if refreshing && s.OnRefresh != nil {
		if status := s.OnRefresh(); status != 0 {
			reply(w, status, map[string]string{"error": "temporarily_unavailable"})
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known := s.clients[id]
	if !known || c.secret != secret {
		reply(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	var a authorization
	if refreshing {
		a, known = s.refresh[r.FormValue("refresh_token")]
		delete(s.refresh, r.FormValue("refresh_token"))
	} else {
		a, known = s.codes[r.FormValue("code")]
		delete(s.codes, r.FormValue("code"))
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		known = known && a.redirect == r.FormValue("redirect_uri") && a.challenge == base64.RawURLEncoding.EncodeToString(sum[:])
	}
	if !known || a.client != id || a.resource != r.FormValue("resource") {
		clear(s.refresh) // a token that is used twice was stolen
		invalid("invalid_grant")
		return
	}
	if refreshing {
		s.refreshes++
	}
	access, refresh := "access-"+rand.Text(), "refresh-"+rand.Text()
	s.access[access], s.refresh[refresh] = a, a
	reply(w, http.StatusOK, map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": s.ExpiresIn, "refresh_token": refresh, "scope": a.scope})
}

// RefreshCount returns how often a refresh token was used.
func (s *Server) RefreshCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshes
}

// RevokeAccess revokes all access tokens, and with everything the refresh tokens, too.
func (s *Server) RevokeAccess(everything bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.access)
	if everything {
		clear(s.refresh)
	}
}

// Protect returns a handler at /mcp that only passes on requests with a token for the resource.
func (s *Server) Protect(resource func() string, next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"resource": resource(), "authorization_servers": []string{s.URL}, "scopes_supported": []string{"tools"}})
	})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		s.mu.Lock()
		a, known := s.access[token]
		s.mu.Unlock()
		if !known || a.resource != resource() {
			metadata := strings.TrimSuffix(resource(), "/mcp") + "/.well-known/oauth-protected-resource/mcp"
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+metadata+`", scope="tools"`)
			http.Error(w, "no token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	return mux
}
