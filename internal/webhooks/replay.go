package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/lanes"
	"turnpike/internal/visibility"
)

// ReplayWindow is how long an event can be replayed.
const ReplayWindow = 30 * 24 * time.Hour

// DeliveryReplay is a request to send one delivery again.
type DeliveryReplay struct {
	DeliveryID string
	// NewID sends it under a new ID. By default it keeps its ID, by which a
	// receiver recognizes a duplicate.
	NewID bool
}

// ReplayDelivery sends one visible delivery again, with all its retries.
func (s *Service) ReplayDelivery(ctx context.Context, tx *db.Tx, by audit.Actor, vis visibility.Filter, in DeliveryReplay) (*Delivery, error) {
	d, err := getDelivery(ctx, tx, vis, in.DeliveryID, tx.Lock("deliveries"))
	if err != nil {
		return nil, err
	}
	now := s.Now()
	if now.Sub(d.EventAt) > ReplayWindow {
		return nil, outsideWindow("")
	}
	e, err := find(ctx, tx, d.EndpointID, "")
	if err != nil {
		return nil, fmt.Errorf("read endpoint: %w", err)
	}
	if err := replayable(e); err != nil {
		return nil, err
	}
	if in.NewID {
		d = s.newDelivery(e, d.EventID, d.Type, d.EventAt, now).withNewID()
		_, err = insertDeliveries.Write(ctx, tx, [][]any{d.row()})
	} else {
		d.Reason, d.Tries, d.DueAt = "", 0, e.notDiscarded(now)
		if d.State != Succeeded {
			d.State, d.FinishedAt = Pending, nil
		}
		_, err = replayDeliveries.Write(ctx, tx, [][]any{s.newDelivery(e, d.EventID, d.Type, d.EventAt, now).replayOf(d.ID, true)})
	}
	if err != nil {
		return nil, fmt.Errorf("replay delivery: %w", err)
	}
	if err := lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{e.ID: now}); err != nil {
		return nil, err
	}
	return d, s.log(ctx, tx, by, loggedAction{e, "delivery.replayed", map[string]any{"delivery": in.DeliveryID, "as": d.ID}})
}

// replayDeliveries restarts deliveries: those that no pause or attempt waits for, or any. One that
// succeeded stays so, whatever comes of the replay.
var replayDeliveries = db.NewBulkUpdate("deliveries", unlessSucceeded("status", "'pending'")+", "+unlessSucceeded("finished_at", "NULL")+
	", reason = NULL, tries = 0, due_at = v.due, links_at = v.due, links_base = v.base",
	"deliveries.id = v.id AND (v.forced OR NOT "+isUnfinished+")", "id text", "due bigint", "base text", "forced boolean")

// replayOf returns the row for replayDeliveries that makes a stored delivery due like a new one.
func (d *Delivery) replayOf(id string, forced bool) []any {
	return []any{id, db.Micros(d.DueAt), db.OrNull(d.linksBase), forced}
}

func outsideWindow(param string) error {
	return fault.Param(fault.OutsideReplayWindow, param, "Events can be replayed for 30 days.")
}

func replayable(e *Endpoint) error {
	if e.DeletedAt != nil {
		return fault.New(fault.InvalidState, "Endpoint %s was deleted.", e.ID)
	}
	if e.Status != Active && e.Kind == Tunnel {
		return fault.New(fault.InvalidState, "Tunnel %s is not connected. Connect it with turnpike listen --resume %s --forward-to ADDRESS.", e.ID, e.ID)
	}
	if e.Status != Active {
		return fault.New(fault.InvalidState, "Endpoint %s is paused. Resume it first (POST /v1/webhooks/%s/resume).", e.ID, e.ID)
	}
	return nil
}

// Replay modes.
const (
	ReplayFailed = "failed" // deliveries whose last retry failed
	ReplayAll    = "all"    // every delivery
	ReplayMissed = "missed" // events without a delivery to this endpoint; Total and Done count all events
)

// States of a replay.
const (
	ReplayRunning   = "running"
	ReplayCompleted = "completed"
	ReplayStopped   = "stopped" // its endpoint was paused or deleted
)

// Replay sends many deliveries of an endpoint again. The endpoint's lane continues
// it whenever no other delivery is due.
type Replay struct {
	ID         string
	EndpointID string
	accounts.Tenant
	State      string
	Mode       string
	Types      []events.Type
	NewIDs     bool
	Since      time.Time
	Until      time.Time
	Total      int64 // as far as Counting got
	Done       int64
	Counting   bool // the lane still counts
	CreatedAt  time.Time
	FinishedAt *time.Time

	at      string // the last ID that was replayed or skipped
	counted string // the last ID that was counted; empty if all are
}

