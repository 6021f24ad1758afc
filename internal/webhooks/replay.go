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
		d = newDelivery(e, d.EventID, d.Type, d.EventAt, now).withNewID()
		_, err = insertDeliveries.Write(ctx, tx, [][]any{d.row()})
	} else {
		d.Reason, d.Tries, d.DueAt = "", 0, &now
		if d.State != Succeeded {
			d.State, d.FinishedAt = Pending, nil
		}
		_, err = tx.Exec(ctx, makeDueAgain+" WHERE id = $2", now.UnixMicro(), d.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("replay delivery: %w", err)
	}
	if err := lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{e.ID: now}); err != nil {
		return nil, err
	}
	return d, s.log(ctx, tx, by, loggedAction{e, "delivery.replayed", map[string]any{"delivery": in.DeliveryID, "as": d.ID}})
}

// makeDueAgain restarts a delivery. $1 is the current time. A delivery that succeeded
// stays so, whatever comes of the replay.
const makeDueAgain = `UPDATE deliveries SET status = CASE WHEN status = 'succeeded' THEN status ELSE 'pending' END,
	finished_at = CASE WHEN status = 'succeeded' THEN finished_at ELSE NULL END, reason = NULL, tries = 0, due_at = $1, links_at = $1`

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
	ReplayMissed = "missed" // events without a delivery to this endpoint; the total counts all events
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
	Total      int64
	Done       int64
	CreatedAt  time.Time
	FinishedAt *time.Time

	at string // the last ID that was read
}

const replayColumns = `id, endpoint_id, workspace_id, environment, status, mode, types, new_ids, since, until, at, total, done, created_at, finished_at`

var scanReplay = db.Scanner(func(p *Replay) []any {
	return []any{&p.ID, &p.EndpointID, &p.WorkspaceID, &p.Environment, &p.State, &p.Mode, &p.Types, &p.NewIDs, &p.Since, &p.Until, &p.at, &p.Total, &p.Done,
		&p.CreatedAt, &p.FinishedAt}
})

