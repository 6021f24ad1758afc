// Package clouds has servers that authenticate requests as the documentation of Azure, Google Cloud and
// AWS says, without the code of their SDKs.
package clouds

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is a cloud: it issues tokens and serves models to requests that have one.
type Server struct {
	*httptest.Server
	// Refused are the reasons for which it refused requests.
	mu       sync.Mutex
	refused  []string
	issued   int
	tokens   map[string]bool
	requests []Request
}

// Request is a request that was authenticated.
type Request struct {
	Path, Query string
	Header      http.Header
	Body        map[string]any
}

func start(t testing.TB, serve func(s *Server, mux *http.ServeMux)) *Server {
	t.Helper()
	s := &Server{tokens: map[string]bool{}}
	mux := http.NewServeMux()
	serve(s, mux)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// Refused returns the reasons for which the server refused requests.
func (s *Server) Refused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.refused...)
}

// Issued returns how many tokens the server has issued.
func (s *Server) Issued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issued
}

// Last returns the last request for a model.
func (s *Server) Last() Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		return Request{}
	}
	return s.requests[len(s.requests)-1]
}

// RevokeTokens makes all tokens invalid that were issued before.
func (s *Server) RevokeTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// issue returns a new access token.
func (s *Server) issue(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued++
	token := fmt.Sprintf("token-%d-%s", s.issued, strings.Repeat("x", 20))
	s.tokens[token] = true
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"})
}

// refuse responds with an error and notes the reason.
func (s *Server) refuse(w http.ResponseWriter, status int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, err.Error())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": "invalid_client", "error_description": err.Error(), "message": err.Error()})
}

// authenticated calls serve with requests that have a token.
func (s *Server) authenticated(serve func(w http.ResponseWriter, r Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		token, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		s.mu.Lock()
		valid := isBearer && s.tokens[token] && r.Header.Get("Api-Key") == "" && r.Header.Get("X-Api-Key") == "" && r.Header.Get("X-Goog-Api-Key") == ""
		s.mu.Unlock()
		if !valid {
			s.refuse(w, http.StatusUnauthorized, errors.New("no valid token"))
			return
		}
		s.serve(w, r, body, serve)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, body []byte, serve func(w http.ResponseWriter, r Request)) {
	request := Request{Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Header: r.Header}
	if err := json.Unmarshal(body, &request.Body); err != nil {
		s.refuse(w, http.StatusBadRequest, err)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, request)
	s.mu.Unlock()
	serve(w, request)
}

// Key is the key pair of a service account or of the issuer of federated tokens.
type Key struct{ private *rsa.PrivateKey }

// NewKey returns a new key pair.
func NewKey(t testing.TB) *Key {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return &Key{private}
}

// PEM returns the private key in PKCS #8.
func (k *Key) PEM(t testing.TB) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// Sign returns a JWT.
func (k *Key) Sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, k.private, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// verify checks a JWT's signature and times, and returns its claims.
func (k *Key) verify(token string) (map[string]any, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errors.New("not a JWT")
	}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = base64.RawURLEncoding.DecodeString(part); err != nil {
			return nil, err
		}
	}
	var header struct{ Alg string }
	claims := map[string]any{}
	if err := errors.Join(json.Unmarshal(decoded[0], &header), json.Unmarshal(decoded[1], &claims)); err != nil || header.Alg != "RS256" {
		return nil, fmt.Errorf("a JWT with the algorithm %q: %w", header.Alg, err)
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&k.private.PublicKey, crypto.SHA256, sum[:], decoded[2]); err != nil {
		return nil, err
	}
	expires, _ := claims["exp"].(float64)
	if left := time.Until(time.Unix(int64(expires), 0)); left <= 0 || left > time.Hour+time.Minute {
		return nil, fmt.Errorf("the JWT expires in %s", left)
	}
	return claims, nil
}
