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
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/test/fakes/smtp"
)

func TestDoctorLooksAtTheCertificate(t *testing.T) {
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
	if good, err := tryCertificate(cert, key, ends.Add(-time.Hour)); err != nil || !strings.Contains(good, ends.UTC().Format(time.DateOnly)) {
		t.Errorf("%q, %v", good, err)
	}
	if _, err := tryCertificate(cert, key, ends.Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "renew it") {
		t.Errorf("one that has ended: %v", err)
	}
	if _, err := tryCertificate(cert, cert, time.Now()); err == nil {
		t.Error("a key that is none was taken")
	}
}

func TestDoctorTriesMailAndSignIn(t *testing.T) {
	t.Parallel()
	mails := smtp.Start(t, smtp.WithLogin("u", "right", "PLAIN"))
	var provider *httptest.Server
	provider = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%[1]q,"token_endpoint":%[1]q,"jwks_uri":%[1]q}`, provider.URL)
	}))
	defer provider.Close()
	l := loadProviders(t, "data: "+t.TempDir())
	if got := examineServices(t.Context(), l); got != nil {
		t.Errorf("nothing is set, and it found %v", got)
	}
	l.SMTP.URL, l.Mail.From, l.OIDC.Issuer = config.SecretURL(mails.URL()), "a@example.com", provider.URL
	if got := examineServices(t.Context(), l); len(got) != 2 || len(wrong(got)) > 0 {
		t.Errorf("found %v", got)
	}
	l.SMTP.URL, l.OIDC.Issuer = config.SecretURL(strings.Replace(mails.URL(), "right", "not-right", 1)), provider.URL+"/"+strings.Repeat("other", 200)
	if bad := wrong(examineServices(t.Context(), l)); len(bad) != 2 || strings.Contains(fmt.Sprint(bad), "not-right") || len(bad[1]) > 2*maxSaid {
		t.Errorf("found %q", bad)
	}
	// One that hangs is no fault of the next.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	l.SMTP.URL, l.OIDC.Issuer = config.SecretURL("smtp://"+silent.Addr().String()), provider.URL
	if bad := wrong(examineServices(t.Context(), l)); len(bad) != 1 || !strings.Contains(bad[0], "mail: there was no answer within") {
		t.Errorf("found %q", bad)
	}
}

// TestCommandsLeaveAnOlderSchemaAlone: the server of that version may still run.
func TestCommandsLeaveAnOlderSchemaAlone(t *testing.T) {
	t.Parallel()
	l := dataFolder(t)
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
		t.Errorf("the schema is at version %d (%v)", have, err)
	}
}
