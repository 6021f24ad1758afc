package webhooks

import (
	"context"
	"encoding/json"
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

// ReplayWindow is how long after an event it can be delivered again.
const ReplayWindow = 30 * 24 * time.Hour

// ReplayDelivery sends one delivery again, with a fresh schedule: under its own
// id, so that a receiver that has it already knows it again, or under a new one.
func (s *Service) ReplayDelivery(ctx context.Context, tx *db.Tx, by audit.Actor, vis visibility.Filter, id string, newID bool) (*Delivery, error) {
	d, err := getDelivery(ctx, tx, vis, id, tx.Lock("deliveries"))
	if err != nil {
		return nil, err
	}
	now := s.now()
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
	if newID {
		d = newDelivery(e, d.EventID, d.Type, d.EventAt, now).anew()
		_, err = insertDeliveries.Write(ctx, tx, [][]any{d.row()})
	} else {
		d.State, d.Reason, d.Tries, d.DueAt, d.FinishedAt = Pending, "", 0, &now, nil
		_, err = tx.Exec(ctx, again+" WHERE id = $2", now.UnixMicro(), d.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("replay delivery: %w", err)
	}
	if err := lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{e.ID: now}); err != nil {
		return nil, err
	}
	return d, s.log(ctx, tx, by, e, "delivery.replayed", map[string]any{"delivery": id, "as": d.ID})
}

// again makes a delivery due once more. $1 is now.
const again = "UPDATE deliveries SET status = 'pending', reason = NULL, tries = 0, due_at = $1, links_at = $1, finished_at = NULL"

func outsideWindow(param string) error {
	return fault.Param(fault.OutsideReplayWindow, param, "events can be replayed for 30 days after they happened")
}

func replayable(e *Endpoint) error {
	if e.DeletedAt != nil {
		return fault.New(fault.InvalidState, "the endpoint %s was deleted", e.ID)
	}
	if e.Status != Active && e.Kind == Tunnel {
		return fault.New(fault.InvalidState, "the tunnel %s is not connected; turnpike listen --resume %s --forward-to ADDRESS connects it", e.ID, e.ID)
	}
	if e.Status != Active {
		return fault.New(fault.InvalidState, "the endpoint %s is paused; resume it first (POST /v1/webhooks/%s/resume)", e.ID, e.ID)
	}
	return nil
}

// Replay modes: what is sent again.
const (
	ReplayFailed = "failed" // deliveries whose last retry failed
	ReplayAll    = "all"    // every delivery
	ReplayMissed = "missed" // events that have no delivery here; its total counts all that are looked at
)

// States of a replay.
const (
	ReplayRunning   = "running"
	ReplayCompleted = "completed"
	ReplayStopped   = "stopped" // its endpoint was paused or deleted
)

// Replay sends many deliveries of an endpoint again. It is a job that the
// endpoint's lane goes on with whenever nothing else is due there.
type Replay struct {
	ID          string
	EndpointID  string
	WorkspaceID string
	Environment accounts.Environment
	State       string
	Mode        string
	Types       []events.Type
	NewIDs      bool
	Since       time.Time
	Until       time.Time
	Total       int64
	Done        int64
	CreatedAt   time.Time
	FinishedAt  *time.Time

	at string // the last id that was looked at
}

const replayColumns = `id, endpoint_id, workspace_id, environment, status, mode, types, new_ids, since, until, at, total, done, created_at, finished_at`

func scanReplay(r db.Row) (*Replay, error) {
	var p Replay
	var env, types string
	var since, until, created int64
	var finished *int64
	err := r.Scan(&p.ID, &p.EndpointID, &p.WorkspaceID, &env, &p.State, &p.Mode, &types, &p.NewIDs, &since, &until, &p.at, &p.Total, &p.Done, &created, &finished)
	if err != nil {
		return nil, err
	}
	p.Environment = accounts.Environment(env)
	p.Since, p.Until, p.CreatedAt, p.FinishedAt = time.UnixMicro(since), time.UnixMicro(until), time.UnixMicro(created), db.Time(finished)
	return &p, json.Unmarshal([]byte(types), &p.Types)
}

// StartReplay stores a replay of a visible endpoint, whose lane does the work.
func (s *Service) StartReplay(ctx context.Context, tx *db.Tx, by audit.Actor, vis visibility.Filter, p *Replay) error {
	// Locked, so that a pause at the same moment stops it or refuses it.
	e, err := find(ctx, tx, p.EndpointID, tx.Lock("endpoints"))
	if err == nil && !e.visible(vis) {
		err = db.ErrNotFound
	}
	if errors.Is(err, db.ErrNotFound) {
		return fault.NoSuch("webhook endpoint", p.EndpointID)
	}
	if err != nil {
		return err
	}
	if err := replayable(e); err != nil {
		return err
	}
	now := s.now()
	if p.Since.After(now) {
		return fault.Invalid("since", "since must not lie in the future")
	}
	if p.Until.IsZero() {
		p.Until = now.Add(time.Microsecond) // it is exclusive
	}
	if p.Since.Before(now.Add(-ReplayWindow)) {
		return outsideWindow("since")
	}
	if !p.Since.Before(p.Until) {
		return fault.Invalid("until", "until must be after since")
	}
	if p.Mode == "" {
		p.Mode = ReplayFailed
	}
	if !slices.Contains([]string{ReplayFailed, ReplayAll, ReplayMissed}, p.Mode) {
		return fault.Invalid("status", "status must be failed, all or missed")
	}
	// Under the endpoint's lock, so that two can't start at the same time.
	var running string
	err = tx.QueryRow(ctx, "SELECT id FROM replays WHERE endpoint_id = $1 AND status = 'running' LIMIT 1", e.ID).Scan(&running)
	if err == nil {
		return fault.New(fault.Conflict, "Replay %[1]s of this endpoint is still running. Wait until it has ended (GET /v1/replays/%[1]s), or pause the endpoint to stop it.", running)
	}
	if !errors.Is(err, db.ErrNotFound) {
		return fmt.Errorf("look for a running replay: %w", err)
	}
	p.ID, p.State, p.CreatedAt = ids.New(ids.Replay), ReplayRunning, now
	p.WorkspaceID, p.Environment = e.WorkspaceID, e.Environment
	if p.Types == nil {
		p.Types = []events.Type{}
	}
	// Counted on a connection of its own: a long count must not hold the writer.
	if p.Total, err = s.countReplay(ctx, s.db, e, p); err != nil {
		return fmt.Errorf("count replay: %w", err)
	}
	types, err := json.Marshal(p.Types)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO replays (`+replayColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '', $11, 0, $12, NULL)`,
		p.ID, p.EndpointID, p.WorkspaceID, string(p.Environment), p.State, p.Mode, string(types), p.NewIDs,
		p.Since.UnixMicro(), p.Until.UnixMicro(), p.Total, now.UnixMicro())
	if err != nil {
		return fmt.Errorf("store replay: %w", err)
	}
	if err := lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{e.ID: now}); err != nil {
		return err
	}
	return s.log(ctx, tx, by, e, "webhook.replayed", map[string]any{"replay": p.ID, "status": p.Mode, "total": p.Total})
}

