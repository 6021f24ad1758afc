// Package harness starts the whole program inside a test, with a clock that
// the test moves, and calls it over HTTP as clients do.
package harness

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/keyring"
	"turnpike/internal/people"
	"turnpike/test/fakes/contract"
)

// MasterKey is the test servers' master key.
const MasterKey = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

// Signing in shouldn't take most of a test. The tests of people check the real cost.
func init() { people.DefaultCost = people.Cost{Memory: 64, Passes: 1, Lanes: 1} }

// Server is a running server, with direct access to its database.
type Server struct {
	App   *app.App
	URL   string
	Clock *Clock
	DB    *db.DB
	Ring  *keyring.Ring
	Data  string // the data directory

	shared bool

	validator *contract.Validator
}

// Each runs fn against a fresh server on each engine.
func Each(t *testing.T, fn func(t *testing.T, s *Server)) {
	t.Helper()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fn(t, Start(t, Config(t, engine), NewClock()))
		})
	}
}

// OnSQLite runs fn against a server on SQLite only. It's for tests of messages,
// forms and validation, whose queries other tests run on both engines.
func OnSQLite(t *testing.T, fn func(t *testing.T, s *Server)) {
	t.Helper()
	fn(t, Start(t, Config(t, "sqlite"), NewClock()))
}

// Config is a server's configuration on an empty database of the engine.
func Config(t testing.TB, engine string) config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Listen = "127.0.0.1:0"
	cfg.PublicURL = ""
	cfg.MasterKey = MasterKey
	cfg.Limits.RefusedKeys = 0
	cfg.ShutdownTimeout = 10 * time.Second
	cfg.Media.Espeak = false // the tests must not depend on an installed program
	address := dbtest.Address(t, engine)
	if engine == "sqlite" {
		cfg.Data = filepath.Dir(address)
	} else {
		cfg.Data = t.TempDir()
		cfg.DatabaseURL = config.SecretURL(address)
	}
	return cfg
}

// Start runs a server until the test ends.
func Start(t testing.TB, cfg config.Config, clock *Clock) *Server {
	t.Helper()
	return StartWith(context.Background(), t, cfg, clock)
}

// StartWith is Start with a context, which may have come from db.LoseResponses.
func StartWith(ctx context.Context, t testing.TB, cfg config.Config, clock *Clock) *Server {
	t.Helper()
	a, err := app.Start(ctx, cfg, "test", clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	a.Serve()
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	// Wait for the first retention pass: if a test moved the clock before it, the
	// pass would delete expired records in some runs and not in others.
	for end := time.Now().Add(time.Minute); a.RetentionPasses() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no retention pass within a minute")
		}
	}
	d, err := app.OpenDatabase(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	ring, err := app.OpenRing(context.Background(), cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	return &Server{App: a, URL: a.ListenURL(), Clock: clock, DB: d, Ring: ring, Data: cfg.Data, validator: contract.New(t)}
}

// Eventually waits up to ten seconds for the condition.
func (s *Server) Eventually(t testing.TB, ok func() bool) {
	t.Helper()
	s.Within(t, 10*time.Second, ok)
}

// Within waits up to timeout for the condition.
func (s *Server) Within(t testing.TB, timeout time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.After(timeout)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("condition not met within %s", timeout)
		}
	}
}
