package tunnel_test

import (
	"bufio"
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/tunnel"
	"turnpike/test/harness"
	"turnpike/webhook"
)

// rawReceiver records the bytes of requests.
func rawReceiver(t *testing.T) (address string, requests chan string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	requests = make(chan string, 100)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					request, err := readRaw(in)
					if err != nil {
						return
					}
					requests <- request
					_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String() + "/hooks?from=test", requests
}

func readRaw(in *bufio.Reader) (string, error) {
	var request strings.Builder
	length := 0
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		request.WriteString(line)
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.Atoi(value); err != nil {
				return "", err
			}
		}
		if line == "\r\n" {
			break
		}
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(in, body); err != nil {
		return "", err
	}
	request.Write(body)
	return request.String(), nil
}

// The requests of a mirror and its endpoint differ only in host and delivery ID.
func forwardedRequestEqualsThatOfAnEndpoint(t *testing.T, c *tenant) {
	remote, toEndpoint := rawReceiver(t)
	local, toTunnel := rawReceiver(t)
	made := c.post(t, "/v1/webhooks", map[string]any{"url": remote, "events": []string{"*"}})
	_, ready := c.listen(t, local, func(o *tunnel.Options) { o.Endpoint = made.Text("id") })
	if ready.Mirrors != made.Text("id") || ready.Secret != "" || !slices.Equal(ready.Events, []string{"*"}) {
		t.Errorf("got mirror %+v", ready)
	}
	for _, typ := range events.Types {
		c.publish(t, typ, 1)
		want, got := <-toEndpoint, <-toTunnel
		if a, b := withoutOwn(t, want, remote, made.Text("secret")), withoutOwn(t, got, local, made.Text("secret")); a != b {
			t.Errorf("the endpoint got\n%s\nand the tunnel\n%s", a, b)
		}
	}
}

// withoutOwn checks the signatures of a request and removes what differs between two
// endpoints: the host, the delivery ID, and the signature that covers it.
func withoutOwn(t *testing.T, raw, address, secret string) string {
	t.Helper()
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := webhook.Verify(body, req.Header, secret); err != nil {
		t.Error(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	id, signature := req.Header.Get(webhook.HeaderEventID), req.Header.Get(webhook.HeaderStandardSignature)
	for _, own := range []string{u.Host, id, signature} {
		if !strings.Contains(raw, own) {
			t.Errorf("the request lacks %q", own)
		}
	}
	return strings.NewReplacer(u.Host, "HOST", id, "ID", signature, "SIGNATURE").Replace(raw)
}

func tunnelHasItsOwnSecret(t *testing.T, c *tenant) {
	local := newReceiver(t, respond(200))
	l, ready := c.listen(t, local.URL+"/hooks", nil)
	if !strings.HasPrefix(ready.Secret, "whsec_") || ready.Mirrors != "" || ready.Reconnected || ready.Replaced {
		t.Errorf("got tunnel %+v", ready)
	}
	// Too large to be stored in the row of the delivery.
	c.publish(t, events.ImageBatchCompleted, 1)
	large := strings.Repeat("é🦀 \u2028<&>", 60_000)
	c.write(t, func(tx *db.Tx) error {
		run := events.Sample(events.AgentRunFailed, c.Clock.Now()).(events.AgentRun)
		run.PartialResult = &large
		_, err := events.NewPublisher(c.Clock.Now).Publish(t.Context(), tx, events.Origin{Tenant: c.workspace.In("test")}, run)
		tx.Signal("events", "")
		return err
	})
	for _, d := range local.wait(t, 2) {
		if err := webhook.Verify(d.body, d.header, ready.Secret); err != nil {
			t.Errorf("%.60s…: %v", d.body, err)
		}
	}
	f := <-l.forwarded
	if f.Type != "image.batch.completed" && f.Type != "agent.run.failed" || f.Status != 200 || f.Attempt != 1 {
		t.Errorf("OnForward: got %d %q", f.Status, f.Type)
	}
}

func tunnelGetsOnlyItsEvents(t *testing.T, c *tenant) {
	local := newReceiver(t, respond(200))
	_, ready := c.listen(t, local.URL, func(o *tunnel.Options) { o.Events = []string{"agent.run.*", "key.auto_revoked"} })
	for _, typ := range events.Types {
		c.publish(t, typ, 1)
	}
	c.await(t, ready.Endpoint, "succeeded", 4)
	for _, d := range local.wait(t, 4) {
		if !bytes.Contains(d.body, []byte(`"type":"agent.run.`)) && !bytes.Contains(d.body, []byte(`"type":"key.auto_revoked"`)) {
			t.Errorf("got delivery %.80s…", d.body)
		}
	}
}

func TestLocalFailuresNeverPauseATunnel(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *tenant) {
		local := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not yet", http.StatusInternalServerError) })
		_, ready := c.listen(t, local.URL, nil)
		c.publish(t, events.AgentRunCompleted, 1)
		for i, wait := range []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 12 * time.Hour} {
			d := c.onlyDelivery(t, ready.Endpoint, "retrying", i+1)
			if d.At("attempts.0.response_status") != float64(500) || d.Text("attempts.0.response_body") != "not yet\n" {
				t.Fatalf("got attempt %s", d.Body)
			}
			c.advance(t, wait+wait/10, ready.Endpoint)
		}
		c.onlyDelivery(t, ready.Endpoint, "failed", 6)
		local.setHandler(respond(200))
		c.publish(t, events.AgentRunFailed, 1)
		eventually(t, func() bool { return c.deliveries(t, ready.Endpoint)["succeeded"] == 1 })
		var mails int
		if err := c.DB.QueryRow(t.Context(), "SELECT count(*) FROM mails").Scan(&mails); err != nil || mails != 0 {
			t.Errorf("got %d emails, %v, want none", mails, err)
		}
		if local.count() != 7 {
			t.Errorf("got %d local requests", local.count())
		}
	})
}

