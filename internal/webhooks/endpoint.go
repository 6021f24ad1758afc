package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/lanes"
	"turnpike/internal/visibility"
	"turnpike/webhook"
)

// Kind is how an endpoint is reached.
type Kind string

// The kinds.
const (
	HTTP   Kind = "http"
	Tunnel Kind = "tunnel"
)

// Status is the status of an endpoint.
type Status string

// The statuses of an endpoint.
const (
	Active Status = "active"
	Paused Status = "paused"
)

// Reasons why an endpoint is paused.
const (
	PausedManually     = "manual"
	PausedFailed       = "delivery_failed" // the last retry of a delivery failed
	pausedDisconnected = "disconnected"    // a tunnel whose client isn't connected
)

const (
	maxEndpoints   = 1000 // per workspace and environment
	maxDescription = 500
	maxProjects    = 50
	// MaxRequestsPerSecond is the maximum of an endpoint's rate limit.
	MaxRequestsPerSecond = 1000

	// DefaultSecretGrace is the default grace period of a rotated secret.
	DefaultSecretGrace = 24 * time.Hour
	// MaxSecretGrace is the maximum grace period.
	MaxSecretGrace = 7 * 24 * time.Hour
)

// Endpoint is a receiver of events.
type Endpoint struct {
	ID string
	accounts.Tenant
	Project     string   // the project that it belongs to, whose events it gets; empty for none
	Projects    []string // the projects whose events it gets; empty for all events
	Kind        Kind
	URL         string // empty for a tunnel
	Events      []string
	Description string
	// RequestsPerSecond limits the attempts.
	RequestsPerSecond *int64
	Status            Status
	PausedReason      string
	PausedAt          *time.Time
	SecretHint        string
	OldSecretUntil    *time.Time // during the grace period of a rotation
	Mirrors           string     // for a tunnel: the endpoint whose events and secret it uses
	CreatedAt         time.Time
	CreatedBy         string // the key, the member or the operator
	DeletedAt         *time.Time

	secret    string            // sealed
	oldSecret string            // sealed
	headers   map[string]string // sealed values by canonical name
	chore     chore
	// discardBefore is the time of the latest resume that discards, in microseconds. Later
	// deliveries aren't due before it.
	discardBefore int64

	headerChanges HeaderChanges // to be applied by Create or Change
}

// chore is what the endpoint's lane still has to do with held deliveries after a
// resume, batch by batch. A discard is completed even if the endpoint is paused again.
type chore string

const (
	choreDeliver chore = "deliver"
	choreDiscard chore = "discard"
)

// endpointColumns reads the events, the projects and the secret's hint of a mirror from the
// endpoint that it mirrors. The mirror's own row has the events of when it was
// created, and an unused secret.
const endpointColumns = `id, workspace_id, environment, project, kind, url, COALESCE((SELECT o.events FROM endpoints o WHERE o.id = endpoints.mirrors), events),
	description, status, paused_reason, paused_at,
	secret, COALESCE((SELECT o.secret_hint FROM endpoints o WHERE o.id = endpoints.mirrors), secret_hint),
	old_secret, COALESCE((SELECT o.old_secret_until FROM endpoints o WHERE o.id = endpoints.mirrors), old_secret_until),
	headers, CASE WHEN mirrors IS NULL THEN projects ELSE (SELECT o.projects FROM endpoints o WHERE o.id = endpoints.mirrors) END, requests_per_second,
	mirrors, chore, discard_before, created_at, created_by, deleted_at`

var scanEndpoint = db.Scanner(func(e *Endpoint) []any {
	return []any{&e.ID, &e.WorkspaceID, &e.Environment, &e.Project, &e.Kind, &e.URL, &e.Events, &e.Description, &e.Status, &e.PausedReason, &e.PausedAt,
		&e.secret, &e.SecretHint, &e.oldSecret, &e.OldSecretUntil,
		&e.headers, &e.Projects, &e.RequestsPerSecond, &e.Mirrors, &e.chore, &e.discardBefore, &e.CreatedAt, &e.CreatedBy, &e.DeletedAt}
})

