package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestUnknownPathsAndMethodsReturnJSONErrors(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		for _, path := range []string{"/v1", "/v1/", "/v1/nothing", "/v1/keys/", "/v1//keys", "/v1/../v1/keys", "/v1/keys/x/y/z", "/v1/%00", "/v1/keys/%ff"} {
			s.Do(t, harness.Request{Method: "GET", Path: path}).Want(t, 401, "authentication_error")
			s.Do(t, harness.Request{Method: "GET", Path: path, Key: key}).Want(t, 404, "not_found")
		}
		for path, allow := range map[string]string{"/v1/keys": "GET, HEAD, POST", "/v1/chat/completions": "POST", "/v1/audit/actions": "GET, HEAD"} {
			s.Do(t, harness.Request{Method: "PUT", Path: path}).Want(t, 401, "authentication_error")
			r := s.Do(t, harness.Request{Method: "PUT", Path: path, Key: key}).Want(t, 405, "method_not_allowed")
			if r.Header.Get("Allow") != allow {
				t.Errorf("%s allows %q, want %q", path, r.Header.Get("Allow"), allow)
			}
		}
		s.Do(t, harness.Request{Method: "GET", Path: "/nothing"}).Want(t, 404, "not_found")
		s.Do(t, harness.Request{Method: "GET", Path: "//v1/keys"}).Want(t, 404, "not_found")
		s.Do(t, harness.Request{Method: "POST", Path: "/healthz"}).Want(t, 405, "method_not_allowed")
		s.Do(t, harness.Request{Method: "GET", Path: "/healthz"}).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "GET", Path: "/readyz"}).Want(t, 200, "")
	})
}

