package dashboard_test

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/lanes"
	"turnpike/internal/safehttp"
	"turnpike/internal/visibility"
	"turnpike/internal/webhooks"
	"turnpike/test/harness"
	"turnpike/test/sampledata"
	"turnpike/webhook"
)

// withReceiver runs fn with an owner and a receiver that accepts every delivery, on
// SQLite and the given engines.
func withReceiver(t *testing.T, fn func(t *testing.T, b *browser, r *receiver), engines ...string) {
	t.Helper()
	for _, engine := range append(engines, "sqlite") {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := harness.Start(t, sampledata.Config(t, engine), harness.NewClock())
			fn(t, member(t, s, s.Workspace(t, "acme"), accounts.Owner), newReceiver(t, s.Clock))
		})
	}
}

// receiver is an HTTP server that records deliveries.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []received
	answer http.HandlerFunc
}

type received struct {
	id     string
	header http.Header
	body   []byte
	at     time.Time // by the server's clock
}

func newReceiver(t *testing.T, clock *harness.Clock) *receiver {
	t.Helper()
	r := &receiver{answer: answering(http.StatusNoContent, "")}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the client has disconnected
		}
		r.mu.Lock()
		r.got = append(r.got, received{req.Header.Get(webhook.HeaderEventID), req.Header, body, clock.Now()})
		answer := r.answer
		r.mu.Unlock()
		answer(w, req)
	}))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func (r *receiver) respondWith(answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// came counts the requests of a delivery, or of all deliveries without an ID.
func (r *receiver) came(id string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.got {
		if id == "" || one.id == id {
			n++
		}
	}
	return n
}

func (r *receiver) last() received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got[len(r.got)-1]
}

// signedBy reports whether Service-Signature was made with the secret.
func (x received) signedBy(secret string) bool {
	return webhook.Verifier{Secrets: []string{secret}, Now: func() time.Time { return x.at }}.Verify(x.body, x.header) == nil
}

// endpoint creates an endpoint for all events by the form and returns its page.
func (b *browser) endpoint(t *testing.T, address string) (path, id string) {
	t.Helper()
	path = b.post(t, b.in(accounts.Test, "webhooks/new"), url.Values{"url": {address}, "events": {"*"}}).redirectsTo(t, b.in(accounts.Test, "webhooks/wh_*"))
	return path, path[strings.LastIndexByte(path, '/')+1:]
}

var creditsLow = events.CreditsLow{Remaining: 5, Threshold: 10, MonthlyCredits: 100, Period: "2026-10"}

func (b *browser) publish(t *testing.T, payloads ...events.Payload) (out []*events.Event) {
	t.Helper()
	b.write(t, func(tx *db.Tx) (err error) {
		out, err = events.NewPublisher(b.s.Clock.Now).PublishAll(t.Context(), tx, events.Origin{Tenant: b.workspace.In(accounts.Test)}, payloads...)
		tx.Signal("events", "") // the poll would find it a second later
		return err
	})
	return out
}

func (b *browser) write(t *testing.T, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := b.s.DB.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func (b *browser) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	b.write(t, func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), query, args...)
		return err
	})
}

// advance advances the clock and wakes the endpoint's lane.
func (b *browser) advance(t *testing.T, d time.Duration, endpointID string) {
	t.Helper()
	b.s.Clock.Turn(d)
	b.write(t, func(tx *db.Tx) error {
		return lanes.Enqueue(t.Context(), tx, webhooks.Queue, map[string]time.Time{endpointID: b.s.Clock.Now()})
	})
}

// until reloads a page until it contains the text.
func (b *browser) until(t *testing.T, path, text string) (a *response) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() && !strings.Contains(a.body, text) {
			t.Logf("%s was waited for to show %q:\n%s", path, text, a.main())
		}
	})
	b.s.Eventually(t, func() bool {
		a = b.get(t, path)
		return strings.Contains(a.body, text)
	})
	return a
}

