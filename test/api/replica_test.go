package api_test

import (
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db/dbtest"
	"turnpike/test/harness"
)

// TestLogAndUsageAreReadFromTheReplica freezes a replica: the log and usage stay as they
// were, and keys and entries by ID are current. Without the replica, all of them are.
func TestLogAndUsageAreReadFromTheReplica(t *testing.T) {
	t.Parallel()
	primary, standby := dbtest.StartReplicated(t)
	cfg := harness.Config(t, "sqlite")
	cfg.DatabaseURL, cfg.ReplicaURL, cfg.ReplicaMaxLag = config.SecretURL(primary.URL()), config.SecretURL(standby.URL()), 5*time.Minute
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	get := func(path string) string {
		t.Helper()
		return string(s.Do(t, harness.Request{Method: "GET", Path: path, Key: key}).Want(t, 200, "").Body)
	}
	call := func() (id string) {
		t.Helper()
		return s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatBody("hello")}).Want(t, 200, "").Header.Get("X-Request-Id")
	}
	before := call()
	s.Eventually(t, func() bool { return strings.Contains(get("/v1/audit"), before) })

	// The server uses the replica from its first check on that finds it current.
	s.Eventually(t, func() bool { return strings.Contains(get("/v1/audit"), before) && standby.HasServed(t, "requests") })
	standby.Freeze(t)
	usage := get("/v1/usage")
	after := call()
	made := s.Do(t, newKey(key, map[string]any{"name": "n", "scopes": []string{"models:read"}})).Want(t, 200, "").Text("id")
	settled(t, s, key, after)
	if log := get("/v1/audit"); strings.Contains(log, after) || !strings.Contains(log, before) {
		t.Errorf("with a frozen replica, the log shows the request after it: %v, and the one before it: %v; want only the latter", strings.Contains(log, after), strings.Contains(log, before))
	}
	if got := get("/v1/usage"); got != usage {
		t.Errorf("with a frozen replica, usage changes from %s to %s", usage, got)
	}
	if !strings.Contains(get("/v1/keys"), made) {
		t.Error("with a frozen replica, the list of keys lacks a new one")
	}

	if err := standby.Kill(); err != nil {
		t.Fatal(err)
	}
	if log := get("/v1/audit"); !strings.Contains(log, after) {
		t.Error("without the replica, the log lacks a request")
	}
	if got := get("/v1/usage"); got == usage {
		t.Error("without the replica, usage lacks a request")
	}
	s.Do(t, harness.Request{Method: "GET", Path: "/readyz"}).Want(t, 200, "")
}
