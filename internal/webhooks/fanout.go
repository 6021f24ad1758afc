package webhooks

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/lanes"
)

const (
	// signalEvents is received when another process changed the embedded database,
	// perhaps by an event. Nothing sends it explicitly.
	signalEvents = "events"

	// fanoutPoll finds events that a node published before it died.
	fanoutPoll = time.Second

	// maxFanout limits the events of a transaction. If they result in more than
	// manyDeliveries, the next transaction takes fewer.
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
	for {
		s.fanOutPending(ctx)
		select {
		case <-ctx.Done():
			return
		case <-s.fanWake:
		case <-tick.C:
			if err := s.retryParked(ctx); err != nil {
				slog.Warn("failed to fan out parked events; retrying", "err", err, "retry_in", fanoutPoll)
			}
		}
	}
}

// fanOutPending fans out events until none is pending.
func (s *Service) fanOutPending(ctx context.Context) {
	n, behind := maxFanout, false
	for ctx.Err() == nil {
		took, made, err := s.fanOut(ctx, n, behind)
		if err != nil {
			if err = s.isolate(ctx, took, err); err != nil {
				if ctx.Err() == nil {
					slog.Warn("failed to fan out events; retrying", "err", err, "retry_in", fanoutPoll)
				}
				return
			}
			n = max(1, len(took)/2) // to find the event that fails
			continue
		}
		if behind = len(took) == n; !behind {
			return
		}
		if made > manyDeliveries {
			n = max(1, n/2)
		} else {
			n = min(2*n, maxFanout)
		}
	}
}

// fanOut creates the deliveries of up to n pending events in one transaction, so
// that an event is fanned out once. If it is behind, lanes have enough items, and
// are only marked. It returns the events that it took, also if they failed.
func (s *Service) fanOut(ctx context.Context, n int, behind bool) (took []events.Pending, made int, err error) {
	if !behind {
		found, err := events.HasPending(ctx, s.DB)
		if err != nil || !found {
			return nil, 0, err
		}
	}
	inline := inlineBody
	if behind {
		inline = 0
	}
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		if took, err = events.TakePending(ctx, tx, n, inline); err != nil {
			return err
		}
		made, err = s.fanOutIn(ctx, tx, took, !behind)
		return err
	})
	return took, made, err
}

// fanOutIn creates the deliveries of events. Their lanes get them if the events have their bodies.
func (s *Service) fanOutIn(ctx context.Context, tx *db.Tx, list []events.Pending, bodies bool) (made int, err error) {
	now := s.Now()
	if s.Notify != nil {
		if err := s.Notify(ctx, tx, list); err != nil {
			return 0, err
		}
	}
	rows, jobs, err := s.deliveriesOf(ctx, tx, list, now)
	if err != nil {
		return 0, err
	}
	stored, err := insertDeliveries.Write(ctx, tx, rows)
	if err != nil {
		return 0, fmt.Errorf("store deliveries: %w", err)
	}
	if !bodies || stored < int64(len(rows)) {
		// The jobs have no bodies, or a replay created some of the deliveries
		// before: the lanes must be scanned.
		return len(rows), lanes.Enqueue(ctx, tx, Queue, dueLanes(jobs, now))
	}
	return len(rows), s.runner.EnqueueNow(ctx, tx, jobs, now)
}

func dueLanes(jobs map[string][]*job, at time.Time) map[string]time.Time {
	due := make(map[string]time.Time, len(jobs))
	for id := range jobs {
		due[id] = at
	}
	return due
}

// deliveriesOf returns one delivery for each event and endpoint that subscribes to
// it, and jobs for those that are due.
func (s *Service) deliveriesOf(ctx context.Context, tx *db.Tx, list []events.Pending, now time.Time) (rows [][]any, jobs map[string][]*job, err error) {
	known := map[accounts.Tenant][]*Endpoint{}
	jobs = map[string][]*job{}
	projects := eventProjects{events: list}
	for _, event := range list {
		endpoints, ok := known[event.Tenant]
		if !ok {
			if endpoints, err = subscribers(ctx, tx, event.Tenant); err != nil {
				return nil, nil, err
			}
			known[event.Tenant] = endpoints
		}
		for _, e := range endpoints {
			if !event.Type.Matches(e.Events) || e.isSubject(event.About) {
				continue
			}
			if included, err := projects.includes(ctx, tx, e, event.ID); err != nil {
				return nil, nil, err
			} else if !included {
				continue
			}
			d := s.newDelivery(e, event.ID, event.Type, event.CreatedAt, now)
			rows = append(rows, d.row())
			if d.DueAt != nil {
				jobs[e.ID] = append(jobs[e.ID], &job{id: d.ID, eventID: event.ID, due: d.DueAt.UnixMicro(), sample: event.Sample,
					typ: event.Type, linksAt: d.CreatedAt.UnixMicro(), base: d.linksBase, body: event.Body})
			}
		}
	}
	for _, list := range jobs {
		slices.SortFunc(list, func(a, b *job) int { return strings.Compare(a.id, b.id) })
	}
	return rows, jobs, nil
}

// subscribers returns the endpoints of a tenant. They stay
// locked until their deliveries are stored: an endpoint that is resumed in between
// would never find the deliveries held for it.
func subscribers(ctx context.Context, tx *db.Tx, t accounts.Tenant) ([]*Endpoint, error) {
	list, err := db.List(ctx, tx, scanEndpoint, "SELECT "+endpointColumns+" FROM endpoints WHERE workspace_id = $1 AND environment = $2 AND deleted_at IS NULL ORDER BY id"+tx.Share("endpoints"),
		t.WorkspaceID, t.Environment)
	return list, db.Wrap(err, "read endpoints")
}

// Subscribers returns the endpoints that get an event of the origin, including
// paused ones, which hold it.
func Subscribers(ctx context.Context, tx *db.Tx, from events.Origin, t events.Type) ([]*Endpoint, error) {
	all, err := subscribers(ctx, tx, from.Tenant)
	return slices.DeleteFunc(all, func(e *Endpoint) bool { return !t.Matches(e.Events) || !e.takes(from.Project) }), err
}

// takes reports whether the endpoint gets events of the project.
func (e *Endpoint) takes(project string) bool {
	return (e.Project == "" || e.Project == project) && (len(e.Projects) == 0 || slices.Contains(e.Projects, project))
}

// filtersProjects reports whether the endpoint gets the events of some projects only.
func (e *Endpoint) filtersProjects() bool { return e.Project != "" || len(e.Projects) > 0 }

// isSubject reports whether an event is about this endpoint, or the one that it mirrors.
func (e *Endpoint) isSubject(about string) bool {
	return about != "" && (about == e.ID || about == e.Mirrors)
}

// eventProjects looks up the projects of a batch of events when the first endpoint
// that filters by project needs them. Most workspaces have none.
type eventProjects struct {
	events []events.Pending
	byID   map[string]string
}

// includes reports whether the endpoint gets events of the event's project.
func (p *eventProjects) includes(ctx context.Context, tx *db.Tx, e *Endpoint, eventID string) (bool, error) {
	if !e.filtersProjects() {
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