// deliveries returns the IDs of the list once it has n, newest first.
func (b *browser) deliveries(t *testing.T, search string, n int) (found []string) {
	t.Helper()
	b.s.Eventually(t, func() bool {
		found = rowsOf(b.get(t, b.in(accounts.Test, "deliveries"+search)).is(t, 200))
		return len(found) >= n
	})
	if len(found) != n {
		t.Fatalf("there are %d deliveries, expected %d", len(found), n)
	}
	return found
}

// query returns a search as the query of a URL.
func query(text string) string { return "?" + url.Values{"q": {text}}.Encode() }

// rowsOf returns the IDs of a page's rows.
func rowsOf(a *response) (found []string) {
	for i, part := range strings.Split(a.body, `data-row="`) {
		if i > 0 {
			id, _, _ := strings.Cut(part, `"`)
			found = append(found, id)
		}
	}
	return found
}

// shownOnce returns the secret on a page and checks that it is gone after a reload.
func (b *browser) shownOnce(t *testing.T, path string) string {
	t.Helper()
	escaped := b.get(t, path).find(t, `<code id="secret">(whsec_[^<]+)<`)
	b.get(t, path).hides(t, escaped, `id="secret"`)
	return html.UnescapeString(escaped)
}

func badge(kind, text string) string { return `<span class="badge ` + kind + `">` + text + `</span>` }

func TestEndpointSecretIsShownOnceAndSigns(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		b.get(t, b.in(accounts.Test, "webhooks")).shows(t, "No test endpoints yet")
		path, _ := b.endpoint(t, r.URL)
		secret := b.shownOnce(t, path)
		b.get(t, path).shows(t, r.URL, badge("good", "active"))
		send := func(secret string) {
			t.Helper()
			to := b.post(t, path+"/test", url.Values{"type": {"agent.run.completed"}}).redirectsTo(t, b.in(accounts.Test, "deliveries/dlv_*"))
			b.until(t, to, badge("good", "succeeded")).shows(t, "agent.run.completed", "test event", "&#34;sample&#34;: true", badge("good", "204 No Content"))
			if !r.last().signedBy(secret) {
				t.Error("the delivery is not signed by the secret that was shown")
			}
		}
		send(secret)

		// The old secret signs until its grace period ends.
		rotate := func(grace string) string {
			t.Helper()
			return b.shownOnce(t, b.post(t, path+"/rotate", url.Values{"grace": {grace}}).redirectsTo(t, path))
		}
		second := rotate("3600")
		b.get(t, path).shows(t, "rotating", "End grace period")
		send(secret)
		b.get(t, path+"/rotate").shows(t, "still signs").hides(t, `name="grace"`)
		b.post(t, path+"/rotate", url.Values{"grace": {"0"}}).rejects(t, http.StatusConflict, "still signs")
		b.post(t, path+"/end_grace", nil).redirectsTo(t, path)
		b.get(t, path).hides(t, "rotating")
		send(second)
		third := rotate("0")
		if third == second || second == secret {
			t.Error("a rotation made the same secret")
		}
		send(third)
		b.post(t, path+"/rotate", url.Values{"grace": {"-5"}}).rejects(t, http.StatusBadRequest, "must be from 0")

		// An old sign-in has to be confirmed.
		b.s.Clock.Turn(31 * time.Minute)
		b.get(t, path+"/rotate").is(t, http.StatusOK)
		b.post(t, path+"/rotate", url.Values{"grace": {"0"}}).redirectsTo(t, "/dashboard/confirm*")
		b.post(t, b.in(accounts.Test, "webhooks/new"), url.Values{"url": {r.URL}, "events": {"*"}}).redirectsTo(t, "/dashboard/confirm*")
		if n := len(rowsOf(b.get(t, b.in(accounts.Test, "webhooks")))); n != 1 {
			t.Errorf("there are %d endpoints", n)
		}
	})
}

