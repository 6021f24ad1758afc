package api_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

func TestVideoIsRenderedAndFetched(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		hook := newReceiver(t, s.Clock, respond(http.StatusOK))
		s.endpoint(t, hook.URL, "video.render.completed")
		order := videoBody("[polls 3] a ship")
		order["seconds"], order["size"] = "8", "1280x720"
		made := s.post(t, videos, order)
		path := videos + "/" + made.Text("id")
		if made.Text("object") != "video" || made.Text("seconds") != "8" || made.Text("size") != "1280x720" || made.Text("prompt") != "[polls 3] a ship" {
			t.Errorf("got new object %s", made.Body)
		}
		s.ask(t, "GET", path+"/content", nil).Want(t, 409, "invalid_state")
		s.Eventually(t, func() bool { return s.upstream(t, path) != "" })
		var seen float64
		for range 3 { // progress never decreases
			s.advance(t, time.Second)
			if p := s.get(t, path).At("progress").(float64); p < seen || p > 100 {
				t.Errorf("progress goes from %v to %v", seen, p)
			} else {
				seen = p
			}
		}
		r := s.waitForVideo(t, path, "completed")
		if r.At("progress") != 100.0 || r.At("cost") != 8.0 || r.At("error") != nil || r.At("failure_reason") != nil || r.At("remixed_from_video_id") != nil {
			t.Errorf("got %s", r.Body)
		}
		want := string(upstreams.MP4()) + "[polls 3] a ship"
		if follow(t, r.Text("url"), http.StatusOK) != want {
			t.Error("the link does not lead to the video")
		}
		for variant, kind := range map[string]string{"": "video/mp4", "?variant=video": "video/mp4", "?variant=thumbnail": "image/png"} {
			got := s.ask(t, "GET", path+"/content"+variant, nil)
			if got.Status != 200 || got.Header.Get("Content-Type") != kind || kind == "video/mp4" && string(got.Body) != want {
				t.Errorf("%s: %d %s", variant, got.Status, got.Header.Get("Content-Type"))
			}
		}
		s.ask(t, "GET", path+"/content?variant=spritesheet", nil).Want(t, 404, "not_found") // the provider has none
		if r := s.ask(t, "GET", path+"/content?variant=poster", nil).Want(t, 400, "invalid_parameter"); r.Text("error.param") != "variant" {
			t.Errorf("refused as %s", r.Body)
		}
		s.checkLedger(t, 8*credit)
		got := hook.wait(t, s.client, 1)[0]
		if follow(t, linkIn(t, got.body), http.StatusOK) != want {
			t.Error("the event's link does not lead to the video")
		}
		if n := s.provider.count("POST /videos", ""); n != 1 || s.provider.callsOf("POST /videos", "")[0].key != idOf(path) {
			t.Errorf("it was started %d times", n)
		}
		s.ask(t, "POST", path+"/cancel", nil).Want(t, 409, "invalid_state")
		s.ask(t, "DELETE", path, nil).Want(t, 200, "")
		follow(t, r.Text("url"), http.StatusNotFound)
		s.ask(t, "GET", path+"/content", nil).Want(t, 404, "not_found")
	})
}

