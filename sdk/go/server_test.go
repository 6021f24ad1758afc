//go:build clients

package turnpike_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	turnpike "turnpike/sdk/go"
	"turnpike/sdk/go/api"
	"turnpike/webhook"
)

// connect returns a client of the server that test/sdk has started.
func connect(t *testing.T) *turnpike.Client {
	t.Helper()
	c, err := turnpike.New(os.Getenv("TURNPIKE_BASE_URL"), os.Getenv("TURNPIKE_API_KEY"))
	if err != nil {
		t.Fatalf("%v. Run make clients, which starts a server.", err)
	}
	return c
}

func TestKeysOfAServer(t *testing.T) {
	c, ctx := connect(t), t.Context()
	var created *api.KeyWithValue
	for range 7 {
		res, err := c.CreateKeyWithResponse(ctx, nil, api.KeyCreate{Name: "go", Scopes: []api.ScopeName{"models:read"}})
		if err != nil {
			t.Fatal(err)
		}
		created = res.JSON200
	}
	rotated, err := c.RotateKeyWithResponse(ctx, created.ID, nil, api.KeyRotate{GracePeriodSeconds: new(0)})
	if err != nil || rotated.JSON200.ID != created.ID || rotated.JSON200.Value == created.Value {
		t.Fatalf("got %+v, %v", rotated, err)
	}
	var ids []string
	for key, err := range c.AllKeys(ctx, &api.ListKeysParams{Limit: new(3)}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, key.ID)
	}
	slices.Sort(ids)
	if len(ids) < 8 || len(slices.Compact(slices.Clone(ids))) != len(ids) || !slices.Contains(ids, created.ID) {
		t.Errorf("got the keys %v", ids)
	}
	_, err = c.CreateKeyWithResponse(ctx, nil, api.KeyCreate{Name: "go", Scopes: []api.ScopeName{"no:scope"}})
	var e *turnpike.Error
	if !errors.As(err, &e) || e.Status != 400 || e.Code != "invalid_parameter" || e.Message == "" || e.RequestID == "" {
		t.Errorf("got %+v for an unknown scope", err)
	}
}

func TestDeliveryOfAServer(t *testing.T) {
	c, ctx := connect(t), t.Context()
	type delivery struct {
		body   []byte
		header http.Header
	}
	arrived := make(chan delivery, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		arrived <- delivery{body, r.Header}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	endpoint, err := c.CreateWebhookWithResponse(ctx, nil, api.WebhookCreate{URL: receiver.URL, Events: []api.EventPattern{"agent.run.*"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := c.DeleteWebhookWithResponse(ctx, endpoint.JSON200.ID, nil); err != nil {
			t.Error(err)
		}
	}()
	kind := api.WebhookTestType("agent.run.failed")
	if _, err := c.TestWebhookWithResponse(ctx, endpoint.JSON200.ID, nil, api.WebhookTest{Type: new(kind)}); err != nil {
		t.Fatal(err)
	}
	d := <-arrived
	event, err := turnpike.VerifyWebhook(d.body, d.header, endpoint.JSON200.Secret)
	if err != nil || event.Type != string(kind) || !event.Sample {
		t.Fatalf("got %+v, %v", event, err)
	}
	d.body[len(d.body)-2] ^= 1
	if _, err := turnpike.VerifyWebhook(d.body, d.header, endpoint.JSON200.Secret); !errors.Is(err, webhook.ErrSignature) {
		t.Errorf("a changed delivery: %v", err)
	}
}

func TestRunOfAServer(t *testing.T) {
	c, ctx := connect(t), t.Context()
	tool := api.AgentTool{Type: "http", Name: new("refund_order"), URL: new("https://shop.example.com/refunds"), RequireApproval: &api.AgentTool_RequireApproval{}}
	if err := tool.RequireApproval.FromAgentToolRequireApproval0("always"); err != nil {
		t.Fatal(err)
	}
	body := api.AgentRunCreate{Model: "gpt-5.4-mini", Tools: new([]api.AgentTool{tool})}
	if err := body.Input.FromAgentRunCreateInput0("Refund it. [[sim:script=tool:refund_order;text:Refunded.]]"); err != nil {
		t.Fatal(err)
	}
	created, err := c.CreateAgentRunWithResponse(ctx, nil, body)
	if err != nil {
		t.Fatal(err)
	}
	id := created.JSON200.ID
	polls := 0
	options := &turnpike.WaitOptions[api.AgentRun]{PollInterval: 20 * time.Millisecond, OnProgress: func(*api.AgentRun) { polls++ }}
	run, err := c.WaitForRun(ctx, id, options)
	if err != nil || run.Status != "awaiting_approval" || polls == 0 {
		t.Fatalf("got %+v, %v after %d polls", run, err, polls)
	}
	action := run.RequiredActions[0]
	if _, err := c.DecideAgentApprovalWithResponse(ctx, id, *action.ID, nil, api.AgentDecision{Decision: "approve", ArgumentsHash: action.ArgumentsHash}); err != nil {
		t.Fatal(err)
	}
	run, err = c.WaitForRun(ctx, id, options)
	if err != nil || run.Status != "completed" || run.Result.OutputText != "Refunded." {
		t.Fatalf("got %+v, %v", run, err)
	}
	var kinds []string
	for e, err := range c.RunEvents(ctx, id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Type)
	}
	if len(kinds) < 5 || kinds[0] != "run.queued" || kinds[len(kinds)-1] != "run.completed" {
		t.Errorf("got the events %q", kinds)
	}
	steps := 0
	for _, err := range c.AllAgentSteps(ctx, id, nil) {
		if err != nil {
			t.Fatal(err)
		}
		steps++
	}
	if steps != run.StepsUsed {
		t.Errorf("%d steps, want %d", steps, run.StepsUsed)
	}
}