func TestEndpointIsCreatedChangedAndDeletedByForms(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		create := b.in(accounts.Test, "webhooks/new")
		form := url.Values{"url": {"ftp://example.com/"}, "events": {"key.auto_revoked"}, "description": {`the "order" service`}}
		b.post(t, create, form).rejects(t, http.StatusBadRequest, "https://").hides(t, "whsec_")
		a := b.post(t, create, url.Values{"url": {r.URL}, "description": {`the "order" service`}})
		a.rejects(t, http.StatusBadRequest, "at least one event")
		if !strings.Contains(a.body, `value="the &#34;order&#34; service"`) || !strings.Contains(a.body, `value="`+r.URL+`"`) {
			t.Errorf("what was typed is gone:\n%s", a.main())
		}
		form.Set("url", r.URL)
		path := b.post(t, create, form).redirectsTo(t, b.in(accounts.Test, "webhooks/wh_*"))
		b.publish(t, creditsLow, events.KeyRevoked{KeyID: "key_1"})
		b.deliveries(t, "", 1)
		b.get(t, path+"/edit").shows(t, `value="key.auto_revoked" checked`, `value="`+r.URL+`"`)
		b.post(t, path+"/edit", url.Values{"url": {r.URL + "/v2"}, "events": {"*", "key.auto_revoked"}, "description": {"all"}}).redirectsTo(t, path)
		b.get(t, path).shows(t, "<h1>all</h1>", "<dd>"+r.URL+"/v2</dd>", "everything", "Latest deliveries", "key.auto_revoked")
		b.publish(t, creditsLow)
		b.deliveries(t, "", 2)
		b.post(t, path+"/edit", url.Values{"url": {""}, "events": {"*"}}).rejects(t, http.StatusBadRequest, "Enter the address")

		// Wildcards that were set by the API are kept.
		key, _ := b.s.Key(t, b.workspace, accounts.Test)
		id := path[strings.LastIndexByte(path, '/')+1:]
		b.s.Do(t, harness.Request{Method: "PATCH", Path: "/v1/webhooks/" + id, Key: key, Body: map[string]any{"events": []string{"agent.run.*"}}}).Want(t, 200, "")
		b.get(t, path+"/edit").shows(t, `value="agent.run.*" checked`)

		b.post(t, path+"/delete", nil).redirectsTo(t, b.in(accounts.Test, "webhooks"))
		b.get(t, b.in(accounts.Test, "webhooks")).shows(t, "Endpoint deleted").hides(t, r.URL)
		b.get(t, path).is(t, http.StatusNotFound)
		b.get(t, b.in(accounts.Test, "deliveries")).shows(t, "deleted")
		b.get(t, b.in(accounts.Test, "deliveries/"+b.deliveries(t, query("endpoint:"+id), 2)[0])).shows(t, "deleted").hides(t, "Replay with a new ID")
	})
}

func TestEndpointMovesOnlyWithoutItsHeaders(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		form := func(address string, more ...string) url.Values {
			out := url.Values{"url": {address}, "events": {"*"}}
			for i := 0; i < len(more); i += 2 {
				out.Add(more[i], more[i+1])
			}
			return out
		}
		path := b.post(t, b.in(accounts.Test, "webhooks/new"), form(r.URL, "headers", "Authorization: Bearer 1\nX-Tenant: a")).redirectsTo(t, b.in(accounts.Test, "webhooks/wh_*"))
		const other = "https://other.example/"
		b.post(t, path+"/edit", form(other, "remove_header", "X-Tenant")).rejects(t, http.StatusBadRequest, "has the header Authorization, which must not be sent to another server unnoticed. Set it again or remove it in the same change.")
		b.get(t, path+"/edit").shows(t, `value="`+r.URL+`"`, "X-Tenant")
		b.post(t, path+"/edit", form(other, "remove_header", "X-Tenant", "headers", "Authorization: Bearer 2")).redirectsTo(t, path)
		b.get(t, path+"/edit").shows(t, `value="`+other+`"`).hides(t, "X-Tenant")
	})
}

