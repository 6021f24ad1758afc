package api_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/test/fakes/safehttptest"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
	"turnpike/webhook"
)

// schedule is the specified delay between a failure and the next attempt.
var schedule = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 12 * time.Hour}

// withPeople creates a member of each role.
func (c *client) withPeople(t *testing.T) {
	t.Helper()
	c.write(t, func(tx *db.Tx) error {
		for _, role := range accounts.Roles {
			u := &accounts.User{Email: string(role) + "@example.com", WorkspaceID: c.workspace.ID, Role: role}
			if err := accounts.CreateUser(t.Context(), tx, u, c.Clock.Now()); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachMailed is eachWebhooks with a mail server.
func eachMailed(t *testing.T, engines []string, fn func(t *testing.T, c *client, mails *smtp.Server)) {
	t.Helper()
	eachEngine(t, engines, func(t *testing.T, engine string) {
		mails := smtp.Start(t)
		cfg := webhookConfig(t, engine)
		cfg.SMTP.URL, cfg.Mail.From = config.SecretURL(mails.URL()), "turnpike@example.com"
		c := newClient(t, harness.Start(t, cfg, harness.NewClock()), accounts.Live)
		c.withPeople(t)
		fn(t, c, mails)
	})
}

// number returns a number of a JSON response.
func number(t *testing.T, r *harness.Response, path string) int64 {
	t.Helper()
	n, ok := r.At(path).(float64)
	if !ok {
		t.Fatalf("%s is not a number in %s", path, r.Body)
	}
	return int64(n)
}

func TestFailedDeliveryIsRetriedThenEndpointIsPaused(t *testing.T) {
	eachMailed(t, both, func(t *testing.T, c *client, mails *smtp.Server) {
		r := newReceiver(t, c.Clock, nil)
		r.respondWith(unlessSample(r, 503))
		id, secret := c.endpoint(t, r.URL, "*")
		begun := c.Clock.Now()
		event := c.publish(t, keyRevoked)[0]
		delivery := c.deliveries(t, id, 1)[0]
		// A delivered sample shows that the lane was processed.
		witness := func() {
			t.Helper()
			c.waitForDelivery(t, c.post(t, "/v1/webhooks/"+id+"/test", nil).Text("id"), "succeeded", 1)
		}
		var second string
		for i, delay := range schedule {
			d := c.waitForDelivery(t, delivery, "retrying", i+1)
			at := fmt.Sprintf("attempts.%d.", i)
			if plan := number(t, d, at+"next_retry_at") - number(t, d, at+"started_at"); plan < int64(delay.Seconds()) || plan > int64(delay.Seconds()*1.05)+1 {
				t.Errorf("attempt %d is followed by another after %d s, want %v", i+1, plan, delay)
			}
			if number(t, d, "next_attempt_at") != number(t, d, at+"next_retry_at") {
				t.Errorf("the next attempt of %s is not the one that was planned", d.Body)
			}
			c.Clock.Turn(delay - time.Second)
			witness()
			if n := r.count(); n != i+1 {
				t.Fatalf("%d attempts were made a second before attempt %d was due", n, i+2)
			}
			if i == len(schedule)-1 { // another one is in progress when the endpoint is paused
				c.publish(t, events.KeyRevoked{KeyID: "key_1"})
				second = c.deliveries(t, id, 1+len(schedule)+1)[1+len(schedule)]
				c.waitForDelivery(t, second, "retrying", 1)
				c.Clock.Turn(2 * time.Second)
				c.Eventually(t, func() bool { return r.count() == i+3 })
				continue
			}
			c.Clock.Turn(2 * time.Second) // the delay starts after the attempt, which took a moment
			c.Eventually(t, func() bool { return r.count() == i+2 })
		}
		d := c.waitForDelivery(t, delivery, "failed", 6)
		if d.At("next_attempt_at") != nil || d.At("attempts.5.next_retry_at") != nil || d.At("finished_at") == nil {
			t.Errorf("after the last attempt it is %s", d.Body)
		}
		elapsed := time.Duration(0)
		for i := range 6 {
			after := time.Unix(number(t, d, fmt.Sprintf("attempts.%d.started_at", i)), 0).Sub(begun.Truncate(time.Second))
			if after < elapsed || after > elapsed+time.Duration(2*i+1)*time.Second {
				t.Errorf("attempt %d was made after %v, want %v", i+1, after, elapsed)
			}
			if i < len(schedule) {
				elapsed += schedule[i]
			}
		}

		// Each attempt sends the same bytes with a new signature.
		first := r.all()[0]
		stamps := map[string]bool{}
		for _, got := range r.all() {
			if got.id == second {
				continue
			}
			if got.id != delivery || !bytes.Equal(got.body, first.body) || !got.signedBy(secret) || got.header.Get("Service-Timestamp") != strconv.FormatInt(got.at.Unix(), 10) {
				t.Errorf("an attempt came with the headers %v and the body %s", got.header, got.body)
			}
			stamps[got.header.Get("Service-Timestamp")] = true
		}
		if shown := c.get(t, "/v1/events/"+event.ID); len(stamps) != 6 || !bytes.Equal(shown.Body, first.body) {
			t.Errorf("%d times were signed, and the event is %s", len(stamps), shown.Body)
		}

		// The endpoint is paused, and the members who can fix it are notified.
		e := c.get(t, "/v1/webhooks/"+id)
		if e.Text("status") != "paused" || e.Text("paused_reason") != "delivery_failed" || e.At("paused_at") != float64(c.Clock.Now().Unix()) ||
			e.At("stats.failed") != float64(1) || e.Text("stats.last_error") != "the endpoint returned 503 Service Unavailable instead of a 2xx status" {
			t.Errorf("got endpoint %s", e.Body)
		}
		mailed := func(when string) {
			t.Helper()
			var to []string
			for _, m := range mails.Wait(t, 2) {
				to = append(to, m.To...)
				if !bytes.Contains(m.Data, []byte(id)) || !bytes.Contains(m.Data, []byte(r.URL)) || !bytes.Contains(m.Data, []byte("503 Service Unavailable")) {
					t.Errorf("got email\n%s", m.Data)
				}
			}
			if slices.Sort(to); !slices.Equal(to, []string{"admin@example.com", "owner@example.com"}) || c.rows(t, "mails") != 2 {
				t.Errorf("%s %v were mailed", when, to)
			}
		}
		mailed("when it was paused,")
		c.waitForDelivery(t, second, "held", 1)
		c.publish(t, events.KeyRevoked{KeyID: "key_2"})
		third := c.deliveries(t, id, 1+len(schedule)+2)[1+len(schedule)+1]
		c.waitForDelivery(t, third, "held", 0)
		c.advanceEndpoint(t, 24*time.Hour, id)

		// After a resume, held deliveries start a new schedule. Failed ones
		// stay failed.
		c.post(t, "/v1/webhooks/"+id+"/resume", nil)
		for n, one := range []string{third, second} {
			d := c.waitForDelivery(t, one, "retrying", n+1)
			at := fmt.Sprintf("attempts.%d.", n)
			if plan := number(t, d, at+"next_retry_at") - number(t, d, at+"started_at"); plan < 60 || plan > 61 {
				t.Errorf("a resumed delivery is tried again after %d s", plan)
			}
		}
		r.respondWith(respond(204))
		c.advanceEndpoint(t, 2*time.Minute, id)
		c.waitForDelivery(t, second, "succeeded", 3)
		c.waitForDelivery(t, third, "succeeded", 2)
		if d := c.waitForDelivery(t, delivery, "failed", 6); d.At("next_attempt_at") != nil {
			t.Errorf("the failed one is %s", d.Body)
		}
		c.post(t, "/v1/deliveries/"+delivery+"/replay", nil)
		c.waitForDelivery(t, delivery, "succeeded", 7)
		if last := r.all()[r.count()-1]; last.id != delivery || !bytes.Equal(last.body, first.body) || !last.signedBy(secret) {
			t.Errorf("the replay came as %v %s", last.header, last.body)
		}
		mailed("in all")
	})
}

func TestEveryPauseIsEmailedOnce(t *testing.T) {
	eachMailed(t, sqlite, func(t *testing.T, c *client, mails *smtp.Server) {
		r := newReceiver(t, c.Clock, respond(500))
		id, _ := c.endpoint(t, r.URL)
		for pause := 1; pause <= 2; pause++ {
			// Several deliveries fail permanently at the same time.
			c.publish(t, keyRevoked, keyRevoked, keyRevoked)
			all := c.deliveries(t, id, 3*pause)[3*(pause-1):]
			c.exec(t, "UPDATE deliveries SET tries = 5 WHERE endpoint_id = $1", id)
			c.Eventually(t, func() bool {
				c.advanceEndpoint(t, time.Hour, id)
				return c.get(t, "/v1/webhooks/"+id).Text("status") == "paused"
			})
			for _, one := range all {
				if got := c.get(t, "/v1/deliveries/"+one).Text("status"); got != "failed" && got != "held" {
					t.Errorf("at a paused endpoint a delivery is %s", got)
				}
			}
			mails.Wait(t, 2*pause)
			if n := c.rows(t, "mails"); n != 2*pause {
				t.Errorf("after %d pauses there are %d mails", pause, n)
			}
			c.post(t, "/v1/webhooks/"+id+"/resume", map[string]any{"held": "discard"})
		}
	})
}

// attempt sends a sample to a new endpoint at the address and returns the
// delivery after its first attempt.
func (c *client) attempt(t *testing.T, address string) func() *harness.Response {
	t.Helper()
	id, _ := c.endpoint(t, address)
	delivery := c.post(t, "/v1/webhooks/"+id+"/test", nil).Text("id")
	return func() (d *harness.Response) {
		t.Helper()
		c.Eventually(t, func() bool {
			d = c.get(t, "/v1/deliveries/"+delivery)
			return d.At("attempt_count") == float64(1)
		})
		return d
	}
}

// impatient is a short timeout that a busy machine can still meet.
const impatient = 2 * time.Second

func TestEveryReceiverBehaviorIsRecordedWithinBounds(t *testing.T) {
	eachWebhooks(t, sqlite, func(_ *testing.T, cfg *config.Config) { cfg.Webhooks.Timeout = impatient }, func(t *testing.T, c *client) {
		elsewhere := newReceiver(t, c.Clock, respond(200))
		var written atomic.Int64
		never := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		kinds := []struct {
			name    string
			answer  http.HandlerFunc
			status  float64 // 0 for no response
			class   string  // empty for success
			message string
		}{
			{"200", respond(200), 200, "", ""},
			{"204", respond(204), 204, "", ""},
			{"299", respond(299), 299, "", ""},
			{"500", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "out of order", 500) }, 500, "status",
				"the endpoint returned 500 Internal Server Error instead of a 2xx status"},
			{"404", respond(404), 404, "status", "the endpoint returned 404 Not Found instead of a 2xx status"},
			{"999", respond(999), 999, "status", "the endpoint returned 999 instead of a 2xx status"},
			{"a redirect", func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			}, 307, "redirect",
				"the endpoint returned a redirect, which is not followed; set its url to the target"},
			{"a redirect that cannot be read", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://[::1")
				w.WriteHeader(302)
			}, 302, "redirect", "the endpoint returned a redirect, which is not followed; set its url to the target"},
			{"304", respond(304), 304, "redirect", "the endpoint returned a redirect, which is not followed; set its url to the target"},
			{"no response in time", never, 0, "timeout", "no response within "},
			{"headers that drip", drip("HTTP/1.1 200 OK\r\n", "X-Drip: 1\r\n"), 0, "timeout", "no response within "},
			{"a connection that is reset", func(w http.ResponseWriter, _ *http.Request) {
				conn := hijack(w)
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}, 0, "reset", "the server closed the connection before it responded"},
			{"no HTTP", func(w http.ResponseWriter, _ *http.Request) {
				conn := hijack(w)
				_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.9\r\n\r\n")
				_ = conn.Close()
			}, 0, "protocol", "the response is not valid HTTP"},
			{"another protocol", safehttptest.Switching, 0, "protocol", "the server returned 101 Switching Protocols without being asked"},
			{"headers without end", func(w http.ResponseWriter, _ *http.Request) {
				for i := range 100 {
					w.Header().Set(fmt.Sprintf("X-Filler-%d", i), strings.Repeat("x", 1000))
				}
			}, 0, "protocol", "the response headers are too large"},
			{"large headers", func(w http.ResponseWriter, _ *http.Request) {
				for i := range 40 {
					w.Header().Set(fmt.Sprintf("X-Filler-%d", i), strings.Repeat("x", 1000))
				}
			}, 200, "", ""},
			{"a body that drips", drip("HTTP/1.1 200 OK\r\nX-Said: yes\r\n\r\n", "drip "), 200, "", ""},
			{"a failure whose body drips", drip("HTTP/1.1 502 Bad Gateway\r\n\r\n", "drip "), 502, "status", "the endpoint returned 502 Bad Gateway instead of a 2xx status"},
			{"a body of 1 GiB", func(w http.ResponseWriter, _ *http.Request) {
				block := bytes.Repeat([]byte("0123456789abcdef"), 4096)
				for range 1 << 30 / len(block) {
					n, err := w.Write(block)
					written.Add(int64(n))
					if err != nil {
						return
					}
				}
			}, 200, "", ""},
			{"a body that is no text", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(bytes.Repeat([]byte{0, 'a', 0xff, 'b'}, 8192))
			}, 200, "", ""},
			{"a body that is cut off", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, "half")
			}, 200, "", ""},
		}
		waits := make([]func() *harness.Response, len(kinds))
		receivers := make([]*receiver, len(kinds))
		for i, k := range kinds {
			receivers[i] = newReceiver(t, c.Clock, k.answer)
			waits[i] = c.attempt(t, receivers[i].URL+"/hook")
		}
		// The certificate isn't trusted.
		encrypted := unstarted(t, c.Clock, respond(200))
		encrypted.Config.ErrorLog = discardLog()
		encrypted.StartTLS()
		untrusted := c.attempt(t, encrypted.URL)
		// Nothing listens there.
		closed, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = closed.Close()
		refused := c.attempt(t, "http://"+closed.Addr().String())

		for i, k := range kinds {
			d := waits[i]()
			address, err := url.Parse(receivers[i].URL)
			if err != nil {
				t.Fatal(err)
			}
			wrong := checkAttempt(d, k.status, k.class, k.message)
			if d.Text("attempts.0.address") != address.Host || d.Text("attempts.0.url") != receivers[i].URL+"/hook" {
				wrong = append(wrong, "the address")
			}
			if sent := d.Text("attempts.0.request_headers.Service-Event-Id"); sent != d.Text("id") ||
				d.Text("attempts.0.request_headers.Content-Type") != "application/json" {
				wrong = append(wrong, "the request's headers")
			}
			if len(d.Text("attempts.0.response_body")) > 16<<10 {
				wrong = append(wrong, "the response's body")
			}
			if len(wrong) > 0 {
				t.Errorf("%s: %v are wrong in %.2000s", k.name, wrong, d.Body)
			}
			switch k.name {
			case "500":
				if d.Text("attempts.0.response_body") != "out of order\n" || d.Text("attempts.0.response_headers.Content-Type") != "text/plain; charset=utf-8" {
					t.Errorf("the answer was recorded as %s", d.Body)
				}
			case "a redirect":
				if d.Text("attempts.0.response_headers.Location") != elsewhere.URL || len(elsewhere.all()) != 0 {
					t.Errorf("a redirect was recorded as %s, and followed %d times", d.Body, elsewhere.count())
				}
			case "no response in time", "headers that drip", "a body that drips", "a failure whose body drips":
				if took := d.At("attempts.0.latency_ms").(float64); took < 0.9*float64(impatient.Milliseconds()) {
					t.Errorf("%s took %v ms", k.name, took)
				}
				if said := d.Text("attempts.0.response_body"); strings.Contains(k.name, "body") && !strings.HasPrefix(said, "drip ") {
					t.Errorf("%s was recorded as %q", k.name, said)
				}
			case "a body of 1 GiB":
				if body := d.Text("attempts.0.response_body"); len(body) != 16<<10 || !strings.HasPrefix(body, "0123456789abcdef0123") {
					t.Errorf("%d bytes of 1 GiB were recorded: %.40s", len(body), body)
				}
				if n := written.Load(); n > 64<<20 {
					t.Errorf("%d bytes of 1 GiB were read", n)
				}
			case "a body that is cut off":
				if d.Text("attempts.0.response_body") != "half" {
					t.Errorf("half a body was recorded as %s", d.Body)
				}
			case "large headers":
				if kept := len(fmt.Sprint(d.At("attempts.0.response_headers"))); kept < 8<<10 || kept > 20<<10 {
					t.Errorf("%d bytes of 40 KiB of headers were recorded", kept)
				}
			}
		}
		if d := untrusted(); len(checkAttempt(d, 0, "tls", "the certificate is not signed by a known authority")) > 0 || d.At("attempts.0.timings.tls_ms") == float64(0) || encrypted.count() != 0 {
			t.Errorf("a certificate of nobody's: %s", d.Body)
		}
		if d := refused(); len(checkAttempt(d, 0, "connect", "the server refused the connection")) > 0 || d.Text("attempts.0.address") != closed.Addr().String() {
			t.Errorf("a closed port: %s", d.Body)
		}
	})
}

