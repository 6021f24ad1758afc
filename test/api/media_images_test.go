package api_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/config"
	"turnpike/internal/spend"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

func TestBatchReturnsPartialResults(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		hook := newReceiver(t, s.Clock, respond(http.StatusOK))
		s.endpoint(t, hook.URL, "image.batch.completed")
		order := batchBody("a house", "[blocked] a fight", "a sea")
		order["metadata"] = map[string]string{"for": "shop"}
		order["requests"].([]map[string]any)[2]["body"] = map[string]any{"prompt": "a sea", "n": 2, "size": "64x64"}
		made := s.Do(t, harness.Request{Method: "POST", Path: batches, Key: s.key, Body: order, Header: http.Header{"Service-Project": {"sea"}}}).Want(t, 200, "")
		path := batches + "/" + made.Text("id")
		r := s.waitForEnd(t, path, "completed")
		if r.At("progress") != 100.0 || r.At("request_counts.total") != 3.0 || r.At("request_counts.completed") != 2.0 || r.At("request_counts.failed") != 1.0 ||
			r.At("cost") != 3.0 || r.At("error") != nil || r.Text("metadata.for") != "shop" || r.Text("model") != "pic" || r.At("started_at") == nil {
			t.Errorf("got %s", r.Body)
		}
		for i, want := range []string{"completed", "failed", "completed"} {
			if r.Text(fmt.Sprintf("results.%d.status", i)) != want || r.Text(fmt.Sprintf("results.%d.custom_id", i)) != fmt.Sprint("c", i) {
				t.Errorf("result %d of %s", i, r.Body)
			}
		}
		if r.Text("results.1.error.code") != "moderation_blocked_output" || r.At("results.1.error.retryable") != false || len(r.At("results.1.images").([]any)) != 0 {
			t.Errorf("what was blocked is %v", r.At("results.1"))
		}
		checkFiles(t, r.Body, 3)
		s.checkLedger(t, 3*credit)
		if b := s.spent(t, spend.Project, spend.ProjectID(s.workspace.ID, "sea")); b.Spent != 3*credit {
			t.Errorf("the project was charged %s", b.Spent)
		}
		if e := s.entry(t, made); e.At("credits") != 3.0 || e.Text("model") != "pic" || e.Text("provider") != "provider" || e.Text("project") != "sea" || e.Text("usage_source") != "provider" {
			t.Errorf("the entry of the request is %s", e.Body)
		}

		// One event, whose links open the same files.
		got := hook.wait(t, s.client, 1)[0]
		var event struct {
			Type, Project string
			Data          json.RawMessage
		}
		decode(t, got.body, &event)
		if event.Type != "image.batch.completed" || event.Project != "sea" || len(s.eventsOf(t, idOf(path))) != 1 {
			t.Errorf("got event %s", got.body)
		}
		checkFiles(t, event.Data, 3)
	})
}

// checkFiles opens every link of a batch, and compares the files with their
// descriptions.
func checkFiles(t *testing.T, body []byte, n int) (links []string) {
	t.Helper()
	var b struct {
		Results []struct {
			Images []struct {
				URL         string
				SHA256      string
				Bytes       int
				ContentType string `json:"content_type"`
			}
		}
	}
	decode(t, body, &b)
	for _, r := range b.Results {
		for _, f := range r.Images {
			links = append(links, f.URL)
			data := follow(t, f.URL, http.StatusOK)
			sum := sha256.Sum256([]byte(data))
			if hex.EncodeToString(sum[:]) != f.SHA256 || len(data) != f.Bytes || f.ContentType != "image/png" {
				t.Errorf("the file is not what is said of it: %+v", f)
			}
		}
	}
	if len(links) != n {
		t.Errorf("%d files, want %d", len(links), n)
	}
	return links
}

func TestBatchWithoutResultsFailsAndIsFree(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, batches, batchBody("[blocked] one", "[blocked] two"))
		r := s.waitForEnd(t, path, "failed")
		if r.At("cost") != 0.0 || r.At("request_counts.failed") != 2.0 || r.Text("error.code") != "moderation_blocked_output" || r.At("error.retryable") != false {
			t.Errorf("got %s", r.Body)
		}
		s.checkLedger(t, 0)
		if found := s.eventsOf(t, idOf(path)); len(found) != 1 || found[0]["data"].(map[string]any)["status"] != "failed" {
			t.Errorf("its events are %v", found)
		}
	})
}

