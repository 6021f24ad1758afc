package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/crypto/acme"

	"turnpike/internal/db"
	"turnpike/internal/safehttp"
)

// Kinds of challenges, as ACME names them.
const (
	kindALPN = "tls-alpn-01"
	kindHTTP = "http-01"
)

const (
	// orderTimeout limits an order. Let's Encrypt takes seconds, and other
	// directories minutes.
	orderTimeout = 4 * time.Minute
	// claimDuration is longer than an order and its result take.
	claimDuration = 6 * time.Minute
	// requestTimeout limits one request to the directory.
	requestTimeout = 30 * time.Second
	// stopTimeout is how long a stopping server tries to store a result.
	stopTimeout = 3 * time.Second
	// storeRetry is the pause between attempts to store a result during an outage.
	storeRetry = time.Second
	// minRenewal is the shortest time between two certificates of a domain.
	minRenewal = time.Hour
	// maxError limits the stored text of an error.
	maxError = 1000
	// maxRetryAfter limits how long a directory can postpone the next order.
	maxRetryAfter = 24 * time.Hour
)

// delays before an order is retried. An order tries both challenges, and Let's
// Encrypt allows five failures per domain and hour.
var delays = []time.Duration{2 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour}

func backoff(failures int, cause error) time.Duration {
	delay := delays[min(failures, len(delays)-1)]
	if limited, ok := errors.AsType[*acme.Error](cause); ok {
		if after, ok := acme.RateLimit(limited); ok {
			return max(delay, min(after, maxRetryAfter))
		}
	}
	return delay
}

// describe returns an error as one line.
func describe(err error) string {
	lines := strings.ReplaceAll(err.Error(), "\n", ", ")
	text := db.Storable(strings.Join(strings.Fields(lines), " "))
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	return text
}

// OrderDue orders the certificates that are due and that no other node orders. The
// failure of an order is stored and logged.
func (m *Manager) OrderDue(ctx context.Context) error {
	var failed error
	for _, domain := range *m.domains.Load() {
		if err := m.orderIfDue(ctx, domain); err != nil {
			failed = err // the other domains don't depend on it
		}
	}
	return failed
}

func (m *Manager) orderIfDue(ctx context.Context, domain string) error {
	if due, err := m.isDue(ctx, domain); err != nil || !due {
		return err
	}
	c, err := m.claim(ctx, domain)
	if err != nil || c == nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	got, err := m.get(limited, domain)
	// A stopping server stores the result too, if the database responds.
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimDuration-orderTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopTimeout, cancel) })()
	switch {
	case err == nil:
		if err := m.storeCertificate(storing, c, got); err != nil {
			return fmt.Errorf("store the certificate of %s: %w", domain, err)
		}
		slog.Info("got a TLS certificate", "domain", domain, "valid_until", got.leaf.NotAfter)
		return nil
	case ctx.Err() != nil:
		return m.release(storing, c)
	}
	retryAt, storeErr := m.storeFailure(storing, c, err)
	slog.Error("failed to get a TLS certificate; retrying", "domain", domain, "retry_at", retryAt, "error", err)
	return storeErr
}

// get gets a certificate from the directory. It tries each challenge in its own
// order, because a failed one ends its order.
func (m *Manager) get(ctx context.Context, domain string) (*issued, error) {
	client, release, err := m.client(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	kinds := []string{kindALPN}
	if m.HTTP {
		kinds = append(kinds, kindHTTP)
	}
	var failures []error
	for _, kind := range kinds {
		got, err := m.orderWith(ctx, client, domain, kind)
		if err == nil {
			return got, nil
		}
		failures = append(failures, err)
		if _, ok := errors.AsType[*challengeError](err); !ok {
			break
		}
	}
	return nil, errors.Join(failures...)
}

// challengeError means that the directory couldn't verify a challenge. Another one
// may work.
type challengeError struct {
	kind string
	err  error
}

func (e *challengeError) Error() string { return e.kind + ": " + e.err.Error() }
func (e *challengeError) Unwrap() error { return e.err }

// client returns a client with an account at the directory.
func (m *Manager) client(ctx context.Context) (_ *acme.Client, release func(), err error) {
	key, err := m.account(ctx)
	if err != nil {
		return nil, nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if m.Roots != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: m.Roots, MinVersion: tls.VersionTLS12}
	}
	client := &acme.Client{Key: key, DirectoryURL: m.Directory, UserAgent: "turnpike/" + m.Version,
		HTTPClient: &http.Client{Transport: safehttp.Bounded(transport), Timeout: requestTimeout}, RetryBackoff: retryNonce}
	account := &acme.Account{ExternalAccountBinding: m.Binding}
	if m.Email != "" {
		account.Contact = []string{"mailto:" + m.Email}
	}
	if _, err := client.Register(ctx, account, acme.AcceptTOS); err != nil && !errors.Is(err, acme.ErrAccountAlreadyExists) {
		transport.CloseIdleConnections()
		return nil, nil, fmt.Errorf("register at the ACME directory %s: %w", m.Directory, err)
	}
	return client, transport.CloseIdleConnections, nil
}

// retryNonce retries requests with an outdated nonce. All other failures end the
// order, so that they are stored and the next order waits as long as the directory asks for.
func retryNonce(n int, _ *http.Request, response *http.Response) time.Duration {
	const attempts = 5
	if response.StatusCode != http.StatusBadRequest || n > attempts {
		return -1
	}
	return time.Duration(n) * 100 * time.Millisecond
}

func (m *Manager) orderWith(ctx context.Context, client *acme.Client, domain, kind string) (*issued, error) {
	order, err := client.AuthorizeOrder(ctx, acme.DomainIDs(domain))
	if err != nil {
		return nil, fmt.Errorf("order a certificate: %w", err)
	}
	for _, address := range order.AuthzURLs {
		if err := m.authorize(ctx, client, address, kind); err != nil {
			return nil, err
		}
	}
	if order, err = client.WaitOrder(ctx, order.URI); err != nil {
		return nil, fmt.Errorf("wait for the order: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{domain}}, key)
	if err != nil {
		return nil, err
	}
	der, _, err := client.CreateCertFromOrder(ctx, order, request, true)
	if err != nil {
		return nil, fmt.Errorf("finalize the order: %w", err)
	}
	return newIssued(key, der, domain)
}

// authorize proves that this server controls the domain.
func (m *Manager) authorize(ctx context.Context, client *acme.Client, address, kind string) error {
	z, err := client.GetAuthorization(ctx, address)
	if err != nil {
		return fmt.Errorf("read the authorization: %w", err)
	}
	if z.Status == acme.StatusValid { // since an earlier order
		return nil
	}
	var chosen *acme.Challenge
	for _, c := range z.Challenges {
		if c.Type == kind {
			chosen = c
		}
	}
	if chosen == nil {
		return &challengeError{kind, errors.New("the directory doesn't offer this challenge")}
	}
	domain := z.Identifier.Value
	if err := m.storeChallenge(ctx, domain, kind, chosen.Token); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		if err := m.deleteChallenge(ctx, domain, kind); err != nil {
			slog.Warn("failed to delete an ACME challenge, which expires", "domain", domain, "error", err)
		}
	}()
	if _, err := client.Accept(ctx, chosen); err != nil {
		return fmt.Errorf("start the challenge: %w", err)
	}
	if _, err := client.WaitAuthorization(ctx, z.URI); err != nil {
		if failed, ok := errors.AsType[*acme.AuthorizationError](err); ok {
			return &challengeError{kind, errors.Join(failed.Errors...)}
		}
		return fmt.Errorf("wait for the challenge: %w", err)
	}
	return nil
}
