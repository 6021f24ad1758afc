package events

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// Table is the table of events, for partitions and retention.
var Table = db.Partitioned{Table: "events", Key: "id", Prefix: ids.Event}

// MaxBody is the maximum size of a delivery's body.
const MaxBody = 1 << 20

// Event is something that happened. Body is delivered as it is, byte for byte.
type Event struct {
	ID string
	accounts.Tenant
	Project   string
	Type      Type
	Sample    bool
	About     string // the endpoint that the event is about, which doesn't get it
	CreatedAt time.Time
	Body      []byte
}

// Origin is the owner of an event.
type Origin struct {
	accounts.Tenant
	Project string
}

// envelope is the body around the data.
type envelope struct {
	ID          string               `json:"id"`
	Object      string               `json:"object"`
	Type        Type                 `json:"type"`
	Sample      bool                 `json:"sample,omitzero"`
	CreatedAt   int64                `json:"created_at"`
	Environment accounts.Environment `json:"environment"`
	Workspace   string               `json:"workspace"`
	Project     *string              `json:"project"`
	Data        Payload              `json:"data"`
}

// Publisher stores events.
type Publisher struct {
	now  func() time.Time
	wake func()
}

// NewPublisher returns a publisher.
func NewPublisher(now func() time.Time) *Publisher { return &Publisher{now: now, wake: func() {}} }

// OnPublished sets the function that is called after a commit that published
// events. Without it, the next poll finds them.
func (p *Publisher) OnPublished(wake func()) { p.wake = wake }

