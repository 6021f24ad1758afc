package api_test

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/harness"
)

func models(key string) harness.Request {
	return harness.Request{Method: "GET", Path: "/v1/models", Key: key}
}

func TestEveryInvalidKeyGetsTheSame401(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		good, _ := s.Key(t, w, accounts.Test)
		s.Do(t, models(good)).Want(t, 200, "")

		revoked, revokedID := s.Key(t, w, accounts.Test)
		s.Do(t, models(revoked)).Want(t, 200, "") // caches the key
		s.Do(t, harness.Request{Method: "DELETE", Path: "/v1/keys/" + revokedID, Key: good}).Want(t, 200, "")

		soon := s.Clock.Now().Add(time.Minute)
		expiring, _ := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Test), Name: "e", Scopes: []string{"*"}, ExpiresAt: &soon})
		s.Do(t, models(expiring)).Want(t, 200, "")
		s.Clock.Turn(time.Minute)

		unknown := "tp_test_00000000000000000000000000000000" // gets a correct checksum below
		for name, header := range map[string]string{
			"no header":    "",
			"empty bearer": "Bearer ",
			"wrong scheme": "Basic " + good,
			"no scheme":    good,
			"bad checksum": "Bearer " + mistyped(good),
			"too short":    "Bearer tp_test_abc",
			"unknown":      "Bearer " + withChecksum(t, unknown),
			"revoked":      "Bearer " + revoked,
			"expired":      "Bearer " + expiring,
			"another kind": "Bearer sk-abc",
			"two spaces":   "Bearer  " + good + " x",
		} {
			req := harness.Request{Method: "GET", Path: "/v1/models", Header: http.Header{}}
			if header != "" {
				req.Header.Set("Authorization", header)
			}
			r := s.Do(t, req).Want(t, 401, "authentication_error")
			if r.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s: no WWW-Authenticate header", name)
			}
			if r.Header.Get("X-Request-Id") != r.Text("error.request_id") || r.Text("error.request_id") == "" {
				t.Errorf("%s: the request id is not in header and body", name)
			}
		}
		s.Do(t, models(good)).Want(t, 200, "")
	})
}

// mistyped returns the key with another last character.
func mistyped(key string) string {
	body, last := key[:len(key)-1], key[len(key)-1]
	if last == '0' {
		return body + "1"
	}
	return body + "0"
}

// withChecksum completes a key body like the server.
func withChecksum(t *testing.T, body string) string {
	t.Helper()
	const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	crc := uint32(0xffffffff)
	for _, c := range []byte(body) { // CRC-32 (IEEE) bit by bit, independent of the server's code
		crc ^= uint32(c)
		for range 8 {
			if crc&1 == 1 {
				crc = crc>>1 ^ 0xedb88320
			} else {
				crc >>= 1
			}
		}
	}
	crc = ^crc
	tail := make([]byte, 6)
	for i := 5; i >= 0; i-- {
		tail[i] = base62[crc%62]
		crc /= 62
	}
	value := body + string(tail)
	if _, ok := access.ParseSecret(value); !ok {
		t.Fatal("the service reads checksums differently from its description")
	}
	return value
}

func TestOldSecretWorksUntilItsGracePeriodEnds(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Live)
		old, id := s.Key(t, w, accounts.Live)
		s.Do(t, models(old)).Want(t, 200, "")

		r := s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys/" + id + "/rotate", Key: admin, Body: map[string]any{"grace_period_seconds": 3600}}).Want(t, 200, "")
		fresh := r.Text("value")
		if r.Text("id") != id || r.Text("status") != "rotating" || r.Text("previous.last_four") != old[len(old)-4:] {
			t.Errorf("the rotated key looks wrong: %s", r.Body)
		}
		s.Do(t, models(old)).Want(t, 200, "")
		s.Do(t, models(fresh)).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys/" + id + "/rotate", Key: admin}).Want(t, 409, "invalid_state")

		s.Clock.Turn(time.Hour - time.Microsecond)
		s.Do(t, models(old)).Want(t, 200, "") // a microsecond before the end, from the cache
		s.Clock.Turn(time.Microsecond)
		s.Do(t, models(old)).Want(t, 401, "authentication_error") // still cached, but expired
		s.Do(t, models(fresh)).Want(t, 200, "")

		r = s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys/" + id, Key: admin}).Want(t, 200, "")
		if r.Text("status") != "active" || r.At("previous") != nil {
			t.Errorf("after the grace: %s", r.Body)
		}
	})
}