func TestQueuedBatchIsCanceledImmediately(t *testing.T) {
	// No node runs the jobs: another one leases the lane for an hour.
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		s.credits(t, 100)
		path := s.withBusyLane(t, func() string { return s.createJob(t, batches, batchBody("one", "two")) })
		if b := s.get(t, "/v1/billing"); amount(t, b, "reserved") < 2*credit {
			t.Errorf("while it waits: %s", b.Body)
		}
		s.ask(t, "DELETE", path, nil).Want(t, 409, "invalid_state")
		for range 2 { // repeating it changes nothing
			if r := s.post(t, path+"/cancel", nil); r.Text("status") != "cancelled" || r.At("cost") != 0.0 || r.Text("error.code") != "cancelled" {
				t.Errorf("cancelled is %s", r.Body)
			}
		}
		if r := s.get(t, path); r.Text("results.0.status") != "cancelled" || r.Text("results.1.error.code") != "cancelled" || r.At("completed_at") == nil {
			t.Errorf("afterwards it is %s", r.Body)
		}
		if n := len(s.eventsOf(t, idOf(path))); n != 1 {
			t.Errorf("%d events", n)
		}
		s.checkLedger(t, 0)
		if n := s.provider.count("POST", ""); n != 0 {
			t.Errorf("got %d provider requests", n)
		}
	})
}

// credits sets the workspace's monthly credits.
func (c *client) credits(t *testing.T, n float64) {
	t.Helper()
	c.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": n}).Want(t, 200, "")
}

// withBusyLane creates jobs while another node leases all lanes of jobs, so
// that none runs.
func (s *mediaClient) withBusyLane(t *testing.T, fn func() string) string {
	t.Helper()
	for _, kind := range []string{"image", "video", "voice"} {
		for shard := range 16 {
			s.exec(t, "INSERT INTO lanes (queue, id, due_at, seq, pinned_to) VALUES ('media', $1, NULL, 1, 'nobody')",
				fmt.Sprintf("%s.%s.%s.%d", s.workspace.ID, s.env, kind, shard))
		}
	}
	return fn()
}

func TestCancelingABatchKeepsImagesInProgress(t *testing.T) {
	eachMedia(t, both, func(cfg *config.Config) { cfg.Media.PerWorkspace = 2 }, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, batches, batchBody("done", "[gate g] one", "[gate g] two", "never", "never again", "[fails 9] broken"))
		s.Eventually(t, func() bool { return s.provider.count("POST", "[gate g]") == 2 })
		s.Eventually(t, func() bool { return s.get(t, path).At("request_counts.completed") == 1.0 })
		r := s.post(t, path+"/cancel", map[string]any{})
		if r.Text("status") != "cancelling" {
			t.Errorf("got %s", r.Body)
		}
		s.ask(t, "DELETE", path, nil).Want(t, 409, "invalid_state")
		if again := s.post(t, path+"/cancel", nil); again.Text("status") != "cancelling" {
			t.Errorf("a second time: %s", again.Body)
		}
		if n := len(s.eventsOf(t, idOf(path))); n != 0 {
			t.Errorf("%d events before the end", n)
		}
		s.provider.open("g")
		r = s.waitForEnd(t, path, "cancelled")
		if r.At("request_counts.completed") != 3.0 || r.At("request_counts.failed") != 3.0 || r.At("cost") != 3.0 || r.Text("error.code") != "cancelled" {
			t.Errorf("in the end it is %s", r.Body)
		}
		for i, want := range []string{"completed", "completed", "completed", "cancelled", "cancelled", "cancelled"} {
			if got := r.Text(fmt.Sprintf("results.%d.status", i)); got != want {
				t.Errorf("result %d is %s, want %s", i, got, want)
			}
		}
		checkFiles(t, r.Body, 3)
		s.checkLedger(t, 3*credit)
		if n := len(s.eventsOf(t, idOf(path))); n != 1 {
			t.Errorf("%d events", n)
		}
		if r := s.post(t, path+"/cancel", nil); r.Text("status") != "cancelled" {
			t.Errorf("cancelled once more: %s", r.Body)
		}
	})
}

