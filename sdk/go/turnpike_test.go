package turnpike_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	turnpike "turnpike/sdk/go"
	"turnpike/sdk/go/api"
	"turnpike/webhook"
)

// serve starts a server and returns a client of it.
func serve(t *testing.T, handler http.HandlerFunc, options ...turnpike.Option) *turnpike.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := turnpike.New(server.URL+"/v1/", "tp_test_x", options...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRetriesFollowTheServersHints(t *testing.T) {
	t.Parallel()
	var keys []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		var body api.KeyCreate
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Name != "ci" || r.Header.Get("Authorization") != "Bearer tp_test_x" || r.Header.Get("Service-Project") != "bot" {
			t.Errorf("attempt %d has %+v and %v, %v", len(keys), body, r.Header, err)
		}
		switch len(keys) {
		case 1:
			w.Header().Set("Retry-After-Ms", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"key_1","value":"tp_test_y"}`)
		}
	}, turnpike.WithProject("bot"))
	res, err := c.CreateKeyWithResponse(t.Context(), nil, api.KeyCreate{Name: "ci", Scopes: []api.ScopeName{"models:read"}})
	if err != nil || res.JSON200.ID != "key_1" {
		t.Fatalf("got %+v, %v", res, err)
	}
	if len(keys) != 3 || keys[0] == "" || keys[1] != keys[0] || keys[2] != keys[0] {
		t.Errorf("the attempts have the idempotency keys %q, want one three times", keys)
	}
}

func TestErrorsAreTyped(t *testing.T) {
	t.Parallel()
	attempts := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		attempts++
		w.Header().Set("X-Request-Id", "req_2")
		if strings.HasSuffix(r.URL.Path, "key_html") {
			w.Header().Set("X-Should-Retry", "false")
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html>")
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":{"code":"not_found","type":"not_found_error","message":"Unknown key.","param":"id","request_id":"req_1","doc_url":"https://x/errors"}}`)
	})
	_, err := c.GetKeyWithResponse(t.Context(), "key_1", nil)
	var e *turnpike.Error
	want := turnpike.Error{Status: 404, Code: "not_found", Type: "not_found_error", Message: "Unknown key.", Param: "id", RequestID: "req_1", DocURL: "https://x/errors"}
	if !errors.As(err, &e) || *e != want || err.Error() != "turnpike: Unknown key. (req_1)" {
		t.Errorf("got %+v, want %+v", err, want)
	}
	_, err = c.GetKeyWithResponse(t.Context(), "key_html", nil)
	if !errors.As(err, &e) || e.Status != 502 || e.Code != "" || e.RequestID != "req_2" {
		t.Errorf("got %+v for a page of a proxy", err)
	}
	if attempts != 2 {
		t.Errorf("%d attempts, want 2", attempts)
	}
}

func TestAllGetsEveryPageOnce(t *testing.T) {
	t.Parallel()
	var after []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		after = append(after, r.URL.Query().Get("after"))
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Query().Get("after") {
		case "": // a page can be empty although there are more
			fmt.Fprint(w, `{"data":[],"last_id":"evt_0","has_more":true}`)
		case "evt_0":
			fmt.Fprint(w, `{"data":[{"id":"evt_1"},{"id":"evt_2"}],"last_id":"evt_2","has_more":true}`)
		case "evt_2":
			fmt.Fprint(w, `{"data":[{"id":"evt_3"}],"last_id":"evt_3","has_more":false}`)
		}
	})
	var got []string
	for e, err := range c.AllEvents(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.ID)
	}
	if fmt.Sprint(got) != "[evt_1 evt_2 evt_3]" || len(after) != 3 {
		t.Errorf("got %v from the pages after %q", got, after)
	}
	for range c.AllEvents(t.Context(), nil) {
		break
	}
	if len(after) != 5 {
		t.Errorf("%d requests, want 5: an iteration that stops gets no further pages", len(after))
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"video_1","status":"in_progress","progress":10,"completed_at":null}`)
	})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.WaitForVideo(ctx, "video_1", &turnpike.WaitOptions[api.Video]{PollInterval: time.Hour, OnProgress: func(v *api.Video) {
		if v.Progress != 10 {
			t.Errorf("progress is %d, want 10", v.Progress)
		}
		cancel()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestBrokenStreamIsResumed(t *testing.T) {
	t.Parallel()
	connections := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		connections++
		var after int
		if _, err := fmt.Sscan(r.URL.Query().Get("starting_after"), &after); err != nil || r.URL.Query().Get("stream") != "true" {
			t.Errorf("%s: %v", r.URL, err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, ": hello\r\n\r\nid: %d\nevent: step.started\ndata: {\"seq\":\ndata: %d}\n\n", after+1, after+1)
		if connections == 2 {
			fmt.Fprint(w, "data: [DONE]\n\n")
			return
		}
		fmt.Fprint(w, "data: {\"seq\"") // an event that is cut off
	})
	var got []int
	for e, err := range c.RunEvents(t.Context(), "run_1", 4) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Seq)
	}
	if fmt.Sprint(got) != "[5 6]" {
		t.Errorf("got %v, want [5 6]", got)
	}
}

func TestVerifyWebhookRejectsChangedDeliveries(t *testing.T) {
	t.Parallel()
	secret, body, header := webhook.NewSecret(), []byte(`{"id":"evt_1","type":"billing.credits.low","data":{}}`), http.Header{}
	if err := webhook.Sign(header, "dlv_1", time.Now(), body, secret); err != nil {
		t.Fatal(err)
	}
	e, err := turnpike.VerifyWebhook(body, header, webhook.NewSecret(), secret)
	if err != nil || e.Type != "billing.credits.low" {
		t.Fatalf("got %+v, %v", e, err)
	}
	if _, err := turnpike.VerifyWebhook(append(body, ' '), header, secret); !errors.Is(err, webhook.ErrSignature) {
		t.Errorf("a changed body: %v", err)
	}
	header.Del("Webhook-Signature")
	if _, err := turnpike.VerifyWebhook(body, header, secret); !errors.Is(err, webhook.ErrUnsignedID) {
		t.Errorf("an ID without a signature: %v", err)
	}
}
