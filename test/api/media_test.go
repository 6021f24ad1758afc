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
	"turnpike/internal/lanes"
	"turnpike/internal/media"
	"turnpike/internal/spend"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// mediaProvider is a provider of media that follows instructions in the prompt:
//
//	[gate NAME]      responds when the test opens the gate
//	[holdvideo NAME] sends a video's file when the test opens the gate
//	[holdthumbnail NAME] sends its thumbnail when the test opens the gate
//	[mute]           returns audio without samples
//	[failsthumbnail N] responds to the first N thumbnail requests with 503
//	[fails N]        responds to the first N requests with 500
//	[blocked]        refuses the result of the prompt
//	[polls N]        a video is done after N polls
//	[rate N]         returns audio with N samples per second
//	[short]          returns audio that ends early
type mediaProvider struct {
	*httptest.Server
	ended chan struct{}

	mu     sync.Mutex
	gates  map[string]chan struct{}
	calls  []providerCall
	tries  map[string]int
	videos map[string]*providerVideo
}

// providerCall is a received request.
type providerCall struct {
	what   string // method and path
	prompt string
	key    string // Idempotency-Key
	header http.Header
	body   []byte
}

type providerVideo struct {
	prompt     string
	polled     int
	thumbnails int // number of requests
}

func newMediaProvider(t *testing.T) *mediaProvider {
	t.Helper()
	s := &mediaProvider{ended: make(chan struct{}), gates: map[string]chan struct{}{}, tries: map[string]int{}, videos: map[string]*providerVideo{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		close(s.ended)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *mediaProvider) gate(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gates[name] == nil {
		s.gates[name] = make(chan struct{})
	}
	return s.gates[name]
}

// open lets all current and later requests pass the gate.
func (s *mediaProvider) open(name string) { close(s.gate(name)) }

// count returns how many requests of a kind had the text in the prompt.
func (s *mediaProvider) count(what, prompt string) int { return len(s.callsOf(what, prompt)) }

func (s *mediaProvider) callsOf(what, prompt string) []providerCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(c providerCall) bool {
		return !strings.HasPrefix(c.what, what) || !strings.Contains(c.prompt, prompt)
	})
}

var order = regexp.MustCompile(`\[(\w+) ?([^\]]*)\]`)

// orders are the instructions in a prompt.
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

func (s *mediaProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	call := providerCall{what: r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1"), key: r.Header.Get("Idempotency-Key"), header: r.Header, body: body}
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
		if partials := countIn(do["partials"]); partials > 0 && bytes.Contains(body, []byte("partial_images")) {
			s.imageEvents(w, r, in.Prompt, partials)
			return
		}
		s.images(w, in.Prompt, max(in.N, 1))
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

// imageOf returns a different image for each prompt.
func imageOf(prompt string, i int) []byte {
	h := fnv.New32a()
	fmt.Fprint(h, prompt, i)
	n := int(h.Sum32() % 10_000)
	return upstreams.PNGOf(1+n%100, 1+n/100)
}

func (s *mediaProvider) images(w http.ResponseWriter, prompt string, n int) {
	var data []map[string]any
	for i := range n {
		data = append(data, map[string]any{"b64_json": imageOf(prompt, i)})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"created": 1, "data": data})
}

// imageEvents sends partial images and the image. The stream waits at [pause NAME] after the first one, and
// ends there with [breaks].
func (s *mediaProvider) imageEvents(w http.ResponseWriter, r *http.Request, prompt string, partials int) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(kind string, index int, more string) {
		data, _ := json.Marshal(imageOf(prompt, index))
		fmt.Fprintf(w, "event: %s\ndata: {\"type\":%[1]q,\"b64_json\":%s%s}\n\n", kind, data, more)
		_ = http.NewResponseController(w).Flush()
	}
	do := orders(prompt)
	for i := range partials {
		send("image_generation.partial_image", i, fmt.Sprintf(`,"partial_image_index":%d`, i))
		if _, breaks := do["breaks"]; breaks {
			return
		}
		if name := do["pause"]; name != "" {
			select {
			case <-s.gate(name):
			case <-s.ended:
			case <-r.Context().Done():
				return
			}
		}
	}
	send("image_generation.completed", partials, `,"usage":{"input_tokens":9,"output_tokens":20,"total_tokens":29}`)
}