func TestFailureAfterACancelIsNotRetried(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, batches, batchBody("[gate g] [fails 9] one"))
		s.Eventually(t, func() bool { return s.provider.count("POST", "") == 1 })
		s.waitForStatus(t, path, "in_progress")
		s.post(t, path+"/cancel", nil)
		s.provider.open("g")
		if r := s.waitForEnd(t, path, "cancelled"); r.Text("results.0.status") != "cancelled" {
			t.Errorf("got %s", r.Body)
		}
		s.checkLedger(t, 0)
	})
}

func TestImageWaitingForARetryIsCanceledImmediately(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, batches, batchBody("[fails 9] one"))
		s.Eventually(t, func() bool { return s.tries(t, path) == 1 })
		s.post(t, path+"/cancel", nil)
		s.waitForEnd(t, path, "cancelled")
		if n := s.provider.count("POST", ""); n != 1 {
			t.Errorf("it was tried %d times", n)
		}
		s.checkLedger(t, 0)
	})
}

func TestProviderFailureIsRetriedOnSchedule(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, batches, batchBody("[fails 2] one"))
		for n, wait := range []time.Duration{5 * time.Second, 30 * time.Second} {
			s.Eventually(t, func() bool { return s.tries(t, path) == int64(n+1) })
			if got := s.provider.count("POST", ""); got != n+1 {
				t.Errorf("it was tried %d times, want %d", got, n+1)
			}
			s.advance(t, wait)
		}
		r := s.waitForEnd(t, path, "completed")
		if s.provider.count("POST", "") != 3 || r.At("cost") != 1.0 {
			t.Errorf("got %s", r.Body)
		}
		s.checkLedger(t, credit)
	})
}

// tries returns how often the first task of a job has failed in a row.
func (c *client) tries(t *testing.T, path string) int64 {
	t.Helper()
	return c.number(t, "SELECT tries FROM media_tasks WHERE job_id = $1 AND position = 0", idOf(path))
}

func TestJobFailsAfterItsLastRetry(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, batches, batchBody("[fails 9] one"))
		for n, wait := range []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute} {
			s.Eventually(t, func() bool { return s.tries(t, path) == int64(n+1) })
			s.advance(t, wait)
		}
		r := s.waitForEnd(t, path, "failed")
		if r.Text("results.0.error.code") != "upstream_error" || r.At("results.0.error.retryable") != true || s.provider.count("POST", "") != 5 {
			t.Errorf("got %s", r.Body)
		}
		s.checkLedger(t, 0)
	})
}

func TestJobFailsAtItsDeadline(t *testing.T) {
	eachMedia(t, sqlite, func(cfg *config.Config) { cfg.Media.Deadline = time.Minute }, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, batches, batchBody("fine", "[fails 9] one"))
		for range 3 {
			s.Eventually(t, func() bool {
				return s.rows(t, "media_tasks WHERE due_at <= "+fmt.Sprint(s.Clock.Now().UnixMicro())) == 0
			})
			s.advance(t, 30*time.Second)
		}
		r := s.waitForEnd(t, path, "completed")
		if r.Text("results.1.error.code") != "deadline_exceeded" || r.At("results.1.error.retryable") != true || r.At("cost") != 1.0 {
			t.Errorf("got %s", r.Body)
		}
		s.checkLedger(t, credit)
	})
}

func TestRouterChoosesAModelThatCanEditImages(t *testing.T) {
	t.Parallel()
	price := func(usd config.Decimal) *config.ModelPrice { return &config.ModelPrice{PerImage: usd} }
	for want, models := range map[string][]config.ProviderModel{
		"editor": {{ID: "pic", Kind: "image", Price: price("0.001")}, {ID: "blind", Kind: "image", Price: price("0.002")},
			{ID: "editor", Kind: "image", Price: price("0.009"), Capabilities: []string{"vision"}}},
		"pic": {{ID: "pic", Kind: "image", Price: price("0.001")}}, // a model without known capabilities
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := newMedia(t, "sqlite", func(cfg *config.Config) { cfg.Providers[0].Models = models })
			body, header := formOf(t, "one", formPart{name: "prompt", data: []byte("at night")}, formPart{"image", "house.png", "image/png", upstreams.PNG()})
			r := s.Do(t, harness.Request{Method: "POST", Path: "/v1/images/edits", Key: s.key, Body: body, Header: header})
			if r.Want(t, 200, ""); r.Header.Get("Service-Model") != want {
				t.Errorf("it was edited by %s, want %s", r.Header.Get("Service-Model"), want)
			}
		})
	}
}