func TestBodySizeIsLimited(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	big := `{"name":"` + strings.Repeat("x", 1<<20) + `","scopes":["*"]}`
	s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: key, Body: big}).Want(t, 413, "request_too_large")
	chat := func(body string) *harness.Response {
		return s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: body})
	}
	chat(`{"model":"gpt-4o-mini","x":"`+strings.Repeat("x", 32<<20)+`"}`).Want(t, 413, "request_too_large")
	deep := func(n int) string {
		return `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}],"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	chat(deep(127)).Want(t, 200, "")
	chat(deep(128)).Want(t, 400, "invalid_json")
	chat(deep(1_000_000)).Want(t, 400, "invalid_json")
	r := s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: key, Body: "name=x", Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}})
	r.Want(t, 415, "unsupported_media_type")
	r = s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: key, Header: http.Header{"X-Pad": {strings.Repeat("x", 33<<10)}}})
	r.Want(t, 413, "request_too_large")

	// A chunked body has no length to check first.
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/keys", io.MultiReader(strings.NewReader(big), strings.NewReader(" ")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 413 {
		t.Errorf("a chunked body that is too large got %d", res.StatusCode)
	}
}

// TestReplayThatIsNotLoggedIsAnOrdinary503: its headers are those of the error, which can be retried.
func TestReplayThatIsNotLoggedIsAnOrdinary503(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		c := newClient(t, harness.Start(t, harness.Config(t, engine), harness.NewClock()), accounts.Test)
		key := c.key
		create := func(once, id string) *harness.Response {
			return c.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: key, Body: map[string]any{"id": id}, Header: http.Header{"Idempotency-Key": {once}}})
		}
		create("k1", "one").Want(t, 200, "")
		create("k2", "one").Want(t, 409, "invalid_state")
		goOn := blockWrites(t, c, engine)
		defer goOn()
		for _, once := range []string{"k1", "k2"} {
			if r := create(once, "one").Want(t, 503, "storage_unavailable"); r.Header.Get("Idempotent-Replayed") != "" || r.Header.Get("X-Should-Retry") == "false" {
				t.Errorf("got the headers %v", r.Header)
			}
		}
	})
}

func TestIdempotencyKeyReplaysTheFirstResponse(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		other, _ := s.Key(t, w, accounts.Test)
		create := func(by, idem, body string) *harness.Response {
			return s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: by, Body: body, Header: http.Header{"Idempotency-Key": {idem}}})
		}
		body := `{"name":"n","scopes":["models:read"]}`
		first := create(key, "k1", body).Want(t, 200, "")
		again := create(key, "k1", body).Want(t, 200, "")
		if string(first.Body) != string(again.Body) || again.Header.Get("Idempotent-Replayed") != "true" || first.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("the second answer differs: %s %s", first.Body, again.Body)
		}
		s.Do(t, models(again.Text("value"))).Want(t, 200, "") // the response contained the whole secret
		r := create(key, "k1", `{"name":"m","scopes":["models:read"]}`).Want(t, 409, "idempotency_key_reused")
		if r.Header.Get("X-Should-Retry") != "false" {
			t.Error("an SDK would retry in vain")
		}
		if create(other, "k1", body).Want(t, 200, "").Text("id") == first.Text("id") {
			t.Error("another principal got the first one's answer")
		}
		refused := create(key, "k2", `{"name":"n","scopes":["keys:write"],"expires_at":1}`).Want(t, 400, "invalid_parameter")
		if replay := create(key, "k2", `{"name":"n","scopes":["keys:write"],"expires_at":1}`); string(replay.Body) != string(refused.Body) {
			t.Errorf("a refusal was not repeated: %s", replay.Body)
		}
		reused := harness.Request{Method: "POST", Path: "/v1/projects", Key: key, Body: `{"id":"twice"}`}
		s.Do(t, reused).Want(t, 200, "")
		reused.Header = http.Header{"Idempotency-Key": {"k3"}}
		s.Do(t, reused).Want(t, 409, "invalid_state")
		if r := s.Do(t, reused).Want(t, 409, "invalid_state"); r.Header.Get("X-Should-Retry") != "false" || r.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("a repeated refusal has the headers %v", r.Header)
		}
		create(key, "a\tb", body).Want(t, 400, "invalid_parameter")
		create(key, strings.Repeat("x", 256), body).Want(t, 400, "invalid_parameter")
		s.Clock.Turn(24 * time.Hour)
		if create(key, "k1", body).Want(t, 200, "").Text("id") == first.Text("id") {
			t.Error("the answer was remembered for more than a day")
		}
	})
}

func TestConcurrentRequestsWithOneIdempotencyKeyRunOnce(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg := harness.Config(t, engine)
			clock := harness.NewClock()
			nodes := []*harness.Server{harness.Start(t, cfg, clock)}
			if engine == "postgres" {
				nodes = append(nodes, harness.Start(t, cfg, clock))
			}
			s := nodes[0]
			key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
			var mu sync.Mutex
			made := map[string]int{}
			var wg sync.WaitGroup
			for i := range 40 {
				wg.Go(func() {
					r := nodes[i%len(nodes)].Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: key,
						Body: map[string]any{"name": "n", "scopes": []string{"models:read"}}, Header: http.Header{"Idempotency-Key": {"same"}}})
					if r.Status != 200 && r.Code() != "conflict" {
						t.Errorf("got %d %s", r.Status, r.Body)
					}
					mu.Lock()
					defer mu.Unlock()
					made[r.Text("id")]++
				})
			}
			wg.Wait()
			delete(made, "") // removes the conflicts
			if len(made) != 1 {
				t.Errorf("%d keys were made by one idempotency key", len(made))
			}
			list := s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys", Key: key}).Want(t, 200, "")
			if n := len(list.At("data").([]any)); n != 2 {
				t.Errorf("there are %d keys, want the caller and one new", n)
			}
		})
	}
}

func TestBrowserOriginsAreRestricted(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg := harness.Config(t, engine)
			cfg.AllowedOrigins = []string{"https://console.acme.example"}
			s := harness.Start(t, cfg, harness.NewClock())
			w := s.Workspace(t, "acme")
			live, _ := s.Key(t, w, accounts.Live)
			test, _ := s.Key(t, w, accounts.Test)
			token := s.Do(t, mint(live, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "").Text("value")
			from := func(key, origin string) *harness.Response {
				r := models(key)
				r.Header = http.Header{"Origin": {origin}}
				return s.Do(t, r)
			}
			cors := func(r *harness.Response) string { return r.Header.Get("Access-Control-Allow-Origin") }

			if r := from(live, "https://evil.example").Want(t, 403, "live_key_in_browser"); cors(r) != "" {
				t.Error("the refusal can be read by the page")
			}
			if r := from(live, "https://console.acme.example").Want(t, 200, ""); cors(r) != "https://console.acme.example" {
				t.Error("an allowed origin cannot read the answer")
			}
			from(live, "null").Want(t, 403, "live_key_in_browser")
			if r := from(token, "https://shop.example").Want(t, 200, ""); cors(r) != "https://shop.example" {
				t.Error("a page with a scoped token cannot read the answer")
			}
			s.Clock.Turn(time.Hour)
			if r := from(token, "https://shop.example").Want(t, 401, "authentication_error"); cors(r) != "https://shop.example" {
				t.Error("a page cannot read that its token expired")
			}
			if r := from(test, "http://localhost:3000").Want(t, 200, ""); cors(r) != "http://localhost:3000" {
				t.Error("a test key on localhost cannot read the answer")
			}
			if r := from(test, "https://evil.example").Want(t, 200, ""); cors(r) != "" {
				t.Error("a test key elsewhere can")
			}
			for _, path := range []string{"/v1/chat/completions", "/v1/nothing", "/files/wsp_1/live/0/a.mp4"} {
				r := s.Do(t, harness.Request{Method: "OPTIONS", Path: path, Header: http.Header{"Origin": {"https://shop.example"},
					"Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"authorization,content-type"}}})
				if r.Status != 204 || r.Header.Get("Access-Control-Allow-Headers") != "authorization,content-type" || cors(r) != "*" {
					t.Errorf("preflight of %s: %d %v", path, r.Status, r.Header)
				}
			}
		})
	}
}

func TestForwardedAddressIsAcceptedOnlyFromTrustedProxies(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.TrustedProxies = prefixes(t, "127.0.0.0/8", "10.0.0.0/8")
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	plain := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	plainKey, _ := plain.Key(t, plain.Workspace(t, "acme"), accounts.Test)
	for header, want := range map[string]string{
		"":                                 "127.0.0.1",
		"203.0.113.7":                      "203.0.113.7",
		"1.1.1.1, 203.0.113.7":             "203.0.113.7",
		"1.1.1.1, 203.0.113.7, 10.1.2.3":   "203.0.113.7",
		"203.0.113.7:4711":                 "203.0.113.7",
		"[2001:db8::1]:4711":               "2001:db8::1",
		"2001:db8::1":                      "2001:db8::1",
		"::ffff:203.0.113.7":               "203.0.113.7",
		"203.0.113.7, nonsense":            "127.0.0.1",
		"203.0.113.7, nonsense, 10.0.0.1":  "10.0.0.1",
		strings.Repeat("9", 500) + ", x, ": "127.0.0.1",
	} {
		ipOf := func(s *harness.Server, key string) string {
			r := models(key)
			r.Header = http.Header{"X-Forwarded-For": {header}}
			id := s.Do(t, r).Want(t, 200, "").Header.Get("X-Request-Id")
			return s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/" + id, Key: key}).Want(t, 200, "").Text("ip")
		}
		if got := ipOf(s, key); got != want {
			t.Errorf("X-Forwarded-For %q: address %q, want %q", header, got, want)
		}
		if got := ipOf(plain, plainKey); got != "127.0.0.1" {
			t.Errorf("without a trusted proxy %q made the address %q", header, got)
		}
	}
}

func TestSlowClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.Limits.BodyTimeout = 100 * time.Millisecond
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// Headers, a length, and no body: the server must respond after its
	// timeout.
	fmt.Fprintf(conn, "POST /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", key)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 408 {
		body, _ := io.ReadAll(res.Body)
		t.Errorf("got %d, want 408: %v %s", res.StatusCode, res.Header, body)
	}
}
