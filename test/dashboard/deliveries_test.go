package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/events"
)

func actorOf(b *browser) audit.Actor { return audit.Actor{Name: b.person.ID} }

func TestFailedDeliveryShowsCauseAndCanBeReplayed(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		r.respondWith(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Reason", "the table is full")
			answering(http.StatusServiceUnavailable, `{"error":"no room for orders"}`)(w, nil)
		})
		path, id := b.endpoint(t, r.URL)
		b.publish(t, creditsLow)
		delivery := b.in(accounts.Test, "deliveries/"+b.deliveries(t, "", 1)[0])

		// The first attempt with its details, and the next attempts.
		b.until(t, delivery, badge("warn", "retrying")).shows(t, "Attempt 1", badge("bad", "503 Service Unavailable"),
			"&#34;error&#34;: &#34;no room for orders&#34;", "X-Reason", "the table is full", "Service-Signature", "Service-Event-Id", "First byte after", "in all",
			"Next attempts", `<td class="num">2</td><td><time`, "in 1 min", `<td class="num">6</td>`, "billing.credits.low", "&#34;monthly_credits&#34;").hides(t, "instead of a 2xx status")
		b.get(t, path).shows(t, badge("bad", "failing"), "503 Service Unavailable")
		b.get(t, b.in(accounts.Test, "webhooks")).shows(t, badge("bad", "failing"), "503 Service Unavailable")
		home := b.in(accounts.Test, "")
		b.get(t, home).shows(t, "Needs attention", path)

		// The last scheduled attempt.
		b.exec(t, "UPDATE deliveries SET tries = 5 WHERE endpoint_id = $1", id)
		b.advance(t, 2*time.Minute, id)
		b.until(t, delivery, badge("bad", "failed")).shows(t, "Attempt 2", "Every attempt failed", "once its").hides(t, "Next attempts", "Replay it to send it again")
		b.get(t, path).shows(t, badge("warn", "paused"), "paused because the last retry of a delivery failed", "Replay them afterwards")
		b.post(t, delivery+"/replay", url.Values{"id": {"same"}}).rejects(t, http.StatusConflict, "is paused. Resume it first")

		r.respondWith(answering(http.StatusOK, "thank you"))
		b.s.Clock.Turn(time.Minute) // a failure must be older than the success after it
		b.post(t, path+"/resume", url.Values{"held": {"deliver"}}).redirectsTo(t, path)
		b.get(t, delivery).shows(t, badge("bad", "failed"), "Replay it to send it again")
		b.post(t, delivery+"/replay", url.Values{"id": {"same"}}).redirectsTo(t, delivery)
		b.until(t, delivery, badge("good", "succeeded")).shows(t, "Attempt 3", badge("good", "200 OK"), "thank you", "no room for orders")
		b.get(t, path).shows(t, badge("good", "active"))
		b.get(t, home).hides(t, path)

		// With a new ID it is another delivery of the same event.
		other := b.post(t, delivery+"/replay", url.Values{"id": {"new"}}).redirectsTo(t, b.in(accounts.Test, "deliveries/dlv_*"))
		if other == delivery {
			t.Fatal("the new id is the old one")
		}
		b.until(t, other, badge("good", "succeeded")).shows(t, "Attempt 1").hides(t, "Attempt 2")
		if got := r.last(); !strings.HasSuffix(other, got.id) {
			t.Errorf("it came as %s", got.id)
		}
	})
}

