package statements

import (
	"testing"

	"turnpike/internal/db/dbtest"
)

// The statements are those of B4, B6 and B7, and ones that replaced them.
func TestStatementsThatReadWholeTablesAreFound(t *testing.T) {
	t.Parallel()
	r := &Recorder{calls: map[string]*call{}}
	for from, c := range map[string]call{
		"sum":     {query: "SELECT coalesce(sum(bytes), 0) FROM responses WHERE workspace_id = $1", args: []any{"x"}},
		"sort":    {query: "SELECT end_user_id FROM usage_users WHERE workspace_id = $1 AND environment = $2 AND start >= $3 GROUP BY end_user_id ORDER BY sum(credits) DESC LIMIT $4", args: []any{"x", "live", int64(0), int64(20)}},
		"filter":  {query: "SELECT id FROM deliveries WHERE endpoint_id = $1 AND type = $2 ORDER BY id LIMIT $3", args: []any{"x", "nothing", int64(20)}},
		"scan":    {query: "UPDATE mails SET attempts = 0 WHERE kind = $1", args: []any{"none"}},
		"counter": {query: "SELECT bytes FROM stored_bytes WHERE workspace_id = $1", args: []any{"x"}},
		"top": {query: "SELECT end_user_id FROM usage_user_months WHERE workspace_id = $1 AND environment = $2 AND start = $3 ORDER BY cost DESC, end_user_id LIMIT $4",
			args: []any{"x", "test", int64(0), int64(20)}},
		"page": {query: "SELECT id FROM deliveries WHERE endpoint_id = $1 ORDER BY id DESC LIMIT $2", args: []any{"x", int64(20)}},
	} {
		r.calls[from] = &call{c.query, c.args, from}
	}
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			problems, err := r.problems(t, engine)
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			for _, p := range problems {
				t.Log(p.call.from, p.text)
				found[p.call.from] = true
			}
			for from, want := range map[string]bool{"sum": true, "sort": true, "filter": true, "scan": true, "counter": false, "top": false, "page": false} {
				if found[from] != want {
					t.Errorf("%s: found %t, want %t", from, found[from], want)
				}
			}
		})
	}
}