// checkAttempt returns the differences in a delivery's first attempt.
func checkAttempt(d *harness.Response, status float64, class, message string) (wrong []string) {
	ok := func(what string, is bool) {
		if !is {
			wrong = append(wrong, what)
		}
	}
	succeeded := class == ""
	ok("the status", d.Text("status") == map[bool]string{true: "succeeded", false: "retrying"}[succeeded])
	ok("the next attempt", (d.At("next_attempt_at") == nil) == succeeded && (d.At("attempts.0.next_retry_at") == nil) == succeeded)
	ok("the end", (d.At("finished_at") != nil) == succeeded)
	ok("the number", d.At("attempts.0.number") == float64(1))
	ok("the latency", d.At("attempts.0.latency_ms").(float64) > 0)
	ok("the connection's time", d.At("attempts.0.timings.connect_ms").(float64) > 0)
	ok("the class", d.Text("attempts.0.error.class") == class)
	ok("the message", strings.HasPrefix(d.Text("attempts.0.error.message"), message) && (d.At("attempts.0.error") == nil) == succeeded)
	if status == 0 {
		ok("the answer", d.At("attempts.0.response_status") == nil && d.At("attempts.0.response_headers") == nil && d.At("attempts.0.response_body") == nil)
	} else {
		ok("the answer", d.At("attempts.0.response_status") == status && d.At("attempts.0.response_headers") != nil && d.At("attempts.0.response_body") != nil)
		ok("the first byte's time", d.At("attempts.0.timings.first_byte_ms").(float64) > 0)
	}
	return wrong
}

