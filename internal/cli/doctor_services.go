package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"turnpike/internal/config"
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
