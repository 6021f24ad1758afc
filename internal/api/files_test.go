package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/files"
)

// A file's URL is all that it takes: no key. What is refused is refused in the
// form of the interface.
func TestFilesAreServedByTheirSignedURL(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		server := httptest.NewUnstartedServer(nil)
		now := time.Now()
		store, err := files.Open(t.Context(), files.Options{DB: d, Dir: t.TempDir(), Key: []byte("key"), PublicURL: "http://" + server.Listener.Addr().String(),
			Retention: time.Hour, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		server.Config.Handler = api.New(api.Deps{DB: d, Files: store, Now: time.Now}, api.Settings{Limits: api.Limits{Header: 32 << 10}})
		server.Start()
		defer server.Close()
		owner := accounts.Tenant{WorkspaceID: "ws_1", Environment: "live"}
		f, err := store.PutBytes(t.Context(), owner, "imgbatch_1", "image/png", []byte("0123456789"))
		if err != nil {
			t.Fatal(err)
		}
		whole := store.URL(owner, f, "größe 1.png", now.Add(time.Minute))
		ask := func(method, url, ranges string) (*http.Response, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if ranges != "" {
				req.Header.Set("Range", ranges)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(res.Header.Get("X-Request-Id"), "req_") {
				t.Errorf("%s %s has no request id", method, url)
			}
			return res, string(body)
		}
		if res, body := ask("GET", whole, ""); res.StatusCode != 200 || body != "0123456789" || res.Header.Get("Content-Type") != "image/png" {
			t.Errorf("GET: %d %q", res.StatusCode, body)
		}
		if res, body := ask("GET", whole, "bytes=3-5"); res.StatusCode != 206 || body != "345" {
			t.Errorf("a range: %d %q", res.StatusCode, body)
		}
		if res, body := ask("HEAD", whole, ""); res.StatusCode != 200 || body != "" || res.ContentLength != 10 {
			t.Errorf("HEAD: %d %q", res.StatusCode, body)
		}
		gone := store.URL(owner, files.File{SHA256: strings.Repeat("0", 64)}, "a.png", now.Add(time.Minute))
		for _, c := range []struct {
			method, url, code string
			status            int
		}{
			{"GET", whole + "0", "invalid_signature", 403},
			{"GET", strings.Replace(whole, "/ws_1/", "/ws_2/", 1), "invalid_signature", 403},
			{"GET", store.URL(owner, f, "a.png", now), "invalid_signature", 403},
			{"GET", gone, "not_found", 404},
			{"POST", whole, "method_not_allowed", 405},
			{"DELETE", whole, "method_not_allowed", 405},
		} {
			res, body := ask(c.method, c.url, "")
			var answer struct {
				Error struct {
					Code      string `json:"code"`
					Message   string `json:"message"`
					RequestID string `json:"request_id"`
				} `json:"error"`
			}
			if err := json.Unmarshal([]byte(body), &answer); err != nil {
				t.Fatalf("%s %s: %s", c.method, c.url, body)
			}
			if res.StatusCode != c.status || answer.Error.Code != c.code || answer.Error.Message == "" || answer.Error.RequestID != res.Header.Get("X-Request-Id") {
				t.Errorf("%s %s: %d %s", c.method, c.url, res.StatusCode, body)
			}
			if res.Header.Get("ETag") != "" || strings.Contains(res.Header.Get("Cache-Control"), "immutable") {
				t.Errorf("a refusal is to be kept: %v", res.Header)
			}
		}
	})
}