func hijack(w http.ResponseWriter) net.Conn {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	return conn
}

// drip sends the head, and then the drop repeatedly until it is cut off.
func drip(head, drop string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn := hijack(w)
		defer conn.Close()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for _, err := io.WriteString(conn, head); err == nil; _, err = io.WriteString(conn, drop) {
			<-tick.C
		}
	}
}

func TestPrivateAddressBehindANameFailsTheAttempt(t *testing.T) {
	eachWebhooks(t, sqlite, func(t *testing.T, cfg *config.Config) { cfg.Webhooks.AllowCIDRs = prefixes(t, "127.0.0.1/32") }, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		id, _ := c.endpoint(t, r.URL)
		// As if the operator's policy allowed more when it was created.
		c.exec(t, "UPDATE endpoints SET url = $2 WHERE id = $1", id, strings.Replace(r.URL, "127.0.0.1", "127.0.0.2", 1))
		d := c.post(t, "/v1/webhooks/"+id+"/test", nil)
		got := c.waitForDelivery(t, d.Text("id"), "retrying", 1)
		if got.Text("attempts.0.error.class") != "refused_address" || got.Text("attempts.0.error.message") == "" || len(r.got) != 0 {
			t.Errorf("it was %s", got.Body)
		}
	})
}

func TestDeliveriesAreFilteredAndPaged(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		one, _ := c.endpoint(t, r.URL, "billing.credits.*", "key.*")
		two, _ := c.endpoint(t, r.URL, "key.*")
		c.publish(t, creditsLow, events.KeyRevoked{KeyID: "key_1"}, creditsLow)
		first := c.deliveries(t, one, 3)
		second := c.deliveries(t, two, 1)
		all := append(slices.Clone(first), second...)
		for _, id := range all {
			c.waitForDelivery(t, id, "succeeded", 1)
		}
		for i, state := range []string{"failed", "discarded", "held"} {
			c.exec(t, "UPDATE deliveries SET status = $2 WHERE id = $1", first[i], state)
		}
		slices.Sort(all)
		half := all[2]
		where := func(query string) (found []string) {
			found = paged(t, c, "/v1/deliveries?order=asc&"+query)
			return found
		}
		hour := time.Hour
		for query, want := range map[string][]string{
			"limit=1":                             all,
			"endpoint=" + one:                     first,
			"endpoint=" + one + "&limit=2":        first,
			"status=failed":                       first[:1],
			"status=discarded":                    first[1:2],
			"status=held":                         first[2:],
			"status=succeeded":                    second,
			"status=pending":                      nil,
			"status=retrying":                     nil,
			"status=held&endpoint=" + two:         nil,
			"type=billing.credits.low":            {first[0], first[2]},
			"type=billing.credits.low&limit=1":    {first[0], first[2]},
			"type=key.auto_revoked&status=failed": nil,
			"type=agent.run.failed":               nil,
			"type=billing.credits.low&status=held&endpoint=" + one: first[2:],
			fmt.Sprintf("since=%d", time.Now().Add(-hour).Unix()):  all,
			fmt.Sprintf("since=%d", time.Now().Add(hour).Unix()):   nil,
			fmt.Sprintf("until=%d", time.Now().Add(-hour).Unix()):  nil,
			fmt.Sprintf("until=%d", time.Now().Add(hour).Unix()):   all,
			"after=" + half: all[3:],
		} {
			got := where(query)
			if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("%s: %v, want %v", query, got, want)
			}
		}
		if got := paged(t, c, "/v1/deliveries?limit=2"); !slices.Equal(got, reversed(all)) {
			t.Errorf("newest first they are %v, want %v", got, reversed(all))
		}
		if list := c.get(t, "/v1/deliveries?limit=1"); list.At("data.0.attempts") != nil {
			t.Errorf("a list has attempts: %s", list.Body)
		}
		for _, q := range []string{"endpoint=x", "endpoint=" + first[0], "type=agent.run.*", "type=x", "status=lost", "since=x", "since=-1", "until=99999999999999", "limit=101",
			"after=" + one, "order=up", "project=x", "status=held&status=failed"} {
			if r := c.ask(t, "GET", "/v1/deliveries?"+q, nil); r.Status != 400 || r.Text("error.message") == "" {
				t.Errorf("%s: %d %s", q, r.Status, r.Body)
			}
		}
		for _, id := range []string{"dlv_01h455vb4pex5vsknk084sn02q", "x", one} {
			c.ask(t, "GET", "/v1/deliveries/"+id, nil).Want(t, 404, "not_found")
		}
	})
}