// Publish stores an event in the transaction that causes it, so that neither
// exists without the other.
func (p *Publisher) Publish(ctx context.Context, tx *db.Tx, from Origin, data Payload) (*Event, error) {
	list, err := p.PublishAll(ctx, tx, from, data)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// PublishAll is Publish for several events.
func (p *Publisher) PublishAll(ctx context.Context, tx *db.Tx, from Origin, data ...Payload) ([]*Event, error) {
	list := make([]*Event, len(data))
	for i, d := range data {
		e, err := p.compose(from, d, false)
		if err != nil {
			return nil, err
		}
		list[i] = e
	}
	if err := store(ctx, tx, list...); err != nil {
		return nil, err
	}
	return list, p.queue(ctx, tx, list...)
}

// PublishSample is Publish with sample data.
func (p *Publisher) PublishSample(ctx context.Context, tx *db.Tx, from Origin, t Type) (*Event, error) {
	e, err := p.StoreSample(ctx, tx, from, t)
	if err != nil {
		return nil, err
	}
	return e, p.queue(ctx, tx, e)
}

// StoreSample stores an event with sample data that isn't fanned out. The caller
// delivers it.
func (p *Publisher) StoreSample(ctx context.Context, tx *db.Tx, from Origin, t Type) (*Event, error) {
	e, err := p.compose(from, Sample(t, p.now()), true)
	if err != nil {
		return nil, err
	}
	return e, store(ctx, tx, e)
}

// compose returns an event with its body.
func (p *Publisher) compose(from Origin, data Payload, sample bool) (*Event, error) {
	e := &Event{ID: ids.New(ids.Event), Tenant: from.Tenant, Project: from.Project,
		Type: data.eventType(), Sample: sample, CreatedAt: p.now()}
	if subject, ok := data.(interface{ about() string }); ok {
		e.About = subject.about()
	}
	shape := envelope{ID: e.ID, Object: "event", Type: e.Type, Sample: sample, CreatedAt: e.CreatedAt.Unix(),
		Environment: e.Environment, Workspace: e.WorkspaceID, Data: data}
	if e.Project != "" {
		shape.Project = &e.Project
	}
	var err error
	if e.Body, err = json.Marshal(shape, jsontext.EscapeForHTML(false)); err != nil {
		return nil, fmt.Errorf("event body: %w", err)
	}
	if len(e.Body) > MaxBody {
		return nil, fmt.Errorf("event of type %s has %d bytes; the maximum is %d", e.Type, len(e.Body), MaxBody)
	}
	return e, nil
}

var (
	insertEvents = db.NewBulk("events", "", "id text", "workspace_id text", "environment text", "project text", "type text", "sample boolean",
		"created_at bigint", "about text", "body text")
	insertPending = db.NewBulk("new_events", "", "event_id text", "workspace_id text", "environment text", "type text", "sample boolean", "created_at bigint", "about text")
)

func store(ctx context.Context, tx *db.Tx, list ...*Event) error {
	rows := make([][]any, len(list))
	for i, e := range list {
		rows[i] = []any{e.ID, e.WorkspaceID, string(e.Environment), db.OrNull(e.Project), string(e.Type), e.Sample, e.CreatedAt.UnixMicro(), db.OrNull(e.About), string(e.Body)}
	}
	_, err := insertEvents.Write(ctx, tx, rows)
	return db.Wrap(err, "store events")
}

// queue marks events to be fanned out after the commit.
func (p *Publisher) queue(ctx context.Context, tx *db.Tx, list ...*Event) error {
	rows := make([][]any, len(list))
	for i, e := range list {
		rows[i] = []any{e.ID, e.WorkspaceID, string(e.Environment), string(e.Type), e.Sample, e.CreatedAt.UnixMicro(), db.OrNull(e.About)}
	}
	if _, err := insertPending.Write(ctx, tx, rows); err != nil {
		return fmt.Errorf("queue events: %w", err)
	}
	tx.OnCommit(p.wake)
	return nil
}

// Pending is an event that isn't fanned out yet.
type Pending struct {
	ID string
	accounts.Tenant
	Type      Type
	Sample    bool
	CreatedAt time.Time
	About     string // the endpoint that must not get it
	Body      string // empty if it is large
}

// TakePending takes up to n pending events, which the caller must fan out in the
// same transaction. It includes bodies of at most inline bytes.
func TakePending(ctx context.Context, tx *db.Tx, n, inline int) ([]Pending, error) {
	// The limit is part of the statement: SQLite compiles a statement again
	// whenever the parameter of a LIMIT is bound.
	body := "NULL"
	if inline > 0 {
		body = fmt.Sprintf("(SELECT body FROM events WHERE id = event_id AND length(body) <= %d)", inline)
	}
	query := fmt.Sprintf(`WITH oldest AS (SELECT event_id FROM new_events ORDER BY event_id LIMIT %d%s)
		DELETE FROM new_events WHERE event_id IN (SELECT event_id FROM oldest)
		RETURNING event_id, workspace_id, environment, type, sample, created_at, about, %s`, n, tx.Claim("new_events"), body)
	list, err := db.List(ctx, tx, func(r db.Row) (e Pending, err error) {
		err = db.Scan(r, &e.ID, &e.WorkspaceID, &e.Environment, &e.Type, &e.Sample, &e.CreatedAt, &e.About, &e.Body)
		return e, err
	}, query)
	return list, db.Wrap(err, "take pending events")
}

// ReadPending returns a stored event as TakePending did, without its body.
func ReadPending(ctx context.Context, q db.Querier, id string) (e Pending, err error) {
	err = db.Scan(q.QueryRow(ctx, "SELECT id, workspace_id, environment, type, sample, created_at, about FROM events WHERE id = $1", id),
		&e.ID, &e.WorkspaceID, &e.Environment, &e.Type, &e.Sample, &e.CreatedAt, &e.About)
	return e, err
}

// Projects returns the projects of events by event ID. Events without a project
// are left out.
func Projects(ctx context.Context, q db.Querier, list []Pending) (map[string]string, error) {
	ids, projects := make([]string, len(list)), map[string]string{}
	for i, e := range list {
		ids[i] = e.ID
	}
	err := db.ByIDs(ctx, q, db.InQuery{SQL: "SELECT id, project FROM events WHERE project IS NOT NULL AND id IN"}, ids, func(r db.Row) error {
		var id, project string
		err := r.Scan(&id, &project)
		projects[id] = project
		return err
	})
	return projects, db.Wrap(err, "read the projects of events")
}

// HasPending reports whether there are pending events, without the write lock.
func HasPending(ctx context.Context, q db.Querier) (bool, error) {
	return db.Value[bool](q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM new_events)"))
}

var scan = db.Scanner(func(e *Event) []any {
	return []any{&e.ID, &e.WorkspaceID, &e.Environment, &e.Project, &e.Type, &e.Sample, &e.CreatedAt, &e.About, &e.Body}
})

// Get returns a visible event.
func Get(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Event, error) {
	e, err := db.FindOne(ctx, q, db.Search{Table: "events", Columns: insertEvents.Columns(), Where: vis.Rows()}, id, scan)
	return e, db.OrNoSuch(err, "event", id)
}

// Filter narrows a list of events.
type Filter struct {
	Type         Type      // or a pattern with *
	Project      string    // or a pattern with *
	Since, Until time.Time // zero for no limit
	NoBody       bool      // bodies may be large
}

// List returns a page of the visible events.
func List(ctx context.Context, q db.Querier, vis visibility.Filter, f Filter, page db.Page) (*db.Found[*Event], error) {
	return db.Find(ctx, q, f.search(vis), page, db.Record[*Event]{Scan: scan, ID: func(e *Event) string { return e.ID }})
}

// Count counts the visible events over time, as far as a bounded scan goes.
func Count(ctx context.Context, q db.Querier, vis visibility.Filter, f Filter, t db.Timeline) (*db.TimelineCounts, error) {
	return db.CountRows(ctx, q, f.search(vis), t)
}

func (f Filter) search(vis visibility.Filter) db.Search {
	s := db.Search{Table: "events", Columns: insertEvents.Columns(), Where: vis.Rows()}
	if f.NoBody {
		s.Columns = insertEvents.Columns("body") + ", ''"
	}
	if !f.Since.IsZero() {
		s.Where.Bound(">=", ids.Floor(ids.Event, f.Since))
	}
	if !f.Until.IsZero() {
		s.Where.Bound("<", ids.Floor(ids.Event, f.Until))
	}
	s.Filter.AddMatch(string(f.Type), "type")
	s.Filter.AddMatch(f.Project, "project")
	return s
}

// Purge deletes up to n events that are older than before.
func Purge(ctx context.Context, tx *db.Tx, before time.Time, n int64) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE id < $1 ORDER BY id LIMIT $2)",
		ids.Floor(ids.Event, before), n)
}