const replayColumns = `id, endpoint_id, workspace_id, environment, status, mode, types, new_ids, since, until, at, counted_to, total, done, created_at, finished_at`

var scanReplayFields = db.Scanner(func(p *Replay) []any {
	return []any{&p.ID, &p.EndpointID, &p.WorkspaceID, &p.Environment, &p.State, &p.Mode, &p.Types, &p.NewIDs, &p.Since, &p.Until, &p.at, &p.counted, &p.Total, &p.Done,
		&p.CreatedAt, &p.FinishedAt}
})

func scanReplay(r db.Row) (*Replay, error) {
	p, err := scanReplayFields(r)
	p.Counting = p.counted != "" && p.State == ReplayRunning
	return p, err
}

// PlanReplay checks a replay of a visible endpoint and counts its first deliveries, outside a
// transaction. Most replays are counted completely. StartReplay stores it.
func (s *Service) PlanReplay(ctx context.Context, vis visibility.Filter, p *Replay) error {
	e, err := s.replayTarget(ctx, s.DB, vis, p.EndpointID, "")
	if err != nil {
		return err
	}
	now := s.Now()
	if err := p.validate(now); err != nil {
		return err
	}
	p.ID, p.State, p.CreatedAt, p.Tenant = ids.New(ids.Replay), ReplayRunning, now, e.Tenant
	p.at = p.start()
	p.counted = p.at
	return s.count(ctx, e, p)
}

// replayTarget returns a visible endpoint that can replay.
func (s *Service) replayTarget(ctx context.Context, q db.Querier, vis visibility.Filter, id, lock string) (*Endpoint, error) {
	e, err := find(ctx, q, id, lock)
	if err == nil && !e.visible(vis) {
		err = db.ErrNotFound
	}
	if err != nil {
		return nil, db.OrNoSuch(err, "webhook endpoint", id)
	}
	return e, replayable(e)
}

// StartReplay stores a planned replay. The endpoint's lane sends it.
func (s *Service) StartReplay(ctx context.Context, tx *db.Tx, by audit.Actor, vis visibility.Filter, p *Replay) error {
	// The lock keeps the endpoint from being paused, and another replay from starting.
	e, err := s.replayTarget(ctx, tx, vis, p.EndpointID, tx.Lock("endpoints"))
	if err != nil {
		return err
	}
	running, err := db.Value[string](tx.QueryRow(ctx, "SELECT id FROM replays WHERE endpoint_id = $1 AND status = 'running' LIMIT 1", e.ID))
	if err == nil {
		return fault.New(fault.Conflict, "Replay %[1]s of this endpoint is still running. Wait until it has ended (GET /v1/replays/%[1]s), or pause the endpoint to stop it.", running)
	}
	if !errors.Is(err, db.ErrNotFound) {
		return fmt.Errorf("find running replay: %w", err)
	}
	if _, err = tx.Exec(ctx, db.Insert("replays", replayColumns),
		p.ID, p.EndpointID, p.WorkspaceID, p.Environment, p.State, p.Mode, db.JSON(p.Types), p.NewIDs,
		p.Since.UnixMicro(), p.Until.UnixMicro(), p.at, db.OrNull(p.counted), p.Total, 0, p.CreatedAt.UnixMicro(), nil); err != nil {
		return fmt.Errorf("store replay: %w", err)
	}
	if err := lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{e.ID: s.Now()}); err != nil {
		return err
	}
	return s.log(ctx, tx, by, loggedAction{e, "webhook.replayed", map[string]any{"replay": p.ID, "status": p.Mode, "total": p.Total}})
}

// validate checks a new replay and fills in its defaults.
func (p *Replay) validate(now time.Time) error {
	if p.Until.IsZero() {
		p.Until = now.Add(time.Microsecond) // it is exclusive
	}
	p.Mode = cmp.Or(p.Mode, ReplayFailed)
	if p.Types == nil {
		p.Types = []events.Type{}
	}
	switch {
	case p.Since.After(now):
		return fault.Invalid("since", "since must not be in the future.")
	case p.Since.Before(now.Add(-ReplayWindow)):
		return outsideWindow("since")
	case !p.Since.Before(p.Until):
		return fault.Invalid("until", "until must be after since.")
	case !slices.Contains([]string{ReplayFailed, ReplayAll, ReplayMissed}, p.Mode):
		return fault.Invalid("status", "status must be failed, all or missed.")
	}
	return nil
}