// GetReplay returns a visible replay.
func (s *Service) GetReplay(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Replay, error) {
	search := db.Search{Table: "replays", Columns: replayColumns, Where: vis.InEnvironment()}
	visibleByEndpoint(&search.Where, vis)
	p, err := db.FindOne(ctx, q, search, id, "", scanReplay)
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("replay", id)
	}
	return p, err
}

// ListReplays returns a page of a visible endpoint's replays.
func (s *Service) ListReplays(ctx context.Context, q db.Querier, vis visibility.Filter, endpointID string, page db.Page) (*db.Found[*Replay], error) {
	search := db.Search{Table: "replays", Columns: replayColumns, Where: vis.InEnvironment()}
	visibleByEndpoint(&search.Where, vis)
	search.Filter.Add("endpoint_id =", endpointID)
	return db.Find(ctx, q, search, page, scanReplay, func(p *Replay) string { return p.ID })
}

// stopReplays ends the replays of an endpoint that is not delivered to any more.
func (s *Service) stopReplays(ctx context.Context, tx *db.Tx, endpointID string) error {
	_, err := tx.Exec(ctx, "UPDATE replays SET status = $2, finished_at = $3 WHERE endpoint_id = $1 AND status = 'running'",
		endpointID, ReplayStopped, s.now().UnixMicro())
	return err
}

// candidates is the query for what a replay sends, in the order of its ids:
// $1 is whose they are, $2 and $3 the time, $4 the id to begin behind and $5 the
// one to end before. What is on its way already is left alone.
func (p *Replay) candidates(e *Endpoint) string {
	switch p.Mode {
	case ReplayMissed:
		// Every event of the endpoint's project, if it has one: a delivery that
		// is there already is not stored again.
		project := ""
		if e.Project != "" {
			project = " AND c.project = $7"
		}
		return `FROM events c WHERE c.workspace_id = $1 AND c.environment = $6 AND c.created_at >= $2 AND c.created_at < $3 AND c.id > $4 AND c.id < $5
			AND NOT c.sample` + project
	case ReplayFailed:
		return `FROM deliveries c WHERE c.endpoint_id = $1 AND c.event_at >= $2 AND c.event_at < $3 AND c.id > $4 AND c.id < $5
			AND c.status = 'failed'`
	}
	return `FROM deliveries c WHERE c.endpoint_id = $1 AND c.event_at >= $2 AND c.event_at < $3 AND c.id > $4 AND c.id < $5
		AND c.status IN ('succeeded', 'failed', 'discarded')`
}