func TestGracePeriodCanBeEndedForcedAndZero(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		first, id := s.Key(t, w, accounts.Test)
		rotate := func(body map[string]any) string {
			return s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys/" + id + "/rotate", Key: admin, Body: body}).Want(t, 200, "").Text("value")
		}
		second := rotate(map[string]any{}) // with the workspace's default grace period, a day
		s.Do(t, models(first)).Want(t, 200, "")
		third := rotate(map[string]any{"force": true})
		s.Do(t, models(first)).Want(t, 401, "authentication_error")
		s.Do(t, models(second)).Want(t, 200, "")
		end := harness.Request{Method: "POST", Path: "/v1/keys/" + id + "/end_grace", Key: admin}
		s.Do(t, end).Want(t, 200, "")
		s.Do(t, models(second)).Want(t, 401, "authentication_error")
		s.Do(t, end).Want(t, 409, "invalid_state")
		fourth := rotate(map[string]any{"grace_period_seconds": 0})
		s.Do(t, models(third)).Want(t, 401, "authentication_error")
		s.Do(t, models(fourth)).Want(t, 200, "")
		for _, bad := range []any{-1, 604801, 1e18, "60", 1.5} {
			r := s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys/" + id + "/rotate", Key: admin, Body: map[string]any{"grace_period_seconds": bad}})
			if r.Status != 400 || r.Text("error.param") != "grace_period_seconds" {
				t.Errorf("grace %v gave %d %s", bad, r.Status, r.Body)
			}
		}
	})
}

func TestConcurrentRotationsRotateOnce(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		old, id := s.Key(t, w, accounts.Test)
		var done atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				r := s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys/" + id + "/rotate", Key: admin})
				if r.Status == 200 {
					done.Add(1)
				} else if r.Code() != "invalid_state" {
					t.Errorf("got %d %s", r.Status, r.Body)
				}
			})
		}
		wg.Wait()
		if done.Load() != 1 {
			t.Errorf("%d rotations happened", done.Load())
		}
		s.Do(t, models(old)).Want(t, 200, "") // its grace period has just started
	})
}

func TestKeyChangedDuringItsRequestIsCheckedAgain(t *testing.T) {
	eachShared(t, sqlite, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		patch := func(id string, change map[string]any) harness.Request {
			return harness.Request{Method: "PATCH", Path: "/v1/keys/" + id, Key: admin, Body: change}
		}
		for name, c := range map[string]struct {
			change func(id string) harness.Request
			status int
		}{
			"revoked": {func(id string) harness.Request {
				return harness.Request{Method: "DELETE", Path: "/v1/keys/" + id, Key: admin}
			}, 401},
			"narrowed": {func(id string) harness.Request { return patch(id, map[string]any{"scopes": []string{"models:read"}}) }, 403},
			"moved":    {func(id string) harness.Request { return patch(id, map[string]any{"allowed_ips": []string{"10.0.0.1"}}) }, 403},
			"pinned":   {func(id string) harness.Request { return patch(id, map[string]any{"project": "app"}) }, 403},
		} {
			victim, id := s.Key(t, w, accounts.Test)
			body, feed := io.Pipe()
			answered := make(chan *http.Response, 1)
			go func() {
				req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/scoped_tokens", body)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header = http.Header{"Authorization": {"Bearer " + victim}, "Content-Type": {"application/json"}, "Service-Project": {"web"}}
				res, err := http.DefaultTransport.RoundTrip(req)
				if err != nil {
					t.Error(err)
				}
				answered <- res
			}()
			_, _ = feed.Write([]byte(`{"expires_in":9,`))
			// The server has recorded the key's use.
			s.Eventually(t, func() bool {
				return s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys/" + id, Key: admin}).At("last_used_at") != nil
			})
			s.Do(t, c.change(id)).Want(t, 200, "")
			_, _ = feed.Write([]byte(`"scopes":["models:read"]}`))
			feed.Close()
			res := <-answered
			if res == nil {
				return
			}
			res.Body.Close()
			if res.StatusCode != c.status {
				t.Errorf("%s: got %d, not %d", name, res.StatusCode, c.status)
			}
		}
	})
}

