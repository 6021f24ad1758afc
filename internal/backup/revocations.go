package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/files"
	"turnpike/internal/ids"
)

const (
	// revocationsName is a list next to the backups of what was revoked. A restore names what works again.
	revocationsName = "revocations.json"
	// revocationWindow is how old the entries of the list get.
	revocationWindow = 31 * 24 * time.Hour
	// revocationOverlap is how long a transaction may take to commit an entry after its ID was made.
	revocationOverlap = 5 * time.Minute
	revocationPage    = 1000
)

// Revocation is an entry of the admin log that took access away.
type Revocation struct {
	ID        string    `json:"id"`
	At        time.Time `json:"at"`
	Workspace string    `json:"workspace_id"`
	Actor     string    `json:"actor"`
	Action    string    `json:"action"`
	Target    string    `json:"target"`
}

type revocations struct {
	Entries []Revocation `json:"entries"` // by ID
}

// revokingSuffixes are those of actions that take access away.
var revokingSuffixes = []string{".revoked", ".auto_revoked", ".removed", ".role_changed", ".grace_ended",
	"federation_rule.deleted", "passkey.deleted", "tool_server.deleted", "user.deleted", "webhook_endpoint.deleted"}

func revokes(action string) bool {
	return slices.ContainsFunc(revokingSuffixes, func(suffix string) bool { return strings.HasSuffix(action, suffix) })
}

// RevocationList keeps the list of a location current.
type RevocationList struct {
	to    string
	known map[string]Revocation // by ID
	read  time.Time             // up to which the log was read
	dirty bool
}

// Update adds what was revoked since the last update.
func (l *RevocationList) Update(ctx context.Context, s *Schedule) error {
	at, err := locate(s.To, s.Spool)
	if err != nil {
		return err
	}
	now := s.now()
	if l.to != s.To {
		// A restored database doesn't have what was revoked after the backup, but the list does.
		known, err := readRevocations(ctx, at, s.Signer)
		if err != nil {
			return err
		}
		*l = RevocationList{to: s.To, known: known, read: now.Add(-revocationWindow)}
	}
	if err := l.readLog(ctx, s.DB, now); err != nil || !l.dirty {
		return err
	}
	maps.DeleteFunc(l.known, func(_ string, r Revocation) bool { return now.Sub(r.At) > revocationWindow })
	list := revocations{Entries: make([]Revocation, 0, len(l.known))}
	for _, id := range slices.Sorted(maps.Keys(l.known)) {
		list.Entries = append(list.Entries, l.known[id])
	}
	text, err := encode(list, s.Signer)
	if err != nil {
		return err
	}
	if err := at.put(ctx, revocationsName, text); err != nil {
		return fmt.Errorf("store the list of revocations: %w", err)
	}
	l.dirty = false
	return nil
}

// readLog reads what the admin log has since the last time.
func (l *RevocationList) readLog(ctx context.Context, d *db.DB, now time.Time) error {
	after := ids.Floor(ids.AdminAction, l.read.Add(-revocationOverlap))
	for {
		page, err := db.List(ctx, d, func(r db.Row) (e Revocation, err error) {
			err = db.Scan(r, &e.ID, &e.At, &e.Workspace, &e.Actor, &e.Action, &e.Target)
			return e, err
		}, "SELECT id, created_at, workspace_id, actor, action, target FROM admin_actions WHERE id > $1 ORDER BY id LIMIT $2", after, revocationPage)
		if err != nil {
			return fmt.Errorf("read the admin log: %w", err)
		}
		for _, e := range page {
			if _, have := l.known[e.ID]; !have && revokes(e.Action) {
				l.known[e.ID], l.dirty = e, true
			}
			after = e.ID
		}
		if len(page) < revocationPage {
			l.read = now
			return nil
		}
	}
}

// readRevocations returns the entries of a list. It ignores a list that this server didn't sign.
func readRevocations(ctx context.Context, at location, by Signer) (map[string]Revocation, error) {
	known := map[string]Revocation{}
	text, err := readAll(ctx, at, "", revocationsName)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, files.ErrGone) {
		return known, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of revocations: %w", err)
	}
	read, err := unseal(text)
	if err != nil || !read.isSignedBy(by) {
		return known, nil
	}
	var list revocations
	if err := json.Unmarshal(read.body, &list); err != nil {
		return known, nil
	}
	for _, e := range list.Entries {
		known[e.ID] = e
	}
	return known, nil
}

// Revoked returns what was revoked after the backup, oldest first, as far as the list next to it knows.
func (s *Source) Revoked(ctx context.Context, by Signer) ([]Revocation, error) {
	known, err := readRevocations(ctx, s.at, by)
	var out []Revocation
	for _, id := range slices.Sorted(maps.Keys(known)) {
		if e := known[id]; !e.At.Before(s.Manifest.StartedAt) {
			out = append(out, e)
		}
	}
	return out, err
}
