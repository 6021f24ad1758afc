package api

import (
	"context"
	"encoding/json"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/web"
	"turnpike/internal/webhooks"
)

// deliveryObject is a delivery. Only requests for a single delivery return
// Attempts.
type deliveryObject struct {
	ID            string               `json:"id"`
	Object        string               `json:"object"`
	EndpointID    string               `json:"endpoint_id"`
	EventID       string               `json:"event_id"`
	Type          string               `json:"type"`
	Status        string               `json:"status"`
	Reason        *string              `json:"reason"`
	AttemptCount  int64                `json:"attempt_count"`
	NextAttemptAt *int64               `json:"next_attempt_at"`
	Environment   accounts.Environment `json:"environment"`
	EventAt       int64                `json:"event_created_at"`
	CreatedAt     int64                `json:"created_at"`
	FinishedAt    *int64               `json:"finished_at"`
	Attempts      []*attemptObject     `json:"attempts,omitzero"`
}

func newDeliveryObject(d *webhooks.Delivery) *deliveryObject {
	return &deliveryObject{ID: d.ID, Object: "delivery", EndpointID: d.EndpointID, EventID: d.EventID, Type: string(d.Type), Status: string(d.State),
		Reason: orNil(d.Reason), AttemptCount: d.Attempts, NextAttemptAt: unix(d.DueAt), Environment: d.Environment,
		EventAt: d.EventAt.Unix(), CreatedAt: d.CreatedAt.Unix(), FinishedAt: unix(d.FinishedAt)}
}

type attemptObject struct {
	ID              string          `json:"id"`
	Object          string          `json:"object"`
	Number          int64           `json:"number"`
	StartedAt       int64           `json:"started_at"`
	LatencyMS       float64         `json:"latency_ms"`
	Timings         attemptTimings  `json:"timings"`
	URL             *string         `json:"url"`
	Address         *string         `json:"address"`
	RequestHeaders  json.RawMessage `json:"request_headers"`
	ResponseStatus  *int64          `json:"response_status"`
	ResponseHeaders json.RawMessage `json:"response_headers"`
	ResponseBody    *string         `json:"response_body"`
	Error           *attemptError   `json:"error"`
	NextRetryAt     *int64          `json:"next_retry_at"`
}

type attemptTimings struct {
	DNS       float64 `json:"dns_ms"`
	Connect   float64 `json:"connect_ms"`
	TLS       float64 `json:"tls_ms"`
	FirstByte float64 `json:"first_byte_ms"`
}

type attemptError struct {
	Class   string `json:"class"`
	Message string `json:"message"`
}

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func newAttemptObject(a *webhooks.Attempt) *attemptObject {
	o := &attemptObject{ID: a.ID, Object: "attempt", Number: a.Number, StartedAt: a.StartedAt.Unix(), LatencyMS: inMS(a.Duration),
		Timings: attemptTimings{DNS: inMS(a.DNS), Connect: inMS(a.Connect), TLS: inMS(a.TLS), FirstByte: inMS(a.FirstByte)},
		URL:     orNil(a.URL), Address: orNil(a.Address), RequestHeaders: a.RequestHeaders, NextRetryAt: unix(a.NextRetryAt),
		ResponseHeaders: json.RawMessage("null")}
	if a.Status != 0 {
		o.ResponseStatus, o.ResponseHeaders, o.ResponseBody = &a.Status, a.ResponseHeaders, &a.ResponseBody
	}
	if a.ErrorClass != "" {
		o.Error = &attemptError{a.ErrorClass, a.Error}
	}
	return o
}

func listDeliveries(ctx context.Context, c *Call) (any, error) {
	q := c.query(append(pageParams, "endpoint", "type", "status", "since", "until")...)
	page := q.page(ids.Delivery)
	f := webhooks.DeliveryFilter{EndpointID: q.text("endpoint"), Type: q.eventType(), State: choice(q, "status", webhooks.States),
		Since: q.time("since"), Until: q.time("until")}
	if f.EndpointID != "" && !ids.Valid(ids.Endpoint, f.EndpointID) {
		q.fail(fault.Invalid("endpoint", "endpoint must be the ID of a webhook endpoint (wh_…)."))
	}
	if q.err != nil {
		return nil, q.err
	}
	found, err := c.s.Webhooks.ListDeliveries(ctx, c.s.DB.Replica(), c.Principal.Visibility(), f, page)
	if err != nil {
		return nil, err
	}
	return foundList(found, web.Map(found.Rows, newDeliveryObject), func(d *webhooks.Delivery) string { return d.ID }), nil
}

func getDelivery(ctx context.Context, c *Call) (any, error) {
	d, err := c.s.Webhooks.GetDelivery(ctx, c.s.DB, c.Principal.Visibility(), c.id())
	if err != nil {
		return nil, err
	}
	attempts, err := c.s.Webhooks.ListAttempts(ctx, c.s.DB, d.ID)
	if err != nil {
		return nil, err
	}
	o := newDeliveryObject(d)
	o.Attempts = web.Map(attempts, newAttemptObject)
	return o, nil
}

type replayDeliveryRequest struct {
	NewID bool `json:"new_id"`
}

func replayDelivery(ctx context.Context, c *Call, tx *db.Tx, in replayDeliveryRequest) (any, error) {
	d, err := c.s.Webhooks.ReplayDelivery(ctx, tx, c.Actor(), c.Principal.Visibility(), webhooks.DeliveryReplay{DeliveryID: c.id(), NewID: in.NewID})
	return show(d, err, newDeliveryObject)
}
