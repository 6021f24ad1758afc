package chaos

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/api"
	"turnpike/internal/app"
	"turnpike/test/chaos/program"
)

const (
	hostileBodies = 64 << 20 // limits.bodies_bytes
	hostileBody   = 8 << 20  // limits.model_body_bytes
	// hostileGrowth is how much more memory the server may take than that.
	hostileGrowth  = 256 << 20
	hostileAtOnce  = 32
	hostileTimeout = 5 * time.Minute // of a request; a bound that is missing may keep a core busy for longer
)

// hostileInput is a hostile input for a route.
type hostileInput struct {
	name   string
	method string // instead of the route's
	path   string // instead of the route's
	key    string // one of hostileServer.keys; empty for the one of the route
	kind   string // the Content-Type; JSON by default
	body   []byte
	// want are the statuses that at least one response must have, so that the input reaches what it
	// attacks. None means any that doesn't refuse the request before its body is read.
	want  []int
	turns int // how often it is sent in the short form; half as often as in the long one by default
	most  int // how often it is sent in the long form; hostileAtOnce by default
	// send sends the n-th request, if a body isn't enough.
	send func(n int) (status int, err error)
	// settled waits for the work that the attack causes beyond its responses.
	settled func()
}

// operation is a route of the OpenAPI document, with the examples of its path.
type operation struct {
	id, method, path string
	input            bool // it has a body, or messages
	admin            bool
}

var pathParameter = regexp.MustCompile(`\{[^}]+\}`)

func (o operation) String() string { return o.method + " " + o.path }

// exampleOf has the examples of parameters that the document has none for.
var exampleOf = map[string]any{"#/components/schemas/FederationRuleId": "fed_01h455vb4pex5vsknk084sn02q"}

// operations returns all routes. Tests of the API compare the document with the table of routes.
func operations(t *testing.T) (all []operation) {
	t.Helper()
	type parameter struct {
		Ref     string `json:"$ref"`
		In      string
		Example any
		Schema  struct {
			Ref string `json:"$ref"`
		}
	}
	type description struct {
		OperationID string
		Parameters  []parameter
		RequestBody any
		Responses   map[string]any
	}
	var document struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Parameters map[string]parameter }
	}
	if err := json.Unmarshal(api.OpenAPI(), &document); err != nil {
		t.Fatal(err)
	}
	for path, methods := range document.Paths {
		for method, text := range methods {
			var d description
			if json.Unmarshal(text, &d) != nil || d.OperationID == "" {
				continue // parameters of all methods
			}
			var examples []string
			for _, p := range d.Parameters {
				if p.Ref != "" {
					p = document.Components.Parameters[p.Ref[strings.LastIndexByte(p.Ref, '/')+1:]]
				}
				if p.In == "path" {
					examples = append(examples, fmt.Sprint(cmp.Or(p.Example, exampleOf[p.Schema.Ref], "hostile")))
				}
			}
			concrete := pathParameter.ReplaceAllStringFunc(path, func(string) (id string) {
				id, examples = examples[0], examples[1:]
				return id
			})
			_, socket := d.Responses["101"]
			all = append(all, operation{d.OperationID, strings.ToUpper(method), concrete, d.RequestBody != nil || socket, strings.HasPrefix(path, "/admin/")})
		}
	}
	slices.SortFunc(all, func(a, b operation) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.method, b.method))
	})
	return all
}

// hostileServer is a server with the settings of the attack, and its keys.
type hostileServer struct {
	*program.Server
	at       program.Place
	upstream string // an address whose responses are hostile
	keys     map[string][]string
	idle     int64 // resident bytes before the attacks
}

// The kinds of keys.
const (
	testKeys  = "test"
	liveKeys  = "live"
	adminKeys = "admin"
)

