package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
	"turnpike/webhook"
)

// Deliveries and Attempts are the tables, for partitions and retention.
// Attempts lie by their delivery's id, and so go with it.
var (
	Deliveries = db.Partitioned{Table: "deliveries", Key: "id", Prefix: ids.Delivery}
	Attempts   = db.Partitioned{Table: "attempts", Key: "delivery_id", Prefix: ids.Delivery}
)

// State is how far a delivery has come.
type State string

// The states of a delivery.
const (
	Pending   State = "pending"   // waits for its first attempt
	Retrying  State = "retrying"  // failed, and is tried again
	Succeeded State = "succeeded" // answered with 2xx
	Failed    State = "failed"    // the last retry failed, too
	Held      State = "held"      // waits for the endpoint to be resumed
	Discarded State = "discarded" // will not be delivered
)

// States lists them.
var States = []State{Pending, Retrying, Succeeded, Failed, Held, Discarded}

// Why a delivery was discarded.
const (
	DiscardedDeleted = "endpoint_deleted"
	DiscardedResume  = "discarded_on_resume"
	DiscardedExpired = "expired"
)

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	ID          string
	EventID     string
	EndpointID  string
	WorkspaceID string
	Environment string
	Type        events.Type
	State       State
	Reason      string // of being discarded
	Attempts    int64  // ever made
	Tries       int64  // made of the present schedule
	DueAt       *time.Time
	EventAt     time.Time
	CreatedAt   time.Time
	FinishedAt  *time.Time
}

// newDelivery is held at a paused endpoint and due at once at any other. As long
// as what is held there is still being discarded, it waits as due to be held. Its
// id follows from the two, so that storing it a second time changes nothing.
func newDelivery(e *Endpoint, eventID string, t events.Type, eventAt, now time.Time) *Delivery {
	d := &Delivery{ID: ids.Derive(ids.Delivery, eventID, e.ID), EventID: eventID, EndpointID: e.ID, WorkspaceID: e.WorkspaceID, Environment: string(e.Environment),
		Type: t, State: Held, EventAt: eventAt, CreatedAt: now}
	if e.Status == Active || e.chore == choreDiscard {
		d.State, d.DueAt = Pending, &now
	}
	return d
}

// anew gives the delivery an id of its own, beside the first one's.
func (d *Delivery) anew() *Delivery {
	d.ID = ids.New(ids.Delivery)
	return d
}

var insertDeliveries = db.NewBulk("deliveries", "ON CONFLICT (id) DO NOTHING", "id text", "event_id text", "endpoint_id text", "workspace_id text", "environment text",
	"type text", "status text", "attempts bigint", "tries bigint", "due_at bigint", "event_at bigint", "created_at bigint")

func (d *Delivery) row() []any {
	var due any
	if d.DueAt != nil {
		due = d.DueAt.UnixMicro()
	}
	return []any{d.ID, d.EventID, d.EndpointID, d.WorkspaceID, d.Environment, string(d.Type), string(d.State), d.Attempts, d.Tries,
		due, d.EventAt.UnixMicro(), d.CreatedAt.UnixMicro()}
}

const deliveryColumns = `id, event_id, endpoint_id, workspace_id, environment, type, status, reason, attempts, tries, due_at, event_at, created_at, finished_at`

func scanDelivery(r db.Row) (*Delivery, error) {
	var d Delivery
	var typ, state string
	var reason *string
	var due, finished *int64
	var event, created int64
	err := r.Scan(&d.ID, &d.EventID, &d.EndpointID, &d.WorkspaceID, &d.Environment, &typ, &state, &reason, &d.Attempts, &d.Tries,
		&due, &event, &created, &finished)
	d.Type, d.State, d.Reason = events.Type(typ), State(state), db.Text(reason)
	d.DueAt, d.FinishedAt = db.Time(due), db.Time(finished)
	d.EventAt, d.CreatedAt = time.UnixMicro(event), time.UnixMicro(created)
	return &d, err
}

