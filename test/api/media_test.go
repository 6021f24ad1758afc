package api_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/lanes"
	"turnpike/internal/media"
	"turnpike/internal/spend"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// studio is a provider of media that does what the prompt says:
//
//	[gate NAME]      answers when the test opens the gate
//	[holdvideo NAME] sends a video's file when the test opens the gate
//	[holdthumbnail NAME] sends its thumbnail then
//	[mute]           speaks without a sample
//	[failsthumbnail N] answers the first N calls for it with 503
//	[fails N]        answers the first N calls with 500
//	[blocked]        refuses what came of the prompt
//	[polls N]        a video is asked for N times until it is done
//	[rate N]         speaks with N samples a second
//	[short]          speaks, and breaks off before the end
type studio struct {
	*httptest.Server
	ended chan struct{}

	mu     sync.Mutex
	gates  map[string]chan struct{}
	calls  []studioCall
	tries  map[string]int
	videos map[string]*studioVideo
}

// studioCall is a request that came.
type studioCall struct {
	what   string // method and path
	prompt string
	key    string // Idempotency-Key
	header http.Header
	body   []byte
}

type studioVideo struct {
	prompt     string
	polled     int
	thumbnails int // that were asked for
}

func newStudio(t *testing.T) *studio {
	t.Helper()
	s := &studio{ended: make(chan struct{}), gates: map[string]chan struct{}{}, tries: map[string]int{}, videos: map[string]*studioVideo{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		close(s.ended)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *studio) gate(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gates[name] == nil {
		s.gates[name] = make(chan struct{})
	}
	return s.gates[name]
}

// open lets through whoever waits at the gate, and who comes later.
func (s *studio) open(name string) { close(s.gate(name)) }

// count is how many calls of a kind have come, with a text in the prompt.
func (s *studio) count(what, prompt string) int { return len(s.came(what, prompt)) }

func (s *studio) came(what, prompt string) []studioCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(c studioCall) bool {
		return !strings.HasPrefix(c.what, what) || !strings.Contains(c.prompt, prompt)
	})
}

var order = regexp.MustCompile(`\[(\w+) ?([^\]]*)\]`)

// orders are what a prompt tells the studio to do.
func orders(prompt string) map[string]string {
	out := map[string]string{}
	for _, m := range order.FindAllStringSubmatch(prompt, -1) {
		out[m[1]] = m[2]
	}
	return out
}

func countIn(text string) (n int) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

func (s *studio) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	call := studioCall{what: r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1"), key: r.Header.Get("Idempotency-Key"), header: r.Header, body: body}
	var in struct {
		Prompt, Input, Voice string
		N                    int
	}
	id := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/v1/videos/"), "/content")
	if kind := r.Header.Get("Content-Type"); strings.HasPrefix(kind, "multipart/") {
		values, _ := upstreams.FormOf(r.Header, body)
		in.Prompt = values["prompt"]
	} else if len(body) > 0 {
		_ = json.Unmarshal(body, &in)
	}
	s.mu.Lock()
	if v := s.videos[id]; v != nil {
		in.Prompt = v.prompt
	}
	call.prompt = cmp.Or(in.Prompt, in.Input)
	s.calls = append(s.calls, call)
	key := r.Method + r.URL.Path + call.prompt
	s.tries[key]++
	nth := s.tries[key]
	s.mu.Unlock()
	do := orders(call.prompt)
	name := do["gate"]
	if r.Method != http.MethodPost {
		name = ""
	}
	if strings.HasSuffix(r.URL.Path, "/content") {
		name = do["hold"+cmp.Or(r.URL.Query().Get("variant"), "video")]
	}
	if name != "" {
		select {
		case <-s.gate(name):
		case <-s.ended:
		case <-r.Context().Done():
			return
		}
	}
	_, blocked := do["blocked"]
	switch {
	case nth <= countIn(do["fails"]):
		http.Error(w, `{"error":{"message":"sorry","type":"server_error"}}`, http.StatusInternalServerError)
	case blocked && call.what != "POST /videos" && r.Method == http.MethodPost:
		refusal := upstreams.OpenAIBlocked("moderation_blocked", "output")
		http.Error(w, refusal.Body, refusal.Status)
	case call.what == "POST /images/generations", call.what == "POST /images/edits":
		s.pictures(w, in.Prompt, max(in.N, 1))
	case call.what == "POST /audio/speech":
		w.Header().Set("Content-Type", "audio/wav")
		file := wavOf(spoken(in.Input, in.Voice))
		if rate := countIn(do["rate"]); rate > 0 {
			binary.LittleEndian.PutUint32(file[24:], uint32(rate))
		}
		if _, mute := do["mute"]; mute {
			file = wavOf(nil)
		}
		if _, short := do["short"]; short {
			file = file[:len(file)-10]
		}
		_, _ = w.Write(file)
	case strings.HasPrefix(r.URL.Path, "/v1/videos"):
		s.video(w, r, id, in.Prompt, blocked)
	default:
		http.NotFound(w, r)
	}
}