func TestSelectedDeliveriesAreReplayedAtomically(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		_, id := b.endpoint(t, r.URL)
		b.publish(t, creditsLow, creditsLow, events.KeyRevoked{KeyID: "key_1"})
		all := b.deliveries(t, "", 3)
		for _, one := range all {
			b.until(t, b.in(accounts.Test, "deliveries/"+one), badge("good", "succeeded"))
		}
		list := b.in(accounts.Test, "deliveries"+query("endpoint:"+id))
		b.get(t, list).shows(t, `name="delivery" value="`+all[0]+`"`, "Replay selected", "Tick all")
		b.post(t, list, url.Values{"delivery": {all[0], all[1], all[0]}}).redirectsTo(t, list)
		b.get(t, list).shows(t, "Replayed 2 deliveries")
		for i, want := range []int{2, 2, 1} {
			b.s.Eventually(t, func() bool { return r.came(all[i]) >= want })
		}
		b.until(t, b.in(accounts.Test, "deliveries/"+all[0]), "Attempt 2")

		// If one can't be replayed, none is.
		stranger := all[2][:len(all[2])-1] + map[bool]string{true: "1", false: "0"}[strings.HasSuffix(all[2], "0")]
		b.post(t, list, url.Values{"delivery": {all[2], stranger}}).rejects(t, http.StatusNotFound, "delivery")
		b.post(t, list, url.Values{}).rejects(t, http.StatusBadRequest, "Select the deliveries")
		b.post(t, list, url.Values{"delivery": {"wh_1"}}).is(t, http.StatusNotFound)
		many := url.Values{}
		for range 51 {
			many.Add("delivery", "dlv_"+strings.Repeat("0", 24)+string("abcdefgh"[len(many["delivery"])/8])+string("01234567"[len(many["delivery"])%8]))
		}
		b.post(t, list, many).rejects(t, http.StatusBadRequest, "at most 50")
		b.until(t, b.post(t, b.in(accounts.Test, "webhooks/"+id+"/test"), url.Values{"type": {"key.auto_revoked"}}).redirectsTo(t, b.in(accounts.Test, "deliveries/*")), badge("good", "succeeded"))
		if n := r.came(all[2]); n != 1 {
			t.Errorf("what was not to be replayed came %d times", n)
		}
	})
}

func TestOnlyReplayableDeliveriesCanBeSelected(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		box := func(id string) string { return `name="delivery" value="` + id + `"` }
		ticked := func(id string) string { return box(id) + ` aria-label="Tick ` + id + `" checked` }
		_, active := b.endpoint(t, r.URL+"/active")
		paused, id := b.endpoint(t, r.URL+"/paused")
		b.publish(t, creditsLow)
		b.deliveries(t, "", 2)
		good, held := b.deliveries(t, query("endpoint:"+active), 1)[0], b.deliveries(t, query("endpoint:"+id), 1)[0]
		for _, one := range []string{good, held} {
			b.until(t, b.in(accounts.Test, "deliveries/"+one), badge("good", "succeeded"))
		}
		list := b.in(accounts.Test, "deliveries")
		b.get(t, list).shows(t, box(good), box(held)).hides(t, "checked")
		b.post(t, paused+"/pause", nil).redirectsTo(t, paused)
		b.get(t, list).shows(t, box(good), `<span class="quiet">paused</span>`).hides(t, box(held))
		// The endpoint was paused after the page was opened. The selection stays.
		a := b.post(t, list, url.Values{"delivery": {good, held}}).rejects(t, http.StatusConflict, "is paused. Resume it first")
		if !strings.Contains(a.body, ticked(good)) {
			t.Errorf("the tick is lost:\n%s", a.main())
		}

		b.exec(t, "UPDATE deliveries SET status = 'failed' WHERE id = $1", held)
		b.post(t, paused+"/delete", nil).redirectsTo(t, b.in(accounts.Test, "webhooks"))
		b.get(t, list).shows(t, box(good)).hides(t, box(held))
		b.get(t, b.in(accounts.Test, "deliveries/"+held)).shows(t, "Every attempt failed").hides(t, "Replay it to send it again", "can be replayed")
		b.post(t, list, url.Values{"delivery": {good, held}}).rejects(t, http.StatusConflict, "was deleted")
		b.exec(t, "UPDATE deliveries SET event_at = $2 WHERE id = $1", good, b.s.Clock.Now().Add(-31*24*time.Hour).UnixMicro())
		b.get(t, list).hides(t, box(good))
		b.get(t, b.in(accounts.Test, "deliveries/"+good)).shows(t, "for 30 days").hides(t, "Replay with a new ID")
		if n := r.came(good) + r.came(held); n != 2 { // and the event about the pause
			t.Errorf("%d came", n)
		}
	})
}