// args are those of candidates. Ids sort by time, whatever they are of, so the
// replay's own one tells what was there before it: the deliveries that it makes
// were not.
func (p *Replay) args(e *Endpoint, after string) []any {
	if p.Mode == ReplayMissed {
		before := ids.Event + strings.TrimPrefix(p.ID, ids.Replay)
		args := []any{e.WorkspaceID, p.Since.UnixMicro(), p.Until.UnixMicro(), after, before, string(e.Environment)}
		if e.Project != "" {
			args = append(args, e.Project)
		}
		return args
	}
	return []any{e.ID, p.Since.UnixMicro(), p.Until.UnixMicro(), after, p.end()}
}

// end is the id that all deliveries sort before that are sent again.
func (p *Replay) end() string {
	end, _ := ids.DerivedFrom(ids.Delivery, p.ID)
	return end
}

// copied gives the delivery an id of its own, beside that of the first one: a new
// id, or one that follows from the replay's if the clock was set back since that
// began. The replay would come upon a new one then, and send it again, too.
func (p *Replay) copied(d *Delivery, first string) *Delivery {
	if d.anew(); d.ID < p.end() {
		d.ID = ids.Derive(ids.Delivery, p.ID, first)
	}
	return d
}

// wants reports whether the replay is about the type.
func (p *Replay) wants(e *Endpoint, t events.Type) bool {
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
		if p.wants(e, events.Type(typ)) {
			total += n
		}
		return nil
	})
	return total, err
}

// feedReplay puts the next deliveries of the endpoint's oldest replay into the
// lane: no more than fit into it at once, so that what happens meanwhile is
// delivered in between.
func (s *Service) feedReplay(ctx context.Context, e *Endpoint, n int) (fed bool, err error) {
	const running = " FROM replays WHERE endpoint_id = $1 AND status = 'running'"
	err = s.db.QueryRow(ctx, "SELECT EXISTS (SELECT 1"+running+")", e.ID).Scan(&fed)
	if err != nil || !fed {
		return false, err
	}
	err = s.db.Write(ctx, func(tx *db.Tx) error {
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

// lookAhead is how many candidates one step of a replay looks at, for types
// that it leaves out.
const lookAhead = 1000

func (s *Service) feed(ctx context.Context, tx *db.Tx, e *Endpoint, p *Replay, n int) error {
	type candidate struct {
		id, eventID string
		typ         events.Type
		at          time.Time
	}
	columns := "c.id, c.event_id, c.type, c.event_at "
	if p.Mode == ReplayMissed {
		columns = "c.id, c.id, c.type, c.created_at "
	}
	rows, err := tx.Query(ctx, fmt.Sprintf("SELECT "+columns+p.candidates(e)+" ORDER BY c.id LIMIT %d", lookAhead), p.args(e, p.at)...)
	list, err := db.All(rows, err, func(r db.Row) (c candidate, err error) {
		var typ string
		var at int64
		err = r.Scan(&c.id, &c.eventID, &typ, &at)
		c.typ, c.at = events.Type(typ), time.UnixMicro(at)
		return c, err
	})
	if err != nil {
		return err
	}
	now := s.now()
	done, complete := int64(0), len(list) < lookAhead
	var fresh [][]any
	for _, c := range list {
		if done == int64(n) {
			complete = false
			break
		}
		p.at = c.id
		if !p.wants(e, c.typ) {
			continue
		}
		done++
		switch d := newDelivery(e, c.eventID, c.typ, c.at, now); {
		case p.Mode == ReplayMissed:
			fresh = append(fresh, d.row())
			continue
		case p.NewIDs:
			fresh = append(fresh, p.copied(d, c.id).row())
			continue
		}
		if _, err := tx.Exec(ctx, again+" WHERE id = $2", now.UnixMicro(), c.id); err != nil {
			return err
		}
	}
	if _, err := insertDeliveries.Write(ctx, tx, fresh); err != nil {
		return err
	}
	p.Done += done
	state, finished := ReplayRunning, any(nil)
	if complete {
		state, finished = ReplayCompleted, now.UnixMicro()
	}
	// What was on its way at the beginning may be finished by now, and is sent too.
	p.Total = max(p.Total, p.Done)
	_, err = tx.Exec(ctx, "UPDATE replays SET at = $2, done = $3, total = $4, status = $5, finished_at = $6 WHERE id = $1", p.ID, p.at, p.Done, p.Total, state, finished)
	return err
}
