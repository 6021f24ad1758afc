// Package leaks revokes leaked keys and other secrets. All reports (of GitHub, GitLab,
// the public, the server's own scans and its traffic) end in Revoke.
package leaks

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/addrlimit"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
	"turnpike/internal/mail"
	"turnpike/internal/operators"
	"turnpike/internal/people"
	"turnpike/internal/safehttp"
	"turnpike/internal/visibility"
	"turnpike/internal/webhooks"
)

// Source says who found a key.
type Source string

// The sources.
const (
	GitHub  Source = "github"
	GitLab  Source = "gitlab"
	Public  Source = "report"      // anyone, with /leaks/report
	Scan    Source = "scan"        // turnpike scan, in the same way
	Server  Source = "server_scan" // a scan that the operator configured
	Traffic Source = "traffic"     // a request with a key in its URL or, if the workspace enables it, in its body
)

// Outcome is the result of a report.
type Outcome string

// The outcomes. Unknown reports are not stored.
const (
	Unknown      Outcome = ""
	Revoked      Outcome = "revoked"
	GraceEnded   Outcome = "grace_ended"   // the previous secret of a key
	TokenRevoked Outcome = "token_revoked" // a scoped token
	Already      Outcome = "already_dead"
	Noted        Outcome = "noted" // not revoked, because the workspace only wants to be notified
	// NeedsRotation is the outcome for webhook secrets: without one, the receiver
	// would reject every delivery.
	NeedsRotation Outcome = "rotation_needed"
	// Ended is the outcome for secrets that belong to a person or to the operators.
	// It isn't stored with the reports of a workspace.
	Ended Outcome = "ended"
)

// storageTimeout is how long a report waits for the database, even if its client
// disconnects.
const storageTimeout = 10 * time.Second

// Options configure the service.
type Options struct {
	DB        *db.DB
	Keys      *access.Keys
	Tokens    *access.Tokens
	Operators operators.Credentials
	People    *people.People
	Webhooks  *webhooks.Service
	Publisher *events.Publisher
	Outbox    *mail.Outbox
	Now       func() time.Time

	GitHubKeysURL    string
	GitLabToken      string // empty rejects GitLab's reports
	ReportsPerMinute int64  // per client address, without authentication; 0 for no limit
}

// Service handles reports.
type Service struct {
	Options
	github    *githubKeys
	visitors  *addrlimit.Limiter
	sightings chan Sighting
	seen      seen
	handlers  map[keyring.Kind]handler
}

// New creates the service.
func New(o Options) *Service {
	s := &Service{Options: o, visitors: addrlimit.New(o.ReportsPerMinute, o.Now), sightings: make(chan Sighting, maxQueued),
		github: &githubKeys{url: o.GitHubKeysURL, now: o.Now, client: &http.Client{Timeout: fetchTimeout, Transport: safehttp.Bounded(nil)}}}
	s.handlers = s.handlersByKind()
	return s
}

// Admit counts a request without a key. If the client's network has sent too
// many, Admit returns how long it must wait.
func (s *Service) Admit(ip netip.Addr) (wait time.Duration) { return s.visitors.Allow(ip) }

// Report is a key that was found. The secret is not stored.
type Report struct {
	Secret     string
	Source     Source
	URL        string // where it was found, according to the reporter
	Location   string // in the repository or the log that the server scanned
	InBody     bool   // Traffic found it in a request's body, not in its URL
	NotifyOnly bool   // don't revoke it
	// The client that sent the report, for the admin log.
	IP, RequestID string
}

// Revoke ends a secret and notifies its owners once. Keys and tokens are revoked,
// unless the report is NotifyOnly, and a webhook secret waits for someone to rotate
// it. Of a secret that doesn't work anymore, the report is only stored. Revoke
// continues if the client disconnects.
func (s *Service) Revoke(ctx context.Context, r Report) (outcome Outcome, err error) {
	kind, ok := keyring.ParseSecret(r.Secret)
	if !ok {
		return Unknown, nil
	}
	h := s.handlers[kind]
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageTimeout)
	defer cancel()
	// Checked first, because invalid secrets must not wait for the database writer.
	known, err := h.knows(ctx, s.DB, r.Secret)
	if err != nil || !known {
		return Unknown, wrap(err)
	}
	err = s.DB.Write(ctx, func(tx *db.Tx) (err error) {
		outcome, err = h.end(ctx, tx, r)
		return err
	})
	return outcome, wrap(err)
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("leaked secret: %w", err)
}

// actor is who revokes, for the admin log.
func (r Report) actor() audit.Actor {
	return audit.Actor{Name: "leak scanner", IP: r.IP, RequestID: r.RequestID}
}

