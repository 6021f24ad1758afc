package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/jsonbody"
	"turnpike/internal/web"
	"turnpike/internal/webhooks"
)

// openAIEndpointsPath is where OpenAI's clients manage webhook endpoints.
const openAIEndpointsPath = "/v1/webhook_endpoints"

// openAIEndpoint is a webhook endpoint in OpenAI's format. Only responses that create a secret have
// Secret.
type openAIEndpoint struct {
	ID         string   `json:"id"`
	Object     string   `json:"object"`
	Name       string   `json:"name"`
	URL        string   `json:"url"`
	EventTypes []string `json:"event_types"`
	CreatedAt  int64    `json:"created_at"`
	Secret     string   `json:"signing_secret,omitzero"`
	SecretHint string   `json:"signing_secret_hint"`
}

func newOpenAIEndpoint(e *webhooks.Endpoint) *openAIEndpoint {
	return &openAIEndpoint{ID: e.ID, Object: "webhook_endpoint", Name: e.Description, URL: e.URL, EventTypes: e.Events, CreatedAt: e.CreatedAt.Unix(), SecretHint: e.SecretHint}
}

// openAINames are the names of fields in OpenAI's format.
var openAINames = map[string]string{"events": "event_types", "description": "name"}

// withOpenAINames names the field of an error as OpenAI does.
func withOpenAINames(err error) error {
	f, ok := fault.As(err)
	if !ok || openAINames[f.Param] == "" {
		return err
	}
	out := *f
	out.Param = openAINames[f.Param]
	if rest, ok := strings.CutPrefix(f.Message, f.Param+" "); ok {
		out.Message = out.Param + " " + rest
	}
	return &out
}

type createOpenAIEndpointRequest struct {
	URL        string   `json:"url"`
	Name       string   `json:"name"`
	EventTypes []string `json:"event_types"`
}

func createOpenAIEndpoint(ctx context.Context, c *Call, tx *db.Tx, in createOpenAIEndpointRequest) (any, error) {
	e := &webhooks.Endpoint{Tenant: c.Principal.Tenant, Project: c.Principal.Project, URL: in.URL, Events: in.EventTypes, Description: in.Name}
	secret, err := c.s.Webhooks.Create(ctx, tx, c.Actor(), e)
	if err != nil {
		return nil, withOpenAINames(err)
	}
	o := newOpenAIEndpoint(e)
	o.Secret = secret
	return o, nil
}

func listOpenAIEndpoints(ctx context.Context, c *Call) (any, error) {
	q := c.query(pageParams...)
	page := q.page(ids.Endpoint)
	if q.err != nil {
		return nil, q.err
	}
	found, err := c.s.Webhooks.List(ctx, c.s.DB, c.Principal.Visibility(), false, page)
	if err != nil {
		return nil, err
	}
	return foundList(found, web.Map(found.Rows, newOpenAIEndpoint), func(e *webhooks.Endpoint) string { return e.ID }), nil
}

func getOpenAIEndpoint(ctx context.Context, c *Call) (any, error) {
	e, err := c.s.Webhooks.Get(ctx, c.s.DB, c.Principal.Visibility(), c.id())
	return show(e, err, newOpenAIEndpoint)
}

type updateOpenAIEndpointRequest struct {
	URL        jsonbody.Optional[string]   `json:"url"`
	Name       jsonbody.Optional[string]   `json:"name"`
	EventTypes jsonbody.Optional[[]string] `json:"event_types"`
}

func updateOpenAIEndpoint(ctx context.Context, c *Call, tx *db.Tx, in updateOpenAIEndpointRequest) (any, error) {
	e, err := c.s.Webhooks.Change(ctx, tx, changeOf(c, func(e *webhooks.Endpoint) error {
		set(&e.URL, in.URL)
		set(&e.Events, in.EventTypes)
		set(&e.Description, in.Name)
		return nil
	}))
	return show(e, withOpenAINames(err), newOpenAIEndpoint)
}

