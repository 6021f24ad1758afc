package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

var (
	happened = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	acme     = events.Origin{Tenant: visibility.Tenant{WorkspaceID: "ws_1", Environment: "live"}}
	low      = events.CreditsLow{Remaining: 1950 * credits.Credit, Threshold: 2000 * credits.Credit, MonthlyCredits: 10_000 * credits.Credit, Period: "2026-03"}
)

func newPublisher() *events.Publisher {
	return events.NewPublisher(func() time.Time { return happened })
}

func publish(t *testing.T, d *db.DB, from events.Origin, data events.Payload) (e *events.Event) {
	t.Helper()
	err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
		e, err = newPublisher().Publish(t.Context(), tx, from, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func count(t *testing.T, d *db.DB, table string) (n int) {
	t.Helper()
	if err := d.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// take takes up to n pending events.
func take(t *testing.T, d *db.DB, n int) (list []events.Pending) {
	t.Helper()
	err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
		list, err = events.TakePending(t.Context(), tx, n, 4096)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestEventIsStoredInItsTransaction(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p, woken := newPublisher(), 0
		p.OnPublished(func() { woken++ })
		failed := errors.New("the cause did not happen")
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			if _, err := p.Publish(t.Context(), tx, acme, low); err != nil {
				return err
			}
			return failed
		})
		if !errors.Is(err, failed) || count(t, d, "events") != 0 || count(t, d, "new_events") != 0 || woken != 0 {
			t.Errorf("after %v there are %d events, and the fan-out was woken %d times", err, count(t, d, "events"), woken)
		}
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := p.Publish(t.Context(), tx, acme, low)
			if woken != 0 {
				t.Error("the fan-out was woken before the commit")
			}
			return err
		})
		if err != nil || count(t, d, "events") != 1 || count(t, d, "new_events") != 1 || woken != 1 {
			t.Errorf("after %v there are %d events, and the fan-out was woken %d times", err, count(t, d, "events"), woken)
		}
	})
}

func TestBodyMatchesTheReferenceByteForByte(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		url := "https://example.com/?a=1&b=<é😀>"
		e := publish(t, d, events.Origin{Tenant: visibility.Tenant{WorkspaceID: "ws_1", Environment: "test"}, Project: "shop"},
			events.KeyRevoked{KeyID: "key_1", KeyHint: "tp_live_…x7Qm", Source: "report", URL: &url, DetectedAt: 7})
		want := fmt.Sprintf(`{"id":%q,"object":"event","type":"key.auto_revoked","created_at":%d,"environment":"test","workspace":"ws_1","project":"shop",`+
			`"data":{"key_id":"key_1","key_hint":"tp_live_…x7Qm","source":"report","url":"https://example.com/?a=1&b=<é😀>","location":null,"detected_at":7,"descendants":[],"descendants_truncated":false}}`, e.ID, happened.Unix())
		if string(e.Body) != want {
			t.Errorf("the body is\n%s, want\n%s", e.Body, want)
		}
		got, err := events.Get(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws_1", Environment: "test"}}, e.ID)
		if err != nil || string(got.Body) != want || got.Project != "shop" || !got.CreatedAt.Equal(happened) || got.Sample || got.Type != events.KeyAutoRevoked {
			t.Errorf("read again it is %+v (%v)", got, err)
		}
		if e := publish(t, d, acme, low); !strings.Contains(string(e.Body), `"project":null,"data":{"remaining":1950,"threshold":2000,"monthly_credits":10000,"period":"2026-03"}}`) {
			t.Errorf("without a project the body is %s", e.Body)
		}
	})
}

func TestEventIsVisibleOnlyToItsOwner(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		e := publish(t, d, acme, low)
		for _, other := range []events.Origin{{Tenant: visibility.Tenant{WorkspaceID: "ws_2", Environment: "live"}}, {Tenant: visibility.Tenant{WorkspaceID: "ws_1", Environment: "test"}}} {
			if _, err := events.Get(t.Context(), d, visibility.Filter{Tenant: other.Tenant}, e.ID); !fault.Is(err, fault.NotFound) {
				t.Errorf("%v reads it: %v", other, err)
			}
			found, err := events.List(t.Context(), d, visibility.Filter{Tenant: other.Tenant}, events.Filter{}, db.Page{Limit: 10})
			if err != nil || len(found.Rows) != 0 {
				t.Errorf("%v lists %d events (%v)", other, len(found.Rows), err)
			}
		}
	})
}

func TestListCanOmitBodies(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		e := publish(t, d, acme, low)
		publish(t, d, acme, events.KeyRevoked{})
		for _, f := range []events.Filter{{Type: e.Type, NoBody: true}, {NoBody: true}} {
			found, err := events.List(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws_1", Environment: "live"}}, f, db.Page{Limit: 1, Asc: true})
			if err != nil || len(found.Rows) != 1 {
				t.Fatalf("%d are found (%v)", len(found.Rows), err)
			}
			if got := found.Rows[0]; got.ID != e.ID || got.Type != e.Type || !got.CreatedAt.Equal(happened) || len(got.Body) != 0 {
				t.Errorf("the head is %+v", got)
			}
		}
	})
}

