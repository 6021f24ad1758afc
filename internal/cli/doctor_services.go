package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"turnpike/internal/app"
	"turnpike/internal/certificates"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/mail"
	"turnpike/internal/safehttp"
)

const maxServiceError = 300

// checkServices checks the certificate, the mail server and the sign-in provider.
func checkServices(ctx context.Context, l config.Loaded) (out []finding) {
	if l.TLS.Cert != "" {
		out = append(out, checkService(ctx, "tls", func(context.Context) (string, error) { return checkCertificate(l.TLS.Cert, l.TLS.Key, time.Now()) }))
	}
	if l.SMTP.URL != "" {
		out = append(out, checkService(ctx, "mail", func(ctx context.Context) (string, error) {
			server, err := mail.NewSMTP(string(l.SMTP.URL), l.Mail.From)
			if err != nil {
				return "", err
			}
			return "the mail server accepts the login", server.Check(ctx)
		}))
	}
	if l.OIDC.Issuer != "" {
		out = append(out, checkService(ctx, "sign-in", func(ctx context.Context) (string, error) {
			ctx = oidc.ClientContext(ctx, &http.Client{Timeout: probeTimeout, Transport: safehttp.WithoutUpgrades(nil)})
			if _, err := oidc.NewProvider(ctx, l.OIDC.Issuer); err != nil {
				return "", fmt.Errorf("query the sign-in provider: %w", err)
			}
			return "the sign-in provider responds", nil
		}))
	}
	return out
}

func checkService(ctx context.Context, check string, try func(context.Context) (string, error)) finding {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	success, err := try(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no response within %s", probeTimeout)
	}
	f := newFinding(check, err, success)
	if len(f.Message) > maxServiceError { // some contain a whole page
		f.Message = strings.ToValidUTF8(f.Message[:maxServiceError], "") + "…"
	}
	return f
}

// checkLogSinks checks the systems that get the request log.
func checkLogSinks(ctx context.Context, l config.Loaded, d *db.DB) (out []finding) {
	list, err := app.LogSinks(ctx, d, l.Audit, nil, "")
	if err != nil {
		return []finding{newFinding("log sinks", err, "")}
	}
	for _, s := range list {
		out = append(out, checkService(ctx, "log "+s.Name, s.Check))
	}
	return out
}

// checkDomains checks the certificates that the server gets automatically.
func checkDomains(ctx context.Context, l config.Loaded, d *db.DB) (out []finding) {
	c := l.TLS.ACME
	if len(c.Domains) == 0 {
		return nil
	}
	list, err := certificates.List(ctx, d, c.Directory, c.Domains)
	if err != nil {
		return []finding{newFinding("tls", err, "")}
	}
	for _, s := range list {
		out = append(out, checkDomain(s, c.HTTPListen != config.ListenOff, d.Now()))
	}
	return out
}

func checkDomain(s certificates.Status, withHTTP bool, now time.Time) finding {
	const day = time.DateOnly
	valid := !s.ExpiresAt.IsZero() && now.Before(s.ExpiresAt)
	state := "the certificate of " + s.Domain + " is valid until " + s.ExpiresAt.UTC().Format(day)
	switch {
	case s.ExpiresAt.IsZero():
		state = "there is no certificate of " + s.Domain + " yet"
	case !valid:
		state = "the certificate of " + s.Domain + " expired on " + s.ExpiresAt.UTC().Format(day)
	}
	if s.FailedAt.IsZero() {
		if !valid {
			state += "; the running server gets one"
		}
		return finding{"tls", true, state}
	}
	ports := "port 443"
	if withHTTP {
		ports += " or 80"
	}
	return finding{"tls", valid, fmt.Sprintf("%s, and the last order failed at %s: %s; check that %s leads to this server and that the certificate authority reaches %s there, then run turnpike reload. Otherwise the next order is at %s",
		state, s.FailedAt.UTC().Format(time.RFC3339), strings.ReplaceAll(s.Error, "; ", ", "), s.Domain, ports, s.RetryAt.UTC().Format(time.RFC3339))}
}

func checkCertificate(cert, key string, now time.Time) (string, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return "", fmt.Errorf("load TLS certificate: %w", err)
	}
	expiry := pair.Leaf.NotAfter.UTC().Format(time.DateOnly)
	if now.After(pair.Leaf.NotAfter) {
		return "", fmt.Errorf("the certificate in %s expired on %s; renew it", cert, expiry)
	}
	return "the certificate is valid until " + expiry, nil
}