func TestVideoIsRemixedByItsProvider(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		body := videoBody("a ship")
		body["seconds"], body["size"] = "8", "1280x720"
		source := videos + "/" + s.post(t, videos, body).Text("id")
		remix := harness.Request{Method: "POST", Path: source + "/remix", Key: s.key, Body: map[string]any{"prompt": "a red ship", "mood": "calm"}, Header: http.Header{"Idempotency-Key": {"once"}}}
		s.Do(t, harness.Request{Method: "POST", Path: remix.Path, Key: s.key, Body: remix.Body}).Want(t, 409, "invalid_state")
		s.waitForVideo(t, source, "completed")
		made := s.Do(t, remix).Want(t, 200, "")
		if made.Text("remixed_from_video_id") != idOf(source) || made.Text("prompt") != "a red ship" || made.Text("seconds") != "8" || made.Text("size") != "1280x720" || made.Text("model") != "film" {
			t.Errorf("got %s", made.Body)
		}
		if again := s.Do(t, remix).Want(t, 200, ""); again.Text("id") != made.Text("id") {
			t.Errorf("the same request again got %s", again.Body)
		}
		path := videos + "/" + made.Text("id")
		r := s.waitForVideo(t, path, "completed")
		if r.At("cost") != 8.0 || r.Text("remixed_from_video_id") != idOf(source) || follow(t, r.Text("url"), http.StatusOK) != string(upstreams.MP4())+"a red ship" {
			t.Errorf("got %s", r.Body)
		}
		s.checkLedger(t, 16*credit)
		calls := s.provider.callsOf("POST /videos/", "")
		if len(calls) != 1 || calls[0].what != "POST /videos/"+s.upstream(t, source)+"/remix" || string(calls[0].body) != `{"prompt":"a red ship","mood":"calm"}` || calls[0].key != idOf(path) {
			t.Errorf("the provider got %+v", calls)
		}
		for param, body := range map[string]map[string]any{"prompt": {}, "seconds": {"prompt": "x", "seconds": "12"}, "model": {"prompt": "x", "model": "film"}, "n": {"prompt": "x", "n": 2}, "Prompt": {"Prompt": "x"}} {
			if r := s.ask(t, "POST", path+"/remix", body); r.Status != 400 || r.Text("error.param") != param {
				t.Errorf("%s: got %d %s", param, r.Status, r.Body)
			}
		}
		s.ask(t, "POST", videos+"/video_01h455vb4pex5vsknk084sn02q/remix", remix.Body).Want(t, 404, "not_found")
		stranger := newClient(t, s.Server, accounts.Live)
		stranger.ask(t, "POST", path+"/remix", remix.Body).Want(t, 404, "not_found")

		// Concurrent remixes never exceed a budget: each reserves eight credits.
		s.credits(t, 16+20)
		var ok atomic.Int64
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				if r := s.ask(t, "POST", path+"/remix", remix.Body); r.Status == 200 {
					ok.Add(1)
				} else if r.Code() != "insufficient_credits" {
					t.Errorf("got %d %s", r.Status, r.Body)
				}
			})
		}
		all.Wait()
		if ok.Load() != 2 {
			t.Errorf("%d remixes were created, want 2", ok.Load())
		}

		test := s.withTestKey(t)
		from := videos + "/" + test.post(t, videos, videoBody("a ship")).Text("id")
		test.waitForVideo(t, from, "completed")
		simulated := videos + "/" + test.post(t, from+"/remix", map[string]any{"prompt": "a red ship"}).Text("id")
		if r := test.waitForVideo(t, simulated, "completed"); r.Text("remixed_from_video_id") != idOf(from) || r.At("cost") != 0.0 {
			t.Errorf("got %s", r.Body)
		}
		s.ask(t, "POST", from+"/remix", remix.Body).Want(t, 404, "not_found") // of the other environment
	})
}