func TestOversizedBodyIsRejected(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		sized := func(n int) error {
			return d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := newPublisher().Publish(t.Context(), tx, acme, events.KeyRevoked{Source: strings.Repeat("x", n)})
				return err
			})
		}
		around := len(publish(t, d, acme, events.KeyRevoked{}).Body)
		if err := sized(events.MaxBody - around); err != nil {
			t.Errorf("a body of exactly the limit: %v", err)
		}
		if err := sized(events.MaxBody - around + 1); err == nil {
			t.Error("a body of one byte more is stored")
		}
	})
}

func TestPendingEventIsTakenOnceAndReturnsIfFanOutFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var want []string
		for range 5 {
			want = append(want, publish(t, d, acme, low).ID)
		}
		failed := errors.New("no")
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			if list, err := events.TakePending(t.Context(), tx, 10, 4096); err != nil || len(list) != 5 {
				t.Errorf("took %d (%v)", len(list), err)
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Fatal(err)
		}
		if found, err := events.HasPending(t.Context(), d); err != nil || !found {
			t.Errorf("after a failed fan-out nothing is new (%v)", err)
		}
		got := map[string]int{}
		for _, n := range append(take(t, d, 3), take(t, d, 10)...) {
			got[n.ID]++
			if n.WorkspaceID != "ws_1" || n.Environment != "live" || n.Type != events.BillingCreditsLow || !n.CreatedAt.Equal(happened) {
				t.Errorf("took %+v", n)
			}
		}
		for _, id := range want {
			if got[id] != 1 {
				t.Errorf("%s was taken %d times", id, got[id])
			}
		}
		if found, err := events.HasPending(t.Context(), d); err != nil || found || len(got) != 5 {
			t.Errorf("%d were taken, and there is more: %t (%v)", len(got), found, err)
		}
	})
}

// Two nodes fan out concurrently on PostgreSQL, and one after the other on SQLite.
func TestTwoNodesNeverTakeTheSameEvent(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for range 40 {
			publish(t, d, acme, low)
		}
		taken := make(chan string, 100)
		done := make(chan error, 2)
		for range 2 {
			go func() {
				for {
					var list []events.Pending
					err := d.Write(context.Background(), func(tx *db.Tx) (err error) {
						list, err = events.TakePending(context.Background(), tx, 3, 4096)
						return err
					})
					if err != nil || len(list) == 0 {
						done <- err
						return
					}
					for _, n := range list {
						taken <- n.ID
					}
				}
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		close(taken)
		seen := map[string]bool{}
		for id := range taken {
			if seen[id] {
				t.Errorf("%s was taken twice", id)
			}
			seen[id] = true
		}
		if len(seen) != 40 {
			t.Errorf("%d of 40 events were taken", len(seen))
		}
	})
}

func TestSampleForOneEndpointIsNotFannedOut(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			e, err := newPublisher().StoreSample(t.Context(), tx, acme, events.BillingCreditsLow)
			if err == nil && !strings.Contains(string(e.Body), `"type":"billing.credits.low","sample":true,`) {
				t.Errorf("the body is %s", e.Body)
			}
			return err
		})
		if err != nil || count(t, d, "events") != 1 || count(t, d, "new_events") != 0 {
			t.Errorf("%d events are new (%v)", count(t, d, "new_events"), err)
		}
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := newPublisher().PublishSample(t.Context(), tx, acme, events.BillingCreditsLow)
			return err
		})
		if err != nil || count(t, d, "new_events") != 1 {
			t.Errorf("a published sample: %d events are new (%v)", count(t, d, "new_events"), err)
		}
	})
}

func TestPurgeDeletesOnlyOldEvents(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		publish(t, d, acme, low)
		purge := func(before time.Time) (n int64) {
			err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
				n, err = events.Purge(t.Context(), tx, before, 10)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		// By the id, whose time is that of the machine.
		if n := purge(time.Now().Add(-time.Minute)); n != 0 {
			t.Errorf("%d went before their time", n)
		}
		if n := purge(time.Now().Add(time.Minute)); n != 1 {
			t.Errorf("%d of 1 went", n)
		}
	})
}

func TestRunStatusDeterminesEventType(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for status, want := range map[string]events.Type{"awaiting_approval": events.AgentRunAwaitingApproval, "completed": events.AgentRunCompleted,
			"failed": events.AgentRunFailed, "cancelled": events.AgentRunFailed} {
			if e := publish(t, d, acme, events.AgentRun{ID: ids.New("run_"), Status: status}); e.Type != want {
				t.Errorf("event of a run that is %s: got %s", status, e.Type)
			}
		}
	})
}

func TestSampleRunsMatchRealOnes(t *testing.T) {
	t.Parallel()
	for _, typ := range []events.Type{events.AgentRunAwaitingApproval, events.AgentRunCompleted, events.AgentRunFailed} {
		r := events.Sample(typ, happened).(events.AgentRun)
		if r.StartedAt == nil {
			t.Errorf("the run of %s has ended or waits, and never began", typ)
		}
		if r.Result != nil && (r.Result.Verified != nil) != (r.Result.Verification != nil) {
			t.Errorf("the run of %s is verified (%v) by %v", typ, r.Result.Verified, r.Result.Verification)
		}
	}
}