// StartReplay stores a replay of a visible endpoint. The endpoint's lane sends it.
func (s *Service) StartReplay(ctx context.Context, tx *db.Tx, by audit.Actor, vis visibility.Filter, p *Replay) error {
	// The lock keeps the endpoint from being paused, and another replay from starting.
	e, err := find(ctx, tx, p.EndpointID, tx.Lock("endpoints"))
	if err == nil && !e.visible(vis) {
		err = db.ErrNotFound
	}
	if err != nil {
		return db.OrNoSuch(err, "webhook endpoint", p.EndpointID)
	}
	if err := replayable(e); err != nil {
		return err
	}
	now := s.Now()
	if err := p.validate(now); err != nil {
		return err
	}
	running, err := db.Value[string](tx.QueryRow(ctx, "SELECT id FROM replays WHERE endpoint_id = $1 AND status = 'running' LIMIT 1", e.ID))
	if err == nil {
		return fault.New(fault.Conflict, "Replay %[1]s of this endpoint is still running. Wait until it has ended (GET /v1/replays/%[1]s), or pause the endpoint to stop it.", running)
	}
	if !errors.Is(err, db.ErrNotFound) {
		return fmt.Errorf("find running replay: %w", err)
	}
	p.ID, p.State, p.CreatedAt = ids.New(ids.Replay), ReplayRunning, now
	p.Tenant = e.Tenant
	// Counted outside the transaction: a long count must not block other writes.
	if p.Total, err = s.countReplay(ctx, s.DB, e, p); err != nil {
		return fmt.Errorf("count replay: %w", err)
	}
	if _, err = tx.Exec(ctx, db.Insert("replays", replayColumns),
		p.ID, p.EndpointID, p.WorkspaceID, p.Environment, p.State, p.Mode, db.JSON(p.Types), p.NewIDs,
		p.Since.UnixMicro(), p.Until.UnixMicro(), "", p.Total, 0, p.CreatedAt.UnixMicro(), nil); err != nil {
		return fmt.Errorf("store replay: %w", err)
	}
	if err := lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{e.ID: now}); err != nil {
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

// candidates returns the query for the rows to replay: $1 is their owner, $2 and $3
// are the time range, $4 and $5 the range of IDs, both exclusive. Other arguments
// follow. Deliveries in progress are left alone.
func (p *Replay) candidates(e *Endpoint) string {
	switch p.Mode {
	case ReplayMissed:
		// All events, or those of the endpoint's projects. A delivery that exists
		// isn't stored again.
		project := ""
		if list := e.onlyProjects(); len(list) > 0 {
			places, _ := db.Places(make([]any, 7), list)
			project = " AND c.project IN " + places
		}
		return `FROM events c WHERE c.workspace_id = $1 AND c.environment = $6 AND c.created_at >= $2 AND c.created_at < $3 AND c.id > $4 AND c.id < $5
			AND NOT c.sample AND (c.about IS NULL OR c.about <> $7)` + project
	case ReplayFailed:
		return replayRange + " AND c.status = 'failed'"
	}
	return replayRange + " AND c.status IN ('succeeded', 'failed', 'discarded') AND c.due_at IS NULL"
}

// onlyProjects returns the projects whose events the endpoint gets; nil means all.
func (e *Endpoint) onlyProjects() []string {
	if e.Project != "" {
		return []string{e.Project}
	}
	return e.Projects
}

const replayRange = "FROM deliveries c WHERE c.endpoint_id = $1 AND c.event_at >= $2 AND c.event_at < $3 AND c.id > $4 AND c.id < $5"

// args returns the arguments of candidates. All IDs sort by time, so the replay's
// ID excludes the deliveries that it creates.
func (p *Replay) args(e *Endpoint, after string) []any {
	if p.Mode == ReplayMissed {
		before := ids.Event + strings.TrimPrefix(p.ID, ids.Replay)
		_, args := db.Places([]any{e.WorkspaceID, p.Since.UnixMicro(), p.Until.UnixMicro(), after, before, e.Environment, cmp.Or(e.Mirrors, e.ID)}, e.onlyProjects())
		return args
	}
	return []any{e.ID, p.Since.UnixMicro(), p.Until.UnixMicro(), after, p.end()}
}

// end is an ID after those of all deliveries to replay.
func (p *Replay) end() string {
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

// includes reports whether the replay sends events of the type.
func (p *Replay) includes(e *Endpoint, t events.Type) bool {
	if p.Mode == ReplayMissed && !t.Matches(e.Events) {
		return false
	}
	return len(p.Types) == 0 || slices.Contains(p.Types, t)
}

func (s *Service) countReplay(ctx context.Context, q db.Querier, e *Endpoint, p *Replay) (total int64, err error) {
	rows, err := q.Query(ctx, "SELECT c.type, count(*) "+p.candidates(e)+" GROUP BY c.type", p.args(e, "")...)
	err = db.Each(rows, err, func(r db.Row) error {
		var typ string
		var n int64
		if err := r.Scan(&typ, &n); err != nil {
			return err
		}
		if p.includes(e, events.Type(typ)) {
			total += n
		}
		return nil
	})
	return total, err
}

// feedReplay makes the next n deliveries of the endpoint's oldest replay due. They
// are few, so that live events are delivered in between.
func (s *Service) feedReplay(ctx context.Context, e *Endpoint, n int) (fed bool, err error) {
	const running = " FROM replays WHERE endpoint_id = $1 AND status = 'running'"
	err = s.DB.QueryRow(ctx, "SELECT EXISTS (SELECT 1"+running+")", e.ID).Scan(&fed)
	if err != nil || !fed {
		return false, err
	}
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		fed = false
		p, err := scanReplay(tx.QueryRow(ctx, "SELECT "+replayColumns+running+" ORDER BY id LIMIT 1"+tx.Lock("replays"), e.ID))
		if errors.Is(err, db.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		fed = true
		return s.feed(ctx, tx, e, p, n)
	})
	if err != nil {
		return false, fmt.Errorf("replay: %w", err)
	}
	return fed, nil
}

// lookAhead is how many candidates one step of a replay reads; it skips types that
// the replay doesn't include.
const lookAhead = 1000

// candidate is an event or a delivery that a replay may send.
type candidate struct {
	id, eventID string
	typ         events.Type
	at          time.Time
}

func (p *Replay) readCandidates(ctx context.Context, tx *db.Tx, e *Endpoint) ([]candidate, error) {
	columns := "c.id, c.event_id, c.type, c.event_at "
	if p.Mode == ReplayMissed {
		columns = "c.id, c.id, c.type, c.created_at "
	}
	scan := func(r db.Row) (c candidate, err error) {
		err = db.Scan(r, &c.id, &c.eventID, &c.typ, &c.at)
		return c, err
	}
	return db.List(ctx, tx, scan, fmt.Sprintf("SELECT "+columns+p.candidates(e)+" ORDER BY c.id LIMIT %d", lookAhead), p.args(e, p.at)...)
}

// feed makes the next n deliveries of a replay due, and stores its progress.
func (s *Service) feed(ctx context.Context, tx *db.Tx, e *Endpoint, p *Replay, n int) error {
	list, err := p.readCandidates(ctx, tx, e)
	if err != nil {
		return err
	}
	now := s.Now()
	limit, complete := p.Done+int64(n), len(list) < lookAhead
	var created [][]any
	for _, c := range list {
		if p.Done == limit {
			complete = false
			break
		}
		p.at = c.id
		if !p.includes(e, c.typ) {
			continue
		}
		p.Done++
		d := newDelivery(e, c.eventID, c.typ, c.at, now)
		if p.Mode == ReplayMissed {
			created = append(created, d.row())
		} else if p.NewIDs {
			created = append(created, p.copied(d, c.id).row())
		} else if _, err := tx.Exec(ctx, makeDueAgain+" WHERE id = $2", now.UnixMicro(), c.id); err != nil {
			return err
		}
	}
	if _, err := insertDeliveries.Write(ctx, tx, created); err != nil {
		return err
	}
	state, finished := ReplayRunning, any(nil)
	if complete {
		state, finished = ReplayCompleted, now.UnixMicro()
	}
	// Deliveries that were in progress when the replay was counted may have ended.
	p.Total = max(p.Total, p.Done)
	_, err = tx.Exec(ctx, "UPDATE replays SET at = $2, done = $3, total = $4, status = $5, finished_at = $6 WHERE id = $1", p.ID, p.at, p.Done, p.Total, state, finished)
	return err
}