// TestHostileInputsTakeBoundedMemory sends the largest hostile inputs that each route accepts, 32 at a
// time, and measures the memory of the server (N2 to N5).
func TestHostileInputsTakeBoundedMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/proc has the memory of a process on Linux only")
	}
	s := newHostileServer(t)
	attacks := s.attacks(t)
	for _, o := range operations(t) {
		list, known := attacks[o.id]
		delete(attacks, o.id)
		if o.input && len(list) == 0 {
			t.Errorf("%s (%s) takes input, and the test has no hostile input for it", o, o.id)
		}
		if !known {
			list = []hostileInput{{name: "an ignored body", body: values("x"), turns: 2}}
		}
		t.Run(o.id, func(t *testing.T) {
			for _, a := range list {
				s.attack(t, o, a)
			}
		})
	}
	for id := range attacks {
		t.Errorf("there is no operation %s", id)
	}
}

func newHostileServer(t *testing.T) *hostileServer {
	t.Helper()
	at := program.Place{Dir: t.TempDir(), Env: []string{"GOMEMLIMIT=", "GOGC="}} // as in production without a container
	s := &hostileServer{at: at, upstream: hostileUpstream(t), keys: map[string][]string{}}
	path := filepath.Join(at.Dir, "hostile.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(hostileSettings, "UPSTREAM", s.upstream)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Server = serve(t, at, "--config="+path, fmt.Sprintf("--limits-bodies-bytes=%d", hostileBodies), fmt.Sprintf("--limits-model-body-bytes=%d", hostileBody))
	for n := range 4 {
		name := fmt.Sprintf("hostile%d", n)
		s.command(t, "workspaces", "create", name)
		for _, kind := range []string{testKeys, liveKeys} {
			s.keys[kind] = append(s.keys[kind], s.command(t, "keys", "create", "--workspace", name, "--env", kind))
		}
	}
	for range 4 {
		s.keys[adminKeys] = append(s.keys[adminKeys], s.command(t, "admin-keys", "create"))
	}
	for _, key := range s.keys[liveKeys] {
		s.must(t, request{method: "PATCH", path: "/v1/billing", key: key, body: `{"monthly_credits":1000000}`})
	}
	s.must(t, chat("warm", s.keys[testKeys][0], "hello", false))
	s.idle = s.memory(t, "VmRSS")
	return s
}

// hostileSettings allow what an operator may allow, so that all inputs reach what they attack.
const hostileSettings = `
limits: {live_requests_per_minute: 0, live_tokens_per_minute: 0, live_in_flight: 0, refused_keys: 0}
agents: {allow_http: true, allow_cidrs: [127.0.0.0/8]}
webhooks: {allow_http: true, allow_cidrs: [127.0.0.0/8]}
providers:
  - name: hostile
    type: openai
    base_url: UPSTREAM/v1
    api_key: sk-hostile
    models:
      - {id: line, price: {input: 0, output: 1}, max_output_tokens: 1000}
      - {id: endless, price: {input: 0, output: 1}, max_output_tokens: 1000}
      - {id: values, price: {input: 0, output: 1}, max_output_tokens: 1000}
      - {id: endless-vectors, kind: embedding, price: {input: 1}}
      - {id: values-vectors, kind: embedding, price: {input: 1}}
      - {id: endless-speech, kind: speech, price: {per_character: 0.00001}}
      - {id: endless-image, kind: image, price: {per_image: 0.002}}
      - {id: values-image, kind: image, price: {per_image: 0.002}}
      - {id: endless-transcript, kind: transcription, price: {per_second: 0.001}}
  - name: hostileclaude
    type: anthropic
    base_url: UPSTREAM
    api_key: sk-hostile
    models:
      - {id: line-claude, price: {input: 0, output: 1}, max_output_tokens: 1000}
      - {id: endless-claude, price: {input: 0, output: 1}, max_output_tokens: 1000}
`

// command returns what a command printed: the value of a key.
func (s *hostileServer) command(t *testing.T, args ...string) string {
	t.Helper()
	out, errOut, err := binary(t).Run(s.at, args...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, errOut)
	}
	return strings.TrimSpace(out)
}

// must sends a request that has to succeed, and returns a field of the response.
func (s *hostileServer) must(t *testing.T, r request) (id string) {
	t.Helper()
	o := call(s.URL, r)
	if o.status/100 != 2 {
		t.Fatalf("%v\n%s", o, o.body)
	}
	var v struct{ ID string }
	_ = json.Unmarshal(o.body, &v) // some have no ID
	return v.ID
}

