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

// maxSaid bounds what is shown of a service's words.
const maxSaid = 300

// examineServices tries what the server shows and asks beside its database: the
// certificate, the mail server, the sign-in provider.
func examineServices(ctx context.Context, l config.Loaded) (out []finding) {
	for _, service := range []struct {
		check string
		asked bool
		try   func(ctx context.Context) (good string, err error)
	}{
		{"tls", l.TLS.Cert != "", func(context.Context) (string, error) { return tryCertificate(l.TLS.Cert, l.TLS.Key, time.Now()) }},
		{"mail", l.SMTP.URL != "", func(ctx context.Context) (string, error) { return "the mail server lets us in", tryMail(ctx, l.Config) }},
		{"sign-in", l.OIDC.Issuer != "", func(ctx context.Context) (string, error) {
			return "the provider can be reached", trySignIn(ctx, l.OIDC.Issuer)
		}},
	} {
		if !service.asked {
			continue
		}
		out = append(out, examineService(ctx, service.check, service.try))
	}
	return out
}

func examineService(ctx context.Context, check string, try func(context.Context) (string, error)) finding {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	good, err := try(ctx)
	switch {
	case err == nil:
		return finding{check, true, good}
	case ctx.Err() != nil:
		return finding{check, false, fmt.Sprintf("there was no answer within %s", probeTimeout)}
	}
	said := message(err)
	if len(said) > maxSaid { // some errors have a whole page in them
		said = strings.ToValidUTF8(said[:maxSaid], "") + "…"
	}
	return finding{check, false, said}
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
	_, err := oidc.NewProvider(oidc.ClientContext(ctx, &http.Client{Timeout: probeTimeout, Transport: safehttp.WithoutUpgrades(nil)}), issuer)
	if err != nil {
		return fmt.Errorf("ask the sign-in provider: %w", err)
	}
	return nil
}
