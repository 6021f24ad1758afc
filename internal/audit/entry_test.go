package audit

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

func TestSettledEntryIsReplacedOnlyByAMoreAccurateOne(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		store := func(e Entry) *Entry {
			t.Helper()
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := insertRequests.Write(t.Context(), tx, [][]any{e.appendRow(nil, "node_x")})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := Get(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "test"}}, e.RequestID)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		intent := Entry{RequestID: ids.New(ids.Request), Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "test"}, CreatedAt: time.Now()}
		settled := intent
		settled.Settled, settled.Status = true, 200
		if got := store(settled); got.Status != 200 {
			t.Fatalf("stored as %+v", got)
		}
		if got := store(intent); !got.Settled || got.Status != 200 {
			t.Errorf("an intent that came late changed a settled entry: %+v", got)
		}
		refused := settled
		refused.Status, refused.ErrorCode = 503, "storage_unavailable"
		if got := store(refused); got.Status != 503 {
			t.Errorf("a call that was refused after all is logged as %d", got.Status)
		}
		// The commit of the refused call was in doubt, and has created a job after all.
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := Amend(t.Context(), tx, intent.RequestID, func(e *Entry) { e.Model, e.Credits = "m", 7 })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := store(refused); got.Status != 503 || got.Model != "m" || got.Credits != 7 {
			t.Errorf("a refusal that was written twice changed the entry of a job: %+v", got)
		}
	})
}

// TestRecordCanBeQueuedTwice covers an outage: a request is settled and then
// refused while its first write is pending.
func TestRecordCanBeQueuedTwice(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l, _ := newTestLog(t, d, &ledger{})
		r := l.Open(Entry{RequestID: ids.New(ids.Request), Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "test"}, CreatedAt: time.Now(), Settled: true, Status: 503})
		err := d.Write(t.Context(), func(tx *db.Tx) error { return l.writeOnce(t.Context(), tx, []*Record{r, r}) })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Get(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "test"}}, r.entry.RequestID); err != nil {
			t.Error(err)
		}
	})
}

// An entry is stored as it is, whether or not its intent was written before and everything that may change did.
func TestEveryFieldIsStored(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l, _ := newTestLog(t, d, &ledger{})
		n := int64(0)
		number := func() int64 { n++; return n }
		intent := func() Entry {
			return Entry{RequestID: ids.New(ids.Request), Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "test"}, KeyID: "key", KeyHint: "hint", TokenID: "token",
				TokenMetadata: json.RawMessage(`{"a":1}`), IP: "192.0.2.1", Method: "POST", Path: "/v1", Project: "shop", UserAgent: "agent", CreatedAt: time.UnixMicro(1_700_000_000_000_000).UTC(),
				Requested: "asked", Model: "first", Provider: "p1", Reserved: 90, PriceVersion: "v1", EndUser: "user", Accounts: json.RawMessage(`[1]`), Queue: 2 * time.Millisecond}
		}
		settle := func(e *Entry) {
			input, output, cached := number(), number(), number()
			e.Model, e.Provider, e.PriceVersion, e.Accounts, e.Requested, e.Queue = "second", "p2", "v2", json.RawMessage(`[2]`), "other", 3*time.Millisecond
			e.Status, e.ErrorCode, e.Failure, e.Attempts = 502, "upstream_error", json.RawMessage(`{"message":"m"}`), json.RawMessage(`[{}]`)
			e.InputTokens, e.OutputTokens, e.CachedTokens = &input, &output, &cached
			e.Reserved, e.Credits, e.UnbilledCredits, e.SimulatedCredits, e.UsageSource = 91, credits.Micro(number()), credits.Micro(number()), credits.Micro(number()), UsageProvider
			e.Latency, e.Upstream, e.FirstToken = 9*time.Millisecond, 8*time.Millisecond, 7*time.Millisecond
		}
		for name, isIntentWritten := range map[string]bool{"settled at once": false, "settled after its intent": true} {
			want := intent()
			r := l.Open(want)
			if isIntentWritten {
				if err := r.Durable(time.Minute); err != nil {
					t.Fatal(err)
				}
				if got, err := Get(t.Context(), d, visibility.Filter{Tenant: want.Tenant}, want.RequestID); err != nil || !reflect.DeepEqual(got.appendRow(nil, ""), want.appendRow(nil, "")) {
					t.Errorf("%s: the intent is stored as\n%+v (%v), want\n%+v", name, got, err, want)
				}
			}
			r.Settle(settle)
			if err := r.Settled(time.Minute); err != nil {
				t.Fatal(err)
			}
			want = *r.Entry()
			if got, err := Get(t.Context(), d, visibility.Filter{Tenant: want.Tenant}, want.RequestID); err != nil || !reflect.DeepEqual(got.appendRow(nil, ""), want.appendRow(nil, "")) {
				t.Errorf("%s: stored as\n%+v (%v), want\n%+v", name, got, err, want)
			}
		}
	})
}
