package webhooks

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// fill stores n deliveries whose events happened at a time, in a state.
func (b *fixture) fill(n int, at time.Time, state State, due any) {
	b.t.Helper()
	write(b.t, b.DB, func(tx *db.Tx) error {
		_, err := tx.Exec(b.t.Context(), `WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < $8)
			INSERT INTO deliveries (id, event_id, endpoint_id, workspace_id, environment, type, status, attempts, tries, due_at, event_at, created_at)
			SELECT $1 || CAST(1000000000000000 + i AS TEXT), $9 || CAST(1000000000000000 + i AS TEXT), $2, $3, 'test', $4, $5, 0, 0, CAST($6 AS BIGINT), CAST($7 AS BIGINT), CAST($7 AS BIGINT) FROM numbers`,
			ids.Floor(ids.Delivery, at)[:len(ids.Delivery)+10], b.endpoint.ID, b.endpoint.WorkspaceID, string(events.BillingCreditsLow), string(state), due, at.UnixMicro(), int64(n), ids.Floor(ids.Event, at)[:len(ids.Event)+10])
		return err
	})
}

// rowsRead returns how many rows a statement reads on PostgreSQL. On SQLite, which doesn't count
// them, it fails unless the statement reads an index in its order.
func rowsRead(t *testing.T, d *db.DB, index, query string, args ...any) (rows float64) {
	t.Helper()
	if d.Engine() == "sqlite" {
		plan, err := db.List(t.Context(), d, func(r db.Row) (string, error) {
			var a, b, c int64
			var text string
			err := r.Scan(&a, &b, &c, &text)
			return text, err
		}, "EXPLAIN QUERY PLAN "+query, args...)
		if text := strings.Join(plan, "; "); err != nil || !strings.Contains(text, index) || strings.Contains(text, "TEMP B-TREE") {
			t.Errorf("plan of %s: got %s (%v), want %s in its order", query, text, err, index)
		}
		return 0
	}
	text, err := db.Value[string](d.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+query, args...))
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		Type    string  `json:"Node Type"`
		Rows    float64 `json:"Actual Rows"`
		Loops   float64 `json:"Actual Loops"`
		Removed float64 `json:"Rows Removed by Filter"`
		Plans   []json.RawMessage
	}
	var walk func(raw json.RawMessage)
	walk = func(raw json.RawMessage) {
		var n node
		if err := json.Unmarshal(raw, &n); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(n.Type, "Scan") {
			rows += (n.Rows + n.Removed) * n.Loops
		}
		for _, child := range n.Plans {
			walk(child)
		}
	}
	var plans []struct{ Plan json.RawMessage }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	walk(plans[0].Plan)
	return rows
}

// TestChangesOfDeliveriesReadOnlyABatch, whatever the endpoint's history and backlog are (B3, B4).
func TestChangesOfDeliveriesReadOnlyABatch(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		now := time.Now()
		const many = 20 * statusBatch
		for i, state := range []State{Succeeded, Failed, Discarded, Held} {
			b.fill(many, now.Add(-time.Duration(i+1)*time.Hour), state, nil)
		}
		b.fill(many, now.Add(-10*time.Hour), Pending, now.Add(-time.Minute).UnixMicro())
		b.fill(many, now.Add(-11*time.Hour), Retrying, now.Add(time.Hour).UnixMicro())
		other := newFixture(t, d)
		other.fill(many, now, Held, nil)
		write(t, d, func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "ANALYZE deliveries")
			return err
		})
		bounded := func(what, index string, n int, query string, args ...any) {
			t.Helper()
			if read := rowsRead(t, d, index, query, args...); read > float64(n) {
				t.Errorf("%s: read %v rows, want at most %d", what, read, n)
			}
		}
		for from, index := range map[string]string{areDue: "deliveries_due", areDueBefore: "deliveries_due", areHeld: "deliveries_in_trouble", areRetrying: "deliveries_in_trouble"} {
			args := []any{b.endpoint.ID}
			if from == areDueBefore {
				args = append(args, now.UnixMicro())
			}
			bounded(from, index, statusBatch, fmt.Sprintf("SELECT id FROM %s LIMIT %d", from, statusBatch), args...)
		}
		for mode, index := range map[string]string{ReplayAll: "deliveries_by_endpoint", ReplayFailed: "deliveries_in_trouble", ReplayMissed: "events_by_workspace"} {
			p := &Replay{ID: ids.New(ids.Replay), Mode: mode, Since: now.Add(-24 * time.Hour), CreatedAt: now}
			query, args := p.query(b.endpoint, p.start())
			bounded("replay "+mode, index, replayStep, query, args...)
		}
	})
}

