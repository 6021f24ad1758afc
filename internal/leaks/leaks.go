// Package leaks ends keys that strangers have seen. Everything that can report
// one (GitHub, GitLab, anybody, our own traffic) ends in Revoke.
package leaks

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/mail"
	"turnpike/internal/safehttp"
	"turnpike/internal/visibility"
	"turnpike/internal/visitors"
)

// Source is who found a key.
type Source string

// The sources.
const (
	GitHub  Source = "github"
	GitLab  Source = "gitlab"
	Public  Source = "report"  // somebody, by /leaks/report
	Scan    Source = "scan"    // turnpike scan, by the same way
	Traffic Source = "traffic" // a request that had it in its URL or, where the workspace says so, in its body
)

// Outcome is what a report led to.
type Outcome string

// The outcomes. Unknown leaves no trace.
const (
	Unknown      Outcome = ""
	Revoked      Outcome = "revoked"
	GraceEnded   Outcome = "grace_ended"   // it was a key's previous secret
	TokenRevoked Outcome = "token_revoked" // it was a scoped token
	Already      Outcome = "already_dead"
	Noted        Outcome = "noted" // it still works: the workspace only wants to know
)

// patience is how long a report waits for the store. Whoever sent it may have
// left by then.
const patience = 10 * time.Second

// Options is what the service works with.
type Options struct {
	DB        *db.DB
	Keys      *access.Keys
	Tokens    *access.Tokens
	Publisher *events.Publisher
	Outbox    *mail.Outbox
	Now       func() time.Time

	GitHubKeysURL    string
	GitLabToken      string // empty: GitLab's reports are not taken
	ReportsPerMinute int64  // from one address, without a login; 0: no limit
}

// Service takes reports.
type Service struct {
	Options
	github    *githubKeys
	visitors  *visitors.Counter
	sightings chan Sighting
	seen      seen
}

// New makes the service.
func New(o Options) *Service {
	return &Service{Options: o, visitors: visitors.New(o.ReportsPerMinute, o.Now), sightings: make(chan Sighting, waitingSightings),
		github: &githubKeys{url: o.GitHubKeysURL, now: o.Now, client: &http.Client{Timeout: fetchTimeout, Transport: safehttp.WithoutUpgrades(nil)}}}
}

// Admit counts a request without a key. If the client's network has sent too
// many, Admit returns how long it must wait.
func (s *Service) Admit(ip netip.Addr) (wait time.Duration) { return s.visitors.Admit(ip) }

// Report is a key that somebody has found. The secret is stored nowhere.
type Report struct {
	Secret string
	Source Source
	URL    string // where, as the reporter says
	InBody bool   // of a request; Traffic is in its URL otherwise
	Spare  bool   // note it and tell its people, but let it live
	// Where the report came from, for the admin log.
	IP, RequestID string
}

// Revoke ends whatever the secret belongs to, unless the report wants it
// spared, and tells its people, once: a report of what is dead already is only
// noted. It goes on when the reporter leaves.
func (s *Service) Revoke(ctx context.Context, r Report) (outcome Outcome, err error) {
	if _, ok := access.ParseSecret(r.Secret); !ok {
		return Unknown, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	// Lookalikes must not stand in line for the one writer.
	known, err := s.Keys.KnowsSecret(ctx, s.DB, r.Secret)
	if err != nil || !known {
		return Unknown, wrap(err)
	}
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		e, err := s.Keys.FindExposed(ctx, tx, r.Secret)
		if err != nil {
			return err
		}
		if e == nil { // gone since we looked
			outcome = Unknown
			return nil
		}
		if outcome, err = s.end(ctx, tx, r, e); err != nil {
			return err
		}
		return s.note(ctx, tx, r, e, outcome)
	})
	return outcome, wrap(err)
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("leaked key: %w", err)
}

// end makes the secret stop working.
func (s *Service) end(ctx context.Context, tx *db.Tx, r Report, e *access.Exposed) (Outcome, error) {
	by := access.Caller{Actor: audit.Actor{Name: "leak scanner", IP: r.IP, RequestID: r.RequestID}}
	if t := e.Token; t != nil {
		if t.RevokedAt != nil || !s.Now().Before(t.ExpiresAt) {
			return Already, nil
		}
		if r.Spare {
			return Noted, nil
		}
		_, err := s.Tokens.Revoke(ctx, tx, by, visibility.Filter{WorkspaceID: t.WorkspaceID, Environment: string(t.Environment)}, t.ID)
		return TokenRevoked, err
	}
	switch k := e.Key; {
	case k.RevokedAt != nil, !e.Current && !e.Previous:
		return Already, nil
	case r.Spare:
		return Noted, s.warn(ctx, tx, e)
	// An expired key is revoked too: its expiry could be moved.
	case e.Current:
		descendants, err := s.Keys.RevokeWithDescendants(ctx, tx, by, k)
		if err != nil {
			return "", err
		}
		return Revoked, s.tell(ctx, tx, r, e, descendants)
	}
	if err := s.Keys.EndGrace(ctx, tx, by, e.Key); err != nil && !fault.Is(err, fault.InvalidState) {
		return "", err
	}
	return GraceEnded, s.tell(ctx, tx, r, e, nil)
}

// tell publishes the event and emails the workspace's owners and admins.
func (s *Service) tell(ctx context.Context, tx *db.Tx, r Report, e *access.Exposed, descendants []*access.Key) error {
	k, now := e.Key, s.Now()
	data := events.KeyRevoked{KeyID: k.ID, KeyHint: e.Hint, Source: string(r.Source), DetectedAt: now.Unix(), Descendants: []events.RevokedKey{},
		DescendantsTruncated: len(descendants) > events.MaxDescendants}
	var lines []string
	for _, d := range descendants[:min(len(descendants), events.MaxDescendants)] {
		data.Descendants = append(data.Descendants, events.RevokedKey{KeyID: d.ID, KeyHint: d.Hint(), Name: d.Name})
		lines = append(lines, fmt.Sprintf("%s (%s, %s)", d.Hint(), d.Name, d.ID))
	}
	url := cleanURL(r.URL)
	if url != "" {
		data.URL = &url
	}
	from := events.Origin{WorkspaceID: k.WorkspaceID, Environment: string(k.Environment), Project: k.Project}
	if _, err := s.Publisher.Publish(ctx, tx, from, data); err != nil {
		return err
	}
	return s.Outbox.EnqueueAdmins(ctx, tx, k.WorkspaceID, "leaked "+k.ID+" "+e.Hint, func(workspace string) mail.Data {
		return mail.KeyRevoked{Workspace: workspace, Environment: string(k.Environment), KeyID: k.ID, KeyName: k.Name, KeyHint: e.Hint,
			Found: r.found(), URL: url, Previous: e.Previous, DetectedAt: now, Descendants: lines, DescendantsTruncated: data.DescendantsTruncated}
	})
}

// warn mails the workspace's owners and admins, once for a secret.
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

// foundBy says in the mail who found the key.
var foundBy = map[Source]string{
	GitHub:  "by GitHub's secret scanning",
	GitLab:  "by GitLab's secret detection",
	Public:  "by somebody who reported it",
	Scan:    "by turnpike scan",
	Traffic: "in the URL of a request to the API, where logs and proxies keep it",
}
