package api

import (
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/jsonbody"
	"turnpike/internal/webhooks"
)

// endpointObject is a webhook endpoint as the interface shows it. Secret is
// there only in the answers that make one.
type endpointObject struct {
	ID             string        `json:"id"`
	Object         string        `json:"object"`
	Kind           string        `json:"kind"`
	URL            *string       `json:"url"`
	Events         []string      `json:"events"`
	Description    string        `json:"description"`
	Status         string        `json:"status"`
	PausedReason   *string       `json:"paused_reason"`
	PausedAt       *int64        `json:"paused_at"`
	Secret         string        `json:"secret,omitzero"`
	SecretHint     string        `json:"secret_hint"`
	OldSecretUntil *int64        `json:"old_secret_expires_at"`
	Project        *string       `json:"project"`
	Environment    string        `json:"environment"`
	CreatedAt      int64         `json:"created_at"`
	Stats          endpointStats `json:"stats"`
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

// heldBound is up to which number held deliveries are counted for an answer.
const heldBound = 10_000

// endpoints shows a list of endpoints.
func (c *Call) endpoints(q db.Querier, list []*webhooks.Endpoint) ([]*endpointObject, error) {
	all := make([]string, len(list))
	for i, e := range list {
		all[i] = e.ID
	}
	stats, err := c.s.Webhooks.Stats(c.Context(), q, all...)
	if err != nil {
		return nil, err
	}
	out := make([]*endpointObject, len(list))
	for i, e := range list {
		o := &endpointObject{ID: e.ID, Object: "webhook_endpoint", Kind: string(e.Kind), URL: orNil(e.URL), Events: e.Events, Description: e.Description,
			Status: string(e.Status), PausedReason: orNil(e.PausedReason), PausedAt: unix(e.PausedAt), SecretHint: e.SecretHint,
			Project: orNil(e.Project), Environment: string(e.Environment), CreatedAt: e.CreatedAt.Unix()}
		if e.Kind == webhooks.Tunnel {
			// It holds while its client is away, and is never paused.
			o.Status, o.PausedReason, o.PausedAt = string(webhooks.Active), nil, nil
		}
		if e.OldSecretUntil != nil && c.s.Now().Before(*e.OldSecretUntil) {
			o.OldSecretUntil = unix(e.OldSecretUntil)
		}
		st := stats[e.ID]
		o.Stats = endpointStats{Succeeded: st.Succeeded, Failed: st.Failed, FailedAttempts: st.FailedAttempts,
			LastSuccessAt: unix(st.LastSuccessAt), LastFailureAt: unix(st.LastFailureAt), LastError: orNil(st.LastError)}
		if e.Status == webhooks.Paused {
			if o.Stats.Held, err = c.s.Webhooks.HeldCount(c.Context(), q, e.ID, heldBound); err != nil {
				return nil, err
			}
		}
		out[i] = o
	}
	return out, nil
}

func (c *Call) endpoint(q db.Querier, e *webhooks.Endpoint) (*endpointObject, error) {
	list, err := c.endpoints(q, []*webhooks.Endpoint{e})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// lockEndpoint reads the endpoint that the path names, for a change.
func (c *Call) lockEndpoint(tx *db.Tx) (*webhooks.Endpoint, error) {
	id, err := c.pathID(ids.Endpoint, "webhook endpoint")
	if err != nil {
		return nil, err
	}
	return c.s.Webhooks.GetLocked(c.Context(), tx, c.Principal.Visibility(), id)
}

type createEndpointRequest struct {
	URL         string   `json:"url"`
	Events      []string `json:"events"`
	Description string   `json:"description"`
}

func createEndpoint(c *Call, tx *db.Tx, in createEndpointRequest) (any, error) {
	e := &webhooks.Endpoint{WorkspaceID: c.Principal.WorkspaceID, Environment: c.Principal.Environment, Project: c.Principal.Project,
		URL: in.URL, Events: in.Events, Description: in.Description}
	secret, err := c.s.Webhooks.Create(c.Context(), tx, c.Actor(), e)
	if err != nil {
		return nil, err
	}
	o, err := c.endpoint(tx, e)
	if err != nil {
		return nil, err
	}
	o.Secret = secret
	return o, nil
}

func listEndpoints(c *Call) (any, error) {
	q := c.query(append(pageParams, "kind")...)
	page := q.page(ids.Endpoint)
	tunnels := false
	switch q.text("kind") {
	case "", string(webhooks.HTTP):
	case "all":
		tunnels = true
	default:
		q.fail(fault.Invalid("kind", "kind must be http or all, which lists tunnels too"))
	}
	if q.err != nil {
		return nil, q.err
	}
	found, err := c.s.Webhooks.List(c.Context(), c.s.DB, c.Principal.Visibility(), tunnels, page)
	if err != nil {
		return nil, err
	}
	data, err := c.endpoints(c.s.DB, found.Rows)
	if err != nil {
		return nil, err
	}
	return newList(data, func(e *endpointObject) string { return e.ID }, found.More), nil
}

func getEndpoint(c *Call) (any, error) {
	id, err := c.pathID(ids.Endpoint, "webhook endpoint")
	if err != nil {
		return nil, err
	}
	e, err := c.s.Webhooks.Get(c.Context(), c.s.DB, c.Principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	return c.endpoint(c.s.DB, e)
}

type updateEndpointRequest struct {
	URL         jsonbody.Optional[string]   `json:"url"`
	Events      jsonbody.Optional[[]string] `json:"events"`
	Description jsonbody.Optional[string]   `json:"description"`
}

func updateEndpoint(c *Call, tx *db.Tx, in updateEndpointRequest) (any, error) {
	e, err := c.lockEndpoint(tx)
	if err != nil {
		return nil, err
	}
	if in.URL.Set {
		e.URL = in.URL.Value
	}
	if in.Events.Set {
		e.Events = in.Events.Value
	}
	if in.Description.Set {
		e.Description = in.Description.Value
	}
	if err := c.s.Webhooks.Update(c.Context(), tx, c.Actor(), e); err != nil {
		return nil, err
	}
	return c.endpoint(tx, e)
}

// deletedObject answers a DELETE that leaves nothing to show.
type deletedObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

func deleteEndpoint(c *Call, tx *db.Tx, _ struct{}) (any, error) {
	e, err := c.lockEndpoint(tx)
	if err != nil {
		return nil, err
	}
	if err := c.s.Webhooks.Delete(c.Context(), tx, c.Actor(), e); err != nil {
		return nil, err
	}
	return deletedObject{e.ID, "webhook_endpoint", true}, nil
}

func pauseEndpoint(c *Call, tx *db.Tx, _ struct{}) (any, error) {
	e, err := c.lockEndpoint(tx)
	if err != nil {
		return nil, err
	}
	if err := c.s.Webhooks.Pause(c.Context(), tx, c.Actor(), e); err != nil {
		return nil, err
	}
	return c.endpoint(tx, e)
}

type resumeEndpointRequest struct {
	Held *string `json:"held"`
}

func resumeEndpoint(c *Call, tx *db.Tx, in resumeEndpointRequest) (any, error) {
	discard := in.Held != nil && *in.Held == "discard"
	if in.Held != nil && !discard && *in.Held != "deliver" {
		return nil, fault.Invalid("held", "held must be deliver or discard")
	}
	e, err := c.lockEndpoint(tx)
	if err != nil {
		return nil, err
	}
	if err := c.s.Webhooks.Resume(c.Context(), tx, c.Actor(), e, discard); err != nil {
		return nil, err
	}
	return c.endpoint(tx, e)
}

type rotateSecretRequest struct {
	GracePeriodSeconds *int64 `json:"grace_period_seconds"`
}

func rotateEndpointSecret(c *Call, tx *db.Tx, in rotateSecretRequest) (any, error) {
	grace := webhooks.DefaultSecretGrace
	if s := in.GracePeriodSeconds; s != nil {
		grace = -1 // too large for a Duration perhaps
		if *s >= 0 && *s <= int64(webhooks.MaxSecretGrace/time.Second) {
			grace = time.Duration(*s) * time.Second
		}
	}
	e, err := c.lockEndpoint(tx)
	if err != nil {
		return nil, err
	}
	secret, err := c.s.Webhooks.RotateSecret(c.Context(), tx, c.Actor(), e, grace)
	if err != nil {
		return nil, err
	}
	o, err := c.endpoint(tx, e)
	if err != nil {
		return nil, err
	}
	o.Secret = secret
	return o, nil
}

func endEndpointGrace(c *Call, tx *db.Tx, _ struct{}) (any, error) {
	e, err := c.lockEndpoint(tx)
	if err != nil {
		return nil, err
	}
	if err := c.s.Webhooks.EndGrace(c.Context(), tx, c.Actor(), e); err != nil {
		return nil, err
	}
	return c.endpoint(tx, e)
}

type testEndpointRequest struct {
	Type *string `json:"type"`
}

func testEndpoint(c *Call, tx *db.Tx, in testEndpointRequest) (any, error) {
	var t events.Type
	if in.Type != nil {
		var err error
		if t, err = events.ParseType("type", *in.Type); err != nil {
			return nil, err
		}
	}
	e, err := c.lockEndpoint(tx)
	if err != nil {
		return nil, err
	}
	d, err := c.s.Webhooks.SendTest(c.Context(), tx, c.Actor(), e, t, c.Project)
	if err != nil {
		return nil, err
	}
	return newDeliveryObject(d), nil
}

type replayEndpointRequest struct {
	Since  *int64   `json:"since"`
	Until  *int64   `json:"until"`
	Types  []string `json:"types"`
	Status string   `json:"status"`
	NewID  bool     `json:"new_id"`
}

func replayEndpoint(c *Call, tx *db.Tx, in replayEndpointRequest) (any, error) {
	id, err := c.pathID(ids.Endpoint, "webhook endpoint")
	if err != nil {
		return nil, err
	}
	p := &webhooks.Replay{EndpointID: id, Mode: in.Status, NewIDs: in.NewID}
	if in.Since == nil {
		return nil, fault.Missing("since", "since must be the Unix time from which on events are replayed")
	}
	for _, at := range []struct {
		name string
		from *int64
		into *time.Time
	}{{"since", in.Since, &p.Since}, {"until", in.Until, &p.Until}} {
		if at.from == nil {
			continue
		}
		if *at.from < 0 || *at.from > farFuture {
			return nil, fault.Invalid(at.name, "%s must be a Unix time in seconds", at.name)
		}
		*at.into = time.Unix(*at.from, 0)
	}
	for _, name := range in.Types {
		t, err := events.ParseType("types", name)
		if err != nil {
			return nil, err
		}
		p.Types = append(p.Types, t)
	}
	if err := c.s.Webhooks.StartReplay(c.Context(), tx, c.Actor(), c.Principal.Visibility(), p); err != nil {
		return nil, err
	}
	return newReplayObject(p), nil
}

type replayObject struct {
	ID          string   `json:"id"`
	Object      string   `json:"object"`
	EndpointID  string   `json:"endpoint_id"`
	Status      string   `json:"status"`
	Selection   string   `json:"selection"`
	Types       []string `json:"types"`
	NewID       bool     `json:"new_id"`
	Since       int64    `json:"since"`
	Until       int64    `json:"until"`
	Total       int64    `json:"total"`
	Done        int64    `json:"done"`
	Environment string   `json:"environment"`
	CreatedAt   int64    `json:"created_at"`
	FinishedAt  *int64   `json:"finished_at"`
}

func newReplayObject(p *webhooks.Replay) *replayObject {
	types := make([]string, len(p.Types))
	for i, t := range p.Types {
		types[i] = string(t)
	}
	return &replayObject{ID: p.ID, Object: "replay", EndpointID: p.EndpointID, Status: p.State, Selection: p.Mode, Types: types, NewID: p.NewIDs,
		Since: p.Since.Unix(), Until: p.Until.Unix(), Total: p.Total, Done: p.Done, Environment: string(p.Environment),
		CreatedAt: p.CreatedAt.Unix(), FinishedAt: unix(p.FinishedAt)}
}

func getReplay(c *Call) (any, error) {
	id, err := c.pathID(ids.Replay, "replay")
	if err != nil {
		return nil, err
	}
	p, err := c.s.Webhooks.GetReplay(c.Context(), c.s.DB, c.Principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	return newReplayObject(p), nil
}