func TestJobShowsWhenItsFilesExpire(t *testing.T) {
	eachMedia(t, sqlite, func(cfg *config.Config) { cfg.Files.Retention, cfg.Media.Deadline = time.Hour, time.Hour }, func(t *testing.T, s *mediaClient) {
		path := s.createJob(t, batches, batchBody("one"))
		r := s.waitForEnd(t, path, "completed")
		if life := r.At("expires_at").(float64) - r.At("completed_at").(float64); life != time.Hour.Seconds() {
			t.Errorf("its files are said to be kept for %v seconds", life)
		}
		if r.At("results.0.images.0.url_expires_at").(float64) > r.At("expires_at").(float64) {
			t.Errorf("a link outlives its file: %s", r.Body)
		}
		s.Clock.Turn(time.Hour)
		follow(t, r.Text("results.0.images.0.url"), http.StatusForbidden)
		if r := s.ask(t, "GET", path, nil).Want(t, 200, ""); len(r.At("results.0.images").([]any)) != 0 {
			t.Errorf("it still has links: %s", r.Body)
		}
	})
}

func TestFilesOfADeletedJobAreDeleted(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		one := s.createJob(t, batches, batchBody("same", "mine"))
		two := s.createJob(t, batches, batchBody("same"))
		links := checkFiles(t, s.waitForEnd(t, one, "completed").Body, 2)
		other := checkFiles(t, s.waitForEnd(t, two, "completed").Body, 1)
		s.ask(t, "POST", one+"/cancel", nil).Want(t, 409, "invalid_state")
		if r := s.ask(t, "DELETE", one, nil).Want(t, 200, ""); r.At("deleted") != true || r.Text("object") != "image.batch.deleted" {
			t.Errorf("deleted: %s", r.Body)
		}
		s.ask(t, "GET", one, nil).Want(t, 404, "not_found")
		s.ask(t, "DELETE", one, nil).Want(t, 404, "not_found")
		s.ask(t, "POST", one+"/cancel", nil).Want(t, 404, "not_found")
		follow(t, links[1], http.StatusNotFound)
		follow(t, other[0], http.StatusOK)
		if n := s.rows(t, "media_tasks WHERE job_id = '"+idOf(one)+"'"); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
		s.ask(t, "DELETE", two, nil).Want(t, 200, "")
		follow(t, other[0], http.StatusNotFound)
		follow(t, links[0], http.StatusNotFound)
		s.checkLedger(t, 3*credit)
	})
}

func TestForeignAndForgedFileLinksAreRejected(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		link := checkFiles(t, s.waitForEnd(t, s.createJob(t, batches, batchBody("one")), "completed").Body, 1)[0]
		mine := checkFiles(t, s.waitForEnd(t, s.createJob(t, batches, batchBody("two")), "completed").Body, 1)[0]
		other := newClient(t, s.Server, s.env)
		path := func(link string) string { p, _, _ := strings.Cut(link, "?"); return p }
		query := func(link string) string { _, q, _ := strings.Cut(link, "?"); return q }
		for _, forged := range []string{
			strings.Replace(link, s.workspace.ID, other.workspace.ID, 1),
			strings.Replace(link, "/live/", "/test/", 1),
			path(link) + "?" + query(mine),
			path(link),
			link + "0",
			strings.Replace(link, ".png", ".html", 1),
		} {
			if forged == link {
				t.Errorf("%s was not changed", link)
			}
			res, err := http.Get(forged)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != 403 && res.StatusCode != 404 || res.StatusCode == 404 && strings.Contains(forged, "sha") {
				t.Errorf("%s answers %d", forged, res.StatusCode)
			}
		}
		s.Clock.Turn(24*time.Hour + time.Second)
		follow(t, link, http.StatusForbidden)
	})
}

