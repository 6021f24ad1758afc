package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"turnpike/internal/config"
	"turnpike/internal/mail"
)

// examineServices tries what the server shows and asks beside its database: the
// certificate, the mail server, the sign-in provider.
func examineServices(ctx context.Context, l config.Loaded) (out []finding) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for _, service := range []struct {
		check string
		asked bool
		try   func() (good string, err error)
	}{
		{"tls", l.TLS.Cert != "", func() (string, error) { return tryCertificate(l.TLS.Cert, l.TLS.Key, time.Now()) }},
		{"mail", l.SMTP.URL != "", func() (string, error) { return "the mail server lets us in", tryMail(ctx, l.Config) }},
		{"sign-in", l.OIDC.Issuer != "", func() (string, error) { return "the provider can be reached", trySignIn(ctx, l.OIDC.Issuer) }},
	} {
		if !service.asked {
			continue
		}
		good, err := service.try()
		if err != nil {
			good = message(err)
		}
		out = append(out, finding{service.check, err == nil, good})
	}
	return out
}

func tryCertificate(cert, key string, now time.Time) (string, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return "", fmt.Errorf("load TLS certificate: %w", err)
	}
	ends := pair.Leaf.NotAfter.UTC().Format(time.DateOnly)
	if now.After(pair.Leaf.NotAfter) {
		return "", fmt.Errorf("the certificate in %s has ended on %s; renew it", cert, ends)
	}
	return "the certificate is good until " + ends, nil
}

func tryMail(ctx context.Context, c config.Config) error {
	server, err := mail.NewSMTP(string(c.SMTP.URL), c.Mail.From)
	if err != nil {
		return err
	}
	return server.Check(ctx)
}

func trySignIn(ctx context.Context, issuer string) error {
	_, err := oidc.NewProvider(oidc.ClientContext(ctx, &http.Client{Timeout: probeTimeout}), issuer)
	if err != nil {
		return fmt.Errorf("ask the sign-in provider: %w", err)
	}
	return nil
}
