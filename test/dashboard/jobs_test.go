package dashboard_test

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/test/harness"
)

const script = `"><script>alert(1)</script>`

// jobClient is a browser with an API key.
type jobClient struct {
	*browser
	key string
}

func newJobClient(t *testing.T, s *harness.Server) *jobClient {
	t.Helper()
	b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
	key, _ := s.Key(t, b.workspace, accounts.Test)
	return &jobClient{b, key}
}

func (m *jobClient) create(t *testing.T, path string, body any) *harness.Response {
	t.Helper()
	return m.s.Do(t, harness.Request{Method: "POST", Path: path, Key: m.key, Body: body}).Want(t, 200, "")
}

// waitFor waits until the API reports a status.
func (m *jobClient) waitFor(t *testing.T, path, status string) *harness.Response {
	t.Helper()
	var r *harness.Response
	m.s.Eventually(t, func() bool {
		r = m.s.Do(t, harness.Request{Method: "GET", Path: path, Key: m.key}).Want(t, 200, "")
		return r.Text("status") == status
	})
	return r
}

// holdLanes pins the lanes of a queue to another node, so that nothing runs.
func (m *jobClient) holdLanes(t *testing.T, queue string, kinds ...string) {
	t.Helper()
	err := m.s.DB.Write(t.Context(), func(tx *db.Tx) error {
		for _, kind := range kinds {
			for shard := range 16 {
				if _, err := tx.Exec(t.Context(), "INSERT INTO lanes (queue, id, due_at, seq, pinned_to) VALUES ($1, $2, NULL, 1, 'nobody')",
					queue, fmt.Sprintf("%s.test%s.%d", m.workspace.ID, kind, shard)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// loggedActions returns the admin log entries of a target.
func (m *jobClient) loggedActions(t *testing.T, target string) (list []string) {
	t.Helper()
	rows, err := m.s.DB.Query(t.Context(), "SELECT action, actor FROM admin_actions WHERE workspace_id = $1 AND target = $2 ORDER BY id", m.workspace.ID, target)
	list, err = db.All(rows, err, func(r db.Row) (string, error) {
		var action, actor string
		err := r.Scan(&action, &actor)
		return action + " " + actor, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// links returns the URLs of files on a page without duplicates.
func (a *response) links() (list []string) {
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`src="(/files/[^"]+)"`).FindAllStringSubmatch(a.body, -1) {
		if link := html.UnescapeString(m[1]); !seen[link] {
			seen[link] = true
			list = append(list, link)
		}
	}
	return list
}

// harmless checks that injected scripts are escaped.
func (a *response) harmless(t testing.TB) *response {
	t.Helper()
	if !strings.Contains(a.body, "&lt;script&gt;alert(1)") {
		t.Errorf("%s does not show what was meant to harm:\n%s", a.path, a.main())
	}
	return a.hides(t, "<script>alert", `""><`)
}

func (a *response) small(t testing.TB) *response {
	t.Helper()
	if len(a.body) > 100_000 {
		t.Errorf("%s has %d bytes", a.path, len(a.body))
	}
	return a
}

func TestImageBatchPageShowsItsImages(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		m := newJobClient(t, s)
		m.get(t, m.in(accounts.Test, "jobs")).redirectsTo(t, m.in(accounts.Test, "jobs/images"))
		m.get(t, m.in(accounts.Test, "jobs/images")).shows(t, "No test jobs yet")
		long := strings.Repeat("very ", 100) + "far away"
		made := m.create(t, "/v1/images/batches", map[string]any{"metadata": map[string]string{"for" + script: "shop" + script}, "requests": []any{
			map[string]any{"custom_id": "house" + script, "body": map[string]any{"prompt": "a house " + long + script, "n": 2, "size": "64x64"}},
			map[string]any{"custom_id": "fight", "body": map[string]any{"prompt": "[[sim:fail=moderation_blocked_output]] a fight" + script, "size": "64x64"}},
			map[string]any{"custom_id": "many", "body": map[string]any{"prompt": "many", "n": 6, "size": "64x64"}},
		}})
		id := made.Text("id")
		ended := m.waitFor(t, "/v1/images/batches/"+id, "completed")
		m.get(t, m.in(accounts.Test, "jobs/images")).shows(t, id, ">a house very very", ">test<", "completed", "2 of 3, 1 failed")
		m.get(t, m.in(accounts.Test, "jobs/images"+query("status:failed"))).shows(t, "No jobs match this search").hides(t, id)
		m.get(t, m.in(accounts.Live, "jobs/images")).hides(t, id)

		path := m.in(accounts.Test, "jobs/images/"+id)
		page := m.get(t, path).shows(t, "completed", "2 completed, 1 failed, of 3", path+`/images.zip" download`, "requests/"+made.Header.Get("X-Request-Id"), "2 more", "moderation_blocked_output").
			hides(t, "far away").harmless(t).small(t)
		links := page.links()
		if len(links) != 2+4 {
			t.Fatalf("%d pictures:\n%s", len(links), page.main())
		}
		for i, link := range links[:2] {
			got := newBrowser(t, s).get(t, link).is(t, 200)
			sum := sha256.Sum256([]byte(got.body))
			if want := ended.Text(fmt.Sprintf("results.0.images.%d.sha256", i)); hex.EncodeToString(sum[:]) != want || got.header.Get("Content-Type") != "image/png" {
				t.Errorf("picture %d is %x, want %s", i, sum, want)
			}
		}
		// URLs stay the same, so that a live page doesn't reload the images.
		s.Clock.Turn(time.Second)
		if again := m.get(t, path).links(); again[0] != links[0] && s.Clock.Now().Truncate(time.Hour).Equal(s.Clock.Now().Add(-time.Second).Truncate(time.Hour)) {
			t.Errorf("a second later it is at %s", again[0])
		}
		m.get(t, path+"?only=failed").shows(t, "fight", "rejected the output").hides(t, "a house")
		m.get(t, path+"?part=0").shows(t, "far away", ended.Text("results.0.images.1.sha256"), "64x64").harmless(t)
		if n := len(m.get(t, path+"?part=2").links()); n != 6 {
			t.Errorf("%d pictures of the last request", n)
		}
		for _, b := range []*browser{m.browser, member(t, s, m.workspace, accounts.Viewer)} {
			m.checkArchive(t, b.get(t, path+"/images.zip").is(t, 200), ended, "")
		}
		// An image that has expired is named.
		if err := os.Remove(imageFile(t, s, ended.Text("results.0.images.1.sha256"))); err != nil {
			t.Fatal(err)
		}
		m.checkArchive(t, m.get(t, path+"/images.zip").is(t, 200), ended, id+"-0-1.png")
		other := member(t, s, s.Workspace(t, "other"), accounts.Owner)
		other.get(t, other.in(accounts.Test, "jobs/images/"+id+"/images.zip")).is(t, 404)
		for _, wrong := range []string{"3", "-1", "x"} {
			m.get(t, path+"?part="+wrong).is(t, 404)
		}
	})
}

// imageFile returns the path of a stored file.
func imageFile(t *testing.T, s *harness.Server, sha256 string) (path string) {
	t.Helper()
	err := filepath.WalkDir(s.Data, func(at string, _ fs.DirEntry, err error) error {
		if filepath.Base(at) == sha256 {
			path = at
		}
		return err
	})
	if err != nil || path == "" {
		t.Fatalf("%s is not stored: %v", sha256, err)
	}
	return path
}

// checkArchive checks that an archive has the images of a batch, except for a missing one.
func (m *jobClient) checkArchive(t *testing.T, got *response, batch *harness.Response, missing string) {
	t.Helper()
	archive, err := zip.NewReader(strings.NewReader(got.body), int64(len(got.body)))
	if err != nil {
		t.Fatal(err)
	}
	id := batch.Text("id")
	want := map[string]string{}
	for i, n := range map[int]int{0: 2, 2: 6} {
		for k := range n {
			want[fmt.Sprintf("%s-%d-%d.png", id, i, k)] = batch.Text(fmt.Sprintf("results.%d.images.%d.sha256", i, k))
		}
	}
	delete(want, missing)
	for _, f := range archive.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name == "missing.txt" && missing != "" && strings.Contains(string(content), missing+"\n") {
			missing = ""
			continue
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != want[f.Name] {
			t.Errorf("%s in the archive has %d bytes with another hash than %q", f.Name, len(content), want[f.Name])
		}
		delete(want, f.Name)
	}
	if len(want) > 0 || missing != "" {
		t.Errorf("the archive lacks %v, and does not say that %q is missing", want, missing)
	}
	if disposition := got.header.Get("Content-Disposition"); disposition != `attachment; filename="`+id+`.zip"` {
		t.Errorf("the archive is sent as %q", disposition)
	}
}

func TestVideoAndVoicePagesShowTheirFiles(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		s.Clock.Run(t)
		m := newJobClient(t, s)
		video := m.create(t, "/v1/videos", map[string]any{"prompt": "a ship " + strings.Repeat("🚢", 2000) + script + "at last", "seconds": "1", "size": "64x64",
			"metadata": map[string]string{"a": script}}).Text("id")
		voice := m.create(t, "/v1/voice/renders", map[string]any{"voice": "alloy", "segments": []any{
			map[string]any{"text": "Hello " + script, "pause_ms": 250}, map[string]any{"text": "Good night.", "voice": "echo"}}}).Text("id")
		broken := m.create(t, "/v1/voice/renders", map[string]any{"voice": "alloy", "input": "Hello. [[sim:fail=moderation_blocked_input]]"}).Text("id")
		form, header := harness.TranscriptionForm("whisper-1")
		transcript := s.Do(t, harness.Request{Method: "POST", Path: "/v1/voice/transcriptions", Key: m.key, Body: form, Header: header}).Want(t, 200, "").Text("id")
		m.waitFor(t, "/v1/voice/transcriptions/"+transcript, "completed")
		m.get(t, m.in(accounts.Test, "jobs/transcriptions")).shows(t, transcript, "1.00 s of audio", "whisper-1").hides(t, voice)
		m.get(t, m.in(accounts.Test, "jobs/transcriptions/"+transcript)).shows(t, "Transcription", "1.00 s, as json", transcript+".json</a>", "application/json")
		m.waitFor(t, "/v1/videos/"+video, "completed")
		m.waitFor(t, "/v1/voice/renders/"+voice, "completed")
		m.waitFor(t, "/v1/voice/renders/"+broken, "failed")

		m.get(t, m.in(accounts.Test, "jobs/videos")).shows(t, video, "a ship").hides(t, voice, "<script>alert", "at last")
		// Only statuses of videos are offered.
		m.get(t, m.in(accounts.Test, "jobs/videos")).shows(t, `value="failed"`).hides(t, `value="cancelled"`)
		m.get(t, m.in(accounts.Test, "jobs/voice")).shows(t, `value="cancelled"`).hides(t, `value="cancelling"`)
		page := m.get(t, m.in(accounts.Test, "jobs/videos/"+video)).shows(t, `<video class="player" controls preload="none"`, "video/mp4", "SHA-256", "Show all").hides(t, "at last")
		m.get(t, m.in(accounts.Test, "jobs/videos/"+video+"?all=1")).shows(t, "at last").hides(t, "Show all").harmless(t)
		film := m.get(t, page.links()[0]).is(t, 200)
		sum := sha256.Sum256([]byte(film.body))
		if film.header.Get("Content-Type") != "video/mp4" || !strings.Contains(page.body, hex.EncodeToString(sum[:])) {
			t.Errorf("the video is %s, %x", film.header.Get("Content-Type"), sum)
		}

		m.get(t, m.in(accounts.Test, "jobs/voice")).shows(t, voice, "characters").hides(t, video)
		page = m.get(t, m.in(accounts.Test, "jobs/voice/"+voice)).shows(t, `<audio class="player" controls preload="none"`, "audio/wav", "Good night.", "echo", "250 ms of silence", "2 completed, 0 failed, of 2").
			harmless(t)
		sound := m.get(t, page.links()[0]).is(t, 200)
		if !strings.HasPrefix(sound.body, "RIFF") {
			t.Errorf("the sound is %q", sound.body[:min(len(sound.body), 20)])
		}
		m.get(t, m.in(accounts.Test, "jobs/voice/"+broken)).shows(t, "failed", "moderation_blocked_input", "rejected the input")
		// An ID is only found under its kind.
		m.get(t, m.in(accounts.Test, "jobs/videos/"+voice)).is(t, 404)
		m.get(t, m.in(accounts.Test, "jobs/images/"+video)).is(t, 404)
	})
}

func TestJobsCanBeCanceledAndDeleted(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		m := newJobClient(t, s)
		m.holdLanes(t, "media", ".image", ".video", ".voice")
		viewer := member(t, s, m.workspace, accounts.Viewer)
		other := member(t, s, s.Workspace(t, "other"), accounts.Owner)
		for kind, order := range map[string]struct {
			path string
			body map[string]any
			acts string
		}{
			"images": {"/v1/images/batches", map[string]any{"requests": []any{map[string]any{"custom_id": "a", "body": map[string]any{"prompt": "a house"}}}}, "image.batch"},
			"videos": {"/v1/videos", map[string]any{"prompt": "a ship"}, "video.render"},
			"voice":  {"/v1/voice/renders", map[string]any{"voice": "alloy", "input": "Hello."}, "voice.render"},
		} {
			id := m.create(t, order.path, order.body).Text("id")
			path := m.in(accounts.Test, "jobs/"+kind+"/"+id)
			if kind == "images" {
				m.get(t, path).hides(t, "Download all")
				m.get(t, path+"/images.zip").rejects(t, 404, "has no images")
			}
			m.get(t, path).shows(t, "queued", path+"/cancel").hides(t, path+"/delete")
			viewer.get(t, path).shows(t, "queued").hides(t, "/cancel")
			for _, act := range []string{"/cancel", "/delete"} {
				viewer.post(t, path+act, url.Values{}).rejects(t, 403, ":create")
				other.post(t, other.in(accounts.Test, "jobs/"+kind+"/"+id+act), url.Values{}).is(t, 404)
				m.post(t, m.in(accounts.Live, "jobs/"+kind+"/"+id+act), url.Values{}).is(t, 404)
			}
			other.get(t, other.in(accounts.Test, "jobs/"+kind+"/"+id)).is(t, 404)
			m.get(t, m.in(accounts.Test, "jobs/"+kind+"/nonsense")).is(t, 404)
			m.post(t, path+"/delete", url.Values{}).rejects(t, 409, "Cancel it first")

			m.post(t, path+"/cancel", url.Values{}).redirectsTo(t, path)
			m.get(t, path).shows(t, "Canceled the", "The job was canceled", path+"/delete").hides(t, path+"/cancel")
			m.post(t, path+"/delete", url.Values{}).redirectsTo(t, m.in(accounts.Test, "jobs/"+kind))
			m.get(t, m.in(accounts.Test, "jobs/"+kind)).shows(t, "and its files").hides(t, id)
			m.get(t, path).is(t, 404)
			if acts := m.loggedActions(t, id); len(acts) != 2 || acts[0] != order.acts+".cancelled "+m.person.ID || acts[1] != order.acts+".deleted "+m.person.ID {
				t.Errorf("the admin log has %v", acts)
			}
		}
		m.get(t, m.in(accounts.Test, "jobs/images/"+ids.New(ids.ImageBatch))).is(t, 404)
	})
}

func TestLargeBatchIsPaged(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		m := newJobClient(t, s)
		m.holdLanes(t, "media", ".image")
		requests := make([]any, 1000)
		for i := range requests {
			requests[i] = map[string]any{"custom_id": fmt.Sprintf("item-%03d", i), "body": map[string]any{"prompt": strings.Repeat("long ", 400)}}
		}
		id := m.create(t, "/v1/images/batches", map[string]any{"requests": requests}).Text("id")
		// As if all were completed, with ten images each.
		file := `{"sha256":"` + strings.Repeat("a", 64) + `","bytes":1234,"content_type":"image/png"}`
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE media_tasks SET status = 'completed', due_at = NULL, output = $2 WHERE job_id = $1", id,
				`{"files":[`+strings.Repeat(file+",", 9)+file+`]}`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		path := m.in(accounts.Test, "jobs/images/"+id)
		page := m.get(t, path).shows(t, "item-000", "item-019", "6 more").hides(t, "item-020").small(t)
		next := html.UnescapeString(page.find(t, `href="([^"#]+)#results" rel="next"`))
		m.get(t, next).shows(t, "item-020", "item-039", "First").hides(t, "item-019", "item-040").small(t)
		m.get(t, path+"?after=979").shows(t, "item-980", "item-999").hides(t, `rel="next"`)
		m.get(t, path+"?only=failed").shows(t, "No failed parts")
	})
}