func reversed(list []string) []string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func TestEventsAreFilteredAndPaged(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Live)
		var all []string
		for _, e := range c.publish(t, creditsLow, events.KeyRevoked{KeyID: "key_1"}, creditsLow, creditsLow) {
			all = append(all, e.ID)
		}
		for query, want := range map[string][]string{
			"limit=3":                          all,
			"type=key.auto_revoked":            all[1:2],
			"type=billing.credits.low&limit=2": {all[0], all[2], all[3]},
			"type=agent.run.failed":            nil,
			"after=" + all[1]:                  all[2:],
			fmt.Sprintf("since=%d", time.Now().Add(-time.Hour).Unix()): all,
			fmt.Sprintf("since=%d", time.Now().Add(time.Hour).Unix()):  nil,
			fmt.Sprintf("until=%d", time.Now().Add(-time.Hour).Unix()): nil,
			fmt.Sprintf("until=%d", time.Now().Add(time.Hour).Unix()):  all,
		} {
			if got := paged(t, c, "/v1/events?order=asc&"+query); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", query, got, want)
			}
		}
		if got := paged(t, c, "/v1/events?limit=1"); !slices.Equal(got, reversed(all)) {
			t.Errorf("newest first they are %v, want %v", got, reversed(all))
		}
		for _, q := range []string{"type=key.*", "since=x", "until=-1", "limit=0", "after=dlv_01h455vb4pex5vsknk084sn02q", "status=x"} {
			if r := c.ask(t, "GET", "/v1/events?"+q, nil); r.Status != 400 {
				t.Errorf("%s: %d %s", q, r.Status, r.Body)
			}
		}
		c.ask(t, "GET", "/v1/events/evt_01h455vb4pex5vsknk084sn02q", nil).Want(t, 404, "not_found")
	})
}