// upstream returns the stored ID of the render at the provider.
func (c *client) upstream(t *testing.T, path string) string {
	t.Helper()
	var output *string
	if err := c.DB.QueryRow(t.Context(), "SELECT output FROM media_tasks WHERE job_id = $1", idOf(path)).Scan(&output); err != nil {
		t.Fatal(err)
	}
	if output == nil {
		return ""
	}
	_, rest, _ := strings.Cut(*output, `"upstream":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// formPart is a part of a form.
type formPart struct {
	name, file, kind string
	data             []byte
}

func formOf(t *testing.T, boundary string, parts ...formPart) (body string, header http.Header) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		h := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf("form-data; name=%q", p.name)}}
		if p.file != "" {
			h.Set("Content-Disposition", fmt.Sprintf("form-data; name=%q; filename=%q", p.name, p.file))
			h.Set("Content-Type", p.kind)
		}
		one, err := w.CreatePart(h)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = one.Write(p.data)
	}
	_ = w.Close()
	return b.String(), http.Header{"Content-Type": {w.FormDataContentType()}}
}

func TestVideoStartsWithAnImage(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		picture := upstreams.PNGOf(30, 20)
		send := func(boundary string, picture []byte) *harness.Response {
			body, header := formOf(t, boundary, formPart{name: "model", data: []byte("film")}, formPart{name: "prompt", data: []byte("a form")},
				formPart{name: "metadata", data: []byte(`{"a":"b"}`)}, formPart{"input_reference", "start.png", "image/png", picture})
			header.Set("Idempotency-Key", "once")
			return s.Do(t, harness.Request{Method: "POST", Path: videos, Key: s.key, Body: body, Header: header})
		}
		first := send("one", picture).Want(t, 200, "")
		again := send("two", picture).Want(t, 200, "")
		if again.Header.Get("Idempotent-Replayed") != "true" || again.Text("id") != first.Text("id") || first.Text("metadata.a") != "b" {
			t.Errorf("a second time: %s", again.Body)
		}
		send("one", upstreams.PNGOf(31, 20)).Want(t, 409, "idempotency_key_reused")
		s.waitForVideo(t, videos+"/"+first.Text("id"), "completed")
		order := videoBody("in JSON")
		order["input_reference"] = map[string]any{"image_url": "data:image/png;base64," + base64.StdEncoding.EncodeToString(picture)}
		s.waitForVideo(t, s.createJob(t, videos, order), "completed")
		for _, prompt := range []string{"a form", "in JSON"} {
			calls := s.provider.callsOf("POST /videos", prompt)
			if len(calls) != 1 {
				t.Fatalf("%d renders of %q", len(calls), prompt)
			}
			_, files := upstreams.FormOf(calls[0].header, calls[0].body)
			found := false
			for name, data := range files {
				found = found || strings.HasPrefix(name, "input_reference ") && strings.HasSuffix(name, "(image/png)") && data == string(picture)
			}
			if !found {
				t.Errorf("the provider got no picture with %q", prompt)
			}
		}
		s.checkLedger(t, 8*credit)
	})
}

func TestVideoIsRejectedIfItsImageCannotBeStored(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		defer s.fillStorage(t)()
		order := videoBody("in JSON")
		order["input_reference"] = map[string]any{"image_url": "data:image/png;base64," + base64.StdEncoding.EncodeToString(upstreams.PNG())}
		s.ask(t, "POST", videos, order).Want(t, 503, "storage_unavailable")
		if n := s.rows(t, "media_jobs"); n != 0 {
			t.Errorf("there are %d jobs", n)
		}
		s.checkLedger(t, 0)
	})
}

func TestVideoIsListedOnce(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, videos, videoBody("[holdthumbnail g] [polls 1] a ship"))
		s.Eventually(t, func() bool {
			s.advance(t, time.Second)
			return s.provider.count("GET /videos/video_1/content", "") == 2
		})
		back := s.fillStorage(t)
		s.provider.open("g")
		s.Eventually(t, func() bool { return s.tries(t, path) == 1 })
		back()
		s.advance(t, 4*time.Second)
		s.waitForVideo(t, path, "completed")
		var output string
		if err := s.DB.QueryRow(t.Context(), "SELECT output FROM media_jobs WHERE id = $1", idOf(path)).Scan(&output); err != nil {
			t.Fatal(err)
		}
		if strings.Count(output, `"variant":"video"`) != 1 || strings.Count(output, `"variant":"thumbnail"`) != 1 {
			t.Errorf("got %s", output)
		}
		s.checkLedger(t, 4*credit)
	})
}

func TestThumbnailIsRetriedAFewTimes(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		for fails, want := range map[int]int{2: http.StatusOK, 9: http.StatusNotFound} {
			path := s.createJob(t, videos, videoBody(fmt.Sprintf("[failsthumbnail %d] [polls 1] a ship", fails)))
			s.waitForVideo(t, path, "completed")
			if r := s.ask(t, "GET", path+"/content?variant=thumbnail", nil); r.Status != want {
				t.Errorf("after %d failures: %d %s", fails, r.Status, r.Body)
			}
			if n := s.tries(t, path); n != 0 {
				t.Errorf("%d tries of the video failed", n)
			}
		}
	})
}

func TestVideoRejectedForCreditsLeavesNoFile(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		s.credits(t, 1)
		body, header := formOf(t, "one", formPart{name: "model", data: []byte("film")}, formPart{name: "prompt", data: []byte("a form")},
			formPart{"input_reference", "start.png", "image/png", upstreams.PNG()})
		s.Do(t, harness.Request{Method: "POST", Path: videos, Key: s.key, Body: body, Header: header}).Want(t, 402, "insufficient_credits")
		if n := s.rows(t, "files"); n != 0 {
			t.Errorf("got %d files", n)
		}
	})
}

func TestCanceledVideoFailsAndIsFree(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, videos, videoBody("[polls 99] a ship"))
		s.Eventually(t, func() bool { return s.upstream(t, path) != "" })
		for range 2 {
			r := s.post(t, path+"/cancel", nil)
			if r.Text("status") != "failed" || r.Text("error.code") != "cancelled" || r.Text("failure_reason") != "cancelled" || r.At("cost") != 0.0 {
				t.Errorf("got %s", r.Body)
			}
		}
		s.Eventually(t, func() bool { return s.provider.count("DELETE /videos/video_1", "") == 1 })
		s.Eventually(t, func() bool { return s.rows(t, "media_tasks WHERE due_at IS NOT NULL") == 0 })
		if n := len(s.eventsOf(t, idOf(path))); n != 1 {
			t.Errorf("%d events", n)
		}
		s.ask(t, "GET", path+"/content", nil).Want(t, 404, "not_found")
		s.checkLedger(t, 0)
	})
}

func TestRenderOfADeletedVideoIsStopped(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, videos, videoBody("[gate g] [polls 99] a ship"))
		s.Eventually(t, func() bool { return s.provider.count("POST /videos", "") == 1 })
		s.post(t, path+"/cancel", nil)
		s.ask(t, "DELETE", path, nil).Want(t, 200, "")
		s.ask(t, "GET", path, nil).Want(t, 404, "not_found")
		if n := s.rows(t, "media_jobs WHERE workspace_id <> '' OR input LIKE '%ship%'"); n != 0 {
			t.Error("something is left of it")
		}
		s.provider.open("g")
		s.Eventually(t, func() bool { return s.provider.count("DELETE /videos/video_1", "") == 1 })
		s.Eventually(t, func() bool { return s.rows(t, "media_tasks WHERE due_at IS NOT NULL") == 0 })
		s.checkLedger(t, 0)
	})
}

func TestVideoFetchedAfterItsCancellationIsNotKept(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, videos, videoBody("[holdvideo g] [polls 1] a ship"))
		s.Eventually(t, func() bool {
			s.advance(t, time.Second)
			return s.provider.count("GET /videos/video_1/content", "") == 1
		})
		s.post(t, path+"/cancel", nil)
		s.provider.open("g")
		s.Eventually(t, func() bool { return s.rows(t, "files") > 0 })
		s.Eventually(t, func() bool { return s.rows(t, "file_uses") == 0 && s.rows(t, "files WHERE expires_at > 0") == 0 })
		s.checkLedger(t, 0)
	})
}

func TestBlockedVideoNamesItsReason(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		r := s.waitForVideo(t, s.createJob(t, videos, videoBody("[blocked] a fight")), "failed")
		if r.Text("error.code") != "moderation_blocked_output" || r.Text("failure_reason") != "moderation_blocked_output" || r.At("url") != nil {
			t.Errorf("got %s", r.Body)
		}
		s.ask(t, "POST", videos+"/"+r.Text("id")+"/cancel", nil).Want(t, 409, "invalid_state")
		s.checkLedger(t, 0)
	})
}

func TestVideoSurvivesProviderFailures(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, videos, videoBody("[fails 2] [polls 1] a ship"))
		for n, wait := range []time.Duration{5 * time.Second, 30 * time.Second} {
			s.Eventually(t, func() bool { return s.tries(t, path) == int64(n+1) })
			s.advance(t, wait)
		}
		s.Eventually(t, func() bool { return s.upstream(t, path) != "" })
		if n := s.tries(t, path); n != 0 {
			t.Errorf("after it went well %d failures are counted", n)
		}
		s.advance(t, time.Second)
		for n, wait := range []time.Duration{5 * time.Second, 30 * time.Second} { // now polling fails
			s.Eventually(t, func() bool { return s.tries(t, path) == int64(n+1) })
			s.advance(t, wait)
		}
		// The file also fails twice, which makes four in a row.
		for n, wait := range []time.Duration{2 * time.Minute, 10 * time.Minute} {
			s.Eventually(t, func() bool {
				return s.tries(t, path) == int64(n+3) && s.provider.count("GET /videos/video_1/content", "") == n+1
			})
			s.advance(t, wait)
		}
		r := s.waitForVideo(t, path, "completed")
		if r.At("cost") != 4.0 || s.provider.count("POST /videos", "") != 3 {
			t.Errorf("%d starts: %s", s.provider.count("POST /videos", ""), r.Body)
		}
		s.checkLedger(t, 4*credit)
	})
}

func TestVideoFailsAfterItsTimeLimit(t *testing.T) {
	eachMedia(t, sqlite, func(cfg *config.Config) { cfg.Media.Deadline = time.Minute }, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, videos, videoBody("[polls 999] a ship"))
		s.Eventually(t, func() bool { return s.upstream(t, path) != "" })
		s.advance(t, time.Minute)
		r := s.waitForEnd(t, path, "failed")
		if r.Text("error.code") != "deadline_exceeded" || r.At("cost") != 0.0 {
			t.Errorf("got %s", r.Body)
		}
		if n := s.provider.count("DELETE /videos/video_1", ""); n != 1 {
			t.Errorf("the provider was told %d times to stop", n)
		}
		s.checkLedger(t, 0)
	})
}

func TestRenderContinuesAfterARestart(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		s.credits(t, 100)
		path := s.createJob(t, videos, videoBody("[polls 3] a ship"))
		s.Eventually(t, func() bool { return s.upstream(t, path) != "" })
		s.restart(t)
		// The job's lease still exists.
		if n := s.rows(t, "spend_leases WHERE node_id = 'job:"+idOf(path)+"'"); n != 1 {
			t.Errorf("the job has %d leases", n)
		}
		r := s.waitForVideo(t, path, "completed")
		if n := s.provider.count("POST /videos", ""); n != 1 || r.At("cost") != 4.0 {
			t.Errorf("it was started %d times: %s", n, r.Body)
		}
		s.checkLedger(t, 4*credit)
	})
}

// restart stops the server and starts another on the same database.
func (s *mediaClient) restart(t *testing.T) {
	t.Helper()
	if err := s.App.Close(); err != nil {
		t.Fatal(err)
	}
	again := harness.Start(t, s.cfg, s.Clock)
	c := *s.client
	c.Server = again
	s.client = &c
}

func TestJobsOfARevokedKeyEnd(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		owner, id := s.withKey(t, liveKey())
		begun := owner.createJob(t, videos, videoBody("[polls 3] a ship"))
		s.Eventually(t, func() bool { return s.upstream(t, begun) != "" })
		waiting := []string{owner.createJob(t, videos, videoBody("[fails 1] never")), owner.createJob(t, batches, batchBody("[fails 1] never", "[fails 1] never, too")),
			owner.createJob(t, renders, speechBody("[fails 1] Never."))}
		s.Eventually(t, func() bool { return s.rows(t, "media_tasks WHERE tries = 1") == 4 })
		s.ask(t, "DELETE", "/v1/keys/"+id, nil).Want(t, 200, "")
		s.advance(t, 5*time.Second)
		for i, path := range waiting {
			r := s.waitForEnd(t, path, "failed")
			code := r.Text("error.code")
			if i == 1 {
				code = r.Text("results.1.error.code")
			}
			if code != "key_revoked" {
				t.Errorf("%s", r.Body)
			}
		}
		if n := s.provider.count("POST", "ever"); n != 4 {
			t.Errorf("after it was revoked a provider was asked %d times", n-4)
		}
		s.waitForVideo(t, begun, "completed")
		s.checkLedger(t, 4*credit)
	})
}

func TestJobsAreIsolatedByTenant(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		token := func(metadata map[string]any) *mediaClient {
			r := s.post(t, "/v1/scoped_tokens", map[string]any{"scopes": []string{"images:create", "videos:create", "voice:create"}, "metadata": metadata})
			return s.as(r.Text("value"))
		}
		const n int64 = 1234567890123456789 // which is n+1 as a 64-bit float
		ann, ann2, bob := token(map[string]any{"user": "ann", "n": n}), token(map[string]any{"n": n, "user": "ann"}), token(map[string]any{"user": "bob"})
		anna := token(map[string]any{"user": "ann", "n": n + 1})
		stranger := newClient(t, s.Server, accounts.Live)
		for _, kind := range []struct {
			path  string
			order any
		}{{batches, batchBody("one")}, {videos, videoBody("one")}, {renders, speechBody("One.")}} {
			mine, hers := s.createJob(t, kind.path, kind.order), ann.createJob(t, kind.path, kind.order)
			for name, c := range map[string]struct {
				who   *client
				sees  int
				paths []string
			}{
				"bob":      {bob.client, 0, []string{mine, hers}},
				"anna":     {anna.client, 0, []string{mine, hers}},
				"ann":      {ann.client, 1, []string{mine}},
				"ann2":     {ann2.client, 1, []string{mine}},
				"stranger": {stranger, 0, []string{mine, hers}},
				"test":     {s.withTestKey(t), 0, []string{mine, hers}},
				"key":      {s.client, 2, nil},
			} {
				if n := len(idsOf(c.who.get(t, kind.path))); n != c.sees {
					t.Errorf("%s sees %d of %s, want %d", name, n, kind.path, c.sees)
				}
				for _, path := range c.paths {
					c.who.ask(t, "GET", path, nil).Want(t, 404, "not_found")
					c.who.ask(t, "DELETE", path, nil).Want(t, 404, "not_found")
					c.who.ask(t, "POST", path+"/cancel", nil).Want(t, 404, "not_found")
					if kind.path == videos {
						c.who.ask(t, "GET", path+"/content", nil).Want(t, 404, "not_found")
					}
				}
			}
			ann2.get(t, hers)
			s.get(t, hers)
			// An ID of another type isn't found.
			for _, other := range []string{batches, videos, renders} {
				if other != kind.path {
					s.ask(t, "GET", other+"/"+idOf(mine), nil).Want(t, 404, "not_found")
				}
			}
		}
		reader, _ := s.withKey(t, liveKey("images:read"))
		reader.get(t, batches)
		reader.ask(t, "POST", batches, batchBody("one")).Want(t, 403, "insufficient_scope")
		reader.ask(t, "GET", videos, nil).Want(t, 403, "insufficient_scope")
	})
}

func TestJobOutlivesItsScopedToken(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		r := s.post(t, "/v1/scoped_tokens", map[string]any{"scopes": []string{"images:create"}, "expires_in": 1})
		path := s.as(r.Text("value")).createJob(t, batches, batchBody("[fails 1] one"))
		s.Eventually(t, func() bool { return s.tries(t, path) == 1 })
		s.advance(t, time.Minute)
		s.waitForEnd(t, path, "completed")
		s.checkLedger(t, credit)
	})
}

func TestJobsAreFilteredAndPaged(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		var all []string
		for i := range 5 {
			prompt := "fine"
			if i%2 == 1 {
				prompt = "[blocked] no"
			}
			path := s.createJob(t, batches, batchBody(prompt))
			s.waitForStatus(t, path, "completed", "failed")
			all = append(all, idOf(path))
		}
		if got := idsOf(s.get(t, batches+"?status=failed&order=asc")); fmt.Sprint(got) != fmt.Sprint([]string{all[1], all[3]}) {
			t.Errorf("those that failed are %v of %v", got, all)
		}
		var paged []string
		after := ""
		for {
			r := s.get(t, batches+"?limit=2&order=asc"+after)
			paged = append(paged, idsOf(r)...)
			if r.At("has_more") != true {
				break
			}
			after = "&after=" + r.Text("last_id")
		}
		if fmt.Sprint(paged) != fmt.Sprint(all) {
			t.Errorf("page by page: %v", paged)
		}
		if r := s.get(t, batches); r.At("data.0.results") != nil {
			t.Errorf("a list is brief: %s", r.Body)
		}
		for query, param := range map[string]string{"status=done": "status", "limit=0": "limit", "after=video_1": "after", "colour=red": "colour"} {
			if r := s.ask(t, "GET", batches+"?"+query, nil); r.Status != 400 || r.Text("error.param") != param {
				t.Errorf("%s: %d %s", query, r.Status, r.Body)
			}
		}
	})
}