// TestReplayReadsOnlyItsTimeRange: what is older isn't counted or skipped step by step (B3).
func TestReplayReadsOnlyItsTimeRange(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		b.fill(2*replayStep, time.Now().Add(-2*time.Hour), Succeeded, nil)
		const recent = 10
		b.fill(recent, time.Now().Add(-time.Minute), Succeeded, nil)
		p := &Replay{EndpointID: b.endpoint.ID, Mode: ReplayAll, Since: b.Now().Add(-time.Hour)}
		if err := b.PlanReplay(t.Context(), visibility.Filter{Tenant: b.endpoint.Tenant}, p); err != nil {
			t.Fatal(err)
		}
		if p.Total != recent || p.Counting {
			t.Errorf("one step counted %d, and counting is %v; want %d and false", p.Total, p.Counting, recent)
		}
	})
}

// TestLargeReplayIsCountedInSteps: the request counts one step, and the lane the rest, with an
// exact total in the end (B3).
func TestLargeReplayIsCountedInSteps(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		ctx, vis := t.Context(), visibility.Filter{Tenant: b.endpoint.Tenant}
		const failed = 2*replayStep + 7
		b.fill(failed, time.Now().Add(-time.Minute), Failed, nil)
		b.fill(replayStep, time.Now().Add(-30*time.Second), Succeeded, nil)
		p := &Replay{EndpointID: b.endpoint.ID, Since: b.Now().Add(-time.Hour)}
		if err := b.PlanReplay(ctx, vis, p); err != nil {
			t.Fatal(err)
		}
		write(t, d, func(tx *db.Tx) error { return b.StartReplay(ctx, tx, system, vis, p) })
		if p.Total != replayStep || !p.Counting {
			t.Errorf("the request counted %d, and counting is %v; want %d and true", p.Total, p.Counting, replayStep)
		}
		for done := int64(0); ; {
			fed, err := b.feedReplay(ctx, b.endpoint, 10*statusBatch)
			if err != nil {
				t.Fatal(err)
			}
			if p, err = b.GetReplay(ctx, d, vis, p.ID); err != nil {
				t.Fatal(err)
			}
			if p.Done-done > statusBatch || p.Done > p.Total {
				t.Fatalf("a step went from %d to %d of %d, want at most %d more", done, p.Done, p.Total, statusBatch)
			}
			if done = p.Done; !fed {
				break
			}
		}
		if p.State != ReplayCompleted || p.Total != failed || p.Done != failed || p.Counting {
			t.Errorf("the replay ended as %+v, want %d of %[2]d", p, failed)
		}
		due, err := db.Value[int](d.QueryRow(ctx, "SELECT count(*) FROM deliveries WHERE endpoint_id = $1 AND status = 'pending' AND due_at IS NOT NULL", b.endpoint.ID))
		if err != nil || due != failed {
			t.Errorf("%d deliveries are due (%v), want %d", due, err, failed)
		}
	})
}

// TestDiscardSucceedsWhileDeliveriesAreStillBeingHeld, however many there are, and covers those
// that wait for a retry (B4).
func TestDiscardSucceedsWhileDeliveriesAreStillBeingHeld(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		const waiting, retrying = 24 * statusBatch, 2 * statusBatch
		b.fill(waiting, time.Now().Add(-time.Hour), Pending, time.Now().Add(-time.Hour).UnixMicro())
		b.fill(retrying, time.Now().Add(-2*time.Hour), Retrying, time.Now().Add(time.Hour).UnixMicro())
		b.pause()
		b.Now = func() time.Time { return time.Now().Add(time.Minute) } // the clock of this node is ahead of that of later deliveries
		b.resume(true)
		changed, err := db.Value[int](d.QueryRow(t.Context(), "SELECT count(*) FROM deliveries WHERE endpoint_id = $1 AND status IN ('held', 'discarded')", b.endpoint.ID))
		if err != nil || changed > 2*statusBatch {
			t.Errorf("two requests changed %d deliveries (%v), want at most %d", changed, err, 2*statusBatch)
		}
		later := b.arrive(3)
		b.runChores()
		b.are("after the discard", later, map[State]int{Pending: 3})
		discarded, err := db.Value[int](d.QueryRow(t.Context(), "SELECT count(*) FROM deliveries WHERE endpoint_id = $1 AND status = 'discarded' AND due_at IS NULL", b.endpoint.ID))
		if err != nil || discarded != waiting+retrying {
			t.Errorf("%d deliveries are discarded (%v), want %d", discarded, err, waiting+retrying)
		}
	})
}
