package api

import (
	"context"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/jsonbody"
	"turnpike/internal/web"
	"turnpike/internal/webhooks"
)

// endpointObject is a webhook endpoint. Only responses that create a secret have
// Secret.
type endpointObject struct {
	ID             string               `json:"id"`
	Object         string               `json:"object"`
	Kind           string               `json:"kind"`
	URL            *string              `json:"url"`
	Events         []string             `json:"events"`
	Description    string               `json:"description"`
	HeaderNames    []string             `json:"header_names"`
	Projects       []string             `json:"projects"`
	PerSecond      *int64               `json:"requests_per_second"`
	Status         string               `json:"status"`
	PausedReason   *string              `json:"paused_reason"`
	PausedAt       *int64               `json:"paused_at"`
	Secret         string               `json:"secret,omitzero"`
	SecretHint     string               `json:"secret_hint"`
	OldSecretUntil *int64               `json:"old_secret_expires_at"`
	Project        *string              `json:"project"`
	Environment    accounts.Environment `json:"environment"`
	CreatedAt      int64                `json:"created_at"`
	Stats          endpointStats        `json:"stats"`
}

type endpointStats struct {
	Succeeded      int64   `json:"succeeded"`
	Failed         int64   `json:"failed"`
	FailedAttempts int64   `json:"failed_attempts"`
	Held           int     `json:"held"`
	LastSuccessAt  *int64  `json:"last_success_at"`
	LastFailureAt  *int64  `json:"last_failure_at"`
	LastError      *string `json:"last_error"`
}

// maxHeldCount is where counting held deliveries stops.
const maxHeldCount = 10_000

func (c *Call) endpoints(ctx context.Context, q db.Querier, list []*webhooks.Endpoint) ([]*endpointObject, error) {
	stats, err := c.s.Webhooks.Stats(ctx, q, web.Map(list, func(e *webhooks.Endpoint) string { return e.ID })...)
	if err != nil {
		return nil, err
	}
	out := make([]*endpointObject, len(list))
	for i, e := range list {
		o := &endpointObject{ID: e.ID, Object: "webhook_endpoint", Kind: string(e.Kind), URL: orNil(e.URL), Events: e.Events, Description: e.Description,
			HeaderNames: e.HeaderNames(), Projects: append([]string{}, e.Projects...), PerSecond: e.RequestsPerSecond, Status: string(e.Status), PausedReason: orNil(e.PausedReason), PausedAt: unix(e.PausedAt), SecretHint: e.SecretHint,
			Project: orNil(e.Project), Environment: e.Environment, CreatedAt: e.CreatedAt.Unix()}
		if e.Kind == webhooks.Tunnel {
			// A tunnel holds deliveries while its client is disconnected; it is never paused.
			o.Status, o.PausedReason, o.PausedAt = string(webhooks.Active), nil, nil
		}
		if e.OldSecretUntil != nil && c.s.Now().Before(*e.OldSecretUntil) {
			o.OldSecretUntil = unix(e.OldSecretUntil)
		}
		st := stats[e.ID]
		o.Stats = endpointStats{Succeeded: st.Succeeded, Failed: st.Failed, FailedAttempts: st.FailedAttempts,
			LastSuccessAt: unix(st.LastSuccessAt), LastFailureAt: unix(st.LastFailureAt), LastError: orNil(st.LastError)}
		if e.Status == webhooks.Paused {
			if o.Stats.Held, err = c.s.Webhooks.HeldCount(ctx, q, e.ID, maxHeldCount); err != nil {
				return nil, err
			}
		}
		out[i] = o
	}
	return out, nil
}

// endpoint returns an endpoint, with its secret if that was just created.
func (c *Call) endpoint(ctx context.Context, q db.Querier, e *webhooks.Endpoint, secret string) (*endpointObject, error) {
	list, err := c.endpoints(ctx, q, []*webhooks.Endpoint{e})
	if err != nil {
		return nil, err
	}
	list[0].Secret = secret
	return list[0], nil
}

func (c *Call) changeEndpoint(ctx context.Context, tx *db.Tx, change func(e *webhooks.Endpoint) error) (any, error) {
	e, err := c.lockEndpoint(ctx, tx)
	if err != nil {
		return nil, err
	}
	if err := change(e); err != nil {
		return nil, err
	}
	return c.endpoint(ctx, tx, e, "")
}

func (c *Call) lockEndpoint(ctx context.Context, tx *db.Tx) (*webhooks.Endpoint, error) {
	return c.s.Webhooks.GetLocked(ctx, tx, c.Principal.Visibility(), c.id())
}

type createEndpointRequest struct {
	URL         string            `json:"url"`
	Events      []string          `json:"events"`
	Description string            `json:"description"`
	Headers     map[string]string `json:"headers"`
	Projects    []string          `json:"projects"`
	PerSecond   *int64            `json:"requests_per_second"`
}