func TestDeliveriesAreFilteredByQuery(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		_, first := b.endpoint(t, r.URL+"/first")
		second, _ := b.endpoint(t, r.URL+"/second")
		b.publish(t, creditsLow, events.KeyRevoked{KeyID: "key_1"})
		all := b.deliveries(t, "", 4)
		for _, one := range all {
			b.until(t, b.in(accounts.Test, "deliveries/"+one), badge("good", "succeeded"))
		}
		b.exec(t, "UPDATE deliveries SET status = 'failed' WHERE id = $1", all[0])
		b.deliveries(t, query("endpoint:"+first), 2)
		b.deliveries(t, query("event:key.auto_revoked"), 2)
		b.deliveries(t, query("endpoint:"+first+" event:key.*"), 1)
		b.deliveries(t, query("endpoint:"+r.URL+"/first"), 2)
		b.deliveries(t, query("endpoint:*/first"), 2)
		if got := b.deliveries(t, query("failed"), 1); got[0] != all[0] {
			t.Errorf("%s is said to have failed", got[0])
		}
		b.deliveries(t, query("status:succeeded"), 3)
		// IDs have the machine's time, not the server's test clock.
		b.deliveries(t, query("from:"+time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04")), 4)
		b.deliveries(t, query("until:"+time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04")), 0)
		b.deliveries(t, query("from:"+time.Now().UTC().Add(time.Hour).Format("2006-01-02T15:04")), 0)
		b.get(t, b.in(accounts.Test, "deliveries"+query("status:failed"))).shows(t, `<option value="failed" selected>failed</option>`, "Clear all")
		b.get(t, b.in(accounts.Test, "deliveries"+query("status:held"))).shows(t, "No deliveries match this search")
		for term, message := range map[string]string{"status:lost": "Known values: pending, retrying", "from:then": "Enter a time in UTC"} {
			if rows := rowsOf(b.get(t, b.in(accounts.Test, "deliveries"+query(term+" event:key.auto_revoked"))).shows(t, "<code>"+term+"</code>", message)); len(rows) != 2 {
				t.Errorf("%s: there are %d rows, want those of the other term", term, len(rows))
			}
		}
		for term, message := range map[string]string{"event:x": "No event is named x.", "endpoint:nowhere": "No test endpoint has the name or URL nowhere."} {
			if rows := rowsOf(b.get(t, b.in(accounts.Test, "deliveries"+query(term))).shows(t, message)); len(rows) != 0 {
				t.Errorf("%s: there are %d rows", term, len(rows))
			}
		}
		b.deliveries(t, query("endpoint:wh_01h455vb4pex5vsknk084sn02q"), 0)
		b.post(t, second+"/delete", nil).redirectsTo(t, b.in(accounts.Test, "webhooks"))
		b.deliveries(t, query("endpoint:"+second[strings.LastIndexByte(second, '/')+1:]), 2)
		// Links from before the search box.
		b.get(t, b.in(accounts.Test, "deliveries?status=failed&type=key.auto_revoked&since=2026-01-02T03:04")).redirectsTo(t,
			b.in(accounts.Test, "deliveries"+query("status:failed from:2026-01-02T03:04 event:key.auto_revoked")))
	}, "postgres")
}

func TestDeliveriesArePaged(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		path, _ := b.endpoint(t, r.URL)
		b.post(t, path+"/pause", nil).redirectsTo(t, path)
		payloads := make([]events.Payload, 60)
		for i := range payloads {
			payloads[i] = creditsLow
		}
		b.publish(t, payloads...)
		first := b.deliveries(t, "", 50)
		next := b.get(t, b.in(accounts.Test, "deliveries")).find(t, `href="([^"]*after=dlv_[^"]*)" rel="next"`)
		a := b.get(t, strings.ReplaceAll(next, "&amp;", "&")).shows(t, "Newest").hides(t, `rel="next"`)
		second := rowsOf(a)
		if len(second) != 10 || second[0] >= first[49] {
			t.Errorf("the second page has %d, from %v after %s", len(second), second[:1], first[49])
		}
		b.get(t, path).shows(t, "60 deliveries wait for it")
	})
}

