package db_test

import (
	"context"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

const testLag = 5 * time.Second

func TestReplicaServesReadsWhileItIsRecent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	primary, standby := dbtest.StartReplicated(t)
	var ahead atomic.Int64 // of the clock
	d, err := db.OpenWithClock(ctx, primary.URL(), func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	exec := func(statement string) {
		t.Helper()
		if err := d.Write(ctx, func(tx *db.Tx) error { _, err := tx.Exec(ctx, statement); return err }); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE entries (n bigint)")
	if err := d.UseReplica(ctx, standby.URL(), testLag); err != nil {
		t.Fatal(err)
	}
	count := func(q db.Querier) int64 {
		t.Helper()
		n, err := db.Value[int64](q.QueryRow(ctx, "SELECT count(*) FROM entries"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	onReplica := func() bool {
		t.Helper()
		standby, err := db.Value[bool](d.Replica().QueryRow(ctx, "SELECT pg_is_in_recovery()"))
		if err != nil {
			t.Fatal(err)
		}
		return standby
	}

	awaitReplica(t, d, db.ReplicaInUse)
	if !onReplica() {
		t.Fatal("a replica that is in use does not serve reads")
	}
	standby.Freeze(t)
	exec("INSERT INTO entries VALUES (1)")
	d.CheckReplica(ctx)
	if got := count(d.Replica()); got != 0 || count(d) != 1 {
		t.Errorf("with replay paused, the replica has %d entries and the primary %d, want 0 and 1", got, count(d))
	}

	ahead.Store(int64(2 * testLag))
	d.CheckReplica(ctx)
	if s := d.ReplicaStatus(); s.State != db.ReplicaLagging || s.Lag <= testLag {
		t.Errorf("after %v without replay, the status is %+v", 2*testLag, *s)
	}
	if got := count(d.Replica()); got != 1 {
		t.Errorf("reads see %d entries while the replica lags, want the primary's 1", got)
	}

	standby.Thaw(t)
	awaitReplica(t, d, db.ReplicaInUse)
	if got := count(d.Replica()); got != 1 || !onReplica() {
		t.Errorf("after it has caught up, the replica has %d entries, want 1", got)
	}

	if err := standby.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 20 { // more than there are idle connections
		if count(d.Replica()) != 1 {
			t.Fatal("reads fail without the replica")
		}
	}
	awaitReplica(t, d, db.ReplicaUnreachable)
	if err := standby.Restart(); err != nil {
		t.Fatal(err)
	}
	awaitReplica(t, d, db.ReplicaInUse)
}

func TestReplicaMustBeAStandbyOfTheDatabase(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	address := dbtest.Address(t, "postgres")
	other, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	other.Path = "/postgres"
	for replica, want := range map[string]string{address: "accepts writes", other.String(): "not a copy"} {
		d := dbtest.Open(t, address)
		if err := d.UseReplica(ctx, replica, testLag); err != nil {
			t.Fatal(err)
		}
		if s := d.ReplicaStatus(); s.State != db.ReplicaUnsuitable || !strings.Contains(s.Err.Error(), want) {
			t.Errorf("status %+v, want unsuitable: %s", *s, want)
		}
	}
}

// awaitReplica measures until the replica has the state.
func awaitReplica(t *testing.T, d *db.DB, want db.ReplicaState) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for d.ReplicaStatus().State != want {
		if time.Now().After(deadline) {
			t.Fatalf("the replica's status is %+v, want %s", *d.ReplicaStatus(), want)
		}
		d.CheckReplica(context.Background())
	}
}