// GetReplay returns a visible replay.
func (s *Service) GetReplay(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Replay, error) {
	search := db.Search{Table: "replays", Columns: replayColumns, Where: vis.InEnvironment()}
	visibleByEndpoint(&search.Where, vis)
	p, err := db.FindOne(ctx, q, search, id, scanReplay)
	return p, db.OrNoSuch(err, "replay", id)
}

// ListReplays returns a page of a visible endpoint's replays.
func (s *Service) ListReplays(ctx context.Context, q db.Querier, vis visibility.Filter, endpointID string, page db.Page) (*db.Found[*Replay], error) {
	search := db.Search{Table: "replays", Columns: replayColumns, Where: vis.InEnvironment()}
	visibleByEndpoint(&search.Where, vis)
	search.Filter.Add("endpoint_id =", endpointID)
	return db.Find(ctx, q, search, page, db.Record[*Replay]{Scan: scanReplay, ID: func(p *Replay) string { return p.ID }})
}

// stopReplays stops the replays of an endpoint that was paused or deleted.
func (s *Service) stopReplays(ctx context.Context, tx *db.Tx, endpointID string) error {
	_, err := tx.Exec(ctx, "UPDATE replays SET status = $2, finished_at = $3 WHERE endpoint_id = $1 AND status = 'running'",
		endpointID, ReplayStopped, s.Now().UnixMicro())
	return err
}

// replayStep is how many deliveries or events a step of a replay reads.
const replayStep = 1000

// candidate is an event or a delivery that a replay may send.
type candidate struct {
	id, eventID string
	typ         events.Type
	at          time.Time
	finished    bool   // a delivery that isn't pending, retrying or held
	sample      bool   // an event
	project     string // of an event
	about       string // the endpoint that an event is about
}

// candidates reads the next deliveries or events of the endpoint after an ID: replayStep of them, or
// all that are left. It reads them by an index and leaves the selection to selects, so that a step is
// bounded, however few of them are selected.
func (p *Replay) candidates(ctx context.Context, q db.Querier, e *Endpoint, after string) ([]candidate, error) {
	query, args := p.query(e, after)
	return db.List(ctx, q, func(r db.Row) (c candidate, err error) {
		err = db.Scan(r, &c.id, &c.eventID, &c.typ, &c.at, &c.finished, &c.sample, &c.project, &c.about)
		return c, err
	}, query, args...)
}

func (p *Replay) query(e *Endpoint, after string) (query string, args []any) {
	query, args = "SELECT id, event_id, type, event_at, NOT "+isUnfinished+", FALSE, NULL, NULL FROM deliveries WHERE endpoint_id = $1", []any{e.ID}
	switch p.Mode {
	case ReplayFailed:
		query += " AND status = 'failed'"
	case ReplayMissed:
		query, args = "SELECT id, id, type, created_at, TRUE, sample, project, about FROM events WHERE workspace_id = $1 AND environment = $2", []any{e.WorkspaceID, e.Environment}
	}
	n := len(args)
	query += fmt.Sprintf(" AND id > $%d AND id < $%d ORDER BY id LIMIT %d", n+1, n+2, replayStep)
	return query, append(args, after, p.end())
}

// selects reports whether the replay counts and sends a candidate. Deliveries in progress are left alone.
func (p *Replay) selects(e *Endpoint, c candidate) bool {
	return c.finished && !c.sample && !c.at.Before(p.Since) && c.at.Before(p.Until) && (len(p.Types) == 0 || slices.Contains(p.Types, c.typ)) &&
		(p.Mode != ReplayMissed || c.typ.Matches(e.Events) && e.takes(c.project) && !e.isSubject(c.about))
}

// idMargin is more than the time between an event's ID and its created_at, which is some milliseconds.
const idMargin = 10 * time.Minute

// start is an ID before those of all deliveries or events to replay. It goes back from the replay's
// ID, so that it is a time of the clock that IDs have.
func (p *Replay) start() string {
	prefix := ids.Delivery
	if p.Mode == ReplayMissed {
		prefix = ids.Event
	}
	return ids.Floor(prefix, ids.Time(p.ID).Add(p.Since.Sub(p.CreatedAt)-idMargin))
}

