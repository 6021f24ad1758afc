package api

import (
	"context"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
)

const (
	maxLeakReport = 64 << 10
	// minReportTime is how long the response to an anonymous report takes at
	// least. It is longer than a revocation, so the time reveals nothing.
	minReportTime = 150 * time.Millisecond
)

func (c *Call) leakReport() leaks.Report { return leaks.Report{IP: c.IP.String(), RequestID: c.ID} }

// limitReports limits how many reports an address sends without a key.
func (c *Call) limitReports() error {
	return retryAfter(c.s.Leaks.Admit(c.IP), "Too many reports from this address.")
}

// reportLeak accepts keys from anyone. The response is the same for valid and
// unknown keys.
func reportLeak(c *Call) error {
	start := time.Now()
	if err := c.limitReports(); err != nil {
		return err
	}
	secrets, report, err := c.readLeaks()
	if err != nil {
		return err
	}
	if err := c.s.Leaks.FromPublic(c.Context(), secrets, report); err != nil {
		return err
	}
	select {
	case <-time.After(minReportTime - time.Since(start)):
	case <-c.Context().Done():
	}
	c.send(http.StatusAccepted, jsonType, []byte(`{"object":"leak_report","status":"accepted"}`))
	return nil
}

// readLeaks reads a report: JSON with the keys, or plain text that contains them.
func (c *Call) readLeaks() (secrets []string, report leaks.Report, err error) {
	report = c.leakReport()
	report.Source = leaks.Public
	if kind, _, _ := mime.ParseMediaType(c.R.Header.Get("Content-Type")); kind == "text/plain" {
		body, err := c.readBody(maxLeakReport)
		return leaks.Find(body), report, err
	}
	body, err := c.readJSON(maxLeakReport)
	if err != nil {
		return nil, report, err
	}
	var in struct {
		Keys   []string `json:"keys"`
		URL    string   `json:"url"`
		Source string   `json:"source"`
	}
	if err := jsonbody.DecodeStrict(body, &in); err != nil {
		return nil, report, err
	}
	if len(in.Keys) == 0 {
		return nil, report, fault.Missing("keys", `keys is required. Send {"keys":["tp_live_…"]}.`)
	}
	switch in.Source {
	case "", string(leaks.Public):
	case string(leaks.Scan):
		report.Source = leaks.Scan
	default:
		return nil, report, fault.Invalid("source", "source must be report or scan.")
	}
	report.URL = in.URL
	return in.Keys, report, nil
}

func reportFromGitHub(c *Call) error {
	// Anyone can send these headers, so the request counts until the signature
	// is verified.
	if err := c.limitReports(); err != nil {
		c.W.Header().Set("Connection", "close") // don't wait for the body
		return err
	}
	keyID, signature := c.R.Header.Get("Github-Public-Key-Identifier"), c.R.Header.Get("Github-Public-Key-Signature")
	if keyID == "" || signature == "" {
		c.W.Header().Set("Connection", "close")
		return leaks.ErrUnsigned
	}
	body, err := c.readBody(c.Limits.Body)
	if err != nil {
		return err
	}
	verdicts, err := c.s.Leaks.FromGitHub(c.Context(), body, keyID, signature, c.leakReport())
	if err != nil {
		c.CauseLogged = errors.Is(err, leaks.ErrNoGitHubKeys)
		return err
	}
	return c.sendJSON(verdicts)
}

// fromGitLab requires the token that the operator has given to GitLab.
func fromGitLab(fn handler) handler {
	return func(c *Call) error {
		if !c.s.Leaks.AcceptsGitLab() {
			return c.notFound()
		}
		if !c.s.Leaks.IsGitLab(c.R.Header.Get("Authorization")) {
			if err := c.limitReports(); err != nil {
				return err
			}
			return fault.New(fault.Authentication, "The Authorization header does not match leaks.gitlab_token.")
		}
		return fn(c)
	}
}

func listGitLabTypes(c *Call) error {
	return c.sendJSON(struct {
		Types []string `json:"types"`
	}{leaks.GitLabTypes})
}

func reportFromGitLab(c *Call) error {
	body, err := c.readJSON(c.Limits.Body)
	if err != nil {
		return err
	}
	if err := c.s.Leaks.FromGitLab(c.Context(), body, c.leakReport()); err != nil {
		return err
	}
	c.settle(http.StatusNoContent, nil)
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// revokeKeysInURL revokes keys in the request's URL, because proxies on the way
// have logged it. It reports whether anything in the URL looked like a key.
func (c *Call) revokeKeysInURL() (found bool, err error) {
	secrets := keysInURL(c.R.URL)
	if len(secrets) == 0 {
		return false, nil
	}
	if err := c.limitReports(); err != nil {
		return true, err
	}
	report := c.leakReport()
	for _, secret := range secrets[:min(len(secrets), leaks.MaxKeys)] {
		report.Secret, report.Source = secret, leaks.Traffic
		if _, err := c.s.Leaks.Revoke(c.Context(), report); err != nil {
			return true, err
		}
	}
	return true, nil
}

// scanBodyForKeys looks for leaked keys in prompts and metadata, if the workspace
// has enabled it. It runs after the response, or once a stream has started, so
// that a revocation doesn't contradict the response.
func (c *Call) scanBodyForKeys() {
	body := c.body
	c.body = nil
	if len(body) == 0 || c.Principal == nil {
		return
	}
	ctx := context.WithoutCancel(c.Context()) // even if the client has disconnected
	policy, err := c.s.Projects.LeakPolicy(ctx, c.Principal.WorkspaceID)
	if err != nil {
		slog.Warn("failed to read the leak policy; a request body was not scanned for keys", "request_id", c.ID, "error", err)
		return
	}
	if policy == accounts.LeaksIgnored {
		return
	}
	_ = http.NewResponseController(c.W).Flush() // the client need not wait for the scan
	if secrets := leaks.Find(body); len(secrets) > 0 {
		report := c.leakReport()
		report.NotifyOnly = policy != accounts.LeaksRevoked
		c.s.Leaks.Sight(ctx, leaks.Sighting{Secrets: secrets, Report: report})
	}
}

// keyInURLFault returns the error for a request with a key in its URL. authorized
// is the result of authorizing it by its Authorization header.
func keyInURLFault(authorized error) error {
	const message = "Keys in URLs end up in logs, so this key counts as leaked. If it was valid, it is now revoked. Send keys in a header: Authorization: Bearer tp_live_…"
	if authorized == nil {
		return fault.New(fault.InvalidParameter, message)
	}
	if fault.Is(authorized, fault.Authentication) {
		return fault.New(fault.Authentication, message)
	}
	return authorized
}

func keysInURL(u *url.URL) []string {
	query, err := url.PathUnescape(u.RawQuery)
	if err != nil {
		query = u.RawQuery
	}
	text := u.Path + "?" + query
	if !keyring.ContainsSecret(text) {
		return nil
	}
	return leaks.Find([]byte(text))
}