// secretContext binds a sealed secret to its endpoint.
func secretContext(endpointID string) string { return "endpoint " + endpointID }

// Create stores a new endpoint and returns its secret, which is shown only once.
func (s *Service) Create(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint) (secret string, err error) {
	e.Kind = cmp.Or(e.Kind, HTTP)
	e.ID = ids.New(ids.Endpoint)
	if err := s.Check(e); err != nil {
		return "", err
	}
	// The lock makes the count exact.
	if err := accounts.LockWorkspace(ctx, tx, e.WorkspaceID); err != nil {
		return "", err
	}
	n, err := db.Value[int](tx.QueryRow(ctx, "SELECT count(*) FROM endpoints WHERE workspace_id = $1 AND environment = $2 AND deleted_at IS NULL",
		e.WorkspaceID, e.Environment))
	if err != nil {
		return "", err
	}
	if n >= maxEndpoints {
		return "", fault.New(fault.LimitReached, "A workspace can have at most %d endpoints per environment. Delete one first.", maxEndpoints)
	}
	if err := e.checkProjects(ctx, tx); err != nil {
		return "", err
	}
	secret = webhook.NewSecret()
	e.Status = Active
	e.CreatedAt, e.CreatedBy = s.Now(), by.Name
	e.secret, e.SecretHint = s.Ring.Seal([]byte(secret), secretContext(e.ID)), hint(secret)
	_, err = tx.Exec(ctx, db.Insert("endpoints", "id, workspace_id, environment, project, kind, url, events, description, status, secret, secret_hint, headers, projects, requests_per_second, mirrors, created_at, created_by"),
		e.ID, e.WorkspaceID, e.Environment, db.OrNull(e.Project), e.Kind, db.OrNull(e.URL), db.JSON(e.Events), e.Description, e.Status,
		e.secret, e.SecretHint, db.JSON(e.headers), projectsColumn(e.Projects), db.Number(e.RequestsPerSecond), db.OrNull(e.Mirrors), e.CreatedAt.UnixMicro(), e.CreatedBy)
	if err != nil {
		return "", fmt.Errorf("store endpoint: %w", err)
	}
	return secret, s.log(ctx, tx, by, loggedAction{e, "webhook.created", e.logged(map[string]any{"url": e.URL, "events": e.Events, "kind": e.Kind})})
}

// logged adds the options that are set to the detail of an entry in the admin log.
func (e *Endpoint) logged(detail map[string]any) map[string]any {
	if len(e.headers) > 0 {
		detail["headers"] = e.HeaderNames()
	}
	if len(e.Projects) > 0 {
		detail["projects"] = e.Projects
	}
	if n := e.RequestsPerSecond; n != nil {
		detail["requests_per_second"] = *n
	}
	return detail
}

// projectsColumn returns the stored form of a filter.
func projectsColumn(projects []string) any {
	if len(projects) == 0 {
		return nil
	}
	return db.JSON(projects)
}

// hint must stay the same: leaked secrets are found by it.
func hint(secret string) string { return keyring.SecretHint(secret) }

// Check validates the fields that requests set. It returns the errors of all of them.
func (s *Service) Check(e *Endpoint) error {
	var invalid error
	if e.Kind != Tunnel {
		invalid = s.checkURL(e.URL)
	}
	if n := e.RequestsPerSecond; n != nil && (*n < 1 || *n > MaxRequestsPerSecond) {
		invalid = errors.Join(invalid, fault.Invalid("requests_per_second", "requests_per_second must be from 1 to %d, or null for no limit.", MaxRequestsPerSecond))
	}
	return errors.Join(invalid, events.CheckPatterns("events", e.Events), checkDescription(e.Description), s.applyHeaders(e))
}

func (s *Service) checkURL(address string) error {
	if address == "" {
		return fault.Missing("url", "url must be the https:// address that receives deliveries.")
	}
	if _, err := s.Guard.CheckURL("url", address); err != nil {
		return err
	}
	// Attempts record the URL.
	if keyring.ContainsSecret(address) {
		return fault.Invalid("url", "The URL contains something that looks like an API key, which must not be stored. Remove it from the URL.")
	}
	return nil
}

