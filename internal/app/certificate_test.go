package app

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"turnpike/internal/config"
)

func TestRenewedCertificateIsShown(t *testing.T) {
	t.Parallel()
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	write := func(path string, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	firstCert, firstKey := newCertificate(t, "first")
	secondCert, secondKey := newCertificate(t, "second")
	secondCert, secondKey = append(secondCert, '\n'), append(secondKey, '\n') // file times are coarse, sizes are exact
	write(cert, firstCert)
	write(key, firstKey)
	c, err := loadCertificate(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil }
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	expect := func(when, name string) {
		t.Helper()
		if got := shownAt(t, l.Addr()); got != name {
			t.Errorf("%s %q is shown, not %q", when, got, name)
		}
	}
	later := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.checked = c.checked.Add(-certificateInterval)
	}
	expect("at the start", "first")
	write(cert, secondCert)
	later()
	expect("with a certificate without its key", "first")
	write(key, secondKey)
	expect("before its files were looked at again", "first")
	later()
	expect("renewed", "second")
	write(cert, []byte("nothing"))
	later()
	expect("with a broken one", "second")
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	later()
	expect("with none at all", "second")
	write(cert, firstCert)
	write(key, firstKey)
	later()
	expect("mended", "first")

	// Files that couldn't be read may become readable later without any visible
	// change.
	broken := bytes.Repeat([]byte("x"), len(secondKey))
	for _, step := range []struct {
		key  []byte
		want string
	}{{broken, "first"}, {secondKey, "second"}} {
		write(cert, secondCert)
		write(key, step.key)
		for _, path := range []string{cert, key} {
			if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}
		later()
		expect("of the same look", step.want)
	}
}

// shownAt returns the name in the certificate that a server presents.
func TestMetricsShowTheExpiryOfTheCertificateFile(t *testing.T) {
	t.Parallel()
	served := &servedTLS{}
	if n := testutil.CollectAndCount(served); n != 0 {
		t.Errorf("without TLS: got %d metrics, want none", n)
	}
	cert, key := newCertificate(t, "turnpike.example.com")
	dir := t.TempDir()
	files := config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	if err := errors.Join(os.WriteFile(files.Cert, cert, 0o600), os.WriteFile(files.Key, key, 0o600), served.load(files)); err != nil {
		t.Fatal(err)
	}
	end := float64(served.file.Load().get().Leaf.NotAfter.Unix())
	want := fmt.Sprintf(`
		# HELP turnpike_certificate_expiry_timestamp_seconds End of the TLS certificate, in Unix seconds; 0 if there is none yet.
		# TYPE turnpike_certificate_expiry_timestamp_seconds gauge
		turnpike_certificate_expiry_timestamp_seconds{domain="turnpike.example.com"} %v
	`, end)
	if err := testutil.CollectAndCompare(served, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func shownAt(t *testing.T, at net.Addr) string {
	t.Helper()
	conn, err := tls.Dial("tcp", at.String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test checks the name itself
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func newCertificate(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}
