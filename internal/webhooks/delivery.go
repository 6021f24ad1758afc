package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
	"turnpike/webhook"
)

// Deliveries and Attempts are the tables, for partitions and retention. Attempts are
// partitioned by their delivery's ID, and so are dropped with it.
var (
	Deliveries = db.Partitioned{Table: "deliveries", Key: "id", Prefix: ids.Delivery, Updated: true}
	Attempts   = db.Partitioned{Table: "attempts", Key: "delivery_id", Prefix: ids.Delivery}
)

// State is the state of a delivery.
type State string

// The states of a delivery.
const (
	Pending   State = "pending"   // waits for its first attempt
	Retrying  State = "retrying"  // failed, and will be retried
	Succeeded State = "succeeded" // the endpoint returned 2xx
	Failed    State = "failed"    // the last retry failed
	Held      State = "held"      // waits until the endpoint is resumed
	Discarded State = "discarded" // won't be delivered
)

// States lists all states.
var States = []State{Pending, Retrying, Succeeded, Failed, Held, Discarded}

// Reasons why a delivery was discarded.
const (
	DiscardedDeleted = "endpoint_deleted"
	DiscardedResume  = "discarded_on_resume"
	DiscardedExpired = "expired"
)

// Delivery is the delivery of an event to an endpoint.
type Delivery struct {
	ID         string
	EventID    string
	EndpointID string
	accounts.Tenant
	Type       events.Type
	State      State
	Reason     string // why it was discarded
	Attempts   int64  // all attempts
	Tries      int64  // attempts since it was last started
	DueAt      *time.Time
	EventAt    time.Time
	CreatedAt  time.Time
	FinishedAt *time.Time

	linksBase string // the server's address in its links; empty without links
}

// newDelivery returns a delivery that is held if the endpoint is paused, and due now
// otherwise. While a paused endpoint still discards its held deliveries, a new one is
// due until it can be held, but not before those that are discarded. Its ID is derived from
// the event and the endpoint, so that storing it twice changes nothing.
func (s *Service) newDelivery(e *Endpoint, eventID string, t events.Type, eventAt, now time.Time) *Delivery {
	d := &Delivery{ID: ids.Derive(ids.Delivery, eventID, e.ID), EventID: eventID, EndpointID: e.ID, Tenant: e.Tenant,
		Type: t, State: Held, EventAt: eventAt, CreatedAt: now}
	if e.Status == Active || e.chore == choreDiscard {
		d.State, d.DueAt = Pending, e.notDiscarded(now)
	}
	if t.HasFiles() {
		d.linksBase = s.LinkBase
	}
	return d
}

// notDiscarded returns the time, or when the latest discard ends if that is later, because the
// clocks of nodes differ.
func (e *Endpoint) notDiscarded(at time.Time) *time.Time {
	if end := time.UnixMicro(e.discardBefore); at.Before(end) {
		at = end
	}
	return &at
}

// withNewID gives the delivery an ID that isn't derived.
func (d *Delivery) withNewID() *Delivery {
	d.ID = ids.New(ids.Delivery)
	return d
}

var insertDeliveries = db.NewBulk("deliveries", "ON CONFLICT (id) DO NOTHING", "id text", "event_id text", "endpoint_id text", "workspace_id text", "environment text",
	"type text", "status text", "attempts bigint", "tries bigint", "due_at bigint", "event_at bigint", "created_at bigint", "links_base text")

func (d *Delivery) row() []any {
	return []any{d.ID, d.EventID, d.EndpointID, d.WorkspaceID, string(d.Environment), string(d.Type), string(d.State), d.Attempts, d.Tries,
		db.Micros(d.DueAt), d.EventAt.UnixMicro(), d.CreatedAt.UnixMicro(), db.OrNull(d.linksBase)}
}

const deliveryColumns = `id, event_id, endpoint_id, workspace_id, environment, type, status, reason, attempts, tries, due_at, event_at, created_at, finished_at`

var scanDelivery = db.Scanner(func(d *Delivery) []any {
	return []any{&d.ID, &d.EventID, &d.EndpointID, &d.WorkspaceID, &d.Environment, &d.Type, &d.State, &d.Reason, &d.Attempts, &d.Tries,
		&d.DueAt, &d.EventAt, &d.CreatedAt, &d.FinishedAt}
})

// DeliveryFilter narrows a list of deliveries.
type DeliveryFilter struct {
	EndpointID   string
	EndpointIDs  []string    // any of them; nil for all
	Type         events.Type // or a pattern with *
	State        State
	Since, Until time.Time
}

// ListDeliveries returns a page of the visible deliveries. There are indexes for the
// endpoint, the time, and the states held, failed and retrying.
func (s *Service) ListDeliveries(ctx context.Context, q db.Querier, vis visibility.Filter, f DeliveryFilter, page db.Page) (*db.Found[*Delivery], error) {
	search, err := f.search(ctx, q, vis)
	if err != nil || search == nil {
		return &db.Found[*Delivery]{}, err
	}
	return db.Find(ctx, q, *search, page, deliveryRecord)
}

// CountDeliveries counts these deliveries over time, as far as a bounded scan goes.
func (s *Service) CountDeliveries(ctx context.Context, q db.Querier, vis visibility.Filter, f DeliveryFilter, t db.Timeline) (*db.TimelineCounts, error) {
	search, err := f.search(ctx, q, vis)
	if err != nil || search == nil {
		return &db.TimelineCounts{Steps: make([]db.StepCount, t.Steps)}, err
	}
	t.Failed = "status = '" + string(Failed) + "'"
	return db.CountRows(ctx, q, *search, t)
}