// memory returns a line of the status of the server's process, in bytes.
func (s *hostileServer) memory(t *testing.T, field string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	if err != nil {
		t.Fatalf("the server has ended: %v", err)
	}
	_, rest, _ := strings.Cut(string(status), "\n"+field+":")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// attack sends the inputs and compares the peak of the memory with what is allowed.
func (s *hostileServer) attack(t *testing.T, o operation, a hostileInput) {
	t.Helper()
	s.settle(t)
	// 5 resets the peak to what the process has now.
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.Pid()), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	turns := cmp.Or(a.most, hostileAtOnce)
	if !full {
		turns = cmp.Or(a.turns, turns/2)
	}
	send := a.send
	if send == nil {
		send = func(n int) (int, error) { return s.send(o, a, n) }
	}
	begun := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for n := range turns {
		all.Go(func() {
			status, err := send(n)
			mu.Lock()
			defer mu.Unlock()
			if statuses[status]++; err != nil {
				t.Errorf("%s, %s: %v", o, a.name, err)
			}
		})
	}
	all.Wait()
	if !reached(statuses, a.want) {
		status, err := send(0) // alone, there is memory for it
		if statuses[status]++; err != nil {
			t.Errorf("%s, %s: %v", o, a.name, err)
		}
	}
	if a.settled != nil {
		a.settled()
	}
	grown := s.memory(t, "VmHWM") - s.idle
	t.Logf("%s, %s: %d MiB, responses %v, %v", o, a.name, grown>>20, statuses, time.Since(begun))
	if grown > hostileBodies+hostileGrowth {
		t.Fatalf("%s, %s: the memory of the server grew by %d MiB, and may grow by %d", o, a.name, grown>>20, (hostileBodies+hostileGrowth)>>20)
	}
	if o.input && !reached(statuses, a.want) {
		t.Errorf("%s, %s: got responses %v, want one of %d", o, a.name, statuses, a.want)
	}
}

var memoryInUse = regexp.MustCompile(`(?m)^turnpike_request_memory_bytes (\S+)$`)

// settle waits until no request or task has memory of the pool, so that each attack starts with all of it.
func (s *hostileServer) settle(t *testing.T) {
	t.Helper()
	eventually(t, hostileTimeout, "the memory of requests is free", func() bool {
		metrics, err := app.FetchMetrics(t.Context(), s.at.Dir)
		if err != nil {
			t.Fatal(err)
		}
		found := memoryInUse.FindSubmatch(metrics)
		return found != nil && string(found[1]) == "0"
	})
}

// reached reports whether an input was read.
func reached(statuses map[int]int, want []int) bool {
	if len(want) > 0 {
		return slices.ContainsFunc(want, func(status int) bool { return statuses[status] > 0 })
	}
	statuses = maps.Clone(statuses)
	for _, refused := range []int{0, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		delete(statuses, refused)
	}
	return len(statuses) > 0
}

func (s *hostileServer) send(o operation, a hostileInput, n int) (status int, err error) {
	req, err := http.NewRequest(cmp.Or(a.method, o.method), s.URL+cmp.Or(a.path, o.path), bytes.NewReader(a.body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", cmp.Or(a.kind, "application/json"))
	req.Header.Set("Authorization", "Bearer "+s.key(o, a, n))
	res, err := hostileClient.Do(req)
	if err != nil {
		return 0, nil // the server may close a connection whose body it doesn't read
	}
	defer res.Body.Close()
	start, _ := io.ReadAll(io.LimitReader(res.Body, 300))
	_, _ = io.Copy(io.Discard, res.Body) // a stream may be cut
	if res.StatusCode == http.StatusInternalServerError {
		err = fmt.Errorf("got 500: %s", start)
	}
	return res.StatusCode, err
}

// key returns the key of the n-th request. The workspaces take turns.
func (s *hostileServer) key(o operation, a hostileInput, n int) string {
	kind := cmp.Or(a.key, testKeys)
	if o.admin {
		kind = adminKeys
	}
	return s.keys[kind][n%len(s.keys[kind])]
}

var hostileClient = &http.Client{Timeout: hostileTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: hostileAtOnce}}