func TestEventShowsItsDeliveriesAndFiles(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		b.endpoint(t, r.URL+"/first")
		b.endpoint(t, r.URL+"/second")
		file := events.FileRef(strings.Repeat("ab", 32), "waves.mp4")
		list := b.publish(t, events.VideoRender{ID: "video_1", Object: "video", Prompt: "<b>waves</b>", URL: &file}, creditsLow)
		b.deliveries(t, "", 4)
		page := b.in(accounts.Test, "events/"+list[0].ID)
		a := b.get(t, page).shows(t, "video.render.completed", "waves.mp4", "/first", "/second", "&lt;b&gt;waves&lt;/b&gt;").hides(t, "<b>waves", file)
		if n := len(rowsOf(a)); n != 2 {
			t.Errorf("the event went to %d endpoints", n)
		}
		link := strings.ReplaceAll(a.find(t, `<a href="([^"]*)">waves\.mp4</a>`), "&amp;", "&")
		if !strings.Contains(link, "signature=") {
			t.Errorf("the file's link is %s", link)
		}
		b.get(t, b.in(accounts.Test, "deliveries/"+rowsOf(a)[0])).shows(t, "waves.mp4", list[0].ID).hides(t, file)
		whole := b.get(t, page+"/body").is(t, http.StatusOK)
		if whole.header.Get("Content-Type") != "application/json" || !strings.HasPrefix(whole.header.Get("Content-Disposition"), "attachment") ||
			!strings.Contains(whole.body, `"prompt":"<b>waves</b>"`) || strings.Contains(whole.body, file) {
			t.Errorf("the body comes as %v\n%s", whole.header, whole.body)
		}
		if got := rowsOf(b.get(t, b.in(accounts.Test, "events")).shows(t, "video.render.completed", "billing.credits.low")); len(got) != 2 {
			t.Errorf("there are %d events", len(got))
		}
		if got := rowsOf(b.get(t, b.in(accounts.Test, "events"+query("event:billing.*")))); len(got) != 1 || got[0] != list[1].ID {
			t.Errorf("the list of one type is %v", got)
		}
	})
}

// hostile is a malicious response body.
const hostile = `</pre></code><script>alert("pwned")</script><img src=x onerror=alert(1)>`

func TestDeliveryPageEscapesReceiverOutput(t *testing.T) {
	t.Parallel()
	// Other tests deliver on both engines.
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		r.respondWith(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Evil", `"><script>alert(2)</script>`)
			w.Header()["X-<script>"] = []string{"name"}
			answering(http.StatusInternalServerError, hostile+strings.Repeat(`<i>"'&`, 4000))(w, nil)
		})
		path := b.post(t, b.in(accounts.Test, "webhooks/new"), url.Values{"url": {r.URL + `/?a="><script>alert(3)</script>`}, "events": {"*"},
			"description": {`<script>alert(4)</script>"'`}}).redirectsTo(t, b.in(accounts.Test, "webhooks/wh_*"))
		b.publish(t, events.KeyRevoked{KeyID: "key_1", Source: "<script>alert(5)</script>"})
		delivery := b.in(accounts.Test, "deliveries/"+b.deliveries(t, "", 1)[0])
		a := b.until(t, delivery, badge("warn", "retrying")).shows(t, "&lt;script&gt;alert(&#34;pwned&#34;)", "Full response", "X-Evil", "&lt;script&gt;alert(2)")
		if len(a.body) > 100_000 {
			t.Errorf("the page has %d bytes", len(a.body))
		}
		attempt := a.find(t, `id="(att_[a-z0-9]+)"`)
		for _, page := range []string{delivery, delivery + "?attempt=" + attempt, path, path + "/edit", path + "/rotate", path + "/replay", b.in(accounts.Test, "webhooks"),
			b.in(accounts.Test, "deliveries"), b.in(accounts.Test, "events")} {
			b.get(t, page).is(t, http.StatusOK).hides(t, "<script>alert", "<img src=x", `"><script`)
		}
		b.get(t, delivery+"?attempt="+attempt).shows(t, "Attempt 1", "&lt;i&gt;").hides(t, "Full response")
		b.get(t, delivery+"?attempt=att_01h455vb4pex5vsknk084sn02q").is(t, http.StatusNotFound)
	})
}

