package audit

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

func TestFailureIsStoredBoundedAndMasked(t *testing.T) {
	t.Parallel()
	const secret = "tp_live_0123456789abcdefghijklmnopqrstuvwxyz012345"
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tenant := visibility.Tenant{WorkspaceID: "ws", Environment: "test"}
		store := func(change func(*Entry)) *Entry {
			t.Helper()
			e := Entry{RequestID: ids.New(ids.Request), Tenant: tenant, CreatedAt: time.Now(), Settled: true, Status: 400}
			change(&e)
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := insertRequests.Write(t.Context(), tx, [][]any{e.appendRow(nil, "node_x")})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := Get(t.Context(), d, visibility.Filter{Tenant: tenant}, e.RequestID)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		e := store(func(e *Entry) {
			e.Requested, e.Queue, e.FirstToken = "gpt-nonexistent", 3*time.Millisecond, 5*time.Millisecond
			e.RefusedBy = &Refuser{Kind: RefusedByBudget, Level: "key", ID: "key_1"}
			e.Fail(fault.Param(fault.ModelNotFound, "model", "Unknown model \"%s\".\x00 %s", secret, strings.Repeat("ä", 600)))
		})
		f := e.ReadFailure()
		if e.ErrorCode != "model_not_found" || f.Param != "model" || !strings.HasPrefix(f.Message, `Unknown model "tp_live_***"`) || strings.Contains(string(e.Failure), secret) {
			t.Errorf("stored %s", e.Failure)
		}
		if len(f.Message) > maxFailureMessage || !strings.HasSuffix(f.Message, "…") || !utf8.ValidString(f.Message) || strings.ContainsRune(f.Message, 0) {
			t.Errorf("the message has %d bytes: %q", len(f.Message), f.Message)
		}
		if f.RefusedBy != nil {
			t.Errorf("refused by %+v, but no limit refuses an unknown model", f.RefusedBy)
		}
		if e.AskedFor() != "gpt-nonexistent" || e.Model != "" || e.Queue != 3*time.Millisecond || e.FirstToken != 5*time.Millisecond {
			t.Errorf("read %+v", e)
		}
		refused := store(func(e *Entry) {
			e.RefusedBy = &Refuser{Kind: RefusedByBudget, Level: "project", ID: "shop", LimitID: "lim_1"}
			e.Fail(fault.New(fault.BudgetExceeded, "No credits left."))
		})
		if by := refused.ReadFailure().RefusedBy; by == nil || *by != (Refuser{RefusedByBudget, "project", "shop", "lim_1"}) {
			t.Errorf("refused by %+v", by)
		}
		// A request that works stores none of it.
		e = store(func(e *Entry) { e.Status, e.Requested, e.Model, e.Queue = 200, "m", "m", 400*time.Microsecond })
		if e.Requested != "" || e.AskedFor() != "m" || e.Failure != nil || e.Queue != 0 {
			t.Errorf("read %+v", e)
		}
	})
}
