package api

import (
	"context"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/leaks"
)

const (
	maxLeakReport = 64 << 10
	// reportTakes is how long a report by anybody takes at least, longer than
	// a revocation does, so that the time says no more than the answer.
	reportTakes = 150 * time.Millisecond
)

// leakRoutes are the ways in for reports of leaked keys. None needs a key.
func (s *Server) leakRoutes(public func(pattern string, fn func(c *Call))) {
	for pattern, fn := range map[string]handler{
		"POST /leaks/report": reportLeak,
		"POST /leaks/github": reportFromGitHub,
		"POST /leaks/gitlab": fromGitLab(reportFromGitLab),
		"GET /leaks/gitlab":  fromGitLab(listGitLabTypes),
	} {
		public(pattern, func(c *Call) {
			if err := fn(c); err != nil {
				c.fail(err)
			}
		})
	}
}

func (c *Call) leakReport() leaks.Report { return leaks.Report{IP: c.ip.String(), RequestID: c.id} }

// admitVisitor slows down addresses that do much without a key.
func (c *Call) admitVisitor() error {
	wait := c.s.Leaks.Admit(c.ip)
	if wait == 0 {
		return nil
	}
	e := fault.New(fault.RateLimitExceeded, "too many reports from this address; try again in %d s", int(wait.Seconds())+1)
	e.RetryAfter = wait
	return e
}

// reportLeak takes keys from anybody. The answer is the same for those that
// are ours and those that are not.
func reportLeak(c *Call) error {
	begun := time.Now()
	if err := c.admitVisitor(); err != nil {
		return err
	}
	secrets, report, err := c.readLeaks()
	if err != nil {
		return err
	}
	if err := c.s.Leaks.FromAnybody(c.Context(), secrets, report); err != nil {
		return err
	}
	select {
	case <-time.After(reportTakes - time.Since(begun)):
	case <-c.Context().Done():
	}
	c.send(http.StatusAccepted, jsonType, []byte(`{"object":"leak_report","status":"accepted"}`))
	return nil
}

// readLeaks reads a report: JSON with the keys, or any text that has them in it.
func (c *Call) readLeaks() (secrets []string, report leaks.Report, err error) {
	report = c.leakReport()
	report.Source = leaks.Public
	if kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type")); kind == "text/plain" {
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
		return nil, report, fault.Missing("keys", `keys is required: {"keys":["tp_live_…"]}`)
	}
	switch in.Source {
	case "", string(leaks.Public):
	case string(leaks.Scan):
		report.Source = leaks.Scan
	default:
		return nil, report, fault.Invalid("source", "source must be report or scan")
	}
	report.URL = in.URL
	return in.Keys, report, nil
}

// reportFromGitHub takes what GitHub's secret scanning has found.
func reportFromGitHub(c *Call) error {
	// Anyone can send these headers, so the request counts until the signature
	// is verified.
	if err := c.admitVisitor(); err != nil {
		c.w.Header().Set("Connection", "close") // without waiting for the body
		return err
	}
	keyID, signature := c.r.Header.Get("Github-Public-Key-Identifier"), c.r.Header.Get("Github-Public-Key-Signature")
	if keyID == "" || signature == "" {
		c.w.Header().Set("Connection", "close")
		return leaks.ErrUnsigned
	}
	body, err := c.readBody(c.s.Limits.Body)
	if err != nil {
		return err
	}
	verdicts, err := c.s.Leaks.FromGitHub(c.Context(), body, keyID, signature, c.leakReport())
	if err != nil {
		c.causeLogged = errors.Is(err, leaks.ErrNoGitHubKeys)
		return err
	}
	return c.sendJSON(verdicts)
}

// fromGitLab lets in who has the token that the operator gave to GitLab.
func fromGitLab(fn handler) handler {
	return func(c *Call) error {
		if !c.s.Leaks.TakesGitLab() {
			return c.noRoute()
		}
		if !c.s.Leaks.IsGitLab(c.r.Header.Get("Authorization")) {
			if err := c.admitVisitor(); err != nil {
				return err
			}
			return fault.New(fault.Authentication, "the Authorization header is not the token of leaks.gitlab_token")
		}
		return fn(c)
	}
}

func listGitLabTypes(c *Call) error {
	return c.sendJSON(struct {
		Types []string `json:"types"`
	}{leaks.GitLabTypes})
}

// reportFromGitLab takes what GitLab's secret detection has found.
func reportFromGitLab(c *Call) error {
	body, err := c.readJSON(c.s.Limits.Body)
	if err != nil {
		return err
	}
	if err := c.s.Leaks.FromGitLab(c.Context(), body, c.leakReport()); err != nil {
		return err
	}
	c.settle(http.StatusNoContent, "")
	c.wrote = true
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// endKeysInURL revokes keys that stand in the request's URL, where every proxy
// and every log on the way has kept them, and reports whether there were any
// that look like it.
func (s *Server) endKeysInURL(c *Call) (found bool, err error) {
	if s.Leaks == nil {
		return false, nil
	}
	secrets := keysInURL(c.r.URL)
	if len(secrets) == 0 {
		return false, nil
	}
	if err := c.admitVisitor(); err != nil {
		return true, err
	}
	report := c.leakReport()
	for _, secret := range secrets[:min(len(secrets), leaks.MaxKeys)] {
		report.Secret, report.Source = secret, leaks.Traffic
		if _, err := s.Leaks.Revoke(c.Context(), report); err != nil {
			return true, err
		}
	}
	return true, nil
}

// lookForKeys looks for keys in the request's body, in prompts and metadata, if
// its workspace wants that: once a stream has begun, and otherwise when all is
// done, because whoever has the answer may count on what it says.
func (c *Call) lookForKeys() {
	body := c.body
	c.body = nil
	if len(body) == 0 || c.Principal == nil || c.s.Leaks == nil {
		return
	}
	ctx := context.WithoutCancel(c.Context()) // whoever hangs up has sent it nevertheless
	policy, err := c.s.Projects.LeakPolicy(ctx, c.Principal.WorkspaceID)
	if err != nil {
		slog.Warn("a body was not looked through for keys", "request_id", c.id, "error", err)
		return
	}
	if policy == accounts.LeaksIgnored {
		return
	}
	_ = http.NewResponseController(c.w).Flush() // the caller need not wait for this
	if secrets := leaks.Find(body); len(secrets) > 0 {
		c.s.Leaks.See(ctx, leaks.Sighting{Secrets: secrets, Revoke: policy == accounts.LeaksRevoked, IP: c.ip.String(), RequestID: c.id})
	}
}

// keyInURL is the answer to such a request: that of a missing key, unless it
// had another where keys belong.
func keyInURL(entered error) error {
	const message = "a key in a URL is seen by every log on its way: it counts as leaked, and was revoked if it was one of this server's; send keys as: Authorization: Bearer tp_live_…"
	if entered == nil {
		return fault.New(fault.InvalidParameter, message)
	}
	if fault.Is(entered, fault.Authentication) {
		return fault.New(fault.Authentication, message)
	}
	return entered
}

func keysInURL(u *url.URL) []string {
	query := u.RawQuery
	if strings.Contains(query, "%") {
		if plain, err := url.PathUnescape(query); err == nil {
			query = plain
		}
	}
	var found []string
	for _, text := range []string{u.Path, query} {
		if strings.Contains(text, "tp_") {
			found = append(found, leaks.Find([]byte(text))...)
		}
	}
	return found
}