func TestEventOfAVeryLargeBatchIsTruncated(t *testing.T) {
	t.Parallel()
	// A thousand images, on one engine, because the size limit of an event
	// doesn't depend on the database.
	s := newMedia(t, "sqlite", func(cfg *config.Config) { cfg.Media.PerWorkspace = 64 })
	hook := newReceiver(t, s.Clock, respond(http.StatusOK))
	s.endpoint(t, hook.URL, "image.batch.completed")
	list := make([]map[string]any, 1000)
	for i := range list {
		// IDs with the longest JSON encoding.
		list[i] = map[string]any{"custom_id": fmt.Sprintf("%s%04d", strings.Repeat("\x01", 60), i), "body": map[string]any{"prompt": "p", "n": 1}}
	}
	path := s.createJob(t, batches, map[string]any{"model": "pic", "requests": list})
	var r *harness.Response
	done := func() int { return s.rows(t, "media_tasks WHERE status = 'completed'") }
	s.waitForCount(t, 1000, done)
	r = s.waitForEnd(t, path, "completed")
	if len(r.At("results").([]any)) != 1000 || r.At("results_truncated") == true || r.At("cost") != 1_000.0 {
		t.Errorf("the batch has %d results and costs %v", len(r.At("results").([]any)), r.At("cost"))
	}
	got := hook.wait(t, s.client, 1)[0]
	if len(got.body) > 1<<20 || !bytes.Contains(got.body, []byte(`"results_truncated":true`)) {
		t.Errorf("the event has %d bytes: %.300s", len(got.body), got.body)
	}
	s.checkLedger(t, 1_000*credit)
}

func TestTestKeysNeedNoPrices(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		r := s.withTestKey(t).ask(t, "POST", "/v1/images/generations", map[string]any{"model": "gpt-image-1", "prompt": "a cat"})
		if r.Want(t, 200, ""); len(r.Text("data.0.b64_json")) == 0 {
			t.Errorf("answered %.200s", r.Body)
		}
	})
}

// fillStorage removes the directory of incomplete files, so that no new file
// can be stored until back is called.
func (s *mediaClient) fillStorage(t *testing.T) (back func()) {
	t.Helper()
	spool := filepath.Join(s.cfg.Data, "files", ".spool")
	if err := os.Remove(spool); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Mkdir(spool, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImageThatCannotBeStoredIsFree(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		back := s.fillStorage(t)
		order := map[string]any{"model": "pic", "prompt": "a house", "n": 2, "response_format": "url"}
		refused := s.ask(t, "POST", "/v1/images/generations", order).Want(t, 503, "storage_unavailable")
		if refused.Header.Get("Service-Credits") != "" || refused.Header.Get("X-Should-Retry") != "" {
			t.Errorf("its headers are %v", refused.Header)
		}
		body, header := formOf(t, "one", formPart{name: "model", data: []byte("pic")}, formPart{name: "prompt", data: []byte("at night")},
			formPart{name: "response_format", data: []byte("url")}, formPart{"image", "house.png", "image/png", upstreams.PNG()})
		edit := s.Do(t, harness.Request{Method: "POST", Path: "/v1/images/edits", Key: s.key, Body: body, Header: header}).Want(t, 503, "storage_unavailable")
		for _, r := range []*harness.Response{refused, edit} {
			if e := s.entry(t, r); e.At("credits") != 0.0 || e.At("status") != 503.0 || e.Text("provider") != "provider" {
				t.Errorf("the entry of the request is %s", e.Body)
			}
		}
		s.checkLedger(t, 0)
		if n := s.provider.count("POST /images/generations", ""); n != 1 {
			t.Errorf("got %d provider requests", n)
		}
		back()
		r := s.ask(t, "POST", "/v1/images/generations", order).Want(t, 200, "")
		for i := range 2 {
			if data := follow(t, r.Text(fmt.Sprintf("data.%d.url", i)), http.StatusOK); data != string(imageOf("a house", i)) {
				t.Errorf("picture %d has %d bytes", i, len(data))
			}
		}
		s.entry(t, r)
		s.checkLedger(t, 2*credit)
	})
}

