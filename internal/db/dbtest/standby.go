package dbtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standby is a Cluster that follows another one.
type Standby struct{ *Cluster }

// StartReplicated starts a server and a standby of it, and stops both when the test ends.
func StartReplicated(t testing.TB) (primary *Cluster, standby *Standby) {
	t.Helper()
	start := func(mode string) *Cluster {
		t.Helper()
		c, err := startCluster(mode)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Stop() })
		return c
	}
	primary = start(replicated)
	return primary, &Standby{start(standbyOf + primary.url)}
}

// Freeze makes the standby apply no changes until Thaw.
func (s *Standby) Freeze(t testing.TB) {
	t.Helper()
	onServer(t, s.url, "SELECT pg_wal_replay_pause()")
	deadline := time.Now().Add(fastTimeout)
	for !s.answer(t, "SELECT pg_get_wal_replay_pause_state() = 'paused'") {
		if time.Now().After(deadline) {
			t.Fatalf("the standby still applies changes after %v", fastTimeout)
		}
	}
}

// Thaw makes the standby apply changes again.
func (s *Standby) Thaw(t testing.TB) {
	t.Helper()
	onServer(t, s.url, "SELECT pg_wal_replay_resume()")
}

// HasServed reports whether the last query of a client's connection was one of the table.
func (s *Standby) HasServed(t testing.TB, table string) bool {
	t.Helper()
	return s.answer(t, "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%FROM "+table+"%' AND pid <> pg_backend_pid()")
}

func (s *Standby) answer(t testing.TB, query string) (yes bool) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, query).Scan(&yes); err != nil {
		t.Fatal(err)
	}
	return yes
}