// pictureOf differs from prompt to prompt.
func pictureOf(prompt string, i int) []byte {
	h := fnv.New32a()
	fmt.Fprint(h, prompt, i)
	n := int(h.Sum32() % 10_000)
	return upstreams.PNGOf(1+n%100, 1+n/100)
}

func (s *studio) pictures(w http.ResponseWriter, prompt string, n int) {
	var data []map[string]any
	for i := range n {
		data = append(data, map[string]any{"b64_json": pictureOf(prompt, i)})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"created": 1, "data": data})
}

func (s *studio) video(w http.ResponseWriter, r *http.Request, id, prompt string, blocked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPost {
		id = fmt.Sprintf("video_%d", len(s.videos)+1)
		s.videos[id] = &studioVideo{prompt: prompt}
	}
	v := s.videos[id]
	if v == nil {
		http.Error(w, `{"error":{"message":"no such video"}}`, http.StatusNotFound)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/content") {
		switch r.URL.Query().Get("variant") {
		case "thumbnail":
			if v.thumbnails++; v.thumbnails <= countIn(orders(prompt)["failsthumbnail"]) {
				http.Error(w, `{"error":{"message":"not now"}}`, http.StatusServiceUnavailable)
				return
			}
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write(pictureOf(prompt, 0))
		case "spritesheet":
			http.Error(w, `{"error":{"message":"no spritesheet"}}`, http.StatusNotFound)
		default:
			w.Header().Set("Content-Type", "video/mp4")
			_, _ = w.Write(append(upstreams.MP4(), prompt...))
		}
		return
	}
	status, failure := "queued", any(nil)
	switch r.Method {
	case http.MethodDelete:
		_ = json.NewEncoder(w).Encode(map[string]any{"id": id, "object": "video.deleted", "deleted": true})
		return
	case http.MethodGet:
		v.polled++
		status = "in_progress"
		if v.polled >= cmp.Or(countIn(orders(prompt)["polls"]), 2) {
			status = "completed"
			if blocked {
				status, failure = "failed", json.RawMessage(upstreams.OpenAIBlockedError("moderation_blocked", "output"))
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"id": id, "object": "video", "status": status, "progress": min(90, 30*v.polled), "model": "film", "error": failure})
}

const speechRate = 24_000

// spoken are the samples of a text: 10 ms for a character, as loud as the
// voice's name is long, so that it can be told which piece is where.
func spoken(text, voice string) []int16 {
	return slices.Repeat([]int16{int16(1000 * len(voice))}, speechRate/100*utf8.RuneCountInString(text))
}

// wavOf is a WAV file in mono.
func wavOf(samples []int16) []byte {
	var b bytes.Buffer
	size := uint32(2 * len(samples))
	b.WriteString("RIFF")
	_ = binary.Write(&b, binary.LittleEndian, 36+size)
	b.WriteString("WAVEfmt ")
	_ = binary.Write(&b, binary.LittleEndian, struct {
		Size             uint32
		Format, Channels uint16
		Rate, PerSecond  uint32
		Align, Bits      uint16
	}{16, 1, 1, speechRate, 2 * speechRate, 2, 16})
	b.WriteString("data")
	_ = binary.Write(&b, binary.LittleEndian, size)
	_ = binary.Write(&b, binary.LittleEndian, samples)
	return b.Bytes()
}

// shop is a live customer of a server that has a studio. A picture costs a
// credit, so does a second of video, and so do a thousand characters.
type shop struct {
	*customer
	studio *studio
	cfg    config.Config
}

// eachShop runs fn against a fresh server on each engine.
func eachShop(t *testing.T, change func(cfg *config.Config), fn func(t *testing.T, s *shop)) {
	t.Helper()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fn(t, newShop(t, engine, change))
		})
	}
}