func TestPartialImagesAreForwarded(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, m *mediaClient) {
		const path = "/v1/images/generations"
		ask := func(prompt string) map[string]any {
			return map[string]any{"model": "pic", "prompt": prompt, "stream": true, "partial_images": 2, "size": "256x256"}
		}
		const prompt = "[partials 2] a lighthouse"
		r := m.ask(t, "POST", path, ask(prompt)).Want(t, 200, "")
		list := chunks(r)
		if len(list) != 3 || r.Header.Get("Service-Model") != "pic" {
			t.Fatalf("got %v %s", r.Header, r.Body)
		}
		for i, event := range list {
			kind, index := "image_generation.partial_image", any(float64(i))
			if i == 2 {
				kind, index = "image_generation.completed", nil
			}
			if event.Text("type") != kind || event.At("partial_image_index") != index || event.Text("b64_json") != base64.StdEncoding.EncodeToString(imageOf(prompt, i)) {
				t.Errorf("got %s", event.Body)
			}
		}
		if list[2].At("usage.output_tokens") != 20.0 {
			t.Errorf("got %s", list[2].Body)
		}
		if e := m.entry(t, r); amount(t, e, "credits") != credit || e.At("status") != 200.0 {
			t.Errorf("got log entry %s", e.Body)
		}
		if sent := m.provider.callsOf("POST /images", ""); !strings.Contains(string(sent[0].body), `"stream":true,"partial_images":2`) {
			t.Errorf("the provider got %s", sent[0].body)
		}

		// Nothing is retried after the first event.
		broken := m.ask(t, "POST", path, ask("[partials 2][breaks] a lighthouse")).Want(t, 200, "")
		if list := chunks(broken); len(list) != 2 || list[1].Text("error.code") != "upstream_error" || m.provider.count("POST", "breaks") != 1 {
			t.Errorf("got %s after %d requests", broken.Body, m.provider.count("POST", "breaks"))
		}
		if e := m.entry(t, broken); amount(t, e, "credits") != 0 || e.Text("error_code") != "upstream_error" {
			t.Errorf("got log entry %s", e.Body)
		}

		// A client that leaves with a partial image pays for the image.
		body, _ := json.Marshal(ask("[partials 2][pause p] a lighthouse"))
		conn, err := net.Dial("tcp", strings.TrimPrefix(m.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, m.key, len(body), body)
		for lines := bufio.NewScanner(conn); lines.Scan() && !strings.HasPrefix(lines.Text(), "event: "); {
		}
		conn.Close()
		m.provider.open("p")
		m.waitForLedger(t, 2*credit)

		test := m.withTestKey(t)
		simulated := chunks(test.ask(t, "POST", path, ask("a lighthouse")).Want(t, 200, ""))
		if len(simulated) != 3 || simulated[1].At("partial_image_index") != 1.0 || simulated[2].Text("type") != "image_generation.completed" {
			t.Errorf("got %d events", len(simulated))
		}
		for _, n := range []any{4, -1} {
			wrong := ask("x")
			wrong["partial_images"] = n
			if r := m.ask(t, "POST", path, wrong).Want(t, 400, "invalid_parameter"); r.Text("error.param") != "partial_images" {
				t.Errorf("got %s", r.Body)
			}
		}
	})
}

func TestImageIsSentInAnEvent(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, m *mediaClient) {
		ask := map[string]any{"model": "pic", "prompt": "a lighthouse", "stream": true, "partial_images": 2, "size": "256x256"}
		r := m.ask(t, "POST", "/v1/images/generations", ask).Want(t, 200, "")
		list := chunks(r)
		if len(list) != 1 || list[0].Text("type") != "image_generation.completed" || list[0].Text("b64_json") == "" || list[0].Text("size") != "256x256" || list[0].Text("output_format") != "png" {
			t.Errorf("got %s", r.Body)
		}
		if e := m.entry(t, r); amount(t, e, "credits") != mills(1000) {
			t.Errorf("got log entry %s", e.Body)
		}
		for param, more := range map[string]any{"n": 2, "response_format": "url"} {
			ask := map[string]any{"model": "pic", "prompt": "x", "stream": true}
			ask[param] = more
			if r := m.ask(t, "POST", "/v1/images/generations", ask).Want(t, 400, "invalid_parameter"); r.Text("error.param") != param {
				t.Errorf("got %s, want an error in %s", r.Body, param)
			}
		}
	})
}
