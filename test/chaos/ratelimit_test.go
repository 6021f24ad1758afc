package chaos

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

// TestFloodOfWritesIsLimitedByDefault floods the server with writes that could once
// fill a disk, using a free test key and the default configuration. It varies
// connections, client addresses and header spellings.
func TestFloodOfWritesIsLimitedByDefault(t *testing.T) {
	longOnly(t, "api.TestReadsAndWritesAreLimitedPerKeyAndWorkspace")
	t.Parallel()
	const (
		total  = 1500
		limit  = 600 // writes per minute and key
		rows   = 60  // log entries of rejected requests per minute
		margin = 20  // 3.1%, the tolerance of nodes that share a limit
	)
	eachEngine(t, func(t *testing.T, at program.Place) {
		server := serveWith(t, at)
		key := newKey(t, at)
		fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		reused := &http.Client{Transport: &http.Transport{}}
		defer reused.CloseIdleConnections()
		status := map[int]int{}
		begun := time.Now()
		for i := range total {
			path, body := "/v1/keys", `{"name":"n","scopes":["models:read"]}`
			if i%2 == 1 {
				path, body = "/v1/scoped_tokens", fmt.Sprintf(`{"scopes":["models:read"],"metadata":{"filler":%q}}`, strings.Repeat("x", 3900))
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header["authorization"] = []string{[]string{"Bearer ", "bearer ", "BEARER   "}[i%3] + key}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i%250))
			client := reused
			if i%5 == 0 {
				client = fresh
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			status[res.StatusCode]++
			if res.StatusCode == http.StatusTooManyRequests &&
				(res.Header.Get("Retry-After") == "" || res.Header.Get("Retry-After-Ms") == "" || !strings.Contains(string(answer), `"rate_limit_exceeded"`)) {
				t.Fatalf("got %v %s, want when to retry", res.Header, answer)
			}
		}
		took := time.Since(begun)
		most := limit + int(limit*took/time.Minute) + margin
		if status[200] > most || status[200]+status[429] != total {
			t.Errorf("got %v in %s, want at most %d that succeed and the rest rejected", status, took, most)
		}
		d := open(t, at)
		if n := count(t, d, "SELECT (SELECT count(*) FROM keys) + (SELECT count(*) FROM scoped_tokens)"); n > status[200]+2 { // plus the first key and the test's key
			t.Errorf("got %d rows, want one for each of %d requests that succeeded", n, status[200])
		}
		minutes := int(took/time.Minute) + 2
		if n := count(t, d, "SELECT count(*) FROM requests WHERE status = 429"); n > rows*minutes {
			t.Errorf("got %d log entries of rejected requests, want at most %d", n, rows*minutes)
		}
	})
}
