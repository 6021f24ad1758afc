package webhooks

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/lanes"
)

const (
	// signalEvents has no sender: it is heard when another process changed the
	// embedded database, which may have been an event.
	signalEvents = "events"

	// fanoutPoll finds what a node that died had published and not fanned out.
	fanoutPoll = time.Second

	// maxFanout bounds the events of one transaction. When they have so many
	// endpoints that it makes more than manyDeliveries, the next takes fewer.
	maxFanout      = 256
	manyDeliveries = 2000
)

func (s *Service) wakeFanout() {
	select {
	case s.fanWake <- struct{}{}:
	default:
	}
}

func (s *Service) runFanout(ctx context.Context) {
	tick := time.NewTicker(fanoutPoll)
	defer tick.Stop()
	n, behind := maxFanout, false
	for {
		for ctx.Err() == nil {
			took, made, err := s.fanOut(ctx, n, behind)
			if err != nil {
				if ctx.Err() == nil {
					slog.Warn("cannot fan events out; it is tried again", "error", err)
				}
				break
			}
			behind = took == n
			if made > manyDeliveries {
				n = max(1, n/2)
			} else {
				n = min(2*n, maxFanout)
			}
			if !behind {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.fanWake:
		case <-tick.C:
		}
	}
}

// fanOut makes the deliveries of up to n new events. Taking the events, the
// deliveries and their lanes are one transaction: an event is fanned out once.
// When it is behind, lanes have enough to do, and are only told.
func (s *Service) fanOut(ctx context.Context, n int, behind bool) (took, made int, err error) {
	if !behind {
		found, err := events.AnyNew(ctx, s.db)
		if err != nil || !found {
			return 0, 0, err
		}
	}
	inline := inlineBody
	if behind {
		inline = 0
	}
	now := s.now()
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		list, err := events.TakeNew(ctx, tx, n, inline)
		if err != nil {
			return err
		}
		rows, jobs, err := s.deliveriesOf(ctx, tx, list, now)
		if err != nil {
			return err
		}
		took, made = len(list), len(rows)
		stored, err := insertDeliveries.Write(ctx, tx, rows)
		if err != nil {
			return fmt.Errorf("store deliveries: %w", err)
		}
		if behind || stored < int64(len(rows)) {
			// Without their bodies, or when a replay made some of them before,
			// what is to be done is for the lanes to see.
			return lanes.Enqueue(ctx, tx, Queue, dueLanes(jobs, now))
		}
		return s.runner.EnqueueNow(ctx, tx, jobs, now)
	})
	return took, made, err
}

func dueLanes(jobs map[string][]*job, at time.Time) map[string]time.Time {
	due := make(map[string]time.Time, len(jobs))
	for id := range jobs {
		due[id] = at
	}
	return due
}

// deliveriesOf makes one delivery for each event and endpoint that wants it,
// and the jobs of those that are due.
func (s *Service) deliveriesOf(ctx context.Context, tx *db.Tx, list []events.New, now time.Time) (rows [][]any, jobs map[string][]*job, err error) {
	type tenant struct{ workspace, environment string }
	known := map[tenant][]*Endpoint{}
	jobs = map[string][]*job{}
	projects := eventProjects{events: list}
	for _, event := range list {
		t := tenant{event.WorkspaceID, event.Environment}
		endpoints, ok := known[t]
		if !ok {
			if endpoints, err = subscribers(ctx, tx, t.workspace, t.environment); err != nil {
				return nil, nil, err
			}
			known[t] = endpoints
		}
		for _, e := range endpoints {
			if !event.Type.Matches(e.Events) {
				continue
			}
			if takes, err := projects.takes(ctx, tx, e, event.ID); err != nil {
				return nil, nil, err
			} else if !takes {
				continue
			}
			d := newDelivery(e, event.ID, event.Type, event.CreatedAt, now)
			rows = append(rows, d.row())
			if d.DueAt != nil {
				jobs[e.ID] = append(jobs[e.ID], &job{id: d.ID, eventID: event.ID, due: d.DueAt.UnixMicro(), sample: event.Sample,
					typ: event.Type, linksAt: d.CreatedAt.UnixMicro(), body: event.Body})
			}
		}
	}
	for _, list := range jobs {
		slices.SortFunc(list, func(a, b *job) int { return strings.Compare(a.id, b.id) })
	}
	return rows, jobs, nil
}

// subscribers are the endpoints of a tenant, held as they are until their
// deliveries are stored: one that was resumed in between would never look at
// what is held for it.
func subscribers(ctx context.Context, tx *db.Tx, workspaceID, environment string) ([]*Endpoint, error) {
	rows, err := tx.Query(ctx, "SELECT "+endpointColumns+" FROM endpoints WHERE workspace_id = $1 AND environment = $2 AND deleted_at IS NULL ORDER BY id"+tx.Share("endpoints"),
		workspaceID, environment)
	list, err := db.All(rows, err, scanEndpoint)
	if err != nil {
		return nil, fmt.Errorf("read endpoints: %w", err)
	}
	return list, nil
}

// Subscribers returns the endpoints that get an event of the origin. A paused one
// is among them: it holds what it gets.
func Subscribers(ctx context.Context, tx *db.Tx, from events.Origin, t events.Type) ([]*Endpoint, error) {
	all, err := subscribers(ctx, tx, from.WorkspaceID, from.Environment)
	return slices.DeleteFunc(all, func(e *Endpoint) bool { return !t.Matches(e.Events) || !e.takes(from.Project) }), err
}

// takes reports whether the endpoint gets events of the project.
func (e *Endpoint) takes(project string) bool { return e.Project == "" || e.Project == project }

// eventProjects looks up the projects of a batch of events when the first
// endpoint that belongs to a project asks. Most workspaces have none.
type eventProjects struct {
	events []events.New
	byID   map[string]string
}

// takes reports whether the endpoint gets the event, as far as its project goes.
func (p *eventProjects) takes(ctx context.Context, tx *db.Tx, e *Endpoint, eventID string) (bool, error) {
	if e.Project == "" {
		return true, nil
	}
	if p.byID == nil {
		var err error
		if p.byID, err = events.Projects(ctx, tx, p.events); err != nil {
			return false, err
		}
	}
	return e.takes(p.byID[eventID]), nil
}
