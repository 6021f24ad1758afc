package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// Table is the table of events, for partitions and retention.
var Table = db.Partitioned{Table: "events", Key: "id", Prefix: ids.Event}

// MaxBody bounds the body of a delivery.
const MaxBody = 1 << 20

// Event is something that happened. Body is what is delivered, byte for byte.
type Event struct {
	ID          string
	WorkspaceID string
	Environment string
	Project     string
	Type        Type
	Sample      bool
	CreatedAt   time.Time
	Body        []byte
}

// Origin is to whom something happened.
type Origin struct {
	WorkspaceID string
	Environment string
	Project     string
}

// envelope is the body around the data.
type envelope struct {
	ID          string  `json:"id"`
	Object      string  `json:"object"`
	Type        Type    `json:"type"`
	Sample      bool    `json:"sample,omitzero"`
	CreatedAt   int64   `json:"created_at"`
	Environment string  `json:"environment"`
	Workspace   string  `json:"workspace"`
	Project     *string `json:"project"`
	Data        Payload `json:"data"`
}

// Publisher stores events. Publish is its only way in.
type Publisher struct {
	now  func() time.Time
	wake func()
}

// NewPublisher makes a publisher.
func NewPublisher(now func() time.Time) *Publisher { return &Publisher{now: now, wake: func() {}} }

// OnPublished sets what is called after a commit that published something.
// Without it the next poll finds the event.
func (p *Publisher) OnPublished(wake func()) { p.wake = wake }

// Publish stores the event in the transaction that causes it: neither can be
// without the other.
func (p *Publisher) Publish(ctx context.Context, tx *db.Tx, from Origin, data Payload) (*Event, error) {
	list, err := p.PublishAll(ctx, tx, from, data)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// PublishAll is Publish for many events at once, which costs little more.
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

// PublishSample is Publish with made-up data.
func (p *Publisher) PublishSample(ctx context.Context, tx *db.Tx, from Origin, t Type) (*Event, error) {
	e, err := p.StoreSample(ctx, tx, from, t)
	if err != nil {
		return nil, err
	}
	return e, p.queue(ctx, tx, e)
}

// StoreSample stores a made-up event that nobody is told of: the caller sends
// it where it is wanted.
func (p *Publisher) StoreSample(ctx context.Context, tx *db.Tx, from Origin, t Type) (*Event, error) {
	e, err := p.compose(from, Sample(t, p.now()), true)
	if err != nil {
		return nil, err
	}
	return e, store(ctx, tx, e)
}

// compose makes an event with the body that is delivered.
func (p *Publisher) compose(from Origin, data Payload, sample bool) (*Event, error) {
	e := &Event{ID: ids.New(ids.Event), WorkspaceID: from.WorkspaceID, Environment: from.Environment, Project: from.Project,
		Type: data.eventType(), Sample: sample, CreatedAt: p.now()}
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
		return nil, fmt.Errorf("an event of type %s has %d bytes, at most %d are delivered", e.Type, len(e.Body), MaxBody)
	}
	return e, nil
}

var (
	insertEvents = db.NewBulk("events", "", "id text", "workspace_id text", "environment text", "project text", "type text", "sample boolean",
		"created_at bigint", "body text")
	insertNew = db.NewBulk("new_events", "", "event_id text", "workspace_id text", "environment text", "type text", "sample boolean", "created_at bigint")
)

func store(ctx context.Context, tx *db.Tx, list ...*Event) error {
	rows := make([][]any, len(list))
	for i, e := range list {
		rows[i] = []any{e.ID, e.WorkspaceID, e.Environment, db.OrNull(e.Project), string(e.Type), e.Sample, e.CreatedAt.UnixMicro(), string(e.Body)}
	}
	if _, err := insertEvents.Write(ctx, tx, rows); err != nil {
		return fmt.Errorf("store events: %w", err)
	}
	return nil
}

// queue has events fanned out after the commit.
func (p *Publisher) queue(ctx context.Context, tx *db.Tx, list ...*Event) error {
	rows := make([][]any, len(list))
	for i, e := range list {
		rows[i] = []any{e.ID, e.WorkspaceID, e.Environment, string(e.Type), e.Sample, e.CreatedAt.UnixMicro()}
	}
	if _, err := insertNew.Write(ctx, tx, rows); err != nil {
		return fmt.Errorf("queue events: %w", err)
	}
	tx.OnCommit(p.wake)
	return nil
}

