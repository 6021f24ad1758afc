package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/acme"

	"turnpike/internal/certificates"
	"turnpike/internal/config"
)

// servedTLS holds the certificates of the listener.
type servedTLS struct {
	file  atomic.Pointer[certificate] // nil without tls.cert
	cache *certificates.Cache         // nil without ACME
}

// load loads the certificate of the configured files. Those of ACME are loaded from
// the database later.
func (t *servedTLS) load(cfg config.TLS) error {
	switch cfg.Mode() {
	case config.TLSFiles:
		renewed, err := loadCertificate(cfg.Cert, cfg.Key)
		if err != nil {
			return err
		}
		t.file.Store(renewed)
	case config.TLSACME:
		if t.cache == nil {
			t.cache = certificates.NewCache()
		}
	case config.TLSOff:
	}
	return nil
}

// Describe lists the metrics for Prometheus.
func (t *servedTLS) Describe(to chan<- *prometheus.Desc) { to <- certificates.ExpiryDesc }

// Collect reads the metrics for Prometheus.
func (t *servedTLS) Collect(to chan<- prometheus.Metric) {
	file := t.file.Load()
	if file == nil {
		return
	}
	leaf := file.get().Leaf
	domain := leaf.Subject.CommonName
	if len(leaf.DNSNames) > 0 {
		domain = leaf.DNSNames[0]
	}
	to <- prometheus.MustNewConstMetric(certificates.ExpiryDesc, prometheus.GaugeValue, float64(leaf.NotAfter.Unix()), domain)
}

func (a *App) tlsConfig() *tls.Config {
	protocols := []string{"h2", "http/1.1"}
	if a.tls.cache != nil {
		protocols = append(protocols, acme.ALPNProto)
	}
	return &tls.Config{GetCertificate: a.getCertificate, MinVersion: tls.VersionTLS12, NextProtos: protocols}
}

func (a *App) getCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if a.tls.cache == nil {
		return a.tls.file.Load().get(), nil
	}
	if !certificates.IsChallenge(hello) {
		return a.tls.cache.Get(hello.ServerName)
	}
	i := a.instance.Load()
	if i == nil {
		return nil, errEvicted
	}
	return i.certificates.ChallengeCertificate(hello.Context(), hello.ServerName)
}

func (i *instance) buildCertificates(ctx context.Context) error {
	c := i.cfg.TLS.ACME
	if i.cfg.TLS.Mode() != config.TLSACME {
		return nil
	}
	o := certificates.Options{DB: i.store.DB, Ring: i.store.Ring, Node: i.node.ID, Cache: i.tls.cache, Directory: c.Directory, Email: c.Email,
		HTTP: c.HTTPListen != config.ListenOff, Version: i.version, Now: i.now}
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return fmt.Errorf("read tls.acme.ca_file: %w", err)
		}
		o.Roots = x509.NewCertPool()
		if !o.Roots.AppendCertsFromPEM(text) {
			return fmt.Errorf("tls.acme.ca_file: %s has no certificate in PEM", c.CAFile)
		}
	}
	if c.EABKeyID != "" {
		key, err := c.BindingKey()
		if err != nil {
			return errors.New("tls.acme.eab_key is not in base64url")
		}
		o.Binding = &acme.ExternalAccountBinding{KID: c.EABKeyID, Key: key}
	}
	i.certificates = certificates.New(o, c.Domains)
	if err := i.certificates.Load(ctx); err != nil {
		slog.Error("failed to load TLS certificates; retrying", "error", err)
	}
	return nil
}

func (i *instance) runCertificates(ctx context.Context) {
	if i.certificates != nil {
		i.certificates.Run(ctx)
	}
}

// plainServer responds to HTTP-01 challenges and redirects other requests to HTTPS.
// A nil one does nothing.
type plainServer struct {
	*http.Server
	ln net.Listener
}

func (a *App) listenPlain() error {
	address := a.cfg.TLS.ACME.HTTPListen
	if a.cfg.TLS.Mode() != config.TLSACME || address == config.ListenOff {
		return nil
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for HTTP-01 challenges: %w", err)
	}
	a.plain = &plainServer{ln: a.connections.Listener(ln)}
	return nil
}

func (p *plainServer) serve(handle http.HandlerFunc) {
	if p == nil {
		return
	}
	p.Server = &http.Server{Handler: handle, ReadTimeout: headerTimeout, WriteTimeout: headerTimeout, IdleTimeout: headerTimeout, MaxHeaderBytes: 16 << 10, ErrorLog: newServerLog(slog.Default())}
	go func() {
		if err := p.Serve(p.ln); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("failed to serve HTTP-01 challenges and redirects; they are off", "error", err)
		}
	}()
}

func (p *plainServer) close() {
	if p == nil {
		return
	}
	if p.Server != nil {
		_ = p.Close()
	}
	_ = p.ln.Close()
}

// ChallengeAddress returns the address of the listener for HTTP-01 challenges, or
// an empty string if there is none.
func (a *App) ChallengeAddress() string {
	if a.plain == nil {
		return ""
	}
	return a.plain.ln.Addr().String()
}

func (a *App) servePlain(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, certificates.ChallengePath) {
		w.Header().Set("Connection", "close")
		http.Redirect(w, r, a.secureURL(r), http.StatusPermanentRedirect)
		return
	}
	if i := a.instance.Load(); i != nil {
		i.certificates.ServeChallenge(w, r)
		return
	}
	a.serveEvicted(w, r)
}

// secureURL returns the HTTPS address of a request. The name that a client has sent
// is used only if it is one of the server's.
func (a *App) secureURL(r *http.Request) string {
	target := url.URL{Scheme: "https", Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	public, err := url.Parse(a.URL())
	if err != nil {
		public = &url.URL{}
	}
	target.Host = public.Host
	host := strings.ToLower(r.Host)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if a.tls.cache.Has(host) {
		target.Host = host
		if port := public.Port(); port != "" {
			target.Host = net.JoinHostPort(host, port)
		}
	}
	return target.String()
}