func failedForwardIsRecordedWithItsReason(t *testing.T, c *tenant) {
	closed := newReceiver(t, respond(200))
	closed.Close()
	secure := httptest.NewUnstartedServer(respond(200))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for name, want := range map[string]struct{ to, class, text string }{
		"refused": {closed.URL, "connect", "connection refused: is your server running on " + strings.TrimPrefix(closed.URL, "http://") + "?"},
		"tls":     {secure.URL, "tls", "--skip-verify"},
	} {
		l, ready := c.listen(t, want.to, nil)
		c.publish(t, events.AgentRunCompleted, 1)
		d := c.onlyDelivery(t, ready.Endpoint, "retrying", 1)
		if !strings.Contains(d.Text("attempts.0.error.message"), want.text) || d.Text("attempts.0.error.class") != want.class {
			t.Errorf("%s: got attempt %s", name, d.Body)
		}
		if f := <-l.forwarded; f.Status != 0 || f.Error != d.Text("attempts.0.error.message") {
			t.Errorf("%s: OnForward: got %d %q", name, f.Status, f.Error)
		}
		l.stopAndWait(t)
	}
	_, ready := c.listen(t, secure.URL, func(o *tunnel.Options) { o.SkipVerify = true })
	c.publish(t, events.AgentRunCompleted, 1)
	c.onlyDelivery(t, ready.Endpoint, "succeeded", 1)
}

func TestSlowLocalServiceTimesOut(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg := configured(t, engine)
			cfg.Webhooks.Timeout = 300 * time.Millisecond
			c := newTenant(t, harness.Start(t, cfg, harness.NewClock()))
			local := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			_, ready := c.listen(t, local.URL, nil)
			c.publish(t, events.AgentRunCompleted, 1)
			d := c.onlyDelivery(t, ready.Endpoint, "retrying", 1)
			if d.Text("attempts.0.error.class") != "timeout" || !strings.Contains(d.Text("attempts.0.error.message"), "within 0.3 s") {
				t.Errorf("got attempt %s", d.Body)
			}
		})
	}
}

func mirrorHasNoEffectOnItsEndpoint(t *testing.T, c *tenant) {
	remote, local := newReceiver(t, respond(200)), newReceiver(t, respond(500))
	made := c.post(t, "/v1/webhooks", map[string]any{"url": remote.URL, "events": []string{"agent.run.*"}})
	id := made.Text("id")
	_, ready := c.listen(t, local.URL, func(o *tunnel.Options) { o.Endpoint = id })
	c.publish(t, events.AgentRunCompleted, 3)
	c.publish(t, events.KeyAutoRevoked, 1)
	c.await(t, id, "succeeded", 3)
	c.await(t, ready.Endpoint, "retrying", 3)
	for _, d := range append(remote.wait(t, 3), local.wait(t, 3)...) {
		if err := webhook.Verify(d.body, d.header, made.Text("secret")); err != nil {
			t.Error(err)
		}
	}
	shown := c.get(t, "/v1/webhooks/"+id)
	if shown.Text("status") != "active" || shown.At("stats.succeeded") != float64(3) || shown.At("stats.failed_attempts") != float64(0) {
		t.Errorf("got endpoint %s", shown.Body)
	}
	// The mirror of a paused endpoint is not paused.
	c.post(t, "/v1/webhooks/"+id+"/pause", nil)
	local.setHandler(respond(200))
	c.publish(t, events.AgentRunFailed, 1)
	eventually(t, func() bool { return c.deliveries(t, ready.Endpoint)["succeeded"] == 1 })
	if n := c.deliveries(t, id)["held"]; n != 1 {
		t.Errorf("the paused endpoint holds %d deliveries", n)
	}
}
