package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// TestKeyFilterShowsOnlyEntriesOfTheTenant covers the lookup by key, whose
// index has no tenant.
func TestKeyFilterShowsOnlyEntriesOfTheTenant(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		bulk := db.NewBulk("requests", "", "id text", "workspace_id text", "environment text", "key_id text", "key_hint text", "ip text", "method text", "path text",
			"user_agent text", "node_id text", "created_at bigint", "settled boolean", "model text", "reserved bigint", "credits bigint", "simulated_credits bigint")
		var rows [][]any
		for _, e := range []struct{ workspace, environment, key, model string }{
			{"ws_a", "live", "key_a", "m"}, {"ws_a", "live", "key_a", "n"}, {"ws_a", "live", "key_other", "m"}, {"ws_a", "test", "key_test", "m"}, {"ws_b", "live", "key_b", "m"},
		} {
			rows = append(rows, []any{ids.New(ids.Request), e.workspace, e.environment, e.key, "", "", "GET", "/", "", "node", time.Now().UnixMicro(), true, e.model, int64(0), int64(0), int64(0)})
		}
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := bulk.Write(t.Context(), tx, rows)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			workspace   string
			environment visibility.Environment
			f           Filter
			want        int
		}{
			{"ws_a", "live", Filter{}, 3},
			{"ws_a", "live", Filter{KeyID: "key_a"}, 2},
			{"ws_a", "live", Filter{KeyID: "key_a", Model: "m"}, 1},
			{"ws_a", "test", Filter{KeyID: "key_a"}, 0},
			{"ws_a", "live", Filter{KeyID: "key_test"}, 0},
			{"ws_a", "live", Filter{KeyID: "key_b"}, 0},
			{"ws_a", "live", Filter{KeyID: "key_b", Model: "m"}, 0},
			{"ws_b", "live", Filter{KeyID: "key_a"}, 0},
			{"ws_a", "live", Filter{KeyID: "key_unknown"}, 0},
		} {
			found, err := List(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: c.workspace, Environment: c.environment}}, c.f, db.Page{Limit: 10})
			if err != nil || len(found.Rows) != c.want || found.More || found.Cursor != "" && c.want == 0 {
				t.Errorf("%s finds %+v by %+v (%v), want %d", c.workspace, found, c.f, err, c.want)
			}
		}
	})
}

// TestActionsOfOneEnvironmentAreFoundBehindManyOfTheOther reads page by page.
// Each page scans a bounded number of entries and continues where the last one
// stopped.
func TestActionsOfOneEnvironmentAreFoundBehindManyOfTheOther(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		bulk := db.NewBulk("admin_actions", "", "id text", "workspace_id text", "environment text", "actor text", "action text", "target text", "detail text", "created_at bigint")
		act := func(environment any, name string) []any {
			return []any{ids.New(ids.AdminAction), "ws_a", environment, "operator", name, "x", "null", int64(1)}
		}
		rows := [][]any{act(nil, "both"), act("test", "sought")}
		for range 10_001 {
			rows = append(rows, act("live", "other"))
		}
		rows = append(rows, act("test", "newest"))
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := bulk.Write(t.Context(), tx, rows)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			environment visibility.Environment
			shared      bool
			f           ActionFilter
			page        db.Page
			want        string
		}{
			{"test", false, ActionFilter{}, db.Page{Limit: 10}, "[newest]+ [sought]"},
			{"test", true, ActionFilter{}, db.Page{Limit: 10}, "[newest]+ [sought both]"},
			{"test", true, ActionFilter{}, db.Page{Limit: 1}, "[newest]+ [sought]+ [both]"},
			{"test", true, ActionFilter{}, db.Page{Limit: 10, Asc: true}, "[both sought]+ [newest]"},
			{"test", true, ActionFilter{}, db.Page{Limit: 2, Asc: true}, "[both sought]+ [newest]"},
			{"", true, ActionFilter{}, db.Page{Limit: 10}, "[]+ [both]"},
			{"live", true, ActionFilter{Action: "both"}, db.Page{Limit: 10}, "[]+ [both]"},
		} {
			var got []string
			for more := true; more && len(got) < 10; {
				found, err := FindActions(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws_a", Environment: c.environment}, Shared: c.shared}, c.f, c.page)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, a := range found.Rows {
					names = append(names, a.Action)
				}
				text := fmt.Sprint(names)
				if more = found.More; more {
					text += "+"
				}
				got, c.page.After = append(got, text), found.Cursor
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("%s by %+v, pages of %d: %s, want %s", c.environment, c.f, c.page.Limit, text, c.want)
			}
		}
	})
}