func createEndpoint(ctx context.Context, c *Call, tx *db.Tx, in createEndpointRequest) (any, error) {
	e := &webhooks.Endpoint{Tenant: c.Principal.Tenant, Project: c.Principal.Project,
		URL: in.URL, Events: in.Events, Description: in.Description, Projects: in.Projects, RequestsPerSecond: in.PerSecond}
	e.SetHeaders(webhooks.NewHeaders(in.Headers))
	secret, err := c.s.Webhooks.Create(ctx, tx, c.Actor(), e)
	if err != nil {
		return nil, err
	}
	return c.endpoint(ctx, tx, e, secret)
}

func listEndpoints(ctx context.Context, c *Call) (any, error) {
	q := c.query(append(pageParams, "kind")...)
	page := q.page(ids.Endpoint)
	tunnels := false
	switch q.text("kind") {
	case "", string(webhooks.HTTP):
	case "all":
		tunnels = true
	default:
		q.fail(fault.Invalid("kind", "kind must be http, or all to include tunnels."))
	}
	if q.err != nil {
		return nil, q.err
	}
	found, err := c.s.Webhooks.List(ctx, c.s.DB, c.Principal.Visibility(), tunnels, page)
	if err != nil {
		return nil, err
	}
	data, err := c.endpoints(ctx, c.s.DB, found.Rows)
	if err != nil {
		return nil, err
	}
	return newList(data, func(e *endpointObject) string { return e.ID }, found.More), nil
}

func getEndpoint(ctx context.Context, c *Call) (any, error) {
	e, err := c.s.Webhooks.Get(ctx, c.s.DB, c.Principal.Visibility(), c.id())
	if err != nil {
		return nil, err
	}
	return c.endpoint(ctx, c.s.DB, e, "")
}

type updateEndpointRequest struct {
	URL         jsonbody.Optional[string]   `json:"url"`
	Events      jsonbody.Optional[[]string] `json:"events"`
	Description jsonbody.Optional[string]   `json:"description"`
	// Headers are added, replaced, or removed if they are null. Others stay.
	Headers   jsonbody.Optional[map[string]*string] `json:"headers"`
	Projects  jsonbody.Optional[[]string]           `json:"projects"`
	PerSecond jsonbody.Optional[int64]              `json:"requests_per_second"`
}

func updateEndpoint(ctx context.Context, c *Call, tx *db.Tx, in updateEndpointRequest) (any, error) {
	e, err := c.s.Webhooks.Change(ctx, tx, changeOf(c, func(e *webhooks.Endpoint) error {
		set(&e.URL, in.URL)
		set(&e.Events, in.Events)
		set(&e.Description, in.Description)
		set(&e.Projects, in.Projects)
		setNullable(&e.RequestsPerSecond, in.PerSecond)
		if in.Headers.Set && in.Headers.Value == nil {
			e.SetHeaders(e.ReplaceHeaders(nil))
		} else if in.Headers.Set {
			e.SetHeaders(in.Headers.Value)
		}
		return nil
	}))
	if err != nil {
		return nil, err
	}
	return c.endpoint(ctx, tx, e, "")
}

// deletedObject is the response to a DELETE of something that is gone.
type deletedObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

func deleteEndpoint(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	e, err := c.lockEndpoint(ctx, tx)
	if err != nil {
		return nil, err
	}
	if err := c.s.Webhooks.Delete(ctx, tx, c.Actor(), e); err != nil {
		return nil, err
	}
	return deletedObject{e.ID, "webhook_endpoint", true}, nil
}

func pauseEndpoint(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	return c.changeEndpoint(ctx, tx, func(e *webhooks.Endpoint) error { return c.s.Webhooks.Pause(ctx, tx, c.Actor(), e) })
}

type resumeEndpointRequest struct {
	Held *string `json:"held"`
}

func resumeEndpoint(ctx context.Context, c *Call, tx *db.Tx, in resumeEndpointRequest) (any, error) {
	discard := in.Held != nil && *in.Held == "discard"
	if in.Held != nil && !discard && *in.Held != "deliver" {
		return nil, fault.Invalid("held", "held must be deliver or discard.")
	}
	return c.changeEndpoint(ctx, tx, func(e *webhooks.Endpoint) error { return c.s.Webhooks.Resume(ctx, tx, c.Actor(), e, discard) })
}

type rotateSecretRequest struct {
	GracePeriodSeconds *int64 `json:"grace_period_seconds"`
}