// endKey handles a key or a scoped token.
func (s *Service) endKey(ctx context.Context, tx *db.Tx, r Report) (Outcome, error) {
	e, err := s.Keys.FindExposed(ctx, tx, r.Secret)
	if err != nil || e == nil { // deleted in between
		return Unknown, err
	}
	outcome, err := s.revokeExposed(ctx, tx, r, e)
	if err != nil {
		return "", err
	}
	n := &Note{Hint: e.Hint, Outcome: outcome}
	if t := e.Token; t != nil {
		n.Tenant, n.KeyID, n.TokenID = t.Tenant, t.KeyID, t.ID
	} else {
		n.Tenant, n.KeyID = e.Key.Tenant, e.Key.ID
	}
	return outcome, s.storeNote(ctx, tx, r, n)
}

func (s *Service) revokeExposed(ctx context.Context, tx *db.Tx, r Report, e *access.Exposed) (Outcome, error) {
	by := access.Caller{Actor: r.actor()}
	if t := e.Token; t != nil {
		if t.RevokedAt != nil || !s.Now().Before(t.ExpiresAt) {
			return Already, nil
		}
		if r.NotifyOnly {
			return Noted, nil
		}
		_, err := s.Tokens.Revoke(ctx, tx, by, visibility.Filter{Tenant: t.Tenant}, t.ID)
		return TokenRevoked, err
	}
	switch k := e.Key; {
	case k.RevokedAt != nil, !e.Current && !e.Previous:
		return Already, nil
	case r.NotifyOnly:
		return Noted, s.warn(ctx, tx, e)
	// An expired key is revoked too: its expiry could be moved.
	case e.Current:
		descendants, err := s.Keys.RevokeWithDescendants(ctx, tx, by, k)
		if err != nil {
			return "", err
		}
		return Revoked, s.notify(ctx, tx, r, e, descendants)
	}
	if err := s.Keys.EndGrace(ctx, tx, by, e.Key); err != nil && !fault.Is(err, fault.InvalidState) {
		return "", err
	}
	return GraceEnded, s.notify(ctx, tx, r, e, nil)
}

// notify publishes the event and emails the workspace's owners and admins.
func (s *Service) notify(ctx context.Context, tx *db.Tx, r Report, e *access.Exposed, descendants []*access.Key) error {
	k, now := e.Key, s.Now()
	data := events.KeyRevoked{KeyID: k.ID, KeyHint: e.Hint, Source: string(r.Source), DetectedAt: now.Unix(), Descendants: []events.RevokedKey{},
		DescendantsTruncated: len(descendants) > events.MaxDescendants}
	var lines []string
	for _, d := range descendants[:min(len(descendants), events.MaxDescendants)] {
		data.Descendants = append(data.Descendants, events.RevokedKey{KeyID: d.ID, KeyHint: d.Hint(), Name: d.Name})
		lines = append(lines, fmt.Sprintf("%s (%s, %s)", d.Hint(), d.Name, d.ID))
	}
	url, location := cleanURL(r.URL), r.cleanLocation()
	data.URL, data.Location = optional(url), optional(location)
	from := events.Origin{Tenant: k.Tenant, Project: k.Project}
	if _, err := s.Publisher.Publish(ctx, tx, from, data); err != nil {
		return err
	}
	return s.Outbox.EnqueueAdmins(ctx, tx, k.WorkspaceID, "leaked "+k.ID+" "+e.Hint, func(workspace string) mail.Data {
		return mail.KeyRevoked{Workspace: workspace, Environment: string(k.Environment), KeyID: k.ID, KeyName: k.Name, KeyHint: e.Hint,
			Found: r.found(), URL: url, Location: location, Previous: e.Previous, DetectedAt: now, Descendants: lines, DescendantsTruncated: data.DescendantsTruncated}
	})
}

// warn emails the workspace's owners and admins once per secret.
func (s *Service) warn(ctx context.Context, tx *db.Tx, e *access.Exposed) error {
	k := e.Key
	return s.Outbox.EnqueueAdmins(ctx, tx, k.WorkspaceID, "seen "+k.ID+" "+e.Hint, func(workspace string) mail.Data {
		return mail.KeySeen{Workspace: workspace, Environment: string(k.Environment), KeyID: k.ID, KeyName: k.Name, KeyHint: e.Hint, DetectedAt: s.Now()}
	})
}

func (r Report) found() string {
	if r.InBody {
		return "in a prompt or in metadata that was sent to the API"
	}
	return foundBy[r.Source]
}

// foundBy is the email's wording for who found the key.
var foundBy = map[Source]string{
	GitHub:  "by GitHub's secret scanning",
	GitLab:  "by GitLab's secret detection",
	Public:  "by someone who reported it",
	Scan:    "by turnpike scan",
	Server:  "by a scan that this server's operator configured",
	Traffic: "in the URL of a request to the API, where logs and proxies keep it",
}

// MaxKeys is how many keys a report can have.
const MaxKeys = 100

// FromPublic handles a public report. It does not return the outcomes.
func (s *Service) FromPublic(ctx context.Context, secrets []string, from Report) error {
	if len(secrets) > MaxKeys {
		return fault.Invalid("keys", "A report can have at most %d keys. Send the others in another request.", MaxKeys)
	}
	for _, secret := range secrets {
		from.Secret = strings.TrimSpace(secret)
		if _, err := s.Revoke(ctx, from); err != nil {
			return err
		}
	}
	return nil
}
