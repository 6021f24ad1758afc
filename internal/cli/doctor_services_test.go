package cli

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/certificates"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/test/fakes/smtp"
)

func TestDoctorChecksTheCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	pair := server.TLS.Certificates[0]
	secret, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ends := server.Certificate().NotAfter
	if good, err := checkCertificate(cert, key, ends.Add(-time.Hour)); err != nil || !strings.Contains(good, ends.UTC().Format(time.DateOnly)) {
		t.Errorf("got %q, %v, want the expiry date", good, err)
	}
	if _, err := checkCertificate(cert, key, ends.Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "renew it") {
		t.Errorf("expired certificate: got error %v", err)
	}
	if _, err := checkCertificate(cert, cert, time.Now()); err == nil {
		t.Error("an invalid key was accepted")
	}
}

func TestDoctorShowsCertificatesOfDomains(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)
	valid, failed := now.Add(30*24*time.Hour), now.Add(-time.Hour)
	for name, c := range map[string]struct {
		status certificates.Status
		ok     bool
		want   []string
	}{
		"valid":   {certificates.Status{ExpiresAt: valid}, true, []string{"is valid until 2026-12-17"}},
		"none":    {certificates.Status{}, true, []string{"no certificate of a.example.com yet; the running server gets one"}},
		"expired": {certificates.Status{ExpiresAt: failed}, true, []string{"expired on 2026-11-17; the running server gets one"}},
		"renewal failed": {certificates.Status{ExpiresAt: valid, FailedAt: failed, Error: "http-01: no; route", RetryAt: now}, true,
			[]string{"is valid until 2026-12-17", "http-01: no, route; check that a.example.com leads to this server", "port 443 or 80", "next order is at 2026-11-17T12:00:00Z"}},
		"first order failed": {certificates.Status{FailedAt: failed, Error: "refused", RetryAt: now}, false, []string{"there is no certificate of a.example.com yet", "refused"}},
	} {
		c.status.Domain = "a.example.com"
		got := checkDomain(c.status, true, now)
		if got.OK != c.ok {
			t.Errorf("%s: got %+v, want ok %t", name, got, c.ok)
		}
		for _, want := range c.want {
			if !strings.Contains(got.Message, want) {
				t.Errorf("%s: got %q, want %q in it", name, got.Message, want)
			}
		}
	}
}

func TestDoctorChecksMailAndSignIn(t *testing.T) {
	t.Parallel()
	mails := smtp.Start(t, smtp.WithLogin("u", "right", "PLAIN"))
	var provider *httptest.Server
	provider = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%[1]q,"token_endpoint":%[1]q,"jwks_uri":%[1]q}`, provider.URL)
	}))
	defer provider.Close()
	l := loadProviders(t, "data: "+t.TempDir())
	if got := checkServices(t.Context(), l); got != nil {
		t.Errorf("without services: got %v, want nothing", got)
	}
	l.SMTP.URL, l.Mail.From, l.OIDC.Issuer = config.SecretURL(mails.URL()), "a@example.com", provider.URL
	if got := checkServices(t.Context(), l); len(got) != 2 || len(failures(got)) > 0 {
		t.Errorf("got %v, want two successes", got)
	}
	l.SMTP.URL, l.OIDC.Issuer = config.SecretURL(strings.Replace(mails.URL(), "right", "not-right", 1)), provider.URL+"/"+strings.Repeat("other", 200)
	if bad := failures(checkServices(t.Context(), l)); len(bad) != 2 || strings.Contains(fmt.Sprint(bad), "not-right") || len(bad[1]) > 2*maxServiceError {
		t.Errorf("got failures %q", bad)
	}
	// A service that hangs does not affect the next.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	l.SMTP.URL, l.OIDC.Issuer = config.SecretURL("smtp://"+silent.Addr().String()), provider.URL
	if bad := failures(checkServices(t.Context(), l)); len(bad) != 1 || !strings.Contains(bad[0], "mail: no response within") {
		t.Errorf("got failures %q", bad)
	}
}

// A server of the older version may still run.
func TestCommandsDoNotMigrateAnOlderSchema(t *testing.T) {
	t.Parallel()
	l := dataDirectory(t)
	d, err := app.OpenDatabase(t.Context(), l.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "DELETE FROM schema_migrations WHERE version = $1", len(db.Migrations()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"keys list", "users list", "workspaces list"} {
		var out, errOut strings.Builder
		code := Main(append(strings.Fields(command), "--data", l.Data), strings.NewReader(""), &out, &errOut)
		if code == 0 || !strings.Contains(errOut.String(), "run: turnpike migrate") {
			t.Errorf("%s: exit %d, %s%s", command, code, &out, &errOut)
		}
	}
	if have, want, err := d.SchemaVersion(t.Context()); have != want-1 || err != nil {
		t.Errorf("schema version: got %d (%v), want %d", have, err, want-1)
	}
}
