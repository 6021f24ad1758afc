package app

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/config"
)

func TestReloadReplacesTheCertificateOfALiveListener(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := func(cert, key []byte) {
		t.Helper()
		for name, text := range map[string][]byte{"cert.pem": cert, "key.pem": key} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	store(newCertificate(t, "first"))
	cfg := config.Default()
	cfg.Listen, cfg.Data = "127.0.0.1:0", filepath.Join(dir, "data")
	cfg.TLS = config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	a, err := Start(t.Context(), cfg, "test", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.Serve()
	// One connection, which stays open.
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the test checks the name itself
	defer client.CloseIdleConnections()
	expect := func(kept, fresh string) {
		t.Helper()
		resp, err := client.Get(a.ListenURL() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if got := resp.TLS.PeerCertificates[0].Subject.CommonName; resp.StatusCode != http.StatusOK || got != kept {
			t.Errorf("on the open connection: got %d and certificate %q, want 200 and %q", resp.StatusCode, got, kept)
		}
		if got := shownAt(t, a.ln.Addr()); got != fresh {
			t.Errorf("on a new connection: got certificate %q, want %q", got, fresh)
		}
	}
	load := func() (config.Config, error) { return cfg, nil }
	expect("first", "first")

	store(newCertificate(t, "second"))
	if _, err := a.Reload(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	expect("first", "second")

	third, _ := newCertificate(t, "third")
	_, otherKey := newCertificate(t, "other")
	store(third, otherKey)
	cfg.MarkupPercent = "5"
	if _, err := a.Reload(t.Context(), load); err == nil || !strings.Contains(err.Error(), "load TLS certificate") {
		t.Errorf("a certificate without its key: got %v", err)
	}
	if got := a.reloading.config().MarkupPercent; got != "" {
		t.Errorf("a failed reload changed markup_percent to %s", got)
	}
	expect("first", "second")
}