func TestViewerCannotChangeWebhooks(t *testing.T) {
	t.Parallel()
	// Roles are checked before storage, so one engine is enough.
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		path, _ := b.endpoint(t, r.URL)
		b.publish(t, creditsLow)
		one := b.deliveries(t, "", 1)[0]
		delivery := b.in(accounts.Test, "deliveries/"+one)
		b.until(t, delivery, badge("good", "succeeded"))
		v := member(t, b.s, b.workspace, accounts.Viewer)
		v.get(t, path).shows(t, r.URL, "Latest deliveries").hides(t, "Rotate", "Replay events", "Send test", "Delete endpoint", ">Pause<", ">Edit<")
		v.get(t, b.in(accounts.Test, "webhooks")).shows(t, r.URL).hides(t, "New endpoint")
		v.get(t, b.in(accounts.Test, "deliveries")).shows(t, one).hides(t, "Replay selected", "Tick all")
		v.get(t, delivery).shows(t, "Attempt 1").hides(t, "Replay with")
		for page, form := range map[string]url.Values{path + "/pause": nil, path + "/resume": {"held": {"deliver"}}, path + "/rotate": {"grace": {"0"}}, path + "/end_grace": nil,
			path + "/test": {"type": {"key.auto_revoked"}}, path + "/delete": nil, path + "/edit": {"url": {r.URL}, "events": {"*"}}, path + "/replay": {"since": {"2026-01-01"}},
			b.in(accounts.Test, "deliveries"): {"delivery": {one}}, delivery + "/replay": nil, b.in(accounts.Test, "webhooks/new"): {"url": {r.URL}, "events": {"*"}}} {
			v.post(t, page, form).is(t, http.StatusForbidden)
		}
		for _, page := range []string{path + "/edit", path + "/rotate", path + "/replay", b.in(accounts.Test, "webhooks/new")} {
			v.get(t, page).is(t, http.StatusForbidden)
		}
		b.get(t, path).shows(t, badge("good", "active"))
		b.until(t, b.post(t, path+"/test", url.Values{"type": {"key.auto_revoked"}}).redirectsTo(t, b.in(accounts.Test, "deliveries/*")), badge("good", "succeeded"))
		if n := r.came(one); n != 1 {
			t.Errorf("it came %d times", n)
		}
	})
}

func TestWebhooksOfOtherWorkspacesAreNotFound(t *testing.T) {
	t.Parallel()
	withReceiver(t, func(t *testing.T, b *browser, r *receiver) {
		path, id := b.endpoint(t, r.URL)
		event := b.publish(t, creditsLow)[0]
		one := b.deliveries(t, "", 1)[0]
		b.until(t, b.in(accounts.Test, "deliveries/"+one), badge("good", "succeeded"))
		since := b.s.Clock.Now().Add(-time.Hour).UTC().Format("2006-01-02T15:04")
		replay := b.post(t, path+"/replay", url.Values{"since": {since}, "status": {"all"}}).redirectsTo(t, path+"/replays/rpl_*")
		replay = replay[strings.LastIndexByte(replay, '/')+1:]
		b.s.Eventually(t, func() bool { return r.came(one) == 2 })
		b.until(t, b.in(accounts.Test, "deliveries/"+one), badge("good", "succeeded"))

		other := member(t, b.s, b.s.Workspace(t, "globex"), accounts.Owner)
		for _, who := range []struct {
			*browser
			env accounts.Environment
		}{{other, accounts.Test}, {b, accounts.Live}} {
			for _, page := range []string{"webhooks/" + id, "webhooks/" + id + "/edit", "webhooks/" + id + "/rotate", "webhooks/" + id + "/replay",
				"webhooks/" + id + "/replays/" + replay, "deliveries/" + one, "events/" + event.ID, "events/" + event.ID + "/body"} {
				who.get(t, who.in(who.env, page)).is(t, http.StatusNotFound).hides(t, r.URL)
			}
			for page, form := range map[string]url.Values{"pause": nil, "resume": {"held": {"discard"}}, "rotate": {"grace": {"0"}}, "end_grace": nil, "test": {"type": {"key.auto_revoked"}},
				"delete": nil, "edit": {"url": {"https://example.com/"}, "events": {"*"}}, "replay": {"since": {since}, "status": {"all"}}} {
				who.post(t, who.in(who.env, "webhooks/"+id+"/"+page), form).is(t, http.StatusNotFound).hides(t, r.URL)
			}
			who.post(t, who.in(who.env, "deliveries/"+one+"/replay"), url.Values{"id": {"same"}}).is(t, http.StatusNotFound)
			who.post(t, who.in(who.env, "deliveries"), url.Values{"delivery": {one}}).is(t, http.StatusNotFound)
			if got := rowsOf(who.get(t, who.in(who.env, "deliveries"+query("endpoint:"+id)))); len(got) != 0 {
				t.Errorf("another's deliveries are listed: %v", got)
			}
			who.get(t, who.in(who.env, "deliveries")).hides(t, one, r.URL)
			who.get(t, who.in(who.env, "webhooks")).hides(t, id)
			who.get(t, who.in(who.env, "events")).hides(t, event.ID)
		}
		// A replay is only found under its endpoint.
		second, _ := b.endpoint(t, r.URL)
		b.get(t, second+"/replays/"+replay).is(t, http.StatusNotFound)
		b.get(t, path).shows(t, badge("good", "active"))
		if n := r.came(""); n != 2 {
			t.Errorf("%d came", n)
		}
	})
}