// DeliveryFilter narrows a list of deliveries.
type DeliveryFilter struct {
	EndpointID   string
	Type         events.Type
	State        State
	Since, Until time.Time
}

// ListDeliveries returns a page of the visible deliveries. Endpoint, time and
// the states in which something is wrong have an index.
func (s *Service) ListDeliveries(ctx context.Context, q db.Querier, vis visibility.Filter, f DeliveryFilter, page db.Page) (*db.Found[*Delivery], error) {
	search := db.Search{Table: "deliveries", Columns: deliveryColumns}
	if f.EndpointID == "" {
		search.Where = vis.InEnvironment()
		visibleByEndpoint(&search.Filter, vis)
	} else {
		// An endpoint has one workspace, environment and project, so its index
		// does without them.
		e, err := find(ctx, q, f.EndpointID, "")
		if errors.Is(err, db.ErrNotFound) || err == nil && !e.visible(vis) {
			return &db.Found[*Delivery]{}, nil
		}
		if err != nil {
			return nil, err
		}
		search.Where.Add("endpoint_id =", f.EndpointID)
	}
	if !f.Since.IsZero() {
		search.Where.Add("id >=", ids.Floor(ids.Delivery, f.Since))
	}
	if !f.Until.IsZero() {
		search.Where.Add("id <", ids.Floor(ids.Delivery, f.Until))
	}
	switch f.State {
	case "":
	case Held, Failed, Retrying:
		// A literal, so that the planner knows the partial index to be enough.
		search.Where.Add("status = '"+string(f.State)+"' AND status =", string(f.State))
	default:
		search.Filter.Add("status =", string(f.State))
	}
	if f.Type != "" {
		search.Filter.Add("type =", string(f.Type))
	}
	return db.Find(ctx, q, search, page, scanDelivery, func(d *Delivery) string { return d.ID })
}

// EventDeliveries returns where an event went, to a hundred endpoints at most.
// What a replay sent under a new id is not among them: only ids that follow from
// the event's are found without looking through the others.
func (s *Service) EventDeliveries(ctx context.Context, q db.Querier, vis visibility.Filter, eventID string) ([]*Delivery, error) {
	low, high := ids.DerivedFrom(ids.Delivery, eventID)
	search := db.Search{Table: "deliveries", Columns: deliveryColumns, Where: vis.InEnvironment()}
	search.Where.Add("id >=", low)
	search.Where.Add("id <=", high)
	search.Where.Add("event_id =", eventID)
	visibleByEndpoint(&search.Where, vis)
	found, err := db.Find(ctx, q, search, db.Page{Limit: 100, Asc: true}, scanDelivery, func(d *Delivery) string { return d.ID })
	if err != nil {
		return nil, err
	}
	return found.Rows, nil
}

// GetDelivery returns a visible delivery.
func (s *Service) GetDelivery(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Delivery, error) {
	return getDelivery(ctx, q, vis, id, "")
}

func getDelivery(ctx context.Context, q db.Querier, vis visibility.Filter, id, lock string) (*Delivery, error) {
	search := db.Search{Table: "deliveries", Columns: deliveryColumns, Where: vis.InEnvironment()}
	visibleByEndpoint(&search.Where, vis)
	d, err := db.FindOne(ctx, q, search, id, lock, scanDelivery)
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("delivery", id)
	}
	return d, err
}

// Attempt is one try to deliver.
type Attempt struct {
	ID              string
	DeliveryID      string
	Number          int64
	StartedAt       time.Time
	Duration        time.Duration
	DNS             time.Duration
	Connect         time.Duration
	TLS             time.Duration
	FirstByte       time.Duration
	URL             string
	Address         string
	RequestHeaders  json.RawMessage
	Status          int64 // 0 for no answer
	ResponseHeaders json.RawMessage
	ResponseBody    string
	ErrorClass      string // empty for success
	Error           string
	NextRetryAt     *time.Time
}