func deleteOpenAIEndpoint(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	e, err := c.lockEndpoint(ctx, tx)
	if err != nil {
		return nil, err
	}
	return deletedObject{e.ID, "webhook_endpoint.deleted", true}, c.s.Webhooks.Delete(ctx, tx, c.Actor(), e)
}

type rotateOpenAISecretRequest struct {
	KeepOld bool `json:"keep_old_secret_active_for_24_hours"`
}

func rotateOpenAISecret(ctx context.Context, c *Call, tx *db.Tx, in rotateOpenAISecretRequest) (any, error) {
	e, err := c.lockEndpoint(ctx, tx)
	if err != nil {
		return nil, err
	}
	grace := time.Duration(0)
	if in.KeepOld {
		grace = webhooks.DefaultSecretGrace
	}
	secret, err := c.s.Webhooks.RotateSecret(ctx, tx, c.Actor(), e, grace)
	if err != nil {
		return nil, err
	}
	o := newOpenAIEndpoint(e)
	o.Secret = secret
	return o, nil
}

type testOpenAIEndpointRequest struct {
	EventType *string `json:"event_type"`
}

// endpointTest is the result of a test delivery. Success is false if the endpoint sent no response.
type endpointTest struct {
	Object     string `json:"object"`
	EndpointID string `json:"webhook_endpoint_id"`
	EventType  string `json:"event_type"`
	DeliveryID string `json:"delivery_id"`
	Success    bool   `json:"success"`
	StatusCode *int64 `json:"status_code"`
}

// testOpenAIEndpoint sends a sample event and waits for the endpoint's response.
func testOpenAIEndpoint(c *Call) error {
	body, err := c.readJSON(c.Limits.Body)
	if err != nil {
		return err
	}
	var in testOpenAIEndpointRequest
	if err := jsonbody.DecodeStrict(body, &in); err != nil {
		return err
	}
	if in.EventType == nil {
		return fault.Missing("event_type", "event_type is required: the event to send. GET /v1/webhook_event_types lists them.")
	}
	kind, err := events.ParseType("event_type", *in.EventType)
	if err != nil {
		return err
	}
	return c.perform(body, action{
		do: func(ctx context.Context, tx *db.Tx) (any, error) {
			e, err := c.lockEndpoint(ctx, tx)
			if err != nil {
				return nil, err
			}
			if e.Status == webhooks.Paused {
				return nil, fault.New(fault.InvalidState, "The endpoint is paused. Resume it first (POST /v1/webhooks/%s/resume).", e.ID)
			}
			d, err := c.s.Webhooks.SendTest(ctx, tx, c.Actor(), e, webhooks.TestEvent{Type: kind, Project: c.Project})
			if err != nil {
				return nil, err
			}
			return endpointTest{Object: "webhook_endpoint.test", EndpointID: e.ID, EventType: string(kind), DeliveryID: d.ID}, nil
		},
		send: c.sendEndpointTest,
	})
}

// The wait for a test delivery is longer than an attempt usually takes.
const (
	testTimeout  = 15 * time.Second
	testInterval = 50 * time.Millisecond
)

// sendEndpointTest responds when the test delivery has been attempted.
func (c *Call) sendEndpointTest(result []byte) error {
	var out endpointTest
	if err := json.Unmarshal(result, &out); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), testTimeout)
	defer cancel()
	for ctx.Err() == nil {
		attempts, err := c.s.Webhooks.ListAttempts(ctx, c.s.DB, out.DeliveryID)
		if err == nil && len(attempts) > 0 {
			out.StatusCode = orNil(attempts[0].Status)
			out.Success = out.StatusCode != nil
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(testInterval):
		}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	c.write(http.StatusOK, jsonType, body)
	return nil
}

// listEventTypes returns the events that endpoints can subscribe to.
func listEventTypes(context.Context, *Call) (any, error) {
	return struct {
		Object string        `json:"object"`
		Data   []events.Type `json:"data"`
	}{"list", events.Types}, nil
}