// checkProjects validates the projects of the endpoint's filter, which must exist.
func (e *Endpoint) checkProjects(ctx context.Context, q db.Querier) error {
	if len(e.Projects) > maxProjects {
		return fault.Invalid("projects", "projects can have at most %d entries.", maxProjects)
	}
	for i, id := range e.Projects {
		if err := accounts.CheckProjectID("projects", id); err != nil {
			return err
		}
		if slices.Contains(e.Projects[:i], id) {
			return fault.Invalid("projects", "projects names %s twice.", id)
		}
		if e.Project != "" && id != e.Project {
			return fault.Param(fault.ProjectNotAllowed, "projects", "The endpoint belongs to the project %s and gets its events only.", e.Project)
		}
		_, err := accounts.GetProject(ctx, q, e.Tenant, id)
		if fault.Is(err, fault.NotFound) {
			return fault.Invalid("projects", "There is no project %s. Create it first (POST /v1/projects).", id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkDescription(text string) error {
	if keyring.ContainsSecret(text) {
		return fault.Invalid("description", "description looks like an API key, which must not be stored.")
	}
	if len(text) > maxDescription || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fault.Invalid("description", "description must be text of at most %d bytes.", maxDescription)
	}
	return nil
}

// loggedAction is an entry of the admin log.
type loggedAction struct {
	endpoint *Endpoint
	name     string
	detail   map[string]any
}

func (s *Service) log(ctx context.Context, tx *db.Tx, by audit.Actor, a loggedAction) error {
	e := a.endpoint
	return by.Log(ctx, tx, audit.Action{Tenant: e.Tenant, Project: e.Project, Action: a.name, Target: e.ID}, a.detail, s.Now())
}

// Get returns a visible endpoint that was not deleted.
func (s *Service) Get(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Endpoint, error) {
	return s.get(ctx, q, vis, id, "")
}

// GetLocked is Get, and locks the endpoint.
func (s *Service) GetLocked(ctx context.Context, tx *db.Tx, vis visibility.Filter, id string) (*Endpoint, error) {
	return s.get(ctx, tx, vis, id, tx.Lock("endpoints"))
}

func (s *Service) get(ctx context.Context, q db.Querier, vis visibility.Filter, id, lock string) (*Endpoint, error) {
	e, err := find(ctx, q, id, lock)
	if err == nil && (!e.visible(vis) || e.DeletedAt != nil) {
		err = db.ErrNotFound
	}
	return e, db.OrNoSuch(err, "webhook endpoint", id)
}

// visible reports whether the filter selects the endpoint.
func (e *Endpoint) visible(vis visibility.Filter) bool {
	return vis.Includes(e.Tenant, e.Project)
}

// visibleByEndpoint limits rows that belong to an endpoint to those whose
// endpoint belongs to the project of a pinned key. Their workspace and
// environment are columns of their own.
func visibleByEndpoint(c *db.Conditions, vis visibility.Filter) {
	if vis.Project != "" {
		c.Add("EXISTS (SELECT 1 FROM endpoints e WHERE e.id = endpoint_id AND e.project = ?)", vis.Project)
	}
}

// Named returns the visible endpoints with these IDs, including deleted ones, whose
// deliveries can still be read.
func (s *Service) Named(ctx context.Context, q db.Querier, vis visibility.Filter, endpointIDs ...string) (map[string]*Endpoint, error) {
	out := make(map[string]*Endpoint, len(endpointIDs))
	for _, id := range endpointIDs {
		if out[id] != nil {
			continue
		}
		e, err := find(ctx, q, id, "")
		if errors.Is(err, db.ErrNotFound) || err == nil && !e.visible(vis) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[id] = e
	}
	return out, nil
}

// find returns an endpoint of any workspace, deleted or not.
func find(ctx context.Context, q db.Querier, id, lock string) (*Endpoint, error) {
	return scanEndpoint(q.QueryRow(ctx, "SELECT "+endpointColumns+" FROM endpoints WHERE id = $1"+lock, id))
}

// List returns a page of the visible endpoints, optionally with tunnels.
func (s *Service) List(ctx context.Context, q db.Querier, vis visibility.Filter, tunnels bool, page db.Page) (*db.Found[*Endpoint], error) {
	search := db.Search{Table: "endpoints", Columns: endpointColumns, Where: vis.Rows()}
	search.Where.Require("deleted_at IS NULL")
	if !tunnels {
		search.Where.Add("kind =", string(HTTP))
	}
	return db.Find(ctx, q, search, page, endpointRecord)
}

var endpointRecord = db.Record[*Endpoint]{Scan: scanEndpoint, ID: func(e *Endpoint) string { return e.ID }}

// endpointTable has what changes of an endpoint's settings can write.
var endpointTable = db.Table{Name: "endpoints", Key: 1, Columns: "id, url, events, description, headers, projects, requests_per_second"}

// row returns the values of endpointTable.
func (e *Endpoint) row() []any {
	return []any{e.ID, db.OrNull(e.URL), db.JSON(e.Events), e.Description, db.JSON(e.headers), projectsColumn(e.Projects), db.Number(e.RequestsPerSecond)}
}

// Change changes an endpoint's settings. Later attempts use them. Earlier events keep their deliveries.
func (s *Service) Change(ctx context.Context, tx *db.Tx, c audit.Change[Endpoint]) (*Endpoint, error) {
	before, err := s.GetLocked(ctx, tx, c.Visibility, c.ID)
	if err != nil {
		return nil, err
	}
	e := *before
	if err := c.Apply(&e); err != nil {
		return nil, err
	}
	if e.Kind == Tunnel && e.URL != "" {
		return nil, fault.Invalid("url", "A tunnel has no url. Its client forwards to a local address.")
	}
	if err := cmp.Or(e.keepsHeadersAtHome(before), s.Check(&e), e.checkProjects(ctx, tx), e.checkMirror(before)); err != nil {
		return nil, err
	}
	if _, err := endpointTable.Update(ctx, tx, before.row(), e.row()); err != nil {
		return nil, err
	}
	tx.Signal(signalEndpoint, e.ID)
	return &e, s.log(ctx, tx, c.By, loggedAction{&e, "webhook.updated", e.logged(map[string]any{"url": e.URL, "events": e.Events})})
}

// checkMirror rejects changes of what a tunnel has from the endpoint that it mirrors.
func (e *Endpoint) checkMirror(before *Endpoint) error {
	if e.Mirrors != "" && !slices.Equal(e.Events, before.Events) {
		return fault.Param(fault.InvalidState, "events", "This tunnel gets the events of %s. Change the events of that endpoint.", e.Mirrors)
	}
	if e.Mirrors != "" && !slices.Equal(e.Projects, before.Projects) {
		return fault.Param(fault.InvalidState, "projects", "This tunnel gets the events of %s. Change the projects of that endpoint.", e.Mirrors)
	}
	return nil
}

// Delete deletes an endpoint and the tunnels that mirror it. Undelivered deliveries
// are discarded; the history stays readable.
func (s *Service) Delete(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint) error {
	if err := s.delete(ctx, tx, by, e); err != nil {
		return err
	}
	return s.applyFirstBatch(ctx, tx, e)
}

// delete is Delete that leaves all deliveries to the lane.
func (s *Service) delete(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint) error {
	now := s.Now()
	e.DeletedAt = &now
	if _, err := tx.Exec(ctx, `UPDATE endpoints SET deleted_at = $2, chore = NULL, old_secret = NULL, old_secret_hint = NULL, old_secret_until = NULL WHERE id = $1`,
		e.ID, now.UnixMicro()); err != nil {
		return err
	}
	if err := s.stopReplays(ctx, tx, e.ID); err != nil {
		return err
	}
	if err := s.enqueueChores(ctx, tx, e); err != nil {
		return err
	}
	tx.Signal(signalEndpoint, e.ID)
	if err := s.log(ctx, tx, by, loggedAction{e, "webhook.deleted", map[string]any{"url": e.URL}}); err != nil {
		return err
	}
	return s.deleteMirrors(ctx, tx, by, e)
}

// RotateSecret returns a new secret, which is shown only once. During the grace
// period, Service-Signature uses the old one and webhook-signature has both.
func (s *Service) RotateSecret(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint, grace time.Duration) (secret string, err error) {
	now := s.Now()
	if grace < 0 || grace > MaxSecretGrace {
		return "", fault.Invalid("grace_period_seconds", "grace_period_seconds must be from 0 to %d.", int(MaxSecretGrace.Seconds()))
	}
	if e.Mirrors != "" {
		return "", fault.New(fault.InvalidState, "This tunnel signs with the secret of %s. Rotate that one.", e.Mirrors)
	}
	if e.inGrace(now) {
		return "", fault.New(fault.InvalidState, "The previous secret is still in its grace period. End it first (POST /v1/webhooks/%s/end_grace).", e.ID)
	}
	secret = webhook.NewSecret()
	old, until := e.secret, now.Add(grace)
	oldHint := ""
	e.oldSecret, e.OldSecretUntil = "", nil
	if grace > 0 {
		e.oldSecret, e.OldSecretUntil, oldHint = old, &until, e.SecretHint
	}
	e.secret, e.SecretHint = s.Ring.Seal([]byte(secret), secretContext(e.ID)), hint(secret)
	if _, err := tx.Exec(ctx, "UPDATE endpoints SET secret = $2, secret_hint = $3, old_secret = $4, old_secret_until = $5, old_secret_hint = $6 WHERE id = $1",
		e.ID, e.secret, e.SecretHint, db.OrNull(e.oldSecret), db.Micros(e.OldSecretUntil), db.OrNull(oldHint)); err != nil {
		return "", err
	}
	tx.Signal(signalEndpoint, e.ID)
	return secret, s.log(ctx, tx, by, loggedAction{e, "webhook.secret_rotated", map[string]any{"grace_seconds": int(grace.Seconds())}})
}

// EndGrace ends the grace period of the old secret.
func (s *Service) EndGrace(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint) error {
	if !e.inGrace(s.Now()) {
		return nil
	}
	if e.Mirrors != "" {
		return fault.New(fault.InvalidState, "This tunnel signs with the secrets of %s. End the grace period of that endpoint.", e.Mirrors)
	}
	e.oldSecret, e.OldSecretUntil = "", nil
	if _, err := tx.Exec(ctx, "UPDATE endpoints SET old_secret = NULL, old_secret_hint = NULL, old_secret_until = NULL WHERE id = $1", e.ID); err != nil {
		return err
	}
	tx.Signal(signalEndpoint, e.ID)
	return s.log(ctx, tx, by, loggedAction{e, "webhook.grace_ended", nil})
}

func (e *Endpoint) inGrace(now time.Time) bool {
	return e.OldSecretUntil != nil && now.Before(*e.OldSecretUntil)
}

// TestEvent is a sample event to send. Type defaults to the first one to which the
// endpoint subscribes.
type TestEvent struct {
	Type    events.Type
	Project string
}

// SendTest delivers a sample event to this endpoint only.
func (s *Service) SendTest(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint, test TestEvent) (*Delivery, error) {
	t, project := test.Type, test.Project
	if t == "" {
		for _, t = range events.Types {
			if t.Matches(e.Events) {
				break
			}
		}
	}
	if e.Project != "" {
		project = e.Project // it gets no others
	}
	event, err := s.Publisher.StoreSample(ctx, tx, events.Origin{Tenant: e.Tenant, Project: project}, t)
	if err != nil {
		return nil, err
	}
	d := s.newDelivery(e, event.ID, event.Type, event.CreatedAt, s.Now())
	if _, err := insertDeliveries.Write(ctx, tx, [][]any{d.row()}); err != nil {
		return nil, fmt.Errorf("store delivery: %w", err)
	}
	if d.DueAt != nil {
		if err := lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{e.ID: *d.DueAt}); err != nil {
			return nil, err
		}
	}
	return d, s.log(ctx, tx, by, loggedAction{e, "webhook.tested", map[string]any{"type": t, "delivery": d.ID}})
}