// search returns nil if the endpoint doesn't exist.
func (f DeliveryFilter) search(ctx context.Context, q db.Querier, vis visibility.Filter) (*db.Search, error) {
	search := &db.Search{Table: "deliveries", Columns: deliveryColumns}
	if len(f.EndpointIDs) == 1 && f.EndpointID == "" {
		f.EndpointID, f.EndpointIDs = f.EndpointIDs[0], nil
	}
	if f.EndpointID == "" {
		search.Where = vis.InEnvironment()
		visibleByEndpoint(&search.Filter, vis)
	} else {
		// The endpoint determines workspace, environment and project, so its index
		// is enough.
		e, err := find(ctx, q, f.EndpointID, "")
		if errors.Is(err, db.ErrNotFound) || err == nil && !e.visible(vis) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		search.Where.Add("endpoint_id =", f.EndpointID)
	}
	if len(f.EndpointIDs) > 0 {
		search.Filter.AddIn("endpoint_id", f.EndpointIDs)
	}
	if !f.Since.IsZero() {
		search.Where.Bound(">=", ids.Floor(ids.Delivery, f.Since))
	}
	if !f.Until.IsZero() {
		search.Where.Bound("<", ids.Floor(ids.Delivery, f.Until))
	}
	switch f.State {
	case "":
	case Held, Failed, Retrying:
		// A literal lets the planner use the partial index.
		search.Where.Add("status = '"+string(f.State)+"' AND status =", string(f.State))
	default:
		search.Filter.Add("status =", string(f.State))
	}
	search.Filter.AddMatch(string(f.Type), "type")
	return search, nil
}

var deliveryRecord = db.Record[*Delivery]{Scan: scanDelivery, ID: func(d *Delivery) string { return d.ID }}

// EventDeliveries returns up to 100 deliveries of an event. It leaves out deliveries
// with new IDs that replays created: only derived IDs are found by index.
func (s *Service) EventDeliveries(ctx context.Context, q db.Querier, vis visibility.Filter, eventID string) ([]*Delivery, error) {
	low, high := ids.DerivedFrom(ids.Delivery, eventID)
	search := db.Search{Table: "deliveries", Columns: deliveryColumns, Where: vis.InEnvironment()}
	search.Where.Bound(">=", low)
	search.Where.Bound("<=", high)
	search.Where.Add("event_id =", eventID)
	visibleByEndpoint(&search.Where, vis)
	found, err := db.Find(ctx, q, search, db.Page{Limit: 100, Asc: true}, deliveryRecord)
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
	search := db.Search{Table: "deliveries", Columns: deliveryColumns, Where: vis.InEnvironment(), Lock: lock}
	visibleByEndpoint(&search.Where, vis)
	d, err := db.FindOne(ctx, q, search, id, scanDelivery)
	return d, db.OrNoSuch(err, "delivery", id)
}

// Attempt is an attempt to deliver.
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
	Status          int64 // 0 if there was no response
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
	return []any{a.ID, a.DeliveryID, a.Number, a.StartedAt.UnixMicro(), a.Duration.Microseconds(), a.DNS.Microseconds(), a.Connect.Microseconds(),
		a.TLS.Microseconds(), a.FirstByte.Microseconds(), db.OrNull(a.URL), db.OrNull(a.Address), string(a.RequestHeaders),
		db.NullInt(a.Status), db.OrNull(string(a.ResponseHeaders)), db.OrNull(a.ResponseBody), db.OrNull(a.ErrorClass), db.OrNull(a.Error), db.Micros(a.NextRetryAt)}
}

// shownSignature is how many characters of a signature an attempt shows.
const shownSignature = 8

// shortenSignatures shortens the signatures in the headers of a request. Within
// the receivers' tolerance, anyone who reads a whole one could send the delivery again.
func shortenSignatures(headers string) (json.RawMessage, error) {
	var h map[string]string
	if err := json.Unmarshal([]byte(headers), &h); err != nil {
		return nil, fmt.Errorf("read attempt headers: %w", err)
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

// ListAttempts returns a delivery's attempts, oldest first: up to six per replay. It
// numbers them again, because a node whose lease expired and the one that took over
// may both have stored, say, attempt 2.
func (s *Service) ListAttempts(ctx context.Context, q db.Querier, deliveryID string) ([]*Attempt, error) {
	ended := int64(0)
	scan := func(r db.Row) (*Attempt, error) {
		var a Attempt
		var request string
		err := db.Scan(r, &a.ID, &a.DeliveryID, &a.Number, &a.StartedAt, &a.Duration, &a.DNS, &a.Connect, &a.TLS, &a.FirstByte, &a.URL, &a.Address,
			&request, &a.Status, &a.ResponseHeaders, &a.ResponseBody, &a.ErrorClass, &a.Error, &a.NextRetryAt)
		ended++
		a.Number = ended
		if err == nil {
			a.RequestHeaders, err = shortenSignatures(request)
		}
		return &a, err
	}
	return db.List(ctx, q, scan, "SELECT "+insertAttempts.Columns()+" FROM attempts WHERE delivery_id = $1 ORDER BY number, id LIMIT 1000", deliveryID)
}
