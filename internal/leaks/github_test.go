package leaks

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/fault"
	"turnpike/test/fakes/safehttptest"
)

// The request and the key that GitHub's documentation of its partner program
// shows.
const (
	sampleKeyID     = "bcb53661c06b4728e59d897fb6165d5c9cda0fd9cdf9d09ead458168deb7518c"
	sampleSignature = "MEQCIQDaMKqrGnE27S0kgMrEK0eYBmyG0LeZismAEz/BgZyt7AIfXt9fErtRS4XaeSt/AO1RtBY66YcAdjxji410VQV4xg=="
	sampleBody      = `[{"source":"commit","token":"some_token","type":"some_type","url":"https://example.com/base-repo-url/"}]`
	sampleKey       = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEYAGMWO8XgCamYKMJS6jc/qgvSlAd\nAjPuDPRcXU22YxgBrz+zoN19MzuRyW87qEt9/AmtoNP5GrobzUvQSyJFVw==\n-----END PUBLIC KEY-----\n"
)

// keyServer stands for GitHub's list of keys.
type keyServer struct {
	*httptest.Server
	asked  atomic.Int64
	broken atomic.Bool
	keys   atomic.Pointer[map[string]string]
}

func startKeyServer(t *testing.T, keys map[string]string) *keyServer {
	t.Helper()
	s := &keyServer{}
	s.keys.Store(&keys)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.asked.Add(1)
		if s.broken.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		var list []map[string]any
		for id, key := range *s.keys.Load() {
			list = append(list, map[string]any{"key_identifier": id, "key": key, "is_current": true})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"public_keys": list})
	}))
	t.Cleanup(s.Close)
	return s
}

func publicPEM(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func signed(t *testing.T, key *ecdsa.PrivateKey, body string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	raw, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

func keysAt(url string, now *time.Time) *githubKeys {
	return &githubKeys{url: url, client: http.DefaultClient, now: func() time.Time { return *now }}
}

func TestGitHubSampleSignatureVerifies(t *testing.T) {
	t.Parallel()
	s := startKeyServer(t, map[string]string{sampleKeyID: sampleKey})
	now := time.Now()
	g := keysAt(s.URL, &now)
	if err := g.verify(t.Context(), []byte(sampleBody), sampleKeyID, sampleSignature); err != nil {
		t.Error(err)
	}
	other := newKey(t, elliptic.P256())
	for name, c := range map[string]struct{ body, id, signature string }{
		"a byte more":         {sampleBody + "\n", sampleKeyID, sampleSignature},
		"another body":        {`[]`, sampleKeyID, sampleSignature},
		"another id":          {sampleBody, "x", sampleSignature},
		"no id":               {sampleBody, "", sampleSignature},
		"no signature":        {sampleBody, sampleKeyID, ""},
		"no base64":           {sampleBody, sampleKeyID, "%%%"},
		"no DER":              {sampleBody, sampleKeyID, "AAAA"},
		"somebody else's key": {sampleBody, sampleKeyID, signed(t, other, sampleBody)},
	} {
		if err := g.verify(t.Context(), []byte(c.body), c.id, c.signature); !fault.Is(err, fault.InvalidSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGitHubKeysAreCachedAndFetchesAreLimited(t *testing.T) {
	t.Parallel()
	first, second := newKey(t, elliptic.P256()), newKey(t, elliptic.P256())
	s := startKeyServer(t, map[string]string{"first": publicPEM(t, first)})
	now := time.Now()
	g := keysAt(s.URL, &now)
	verify := func(key *ecdsa.PrivateKey, id string) error {
		return g.verify(t.Context(), []byte("body"), id, signed(t, key, "body"))
	}
	wantAsked := func(n int64) {
		t.Helper()
		if got := s.asked.Load(); got != n {
			t.Fatalf("GitHub was asked %d times, want %d", got, n)
		}
	}
	for range 3 {
		if err := verify(first, "first"); err != nil {
			t.Fatal(err)
		}
	}
	wantAsked(1)

	// A new key is found, but not by asking for each that is made up.
	s.keys.Store(&map[string]string{"first": publicPEM(t, first), "second": publicPEM(t, second)})
	now = now.Add(refetchEvery)
	if err := verify(second, "second"); err != nil {
		t.Fatal(err)
	}
	wantAsked(2)
	for range 10 {
		if err := verify(first, "made up"); !fault.Is(err, fault.InvalidSignature) {
			t.Fatal(err)
		}
	}
	wantAsked(2)

	// An outage of GitHub's does not keep us from believing it, for a day.
	s.broken.Store(true)
	now = now.Add(keysFresh)
	if err := verify(second, "second"); err != nil {
		t.Fatal(err)
	}
	wantAsked(3)
	now = now.Add(keysStale)
	if err := verify(second, "second"); !fault.Is(err, fault.Upstream) {
		t.Fatalf("with keys of yesterday: %v", err)
	}
	s.broken.Store(false)
	now = now.Add(refetchEvery)
	if err := verify(second, "second"); err != nil {
		t.Fatal(err)
	}

	// A key that was withdrawn is not believed once the list was read again.
	s.keys.Store(&map[string]string{"first": publicPEM(t, first)})
	now = now.Add(keysFresh)
	if err := verify(second, "second"); !fault.Is(err, fault.InvalidSignature) {
		t.Fatalf("with a key that was withdrawn: %v", err)
	}
}

// A reporter who disconnects must not prevent the fetch.
func TestKeyFetchContinuesIfTheReporterDisconnects(t *testing.T) {
	t.Parallel()
	s := startKeyServer(t, map[string]string{sampleKeyID: sampleKey})
	now := time.Now()
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := keysAt(s.URL, &now).verify(gone, []byte(sampleBody), sampleKeyID, sampleSignature); err != nil {
		t.Error(err)
	}
}

// Not parallel: it looks at the process's own log.
func TestUnreachableGitHubIsLoggedOncePerFetch(t *testing.T) {
	var lines bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	s := startKeyServer(t, nil)
	now := time.Now()
	g := keysAt(s.URL, &now)
	for range 20 {
		if err := g.verify(t.Context(), []byte(sampleBody), "made up", sampleSignature); !errors.Is(err, ErrNoGitHubKeys) {
			t.Fatalf("got %v, want ErrNoGitHubKeys", err)
		}
	}
	if n := strings.Count(lines.String(), "\n"); n != 1 {
		t.Errorf("20 reports left %d lines in the log, want 1", n)
	}
}

// A fetch that never ended would hold up every report.
func TestKeyFetchFailsIfTheServerSwitchesProtocols(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(safehttptest.Switching))
	t.Cleanup(s.Close)
	g := New(Options{GitHubKeysURL: s.URL, Now: time.Now}).github
	if err := g.verify(t.Context(), []byte(sampleBody), sampleKeyID, sampleSignature); !fault.Is(err, fault.Upstream) {
		t.Errorf("got %v", err)
	}
}

func TestKeyListsWithoutAUsableKeyAreRejected(t *testing.T) {
	t.Parallel()
	wide := newKey(t, elliptic.P384())
	for name, body := range map[string]string{
		"no JSON": "<html>", "no keys": `{"public_keys":[]}`, "no PEM": `{"public_keys":[{"key_identifier":"a","key":"b"}]}`,
		"another curve": string(must(json.Marshal(map[string]any{"public_keys": []map[string]string{{"key_identifier": "a", "key": publicPEM(t, wide)}}}))),
	} {
		if keys, err := parseKeys([]byte(body)); err == nil {
			t.Errorf("%s: %v", name, keys)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
