//go:build clients

package sdk_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// startHooked starts a server that may deliver to this machine, and returns a test key.
func startHooked(t *testing.T) (s *harness.Server, key string) {
	t.Helper()
	cfg := harness.Config(t, "sqlite")
	cfg.Webhooks.AllowHTTP, cfg.Webhooks.AllowCIDRs = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s = harness.Start(t, cfg, harness.NewClock())
	key, _ = s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	return s, key
}

// TestNodeSDKCreatesResponsesInTheBackground runs the published npm package, which also verifies the deliveries.
func TestNodeSDKCreatesResponsesInTheBackground(t *testing.T) {
	t.Parallel()
	s, key := startHooked(t)
	runScript(t, "background.mjs", []string{"openai"}, "BASE_URL="+s.URL+"/v1", "KEY="+key)
}

// TestGoSDKCreatesResponsesInTheBackground is the same with openai-go.
func TestGoSDKCreatesResponsesInTheBackground(t *testing.T) {
	t.Parallel()
	s, key := startHooked(t)
	ctx := t.Context()
	c := openai.NewClient(option.WithAPIKey(key), option.WithBaseURL(s.URL+"/v1"))
	type delivery struct {
		header http.Header
		body   []byte
	}
	arrived := make(chan delivery, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		arrived <- delivery{r.Header, body}
	}))
	defer receiver.Close()
	var endpoint struct{ Secret string }
	if err := c.Post(ctx, "webhooks", map[string]any{"url": receiver.URL, "events": []string{"response.completed"}}, &endpoint); err != nil {
		t.Fatal(err)
	}

	input := func(text string) responses.ResponseNewParams {
		return responses.ResponseNewParams{Model: "gpt-4o-mini", Background: openai.Bool(true), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}}
	}
	r, err := c.Responses.New(ctx, input("[[sim:text=Blue.]]"))
	if err != nil || r.Status != responses.ResponseStatusQueued {
		t.Fatalf("got %+v, %v", r, err)
	}
	for r.Status == responses.ResponseStatusQueued || r.Status == responses.ResponseStatusInProgress {
		time.Sleep(20 * time.Millisecond)
		if r, err = c.Responses.Get(ctx, r.ID, responses.ResponseGetParams{}); err != nil {
			t.Fatal(err)
		}
	}
	if r.Status != responses.ResponseStatusCompleted || r.OutputText() != "Blue." {
		t.Errorf("got %s", r.RawJSON())
	}
	d := <-arrived
	c = openai.NewClient(option.WithAPIKey(key), option.WithBaseURL(s.URL+"/v1"), option.WithWebhookSecret(endpoint.Secret))
	event, err := c.Webhooks.Unwrap(d.body, d.header)
	if err != nil || event.Type != "response.completed" || event.AsResponseCompleted().Data.ID != r.ID {
		t.Errorf("got %s, %v", d.body, err)
	}

	stream := c.Responses.NewStreaming(ctx, input("[[sim:text=one two three]]"))
	var id string
	for id == "" && stream.Next() {
		id = stream.Current().Response.ID
	}
	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
	said, last := "", ""
	// The SDK sends stream in a body, which a GET doesn't have.
	resumed := c.Responses.GetStreaming(ctx, id, responses.ResponseGetParams{StartingAfter: openai.Int(0)}, option.WithQuery("stream", "true"))
	for resumed.Next() {
		said, last = said+resumed.Current().Delta, resumed.Current().Type
	}
	if resumed.Err() != nil || said != "one two three" || last != "response.completed" {
		t.Errorf("got %q and %s, %v", said, last, resumed.Err())
	}

	slow, err := c.Responses.New(ctx, input("[[sim:delay=60s]] Hi."))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Responses.Cancel(ctx, slow.ID); err != nil || r.Status != responses.ResponseStatusCancelled {
		t.Errorf("got %+v, %v", r, err)
	}
}