func TestPausedEndpointShowsHeldDeliveries(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		path, id := b.endpoint(t, r.URL)
		pauseAndHold := func(n int) []string {
			t.Helper()
			before := len(rowsOf(b.get(t, b.in(accounts.Test, "deliveries"))))
			b.post(t, path+"/pause", nil).redirectsTo(t, path)
			for range n {
				b.publish(t, creditsLow)
			}
			return b.deliveries(t, "", before+n)[:n]
		}
		held := pauseAndHold(2)
		b.get(t, path).shows(t, "paused manually", "2 deliveries wait for it", "Resume and deliver 2 held", "Resume and discard 2 held").hides(t, ">Pause<")
		b.get(t, b.in(accounts.Test, "webhooks")).shows(t, badge("warn", "paused"), "paused manually")
		b.get(t, b.in(accounts.Test, "deliveries/"+held[0])).shows(t, badge("warn", "held"), "On hold until the endpoint is resumed").hides(t, "Replay with")
		b.post(t, b.in(accounts.Test, "deliveries/"+held[0]+"/replay"), url.Values{"id": {"same"}}).rejects(t, http.StatusConflict, "is paused. Resume it first")
		b.post(t, path+"/resume", url.Values{"held": {"lose"}}).rejects(t, http.StatusBadRequest, "deliver or discard")
		if n := r.came(""); n != 0 {
			t.Errorf("%d came to a paused endpoint", n)
		}
		b.post(t, path+"/resume", url.Values{"held": {"deliver"}}).redirectsTo(t, path)
		for _, one := range held {
			b.until(t, b.in(accounts.Test, "deliveries/"+one), badge("good", "succeeded"))
		}

		lost := pauseAndHold(1)[0]
		b.get(t, path).shows(t, "1 delivery waits for it")
		b.post(t, path+"/resume", url.Values{"held": {"discard"}}).redirectsTo(t, path)
		b.get(t, b.in(accounts.Test, "deliveries/"+lost)).shows(t, badge("quiet", "discarded"), "discarded when the endpoint was resumed")
		b.advance(t, time.Minute, id)
		b.until(t, b.post(t, path+"/test", url.Values{"type": {"billing.credits.low"}}).redirectsTo(t, b.in(accounts.Test, "deliveries/*")), badge("good", "succeeded"))
		if n := r.came(lost); n != 0 {
			t.Errorf("what was discarded came %d times", n)
		}
	})
}

