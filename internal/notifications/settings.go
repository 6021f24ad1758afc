package notifications

import (
	"context"
	"errors"
	"net/url"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// Format is the format of messages to an incoming webhook.
type Format string

// The formats.
const (
	Slack Format = "slack" // {"text": "…"}, which Slack, Mattermost, Google Chat and others accept
	JSON  Format = "json"  // an object with the facts
)

// Settings are where a workspace's notifications go, in addition to email.
type Settings struct {
	WorkspaceID   string
	URL           string // a secret; empty without an incoming webhook
	Hint          string // the part of the URL that may be shown
	Format        Format
	OmitArguments bool // messages about approvals don't contain the arguments of the call
	LastSentAt    *time.Time
	LastError     string // of the last attempt; empty if it succeeded
}

func sealContext(workspaceID string) string { return "notification webhook " + workspaceID }

// ReadSettings returns the settings of a workspace.
func (s *Service) ReadSettings(ctx context.Context, q db.Querier, workspaceID string) (*Settings, error) {
	return s.readSettings(ctx, q, workspaceID, "")
}

func (s *Service) readSettings(ctx context.Context, q db.Querier, workspaceID, lock string) (*Settings, error) {
	set := &Settings{WorkspaceID: workspaceID, Format: Slack}
	var sealed, format string
	err := db.Scan(q.QueryRow(ctx, "SELECT sealed_url, url_hint, format, omit_arguments, last_sent_at, last_error FROM notification_settings WHERE workspace_id = $1"+lock, workspaceID),
		&sealed, &set.Hint, &format, &set.OmitArguments, &set.LastSentAt, &set.LastError)
	if errors.Is(err, db.ErrNotFound) {
		return set, nil
	}
	if err != nil {
		return nil, db.Wrap(err, "read notification settings")
	}
	if format != "" {
		set.Format = Format(format)
	}
	if sealed != "" {
		plain, err := s.Ring.Open(sealed, sealContext(workspaceID))
		if err != nil {
			return nil, db.Wrap(err, "decrypt the incoming webhook")
		}
		set.URL = string(plain)
	}
	return set, nil
}

// Change is a change to the settings.
type Change struct {
	By    audit.Actor
	Apply func(*Settings) error
}

// Update changes the settings of a workspace and records that in the admin log. It makes no request.
func (s *Service) Update(ctx context.Context, tx *db.Tx, workspaceID string, c Change) (*Settings, error) {
	if err := accounts.LockWorkspace(ctx, tx, workspaceID); err != nil { // the row may not exist yet
		return nil, err
	}
	set, err := s.readSettings(ctx, tx, workspaceID, tx.Lock("notification_settings"))
	if err != nil {
		return nil, err
	}
	before := set.URL
	if err := c.Apply(set); err != nil {
		return nil, err
	}
	if err := s.check(set); err != nil {
		return nil, err
	}
	if set.URL != before {
		set.LastSentAt, set.LastError = nil, ""
	}
	var sealed any
	if set.URL != "" {
		sealed = s.Ring.Seal([]byte(set.URL), sealContext(workspaceID))
	}
	_, err = tx.Exec(ctx, `INSERT INTO notification_settings (workspace_id, sealed_url, url_hint, format, omit_arguments, last_sent_at, last_error) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (workspace_id) DO UPDATE SET sealed_url = $2, url_hint = $3, format = $4, omit_arguments = $5, last_sent_at = $6, last_error = $7`,
		workspaceID, sealed, db.OrNull(set.Hint), string(set.Format), set.OmitArguments, db.Micros(set.LastSentAt), db.OrNull(set.LastError))
	if err != nil {
		return nil, db.Wrap(err, "store notification settings")
	}
	return set, c.By.Log(ctx, tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: workspaceID, Environment: accounts.Live}, Action: "notifications.updated", Target: workspaceID},
		map[string]any{"webhook": set.Hint, "format": set.Format, "omit_arguments": set.OmitArguments}, s.Now())
}

func (s *Service) check(set *Settings) error {
	if set.Format != Slack && set.Format != JSON {
		return fault.Invalid("webhook.format", "webhook.format must be slack or json, not %q.", set.Format)
	}
	set.Hint = ""
	if set.URL == "" {
		return nil
	}
	u, err := s.Guard.CheckURL("webhook.url", set.URL)
	if err != nil {
		return err
	}
	set.Hint = hintOf(u)
	return nil
}

// hintOf returns the host and the last characters of a URL. The rest may be a secret.
func hintOf(u *url.URL) string {
	path := u.EscapedPath()
	if len(path) < 12 { // too short to be a secret that can lose four characters
		return u.Scheme + "://" + u.Host + "/…"
	}
	return u.Scheme + "://" + u.Host + "/…" + path[len(path)-4:]
}