func rotateEndpointSecret(ctx context.Context, c *Call, tx *db.Tx, in rotateSecretRequest) (any, error) {
	grace := webhooks.DefaultSecretGrace
	if s := in.GracePeriodSeconds; s != nil {
		grace = fromSeconds(*s, webhooks.MaxSecretGrace)
	}
	e, err := c.lockEndpoint(ctx, tx)
	if err != nil {
		return nil, err
	}
	secret, err := c.s.Webhooks.RotateSecret(ctx, tx, c.Actor(), e, grace)
	if err != nil {
		return nil, err
	}
	return c.endpoint(ctx, tx, e, secret)
}

func endEndpointGrace(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	return c.changeEndpoint(ctx, tx, func(e *webhooks.Endpoint) error { return c.s.Webhooks.EndGrace(ctx, tx, c.Actor(), e) })
}

type testEndpointRequest struct {
	Type *string `json:"type"`
}

func testEndpoint(ctx context.Context, c *Call, tx *db.Tx, in testEndpointRequest) (any, error) {
	var t events.Type
	if in.Type != nil {
		var err error
		if t, err = events.ParseType("type", *in.Type); err != nil {
			return nil, err
		}
	}
	e, err := c.lockEndpoint(ctx, tx)
	if err != nil {
		return nil, err
	}
	d, err := c.s.Webhooks.SendTest(ctx, tx, c.Actor(), e, webhooks.TestEvent{Type: t, Project: c.Project})
	return show(d, err, newDeliveryObject)
}

type replayEndpointRequest struct {
	Since  *int64   `json:"since"`
	Until  *int64   `json:"until"`
	Types  []string `json:"types"`
	Status string   `json:"status"`
	NewID  bool     `json:"new_id"`
}

// replayEndpoint starts a replay. It counts the deliveries before the transaction.
func replayEndpoint(c *Call) error {
	body, err := c.readJSON(c.Limits.Body)
	if err != nil {
		return err
	}
	var in replayEndpointRequest
	if err := jsonbody.DecodeStrict(body, &in); err != nil {
		return err
	}
	var p *webhooks.Replay
	return c.perform(body, action{
		before: func() (err error) {
			if p, err = in.replay(c.id()); err != nil {
				return err
			}
			ctx, cancel := web.WithStorageTimeout(c.Context())
			defer cancel()
			return c.s.Webhooks.PlanReplay(ctx, c.Principal.Visibility(), p)
		},
		do: func(ctx context.Context, tx *db.Tx) (any, error) {
			return show(p, c.s.Webhooks.StartReplay(ctx, tx, c.Actor(), c.Principal.Visibility(), p), newReplayObject)
		},
	})
}

// replay returns the replay that the request describes.
func (in *replayEndpointRequest) replay(endpointID string) (*webhooks.Replay, error) {
	p := &webhooks.Replay{EndpointID: endpointID, Mode: in.Status, NewIDs: in.NewID}
	if in.Since == nil {
		return nil, fault.Missing("since", "since is required: the Unix time from which events are replayed.")
	}
	since, err := fromUnix("since", in.Since)
	if err != nil {
		return nil, err
	}
	until, err := fromUnix("until", in.Until)
	if err != nil {
		return nil, err
	}
	p.Since = *since
	if until != nil {
		p.Until = *until
	}
	for _, name := range in.Types {
		t, err := events.ParseType("types", name)
		if err != nil {
			return nil, err
		}
		p.Types = append(p.Types, t)
	}
	return p, nil
}

type replayObject struct {
	ID          string               `json:"id"`
	Object      string               `json:"object"`
	EndpointID  string               `json:"endpoint_id"`
	Status      string               `json:"status"`
	Selection   string               `json:"selection"`
	Types       []string             `json:"types"`
	NewID       bool                 `json:"new_id"`
	Since       int64                `json:"since"`
	Until       int64                `json:"until"`
	Total       int64                `json:"total"`
	Counting    bool                 `json:"counting"`
	Done        int64                `json:"done"`
	Environment accounts.Environment `json:"environment"`
	CreatedAt   int64                `json:"created_at"`
	FinishedAt  *int64               `json:"finished_at"`
}

func newReplayObject(p *webhooks.Replay) *replayObject {
	types := web.Map(p.Types, func(t events.Type) string { return string(t) })
	return &replayObject{ID: p.ID, Object: "replay", EndpointID: p.EndpointID, Status: p.State, Selection: p.Mode, Types: types, NewID: p.NewIDs,
		Since: p.Since.Unix(), Until: p.Until.Unix(), Total: p.Total, Counting: p.Counting, Done: p.Done, Environment: p.Environment,
		CreatedAt: p.CreatedAt.Unix(), FinishedAt: unix(p.FinishedAt)}
}

func getReplay(ctx context.Context, c *Call) (any, error) {
	p, err := c.s.Webhooks.GetReplay(ctx, c.s.DB, c.Principal.Visibility(), c.id())
	return show(p, err, newReplayObject)
}