func TestFailedDeliveriesSinceATimeAreReplayed(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		b.publish(t, creditsLow) // before the endpoint exists
		b.s.Eventually(t, func() bool {
			var n int
			return b.s.DB.QueryRow(t.Context(), "SELECT count(*) FROM new_events").Scan(&n) == nil && n == 0
		})
		path, id := b.endpoint(t, r.URL)
		b.publish(t, creditsLow, creditsLow, creditsLow)
		all := b.deliveries(t, query("endpoint:"+id), 3)
		for _, one := range all {
			b.until(t, b.in(accounts.Test, "deliveries/"+one), badge("good", "succeeded"))
		}
		b.exec(t, "UPDATE deliveries SET status = 'failed' WHERE id IN ($1, $2)", all[0], all[1])
		b.get(t, path+"/replay").shows(t, "Failed deliveries", "Missed events")
		since := b.s.Clock.Now().Add(-time.Hour).UTC().Format("2006-01-02T15:04")
		start := func(form url.Values) *response {
			t.Helper()
			return b.until(t, b.post(t, path+"/replay", form).redirectsTo(t, path+"/replays/rpl_*"), badge("good", "completed"))
		}
		a := start(url.Values{"since": {since}, "status": {"failed"}}).shows(t, "2 of 2", "failed deliveries")
		for i, one := range all {
			want := map[bool]int{true: 2, false: 1}[i < 2]
			b.s.Eventually(t, func() bool { return r.came(one) >= want })
			if n := r.came(one); n != want {
				t.Errorf("delivery %d came %d times, expected %d", i, n, want)
			}
		}
		b.get(t, path).shows(t, "Replays", "failed deliveries since", a.find(t, `<dt>ID</dt><dd><code>(rpl_\w+)`))

		// Events from before the endpoint was created are missed.
		start(url.Values{"since": {since}, "status": {"missed"}, "types": {"billing.credits.low"}}).shows(t, "missed events")
		b.deliveries(t, query("endpoint:"+id), 4)
		b.s.Eventually(t, func() bool { return r.came("") == 6 })
		start(url.Values{"since": {since}, "status": {"all"}, "types": {"key.auto_revoked"}}).shows(t, "0 of 0")

		for param, why := range map[string]string{"": "Enter the time from which", "yesterday": "Enter a time as", "2020-01-01T00:00": "30 days"} {
			b.post(t, path+"/replay", url.Values{"since": {param}, "status": {"failed"}}).rejects(t, http.StatusBadRequest, why)
		}
		b.post(t, path+"/replay", url.Values{"since": {since}, "status": {"lost"}}).rejects(t, http.StatusBadRequest, "status must be")
		b.post(t, path+"/pause", nil).redirectsTo(t, path)
		b.get(t, path+"/replay").shows(t, "Resume").hides(t, "Start replay")
		b.post(t, path+"/replay", url.Values{"since": {since}, "status": {"failed"}}).rejects(t, http.StatusConflict, "is paused. Resume it first")
	})
}

func TestTunnelsAreListedSeparately(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		path, id := b.endpoint(t, r.URL)
		var tunnel *webhooks.Endpoint
		group := db.NewGroup(b.s.DB)
		t.Cleanup(group.Stop)
		service := webhooks.New(webhooks.Options{DB: b.s.DB, Group: group, Ring: b.s.Ring, Guard: safehttp.New(safehttp.Policy{}),
			Publisher: events.NewPublisher(b.s.Clock.Now), Node: "node_x", PerEndpoint: 1, Slots: 1, Now: b.s.Clock.Now})
		b.write(t, func(tx *db.Tx) (err error) {
			tunnel, _, err = service.ConnectTunnel(t.Context(), tx, actorOf(b), webhooks.TunnelRequest{Visibility: visibility.Filter{Tenant: b.workspace.In(accounts.Test)}, Mirrors: id})
			return err
		})
		b.get(t, b.in(accounts.Test, "webhooks")).shows(t, "Tunnels", tunnel.ID, badge("good", "connected"), "mirrors")
		b.get(t, b.in(accounts.Test, "webhooks/"+tunnel.ID)).shows(t, "Mirrors", id).hides(t, ">Pause<", "Rotate secret", ">Edit<")
		b.get(t, path).hides(t, tunnel.ID)

		// A delivery to a disconnected tunnel can't be replayed, and the page says why.
		if err := service.DisconnectTunnel(t.Context(), tunnel.ID); err != nil {
			t.Fatal(err)
		}
		b.publish(t, creditsLow)
		held := b.in(accounts.Test, "deliveries/"+b.deliveries(t, query("endpoint:"+tunnel.ID), 1)[0])
		listen := "turnpike listen --resume " + tunnel.ID + " --forward-to"
		b.get(t, held).shows(t, badge("quiet", "disconnected"), "is connected again", listen).hides(t, badge("warn", "paused"), "Replay with")
		b.get(t, b.in(accounts.Test, "deliveries")).shows(t, `<span class="quiet">disconnected</span>`)
		b.post(t, held+"/replay", url.Values{"id": {"same"}}).rejects(t, http.StatusConflict, listen)
	})
}