var insertAttempts = db.NewBulk("attempts", "", "id text", "delivery_id text", "number bigint", "started_at bigint", "duration_us bigint",
	"dns_us bigint", "connect_us bigint", "tls_us bigint", "first_byte_us bigint", "url text", "address text", "request_headers text",
	"status bigint", "response_headers text", "response_body text", "error_class text", "error text", "next_retry_at bigint")

func (a *Attempt) row() []any {
	var status, next, headers any
	if a.Status != 0 {
		status, headers = a.Status, string(a.ResponseHeaders)
	}
	if a.NextRetryAt != nil {
		next = a.NextRetryAt.UnixMicro()
	}
	return []any{a.ID, a.DeliveryID, a.Number, a.StartedAt.UnixMicro(), a.Duration.Microseconds(), a.DNS.Microseconds(), a.Connect.Microseconds(),
		a.TLS.Microseconds(), a.FirstByte.Microseconds(), db.OrNull(a.URL), db.OrNull(a.Address), string(a.RequestHeaders),
		status, headers, db.OrNull(a.ResponseBody), db.OrNull(a.ErrorClass), db.OrNull(a.Error), next}
}

// shownSignature is how many characters of a signature an attempt shows.
const shownSignature = 8

// shortenSignatures shortens the signatures in the headers of a request. Within
// the receivers' tolerance, anyone who reads a whole one could send the delivery again.
func shortenSignatures(headers string) (json.RawMessage, error) {
	var h map[string]string
	if err := json.Unmarshal([]byte(headers), &h); err != nil {
		return nil, fmt.Errorf("read the headers of an attempt: %w", err)
	}
	for _, name := range []string{webhook.HeaderSignature, webhook.HeaderStandardSignature} {
		list := strings.Fields(h[name])
		for i, one := range list {
			shown := shownSignature
			if version, _, found := strings.Cut(one, ","); found {
				shown += len(version) + 1
			}
			if len(one) > shown {
				list[i] = one[:shown] + "…"
			}
		}
		if len(list) > 0 {
			h[name] = strings.Join(list, " ")
		}
	}
	return json.Marshal(h)
}

// ListAttempts returns a delivery's attempts, oldest first. There are few: six
// for each time it was sent. They are numbered anew: a node that was thought dead and
// the one that took over may both have made, say, the second.
func (s *Service) ListAttempts(ctx context.Context, q db.Querier, deliveryID string) ([]*Attempt, error) {
	rows, err := q.Query(ctx, `SELECT id, delivery_id, number, started_at, duration_us, dns_us, connect_us, tls_us, first_byte_us, url, address,
		request_headers, status, response_headers, response_body, error_class, error, next_retry_at
		FROM attempts WHERE delivery_id = $1 ORDER BY number, id LIMIT 1000`, deliveryID)
	ended := int64(0)
	return db.All(rows, err, func(r db.Row) (*Attempt, error) {
		var a Attempt
		var started, duration, dns, connect, tls, first int64
		var url, address, headers, body, class, text *string
		var request string
		var status, next *int64
		err := r.Scan(&a.ID, &a.DeliveryID, &a.Number, &started, &duration, &dns, &connect, &tls, &first, &url, &address,
			&request, &status, &headers, &body, &class, &text, &next)
		us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
		a.StartedAt, a.Duration, a.DNS, a.Connect, a.TLS, a.FirstByte = time.UnixMicro(started), us(duration), us(dns), us(connect), us(tls), us(first)
		a.URL, a.Address = db.Text(url), db.Text(address)
		a.ResponseBody, a.ErrorClass, a.Error, a.NextRetryAt = db.Text(body), db.Text(class), db.Text(text), db.Time(next)
		if status != nil {
			a.Status, a.ResponseHeaders = *status, json.RawMessage(db.Text(headers))
		}
		ended++
		a.Number = ended
		if err == nil {
			a.RequestHeaders, err = shortenSignatures(request)
		}
		return &a, err
	})
}