// New is an event that was not fanned out yet.
type New struct {
	ID          string
	WorkspaceID string
	Environment string
	Type        Type
	Sample      bool
	CreatedAt   time.Time
	Body        string // empty for a large one
}

// TakeNew takes up to n new events, with their bodies if those have at most
// inline bytes: whoever takes them has to fan them out in the same transaction.
func TakeNew(ctx context.Context, tx *db.Tx, n, inline int) ([]New, error) {
	// n is in the text: SQLite compiles a statement anew whenever the parameter
	// of a LIMIT is bound.
	body := "NULL"
	if inline > 0 {
		body = fmt.Sprintf("(SELECT body FROM events WHERE id = event_id AND length(body) <= %d)", inline)
	}
	rows, err := tx.Query(ctx, fmt.Sprintf(`DELETE FROM new_events WHERE event_id IN
		(SELECT event_id FROM new_events ORDER BY event_id LIMIT %d%s)
		RETURNING event_id, workspace_id, environment, type, sample, created_at, %s`, n, tx.Claim("new_events"), body))
	list, err := db.All(rows, err, func(r db.Row) (e New, err error) {
		var typ string
		var at int64
		var body *string
		err = r.Scan(&e.ID, &e.WorkspaceID, &e.Environment, &typ, &e.Sample, &at, &body)
		e.Type, e.CreatedAt, e.Body = Type(typ), time.UnixMicro(at), db.Text(body)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("take new events: %w", err)
	}
	return list, nil
}

// Projects returns the projects of new events by the events' IDs. Those without a
// project are left out.
func Projects(ctx context.Context, q db.Querier, list []New) (map[string]string, error) {
	ids, projects := make([]string, len(list)), map[string]string{}
	for i, e := range list {
		ids[i] = e.ID
	}
	err := db.ByIDs(ctx, q, "SELECT id, project FROM events WHERE project IS NOT NULL AND id IN", nil, ids, func(r db.Row) error {
		var id, project string
		err := r.Scan(&id, &project)
		projects[id] = project
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the projects of events: %w", err)
	}
	return projects, nil
}

// AnyNew reports whether there are new events, without the write lock.
func AnyNew(ctx context.Context, q db.Querier) (found bool, err error) {
	err = q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM new_events)").Scan(&found)
	return found, err
}

const (
	columns = "id, workspace_id, environment, project, type, sample, created_at, body"
	heads   = "id, workspace_id, environment, project, type, sample, created_at, ''"
)

func scan(r db.Row) (*Event, error) {
	var e Event
	var typ, body string
	var project *string
	var at int64
	err := r.Scan(&e.ID, &e.WorkspaceID, &e.Environment, &project, &typ, &e.Sample, &at, &body)
	e.Type, e.Project, e.CreatedAt, e.Body = Type(typ), db.Text(project), time.UnixMicro(at), []byte(body)
	return &e, err
}

// Get returns a visible event.
func Get(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Event, error) {
	e, err := db.FindOne(ctx, q, db.Search{Table: "events", Columns: columns, Where: vis.Rows()}, id, "", scan)
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("event", id)
	}
	return e, err
}

// Filter narrows a list of events.
type Filter struct {
	Type         Type
	Since, Until time.Time // zero for open
}

// List returns a page of the visible events.
func List(ctx context.Context, q db.Querier, vis visibility.Filter, f Filter, page db.Page) (*db.Found[*Event], error) {
	return list(ctx, q, columns, vis, f, page)
}

// ListHeads is List without the bodies, which may be large.
func ListHeads(ctx context.Context, q db.Querier, vis visibility.Filter, f Filter, page db.Page) (*db.Found[*Event], error) {
	return list(ctx, q, heads, vis, f, page)
}

func list(ctx context.Context, q db.Querier, columns string, vis visibility.Filter, f Filter, page db.Page) (*db.Found[*Event], error) {
	s := db.Search{Table: "events", Columns: columns, Where: vis.Rows()}
	if !f.Since.IsZero() {
		s.Where.Add("id >=", ids.Floor(ids.Event, f.Since))
	}
	if !f.Until.IsZero() {
		s.Where.Add("id <", ids.Floor(ids.Event, f.Until))
	}
	if f.Type != "" {
		s.Filter.Add("type =", string(f.Type))
	}
	return db.Find(ctx, q, s, page, scan, func(e *Event) string { return e.ID })
}

// Purge removes up to n events that were made before the moment.
func Purge(ctx context.Context, tx *db.Tx, before time.Time, n int64) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE id < $1 ORDER BY id LIMIT $2)",
		ids.Floor(ids.Event, before), n)
}
