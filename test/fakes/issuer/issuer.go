// Package issuer is an OpenID Connect issuer on this machine, which signs the tokens that a test asks for.
package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// Issuer signs tokens with ES256.
type Issuer struct {
	*httptest.Server
	// Requests counts the requests that it got.
	Requests atomic.Int64
	key      atomic.Pointer[ecdsa.PrivateKey]
}

// New starts an issuer until the test ends.
func New(t *testing.T) *Issuer {
	t.Helper()
	i := &Issuer{}
	i.Rotate(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		i.Requests.Add(1)
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		i.Requests.Add(1)
		point, err := i.key.Load().PublicKey.Bytes()
		if err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": encode(point[1:9]),
			"x": encode(point[1:33]), "y": encode(point[33:])}}})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

// Rotate replaces the signing key.
func (i *Issuer) Rotate(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.key.Store(key)
}

// Sign returns a token with these claims.
func (i *Issuer) Sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	key := i.key.Load()
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	head, err := json.Marshal(map[string]string{"alg": "ES256", "typ": "JWT", "kid": encode(point[1:9])})
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	text := encode(head) + "." + encode(body)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	size := crypto.SHA256.Size()
	return text + "." + encode(append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...))
}

func encode(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }
