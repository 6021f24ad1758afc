package api_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/harness"
)

// TestArchivedLogReadsTheSame archives the log of a server, and compares what keys of a workspace, of a project and of a
// stranger read before and after.
func TestArchivedLogReadsTheSame(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		cfg, clock := harness.Config(t, engine), harness.NewClock()
		s := harness.Start(t, cfg, clock)
		w, stranger := s.Workspace(t, "acme"), s.Workspace(t, "stranger")
		key, keyID := s.Key(t, w, accounts.Test)
		reader, _ := s.Key(t, w, accounts.Test) // its own requests aren't what it reads
		live, _ := s.Key(t, w, accounts.Live)
		_, otherID := s.Key(t, stranger, accounts.Test)
		strangers, _ := s.Key(t, stranger, accounts.Test)
		pinned, _ := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Test), Name: "pinned", Scopes: []string{"*"}, Project: "shop"})
		for i := range 5 {
			s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: map[string]any{"model": "no-such-model", "messages": []any{}}})
			r := harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Header: http.Header{"Service-Project": {"shop"}},
				Body: map[string]any{"model": "gpt-4o-mini", "messages": []any{map[string]any{"role": "user", "content": "Hi"}}}}
			if i%2 == 0 {
				r.Header = nil
			}
			s.Do(t, r)
		}
		s.FillRequests(t, w, keyID, 11_000)
		s.FillRequests(t, stranger, otherID, 100)
		newest := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?limit=1&model=common", Key: reader}).Text("data.0.id")
		read := func() (out []string) {
			for _, k := range []string{reader, pinned, live, strangers} {
				for _, path := range []string{"?limit=100&project=shop&key=" + keyID, "?limit=3&order=asc&status=200&model=gpt-4o-mini&key=" + keyID, "?model=rare&limit=5&key=" + keyID, "?format=csv&key=" + keyID,
					"?format=csv&project=shop&key=" + keyID, "?limit=100&key=" + otherID, "/" + newest} {
					out = append(out, path+"\n"+readPages(t, s, path, k))
				}
			}
			return out
		}
		want := read()
		if err := s.App.Close(); err != nil {
			t.Fatal(err)
		}
		cfg.Audit.RetentionDays, cfg.Audit.Archive.To, cfg.MetricsListen = 2, config.SecretURL(t.TempDir()), "127.0.0.1:0"
		clock.Turn(10 * 24 * time.Hour)
		s = harness.Start(t, cfg, clock)
		c := &client{Server: s}
		s.Within(t, time.Minute, func() bool {
			return c.rows(t, "log_archive_days WHERE state = 'dropped'") > 0 && scrape(t, s)["turnpike_log_archive_lag_seconds"] == 0
		})
		if n := c.rows(t, "requests WHERE model = 'common'"); n > 0 {
			t.Errorf("%d entries are still in the database", n)
		}
		for i, got := range read() {
			if got != want[i] {
				t.Errorf("got\n%.2000s\nwant\n%.2000s", got, want[i])
			}
		}
		if m := scrape(t, s); m["turnpike_log_archive_entries"] < 11_100 || m["turnpike_log_archive_failed"] != 0 || m["turnpike_log_archive_position_timestamp_seconds"] == 0 {
			t.Errorf("got metrics %v", m)
		}
		for _, id := range []string{w.ID, stranger.ID} {
			if found, err := filepath.Glob(filepath.Join(string(cfg.Audit.Archive.To), "log", "day=*", "workspace="+id, "test-1-00001.parquet")); err != nil || len(found) == 0 {
				t.Errorf("got files %v of %s (%v)", found, id, err)
			}
		}
	})
}

// readPages returns the entries of all pages, or a response that isn't a list.
func readPages(t *testing.T, s *harness.Server, path, key string) (out string) {
	t.Helper()
	for after := ""; ; {
		r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit" + path + after, Key: key})
		var page struct {
			Data    *[]json.RawMessage
			LastID  string `json:"last_id"`
			HasMore bool   `json:"has_more"`
		}
		if json.Unmarshal(r.Body, &page) != nil || page.Data == nil {
			return out + strings.NewReplacer(r.Header.Get("X-Request-Id"), "", s.URL, "").Replace(string(r.Body))
		}
		for _, e := range *page.Data {
			out += string(e) + "\n"
		}
		if !page.HasMore {
			return out
		}
		after = "&after=" + page.LastID
	}
}
