package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// Prices of media. A dollar is a thousand credits.
const (
	characterPrice = credits.Credit / 100
	imagePrice     = 2 * credits.Credit
	secondPrice    = 5 * credits.Credit
)

// mediaFixture is a server that creates media at the provider, with an account.
type mediaFixture struct {
	at       program.Place
	args     []string
	provider *mediaProvider
	server   *program.Server
	account  *account
	d        *db.DB
	deaths   int
}

func newMediaFixture(t *testing.T, at program.Place, s *mediaProvider, args ...string) *mediaFixture {
	t.Helper()
	path := filepath.Join(at.Dir, "media.yaml")
	settings := fmt.Sprintf(`
limits: {live_requests_per_minute: 0, live_tokens_per_minute: 0, live_in_flight: 0}
media: {poll_interval: 200ms, espeak: false}
webhooks: {allow_http: true, allow_cidrs: [127.0.0.0/8]}
providers:
  - name: mediaprovider
    type: openai
    base_url: %s/v1
    api_key: sk-provider
    models:
      - {id: speaker, kind: speech, price: {per_character: 0.00001}}
      - {id: painter, kind: image, price: {per_image: 0.002}}
      - {id: director, kind: video, price: {per_second: 0.005}}
      - {id: listener, kind: transcription, price: {per_second: 0.001}}
`, s.server.URL)
	if err := os.WriteFile(path, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &mediaFixture{at: at, provider: s, args: append([]string{"--config=" + path}, args...)}
	w.server = serve(t, at, w.args...)
	w.d = open(t, at)
	w.account = newAccount(t, at, w.server.URL)
	w.account.setCredits(t, w.server.URL, 20_000*credits.Credit)
	return w
}

// restart starts the server after a kill, and evicts the dead node instead of waiting
// for its lease.
func (w *mediaFixture) restart(t *testing.T) {
	t.Helper()
	w.deaths++
	if w.at.DatabaseURL != "" {
		(&webhookFixture{d: w.d}).expireLeases(t)
		evictAll(t, w.d)
	}
	w.server = serve(t, w.at, w.args...)
}

// createJob creates a job and returns its path.
func (w *mediaFixture) createJob(t *testing.T, key, path string, body any) string {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	o := call(w.server.URL, request{mark: "order", method: "POST", path: path, key: key, body: string(text)})
	var j job
	if o.status != http.StatusOK || json.Unmarshal(o.body, &j) != nil || j.Status != "queued" {
		t.Fatalf("failed to create a job: %v\n%s", o, o.body)
	}
	return path + "/" + j.ID
}

// job is a job of any kind as the API returns it.
type job struct {
	ID       string
	Status   string
	Progress int
	Cost     credits.Micro
	URL      string
	Duration float64 `json:"duration_seconds"`
	Error    *struct{ Code, Message string }
	Segments struct{ Total, Completed int }
	Results  []struct {
		CustomID string `json:"custom_id"`
		Status   string
		Images   []madeImage
		Error    *struct{ Code, Message string }
	}
}

type madeImage struct {
	URL    string
	SHA256 string
	Bytes  int
}

func (w *mediaFixture) getJob(t *testing.T, key, path string) (j job) {
	t.Helper()
	o := call(w.server.URL, request{mark: "look", method: "GET", path: path, key: key})
	if err := json.Unmarshal(o.body, &j); o.status != http.StatusOK || err != nil {
		t.Fatalf("%v, %v\n%s", o, err, o.body)
	}
	return j
}

// waitForEnd waits until the job has ended.
func (w *mediaFixture) waitForEnd(t *testing.T, key, path string, patience time.Duration) (j job) {
	t.Helper()
	last := 0
	defer func() {
		if t.Failed() {
			w.showTasks(t, j.ID)
		}
	}()
	eventually(t, patience, "the job ends", func() bool {
		if j = w.getJob(t, key, path); j.Progress < last {
			t.Errorf("the progress fell from %d to %d", last, j.Progress)
		}
		last = j.Progress
		return j.Status == "completed" || j.Status == "failed" || j.Status == "cancelled"
	})
	return j
}

// showTasks logs the unfinished tasks of a job.
func (w *mediaFixture) showTasks(t *testing.T, id string) {
	t.Helper()
	rows, err := w.d.Query(context.WithoutCancel(t.Context()), `SELECT k.position, k.status, k.tries, COALESCE(k.due_at, 0), COALESCE(k.error, ''), COALESCE(l.owner, 'nobody'), COALESCE(l.due_at, 0)
		FROM media_tasks k LEFT JOIN lanes l ON l.id = k.lane WHERE k.job_id = $1 AND k.status <> 'completed' ORDER BY k.position LIMIT 10`, id)
	err = db.Each(rows, err, func(r db.Row) error {
		var position, tries, due, next int64
		var status, failure, owner string
		err := r.Scan(&position, &status, &tries, &due, &failure, &owner, &next)
		t.Logf("task %d is %s after %d failures (%s) and due at %s; %s has its lane, which is due at %s", position, status, tries, failure, formatTime(time.UnixMicro(due)), owner, formatTime(time.UnixMicro(next)))
		return err
	})
	if err != nil {
		t.Logf("tasks cannot be shown: %v", err)
	}
}

// done counts the finished tasks of the only job.
func (w *mediaFixture) done(t *testing.T) int {
	t.Helper()
	return count(t, w.d, "SELECT count(*) FROM media_tasks WHERE status = 'completed'")
}

// fetch downloads a URL. It replaces the host, because the server that created the URL
// may be dead.
func (w *mediaFixture) fetch(link string) ([]byte, error) {
	u, err := url.Parse(link)
	if err != nil {
		return nil, err
	}
	res, err := http.Get(w.server.URL + u.RequestURI())
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", link, res.StatusCode, data)
	}
	return data, err
}

// checkImage downloads an image and compares it with its description.
func (w *mediaFixture) checkImage(wrong *failures, name string, made madeImage) {
	data, err := w.fetch(made.URL)
	if err != nil || hashOf(data) != made.SHA256 || len(data) != made.Bytes {
		wrong.add("%s: got %d bytes, want %d; got hash %s, want %s (%v)", name, len(data), made.Bytes, hashOf(data), made.SHA256, err)
	}
}

func hashOf(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// checkFiles checks that the content of every stored file matches its name.
func (w *mediaFixture) checkFiles(t *testing.T) (n int) {
	t.Helper()
	root := filepath.Join(w.at.Dir, "files")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && e.Name() != ".spool" {
			return err
		}
		if e.IsDir() {
			return fs.SkipDir
		}
		data, err := os.ReadFile(path)
		if n++; err == nil && hashOf(data) != e.Name() {
			t.Errorf("%s is truncated to %d bytes", path, len(data))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkSettled checks that a job published its final event once and was charged once.
func (w *mediaFixture) checkSettled(t *testing.T, event string, cost credits.Micro) {
	t.Helper()
	if n := count(t, w.d, "SELECT count(*) FROM events WHERE type = $1", event); n != 1 {
		t.Errorf("got event %s %d times, want once", event, n)
	}
	if spent := totalSpent(t, w.d); spent != cost {
		t.Errorf("got %s charged, want %s", spent, cost)
	}
	stop(t, w.server)
	checkBalances(t, w.d)
}

// withoutSpaces removes the spaces, because providers don't get all of them.
func withoutSpaces(text string) string { return strings.Join(strings.Fields(text), "") }
