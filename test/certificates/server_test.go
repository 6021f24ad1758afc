package certificates_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"turnpike/internal/cli"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/test/harness"
)

// TestServersShareACertificate runs whole servers: two on PostgreSQL, one on SQLite.
func TestServersShareACertificate(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			dir, clock := newDirectory(t, false), harness.NewClock()
			cfg := harness.Config(t, engine)
			cfg.MetricsListen = "127.0.0.1:0"
			a := &cfg.TLS.ACME
			a.Domains, a.AcceptTerms, a.Directory, a.CAFile, a.HTTPListen = []string{domain}, true, dir.URL, dir.CAFile, "127.0.0.1:0"

			gate := dir.hold()
			servers := []*harness.Server{harness.Start(t, cfg, clock)}
			<-gate.reached
			if engine == "postgres" {
				cfg.Data = t.TempDir()
				servers = append(servers, harness.Start(t, cfg, clock))
			}
			for _, s := range servers {
				// An order is in progress. Load balancers don't verify certificates.
				if resp := get(t, s.URL+"/readyz", &tls.Config{InsecureSkipVerify: true}, ""); resp.status != http.StatusOK {
					t.Errorf("without a certificate: got %d from /readyz, want 200", resp.status)
				}
				if served(address(s), dir.roots) != nil {
					t.Error("a server without a certificate is trusted")
				}
			}
			expectDoctor(t, cfg, "warning", "there is no certificate of "+domain+" yet")
			last := servers[len(servers)-1] // on PostgreSQL, it isn't the one that orders
			dir.tls.set(address(last))
			close(gate.open)
			first := awaitCertificate(t, dir.roots, servers, nil)
			expectDoctor(t, cfg, "ok", "the certificate of "+domain+" is valid until "+first.NotAfter.Format(time.DateOnly))
			if n := dir.orders.Load(); n != 1 {
				t.Errorf("%d servers made %d orders, want 1", len(servers), n)
			}
			for _, s := range servers {
				if resp := get(t, "https://"+domain+"/readyz", &tls.Config{RootCAs: dir.roots}, address(s)); resp.status != http.StatusOK {
					t.Errorf("with a certificate: got %d from /readyz, want 200", resp.status)
				}
				expectRedirects(t, s)
				expectMetrics(t, s, first)
			}

			if engine == "sqlite" {
				return // only nodes on PostgreSQL hear of a change by another program
			}
			// The renewal needs an HTTP-01 challenge, because the other one fails.
			dir.tls.set("")
			dir.http.set(last.App.ChallengeAddress())
			clock.Turn(61 * 24 * time.Hour)
			if err := last.DB.Write(t.Context(), func(tx *db.Tx) error { // wakes the servers before their next check
				tx.Signal("certificates", "")
				_, err := tx.Exec(t.Context(), "UPDATE acme_certificates SET failures = failures")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			awaitCertificate(t, dir.roots, servers, first)
		})
	}
}

func address(s *harness.Server) string { return strings.TrimPrefix(s.URL, "https://") }

// awaitCertificate waits until all servers have the same certificate, other than old.
func awaitCertificate(t *testing.T, roots *x509.CertPool, servers []*harness.Server, old *x509.Certificate) (got *x509.Certificate) {
	t.Helper()
	for i, s := range servers {
		s.Within(t, time.Minute, func() bool {
			c := served(address(s), roots)
			if i == 0 {
				got = c
			}
			return c != nil && !c.Equal(old) && c.Equal(got)
		})
	}
	return got
}

type response struct {
	status   int
	body     string
	location string
}

// get sends a request, to another address than that of the URL if dial is set.
func get(t *testing.T, url string, cfg *tls.Config, dial string) response {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: cfg}
	defer transport.CloseIdleConnections()
	if dial != "" {
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, dial)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{resp.StatusCode, string(body), resp.Header.Get("Location")}
}

// expectRedirects checks the listener for HTTP-01 challenges.
func expectRedirects(t *testing.T, s *harness.Server) {
	t.Helper()
	_, port, err := net.SplitHostPort(address(s))
	if err != nil {
		t.Fatal(err)
	}
	secure := "https://" + domain + ":" + port
	for url, want := range map[string]response{
		"http://" + domain + "/v1/models?limit=1":                   {status: http.StatusPermanentRedirect, location: secure + "/v1/models?limit=1"},
		"http://evil.example//other.example/x":                      {status: http.StatusPermanentRedirect, location: secure + "//other.example/x"},
		"http://" + domain + "/.well-known/acme-challenge/unknown":  {status: http.StatusNotFound},
		"http://" + domain + "/.well-known/acme-challenge/":         {status: http.StatusNotFound},
		"http://" + domain + "/.well-known/acme-challenge/a%00b'--": {status: http.StatusNotFound},
	} {
		got := get(t, url, nil, s.App.ChallengeAddress())
		if got.status != want.status || got.location != want.location {
			t.Errorf("%s: got %d to %q, want %d to %q", url, got.status, got.location, want.status, want.location)
		}
	}
}

func expectMetrics(t *testing.T, s *harness.Server, c *x509.Certificate) {
	t.Helper()
	text := get(t, s.App.MetricsURL(), nil, "").body
	for _, want := range []string{
		`turnpike_certificate_expiry_timestamp_seconds{domain="` + domain + `"} ` + strconv.FormatFloat(float64(c.NotAfter.Unix()), 'g', -1, 64) + "\n",
		`turnpike_certificate_order_failed{domain="` + domain + `"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
}

// expectDoctor checks what doctor reports about the certificate.
func expectDoctor(t *testing.T, cfg config.Config, status, message string) {
	t.Helper()
	file, a := filepath.Join(t.TempDir(), "turnpike.yaml"), cfg.TLS.ACME
	text, err := yaml.Marshal(map[string]any{"data": cfg.Data, "database_url": string(cfg.DatabaseURL), "master_key": string(cfg.MasterKey),
		"tls": map[string]any{"acme": map[string]any{"domains": a.Domains, "accept_terms": true, "directory": a.Directory, "ca_file": a.CAFile}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	cli.Main([]string{"doctor", "--json", "--config", file}, nil, &out, &errOut) // other checks may fail
	var report struct {
		Checks []struct{ Name, Status, Message string }
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Errorf("%v\n%s%s", err, &out, &errOut)
	}
	for _, c := range report.Checks {
		if c.Name == "tls" && c.Status == status && c.Message == message {
			return
		}
	}
	t.Errorf("got %+v from doctor, want the check tls with status %q and message %q", report.Checks, status, message)
}