func newShop(t *testing.T, engine string, change func(cfg *config.Config)) *shop {
	t.Helper()
	s := &shop{studio: newStudio(t), cfg: hookedConfig(t, engine)}
	s.cfg.Providers = []config.Provider{{Name: "studio", Type: config.OpenAI, BaseURL: config.Address(s.studio.URL + "/v1"), APIKey: "sk-studio", Weight: 1,
		Models: []config.ProviderModel{
			{ID: "pic", Kind: "image", Price: &config.ModelPrice{PerImage: "0.001"}},
			{ID: "film", Kind: "video", Price: &config.ModelPrice{PerSecond: "0.001"}},
			{ID: "talk", Kind: "speech", Price: &config.ModelPrice{PerCharacter: "0.000001"}},
		}}}
	if change != nil {
		change(&s.cfg)
	}
	s.customer = newCustomer(t, harness.Start(t, s.cfg, harness.NewClock()), accounts.Live)
	return s
}

// as is the same shop with another key.
func (s *shop) as(key string) *shop {
	out, c := *s, *s.customer
	c.key = key
	out.customer = &c
	return &out
}

// keyed is the shop with a new key of these properties.
func (s *shop) keyed(t *testing.T, k access.Key) (out *shop, id string) {
	t.Helper()
	k.WorkspaceID, k.Environment, k.Name = s.workspace.ID, s.env, "test"
	if k.Scopes == nil {
		k.Scopes = []string{"*"}
	}
	key, id := s.KeyOf(t, &k)
	return s.as(key), id
}

// liveKey is a key with the scopes, or with all of them.
func liveKey(scopes ...string) access.Key { return access.Key{Scopes: scopes} }

const (
	batches = "/v1/images/batches"
	videos  = "/v1/videos"
	renders = "/v1/voice/renders"
)

// batch is an order for a picture of each prompt.
func batch(prompts ...string) map[string]any {
	list := make([]map[string]any, len(prompts))
	for i, p := range prompts {
		list[i] = map[string]any{"custom_id": fmt.Sprint("c", i), "body": map[string]any{"prompt": p}}
	}
	return map[string]any{"model": "pic", "requests": list}
}

func film(prompt string) map[string]any { return map[string]any{"model": "film", "prompt": prompt} }

func talk(text string) map[string]any {
	return map[string]any{"model": "talk", "voice": "alloy", "input": text}
}

// wake has every lane of jobs looked into: after the clock was turned the poll
// would do so, a second later.
func (c *customer) wake(t *testing.T) {
	t.Helper()
	rows, err := c.DB.Query(t.Context(), "SELECT id FROM lanes WHERE queue = $1", media.Queue)
	names, err := db.All(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan(&id)
		return id, err
	})
	if err != nil {
		t.Fatal(err)
	}
	due := map[string]time.Time{}
	for _, id := range names {
		due[id] = c.Clock.Now()
	}
	c.write(t, func(tx *db.Tx) error { return lanes.Enqueue(t.Context(), tx, media.Queue, due) })
}

// later turns the clock and has the jobs worked that are due by then.
func (c *customer) later(t *testing.T, d time.Duration) {
	t.Helper()
	c.Clock.Turn(d)
	c.wake(t)
}