func TestRevokedKeyIsRejectedOnEveryNode(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "postgres")
	clock := harness.NewClock()
	a, b := harness.Start(t, cfg, clock), harness.Start(t, cfg, clock)
	w := a.Workspace(t, "acme")
	admin, _ := a.Key(t, w, accounts.Test)
	for range 5 {
		victim, id := a.Key(t, w, accounts.Test)
		b.Do(t, models(victim)).Want(t, 200, "")
		a.Do(t, harness.Request{Method: "DELETE", Path: "/v1/keys/" + id, Key: admin}).Want(t, 200, "")
		a.Do(t, models(victim)).Want(t, 401, "authentication_error") // immediately on the same node
		waitUntilRejected(t, b, victim)
	}
}

// waitUntilRejected waits until a server rejects a revoked key. The clock
// stands still, so only the invalidation message can end the cached entry.
func waitUntilRejected(t *testing.T, s *harness.Server, key string) {
	t.Helper()
	s.Eventually(t, func() bool { return s.Do(t, models(key)).Status == 401 })
}

func TestKeyRevokedByTheCLIIsRejectedByARunningServer(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		for range 5 {
			victim, id := s.Key(t, w, accounts.Test)
			s.Do(t, models(victim)).Want(t, 200, "")
			s.RevokeAsOperator(t, id)
			waitUntilRejected(t, s, victim)
		}
	})
}

func TestRejectedKeysAreLimitedPerAddress(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.Limits.RefusedKeys = 60
	s := harness.Start(t, cfg, harness.NewClock())
	good, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	for range 60 {
		s.Do(t, models("tp_test_nonsense")).Want(t, 401, "authentication_error")
	}
	r := s.Do(t, models("tp_test_nonsense")).Want(t, 429, "rate_limit_exceeded")
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.Do(t, models(good)).Want(t, 200, "") // other clients behind the same address aren't affected
	s.Clock.Turn(time.Minute)
	s.Do(t, models("tp_test_nonsense")).Want(t, 401, "authentication_error")
}

func TestRejectedKeysStopCausingLookups(t *testing.T) {
	eachWebhooks(t, sqlite, func(_ *testing.T, cfg *config.Config) { cfg.Limits.RefusedKeys = 3 }, func(t *testing.T, c *client) {
		s := c.Server
		w := s.Workspace(t, "acme")
		known, _ := s.Key(t, w, accounts.Test)
		unknown, _ := s.Key(t, w, accounts.Test)
		s.Clock.Turn(time.Minute - time.Duration(s.Clock.Now().UnixNano())%time.Minute) // to the start of the minute
		s.Do(t, models(known)).Want(t, 200, "")
		for range 3 {
			s.Do(t, models(strangersKey)).Want(t, 401, "authentication_error")
		}
		s.Do(t, models(strangersKey)).Want(t, 429, "rate_limit_exceeded")
		// The database would accept this key.
		r := s.Do(t, models(unknown)).Want(t, 429, "rate_limit_exceeded")
		if r.Header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
		// Keys that were valid on this node keep working, even if they are read
		// again.
		s.Do(t, models(known)).Want(t, 200, "")
		s.Clock.Turn(30 * time.Second)
		s.Do(t, models(known)).Want(t, 200, "")
		s.Clock.Turn(30 * time.Second)
		s.Do(t, models(unknown)).Want(t, 200, "")
	})
}

func TestKeysWorkOnlyFromTheirAllowedAddresses(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		create := func(ips ...string) string {
			return s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: admin,
				Body: map[string]any{"name": "n", "scopes": []string{"models:read"}, "allowed_ips": ips}}).Want(t, 200, "").Text("value")
		}
		s.Do(t, models(create("127.0.0.0/8", "::1"))).Want(t, 200, "")
		s.Do(t, models(create("10.0.0.1"))).Want(t, 403, "ip_not_allowed")
	})
}