func TestHeldEventsExpireAfterAWarning(t *testing.T) {
	eachMailed(t, both, func(t *testing.T, c *client, mails *smtp.Server) {
		r := newReceiver(t, c.Clock, respond(200))
		id, _ := c.endpoint(t, r.URL)
		other, _ := c.endpoint(t, r.URL)
		c.publish(t, keyRevoked)
		done := c.waitForDelivery(t, c.deliveries(t, other, 1)[0], "succeeded", 1)
		c.waitForDelivery(t, c.deliveries(t, id, 1)[0], "succeeded", 1)
		c.ask(t, "DELETE", "/v1/webhooks/"+other, nil).Want(t, 200, "")
		since := c.Clock.Now().Unix()
		c.post(t, "/v1/webhooks/"+id+"/replay", map[string]any{"since": since, "status": "missed"})
		c.post(t, "/v1/webhooks/"+id+"/pause", nil)
		c.publish(t, keyRevoked)
		old := c.deliveries(t, id, 2)[1]

		const day = 24 * time.Hour
		after := func(d time.Duration) {
			t.Helper()
			c.Clock.Turn(d)
			if err := c.App.RunRetention(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		after(10 * day)
		c.publish(t, keyRevoked)
		young := c.deliveries(t, id, 3)[2]
		after(13*day - time.Second)
		if n := c.rows(t, "mails"); n != 0 {
			t.Errorf("%d mails were sent more than a week before", n)
		}
		after(2 * time.Second)
		var to []string
		for _, m := range mails.Wait(t, 2) {
			to = append(to, m.To...)
			if !bytes.Contains(m.Data, []byte(id)) || !bytes.Contains(m.Data, []byte("2 deliveries")) {
				t.Errorf("got email\n%s", m.Data)
			}
		}
		if slices.Sort(to); !slices.Equal(to, []string{"admin@example.com", "owner@example.com"}) {
			t.Errorf("%v were mailed", to)
		}
		after(7*day - 2*time.Second)
		c.waitForDelivery(t, old, "held", 0)
		if n := c.rows(t, "mails"); n != 2 {
			t.Errorf("the warning came %d times", n)
		}
		after(2 * time.Second)
		if d := c.waitForDelivery(t, old, "discarded", 0); d.Text("reason") != "expired" || d.At("finished_at") != float64(c.Clock.Now().Unix()) {
			t.Errorf("after 30 days it is %s", d.Body)
		}
		c.waitForDelivery(t, young, "held", 0)

		// Rows are kept for a week longer, including the history of a deleted
		// endpoint. One event is the pause.
		after(7*day - time.Minute)
		c.get(t, "/v1/deliveries/"+done.Text("id"))
		if c.rows(t, "deliveries") != 4 || c.rows(t, "events") != 4 || c.rows(t, "attempts") != 2 || c.rows(t, "replays") != 1 || c.rows(t, "endpoints") != 2 {
			t.Error("a row went before its 37 days")
		}
		// All IDs are from today, regardless of the clock, so they are purged
		// together. Pending deliveries fail first, and stay visible for another
		// week.
		after(2 * time.Minute)
		for _, table := range []string{"deliveries WHERE id <> '" + young + "'", "events", "attempts", "replays", "lanes WHERE id = '" + other + "'"} {
			if n := c.rows(t, table); n != 0 {
				t.Errorf("%s has %d rows after 37 days", table, n)
			}
		}
		if d := c.waitForDelivery(t, young, "discarded", 0); d.Text("reason") != "expired" {
			t.Errorf("what waited is %s", d.Body)
		}
		if c.rows(t, "endpoints") != 1 || c.rows(t, "endpoint_stats") != 1 {
			t.Error("a deleted endpoint is still there after 37 days, or a paused one is not")
		}
		c.ask(t, "GET", "/v1/deliveries/"+old, nil).Want(t, 404, "not_found")
		after(7*day + time.Minute)
		c.ask(t, "GET", "/v1/deliveries/"+young, nil).Want(t, 404, "not_found")
	})
}

func TestAttemptsShowShortenedSignatures(t *testing.T) {
	eachWebhooks(t, sqlite, nil, func(t *testing.T, c *client) {
		hook := newReceiver(t, c.Clock, respond(http.StatusOK))
		endpoint, _ := c.endpoint(t, hook.URL)
		c.post(t, "/v1/webhooks/"+endpoint+"/rotate_secret", nil) // so that there are two secrets
		c.publish(t, creditsLow)
		sent := hook.wait(t, c, 1)[0]
		reader, _ := c.Key(t, c.workspace, c.env, "webhooks:read")
		c.waitForDelivery(t, sent.id, "succeeded", 1)
		shown := c.Do(t, harness.Request{Method: "GET", Path: "/v1/deliveries/" + sent.id, Key: reader}).Want(t, 200, "")
		plain := sent.header.Get(webhook.HeaderSignature)
		var standard []string
		for _, one := range strings.Fields(sent.header.Get(webhook.HeaderStandardSignature)) {
			standard = append(standard, one[:len("v1,")+8]+"…")
		}
		if got, want := shown.Text("attempts.0.request_headers.Service-Signature"), plain[:8]+"…"; got != want {
			t.Errorf("got Service-Signature %q, want %q", got, want)
		}
		if got, want := shown.Text("attempts.0.request_headers.Webhook-Signature"), strings.Join(standard, " "); got != want || len(standard) != 2 {
			t.Errorf("got Webhook-Signature %q, want %q", got, want)
		}
		if got := shown.Text("attempts.0.request_headers.Service-Event-Id"); got != sent.id {
			t.Errorf("got Service-Event-Id %q, want %q", got, sent.id)
		}
	})
}