// ended waits for the job at the path to end with the status.
func (c *customer) ended(t *testing.T, path, status string) *harness.Response {
	t.Helper()
	r := c.becomes(t, path, "completed", "failed", "cancelled")
	if r.Text("status") != status {
		t.Fatalf("it has ended otherwise than %s: %s", status, r.Body)
	}
	return r
}

// becomes waits for the job at the path to have one of the states.
func (c *customer) becomes(t *testing.T, path string, states ...string) (r *harness.Response) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() && r != nil && !slices.Contains(states, r.Text("status")) {
			t.Logf("a job was waited for to be %v: %s", states, r.Body)
		}
	})
	c.Eventually(t, func() bool {
		r = c.get(t, path)
		return slices.Contains(states, r.Text("status"))
	})
	return r
}

// rendered waits for a video to end, and turns the clock for it meanwhile.
func (c *customer) rendered(t *testing.T, path, status string) (r *harness.Response) {
	t.Helper()
	for range 30 {
		c.later(t, time.Second)
		for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if r = c.get(t, path); r.At("completed_at") != nil {
				if r.Text("status") != status {
					t.Fatalf("it has ended otherwise than %s: %s", status, r.Body)
				}
				return r
			}
		}
	}
	t.Fatalf("it never ends: %s", r.Body)
	return nil
}

// make creates a job and returns its path.
func (c *customer) make(t *testing.T, path string, body any) string {
	t.Helper()
	r := c.post(t, path, body)
	if r.Text("status") != "queued" || r.At("progress") != 0.0 || r.At("completed_at") != nil {
		t.Errorf("it begins as %s", r.Body)
	}
	return path + "/" + r.Text("id")
}

// spent is what an account was charged this month and has set aside.
func (c *customer) spent(t *testing.T, level spend.Level, id string) spend.Balance {
	t.Helper()
	b, err := spend.ReadBalance(t.Context(), c.DB, spend.Account{Level: level, ID: id}, spend.PeriodOf(c.Clock.Now()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// balanced checks that the workspace was charged the amount this month, and
// nothing is set aside for jobs any more.
func (c *customer) balanced(t *testing.T, amount credits.Micro) {
	t.Helper()
	if b := c.spent(t, spend.Workspace, c.workspace.ID); b.Spent != amount {
		t.Errorf("the workspace was charged %s, expected %s", b.Spent, amount)
	}
	if n := c.rows(t, "spend_leases WHERE node_id LIKE 'job:%'"); n != 0 {
		t.Errorf("%d leases of jobs are left", n)
	}
	// What is leased is what nodes have, and no more.
	if n := c.rows(t, `spend s WHERE leased <> (SELECT COALESCE(SUM(granted), 0) FROM spend_leases l
		WHERE l.level = s.level AND l.account_id = s.account_id AND l.period = s.period)`); n != 0 {
		t.Errorf("%d lines of the books do not add up", n)
	}
	if sum := c.number(t, "SELECT CAST(COALESCE(SUM(credits), 0) AS BIGINT) FROM requests WHERE workspace_id = $1", c.workspace.ID); sum != int64(amount) {
		t.Errorf("the log adds up to %d", sum)
	}
	for _, table := range []string{"usage_minutes", "usage_hours", "usage_days"} {
		if sum := c.number(t, "SELECT CAST(COALESCE(SUM(credits), 0) AS BIGINT) FROM "+table+" WHERE workspace_id = $1", c.workspace.ID); sum != int64(amount) {
			t.Errorf("%s adds up to %d", table, sum)
		}
	}
}

func (c *customer) number(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	if err := c.DB.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// eventsOf are the events of a job.
func (c *customer) eventsOf(t *testing.T, id string) (found []map[string]any) {
	t.Helper()
	list := c.get(t, "/v1/events?limit=100")
	for _, e := range list.At("data").([]any) {
		if event := e.(map[string]any); event["data"].(map[string]any)["id"] == id {
			found = append(found, event)
		}
	}
	return found
}

func idOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

const credit = credits.Credit

// mills are so many thousandths of a credit.
func mills(n int) credits.Micro { return credits.Micro(n) * credit / 1000 }