func (s *mediaProvider) video(w http.ResponseWriter, r *http.Request, id, prompt string, blocked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	source, remix := strings.CutSuffix(id, "/remix")
	if r.Method == http.MethodPost && (!remix || s.videos[source] != nil) {
		id = fmt.Sprintf("video_%d", len(s.videos)+1)
		s.videos[id] = &providerVideo{prompt: prompt}
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
			_, _ = w.Write(imageOf(prompt, 0))
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

// spoken returns the samples of a text: 10 ms for a character. The volume is
// the length of the voice's name, so that each part can be recognized.
func spoken(text, voice string) []int16 {
	return slices.Repeat([]int16{int16(1000 * len(voice))}, speechRate/100*utf8.RuneCountInString(text))
}

// wavOf returns a mono WAV file.
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

// mediaClient is a live key on a server with a mediaProvider. An image, a
// second of video and a thousand characters cost a credit each.
type mediaClient struct {
	*client
	provider *mediaProvider
	cfg      config.Config
}

// eachMedia runs fn against a fresh server on each engine.
func eachMedia(t *testing.T, engines []string, change func(cfg *config.Config), fn func(t *testing.T, s *mediaClient)) {
	t.Helper()
	eachEngine(t, engines, func(t *testing.T, engine string) { fn(t, newMedia(t, engine, change)) })
}

func newMedia(t *testing.T, engine string, change func(cfg *config.Config)) *mediaClient {
	t.Helper()
	s := &mediaClient{provider: newMediaProvider(t), cfg: webhookConfig(t, engine)}
	s.cfg.Providers = []config.Provider{{Name: "provider", Type: config.OpenAI, BaseURL: config.Address(s.provider.URL + "/v1"), APIKey: "sk-provider", Weight: 1,
		Models: []config.ProviderModel{
			{ID: "pic", Kind: "image", Price: &config.ModelPrice{PerImage: "0.001"}},
			{ID: "film", Kind: "video", Price: &config.ModelPrice{PerSecond: "0.001"}},
			{ID: "talk", Kind: "speech", Price: &config.ModelPrice{PerCharacter: "0.000001"}},
		}}}
	if change != nil {
		change(&s.cfg)
	}
	s.client = newClient(t, harness.Start(t, s.cfg, harness.NewClock()), accounts.Live)
	return s
}

// as returns the client with another key.
func (s *mediaClient) as(key string) *mediaClient {
	out, c := *s, *s.client
	c.key = key
	out.client = &c
	return &out
}

func (s *mediaClient) withKey(t *testing.T, k access.Key) (out *mediaClient, id string) {
	t.Helper()
	key, id := s.newKey(t, k)
	return s.as(key), id
}

// liveKey creates a key with the scopes, or with all of them.
func liveKey(scopes ...string) access.Key { return access.Key{Scopes: scopes} }

const (
	batches = "/v1/images/batches"
	videos  = "/v1/videos"
	renders = "/v1/voice/renders"
)

// batchBody returns a request for an image of each prompt.
func batchBody(prompts ...string) map[string]any {
	list := make([]map[string]any, len(prompts))
	for i, p := range prompts {
		list[i] = map[string]any{"custom_id": fmt.Sprint("c", i), "body": map[string]any{"prompt": p}}
	}
	return map[string]any{"model": "pic", "requests": list}
}

func videoBody(prompt string) map[string]any {
	return map[string]any{"model": "film", "prompt": prompt}
}

func speechBody(text string) map[string]any {
	return map[string]any{"model": "talk", "voice": "alloy", "input": text}
}

// wakeLanes enqueues every lane of jobs. The poll would find them a second later.
func (c *client) wakeLanes(t *testing.T) {
	t.Helper()
	c.wakeQueue(t, media.Queue)
}

// wakeQueue enqueues every lane of a queue.
func (c *client) wakeQueue(t *testing.T, queue string) {
	t.Helper()
	rows, err := c.DB.Query(t.Context(), "SELECT id FROM lanes WHERE queue = $1", queue)
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
	c.write(t, func(tx *db.Tx) error { return lanes.Enqueue(t.Context(), tx, queue, due) })
}

// advance moves the clock and wakes the jobs that are due.
func (c *client) advance(t *testing.T, d time.Duration) {
	t.Helper()
	c.Clock.Turn(d)
	c.wakeLanes(t)
}

// waitForEnd waits for the job to end with the status.
func (c *client) waitForEnd(t *testing.T, path, status string) *harness.Response {
	t.Helper()
	r := c.waitForStatus(t, path, "completed", "failed", "cancelled")
	if r.Text("status") != status {
		t.Fatalf("want status %s, got %s", status, r.Body)
	}
	return r
}

// waitForStatus waits for the job to have one of the statuses.
func (c *client) waitForStatus(t *testing.T, path string, states ...string) (r *harness.Response) {
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

// waitForVideo moves the clock until the video has ended.
func (c *client) waitForVideo(t *testing.T, path, status string) (r *harness.Response) {
	t.Helper()
	for range 30 {
		c.advance(t, time.Second)
		for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if r = c.get(t, path); r.At("completed_at") != nil {
				if r.Text("status") != status {
					t.Fatalf("want status %s, got %s", status, r.Body)
				}
				return r
			}
		}
	}
	t.Fatalf("it never ends: %s", r.Body)
	return nil
}

// createJob creates a job and returns its path.
func (c *client) createJob(t *testing.T, path string, body any) string {
	t.Helper()
	r := c.post(t, path, body)
	if r.Text("status") != "queued" || r.At("progress") != 0.0 || r.At("completed_at") != nil {
		t.Errorf("got new object %s", r.Body)
	}
	return path + "/" + r.Text("id")
}

// spent returns the charged and the reserved credits of an account this month.
func (c *client) spent(t *testing.T, level spend.Level, id string) spend.Balance {
	t.Helper()
	c.waitUntilPosted(t)
	b, err := spend.ReadBalance(t.Context(), c.DB, spend.Account{Level: level, ID: id}, spend.PeriodOf(c.Clock.Now()))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checkLedger checks that the workspace was charged the amount this month and that
// no lease of a job is left.
func (c *client) checkLedger(t *testing.T, amount credits.Micro) {
	t.Helper()
	if b := c.spent(t, spend.Workspace, c.workspace.ID); b.Spent != amount {
		t.Errorf("the workspace was charged %s, want %s", b.Spent, amount)
	}
	if n := c.rows(t, "spend_leases WHERE node_id LIKE 'job:%'"); n != 0 {
		t.Errorf("%d leases of jobs are left", n)
	}
	// The leased total is the sum of all nodes' leases.
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

func (c *client) number(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	if err := c.DB.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// eventsOf returns the events of a job.
func (c *client) eventsOf(t *testing.T, id string) (found []map[string]any) {
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

// mills returns thousandths of a credit.
func mills(n int) credits.Micro { return credits.Micro(n) * credit / 1000 }

func TestJobsRunByAutoAndRoutes(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		s.post(t, "/v1/routes", map[string]any{"name": "mine", "models": []string{"pic", "film", "talk"}})
		for _, model := range []string{"auto", "auto:cheapest", "route/mine"} {
			check := func(path string, body map[string]any, want string, wait func(t *testing.T, path, status string) *harness.Response) {
				t.Helper()
				body["model"] = model
				if r := wait(t, s.createJob(t, path, body), "completed"); r.Text("model") != want {
					t.Errorf("%s with %s: %s", path, model, r.Body)
				}
			}
			check(batches, batchBody("a sea"), "pic", s.waitForEnd)
			check(videos, videoBody("[polls 1] a ship"), "film", s.waitForVideo)
			check(renders, speechBody("Hello."), "talk", s.waitForEnd)
		}
	})
}