// end is an ID after those of all deliveries or events to replay. All IDs sort by time, so
// the replay's ID excludes the deliveries that it creates.
func (p *Replay) end() string {
	if p.Mode == ReplayMissed {
		return ids.Event + strings.TrimPrefix(p.ID, ids.Replay)
	}
	end, _ := ids.DerivedFrom(ids.Delivery, p.ID)
	return end
}

// copied gives a delivery a new ID. If the clock was set back since the replay
// began, a new ID would sort before its end, and the replay would send it again;
// the ID is then derived from the replay's.
func (p *Replay) copied(d *Delivery, first string) *Delivery {
	if d.withNewID(); d.ID < p.end() {
		d.ID = ids.Derive(ids.Delivery, p.ID, first)
	}
	return d
}

// count counts the next deliveries of a replay.
func (s *Service) count(ctx context.Context, e *Endpoint, p *Replay) error {
	list, err := p.candidates(ctx, s.DB, e, p.counted)
	if err != nil {
		return fmt.Errorf("count replay: %w", err)
	}
	for _, c := range list {
		p.counted = c.id
		if p.selects(e, c) {
			p.Total++
		}
	}
	if p.Counting = len(list) == replayStep; !p.Counting {
		p.counted = ""
	}
	return nil
}

// feedReplay counts some more deliveries of the endpoint's oldest replay, and makes the next of them
// due: at most n, and few, so that live events are delivered in between. It reads them before
// the transaction that changes them.
func (s *Service) feedReplay(ctx context.Context, e *Endpoint, n int) (fed bool, err error) {
	const running = "SELECT " + replayColumns + " FROM replays WHERE endpoint_id = $1 AND status = 'running' ORDER BY id LIMIT 1"
	p, err := scanReplay(s.DB.QueryRow(ctx, running, e.ID))
	if errors.Is(err, db.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read replay: %w", err)
	}
	from := p.at
	list, err := p.candidates(ctx, s.DB, e, from)
	if err == nil && p.Counting {
		err = s.count(ctx, e, p)
	}
	if err != nil {
		return false, fmt.Errorf("read replay: %w", err)
	}
	rows := s.take(e, p, list, min(n, statusBatch))
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		now, err := scanReplay(tx.QueryRow(ctx, running+tx.Lock("replays"), e.ID))
		if errors.Is(err, db.ErrNotFound) || err == nil && (now.ID != p.ID || now.at != from) {
			return nil // it was stopped, or another node has fed it
		}
		if err != nil {
			return err
		}
		return s.feed(ctx, tx, p, rows)
	})
	return true, db.Wrap(err, "replay")
}

// fedRows are the rows of a step.
type fedRows struct{ created, again [][]any }

// take selects up to n of the candidates, and advances the replay.
func (s *Service) take(e *Endpoint, p *Replay, list []candidate, n int) (rows fedRows) {
	now, limit := s.Now(), p.Done+int64(n)
	for _, c := range list {
		if p.Done == limit {
			return rows
		}
		p.at = c.id
		if !p.selects(e, c) {
			continue
		}
		p.Done++
		d := s.newDelivery(e, c.eventID, c.typ, c.at, now)
		switch {
		case p.Mode == ReplayMissed:
			rows.created = append(rows.created, d.row())
		case p.NewIDs:
			rows.created = append(rows.created, p.copied(d, c.id).row())
		default:
			rows.again = append(rows.again, d.replayOf(c.id, false))
		}
	}
	if len(list) < replayStep {
		p.State, p.FinishedAt = ReplayCompleted, &now
	}
	return rows
}

// feed makes deliveries of a replay due, and stores its progress.
func (s *Service) feed(ctx context.Context, tx *db.Tx, p *Replay, rows fedRows) error {
	if _, err := insertDeliveries.Write(ctx, tx, rows.created); err != nil {
		return err
	}
	if _, err := replayDeliveries.Write(ctx, tx, rows.again); err != nil {
		return err
	}
	// Deliveries that were in progress when they were counted may have ended.
	p.Total = max(p.Total, p.Done)
	_, err := tx.Exec(ctx, "UPDATE replays SET at = $2, counted_to = $3, done = $4, total = $5, status = $6, finished_at = $7 WHERE id = $1",
		p.ID, p.at, db.OrNull(p.counted), p.Done, p.Total, p.State, db.Micros(p.FinishedAt))
	return err
}
