package spend

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
)

// Usage is the usage of one group of requests in a time bucket.
type Usage struct {
	Start            time.Time
	KeyID            string
	Project          string
	Model            string
	Provider         string
	Requests         int64
	Errors           int64
	InputTokens      int64
	OutputTokens     int64
	CachedTokens     int64 // the part of InputTokens that providers read from their caches
	Credits          credits.Micro
	SimulatedCredits credits.Micro
	Latencies        Latencies // of successful requests, if the query asks for them
}

// usageConflict returns the clause that adds to an existing row.
func usageConflict(table string) string {
	latencies := latencyColumns("%[1]s = CASE WHEN excluded.%[1]s IS NULL THEN " + table + ".%[1]s ELSE COALESCE(" + table + ".%[1]s, 0) + excluded.%[1]s END")
	return usageConflictOn(table, "key_id, project, model, provider") + ", " + strings.Join(latencies, ", ")
}

// usageConflictOn is usageConflict for a table with other dimensions.
func usageConflictOn(table, dimensions string) string {
	var set []string
	for _, column := range []string{"requests", "errors", "input_tokens", "output_tokens", "cached_tokens", "credits", "simulated_credits"} {
		set = append(set, column+" = "+saturatingSum(table, column))
	}
	return "ON CONFLICT (workspace_id, environment, start, " + dimensions + ") DO UPDATE SET " + strings.Join(set, ", ")
}

var usageColumns = []string{"workspace_id text", "environment text", "start bigint", "key_id text", "project text", "model text", "provider text",
	"requests bigint", "errors bigint", "input_tokens bigint", "output_tokens bigint", "cached_tokens bigint", "credits bigint", "simulated_credits bigint"}

// rollup is a table of usage with a fixed time step.
type rollup struct {
	table string
	step  time.Duration
	add   *db.Bulk
}

func newRollup(table string, step time.Duration) rollup {
	return rollup{table, step, db.NewBulk(table, usageConflict(table), slices.Concat(usageColumns, latencyColumns("%s bigint"))...)}
}

var (
	minutes = newRollup("usage_minutes", time.Minute)
	hours   = newRollup("usage_hours", time.Hour)
	days    = newRollup("usage_days", 24*time.Hour)
)

// rollup returns the coarsest table that the bucket can be computed from.
func (b Bucket) rollup() rollup {
	switch b {
	case ByMinute:
		return minutes
	case ByHour:
		return hours
	}
	return days
}

type usageKey struct {
	accounts.Tenant
	Key      string `json:",omitempty"`
	Project  string `json:",omitempty"`
	Model    string `json:",omitempty"`
	Provider string `json:",omitempty"`
	Start    int64
}

func (a usageKey) compare(b usageKey) int {
	return cmp.Or(strings.Compare(a.WorkspaceID, b.WorkspaceID), cmp.Compare(a.Environment, b.Environment), cmp.Compare(a.Start, b.Start),
		strings.Compare(a.Key, b.Key), strings.Compare(a.Project, b.Project), strings.Compare(a.Model, b.Model), strings.Compare(a.Provider, b.Provider))
}

type usageSums struct {
	Requests  int64 `json:",omitempty"`
	Errors    int64 `json:",omitempty"`
	Input     int64 `json:",omitempty"`
	Output    int64 `json:",omitempty"`
	Cached    int64 `json:",omitempty"`
	Credits   int64 `json:",omitempty"`
	Simulated int64 `json:",omitempty"`

	Latencies Latencies `json:",omitzero"` // only of models
}

// sumsOf returns the usage of one entry.
func sumsOf(e *audit.Entry) usageSums {
	s := usageSums{Requests: 1, Credits: sum(0, int64(e.Credits)), Simulated: sum(0, int64(e.SimulatedCredits))}
	if e.Status >= 400 {
		s.Errors = 1
	} else if e.Latency > 0 {
		s.Latencies = latenciesOf(e.Latency)
	}
	count := func(to *int64, n *int64) {
		if n != nil {
			*to = sum(0, *n)
		}
	}
	count(&s.Input, e.InputTokens)
	count(&s.Output, e.OutputTokens)
	count(&s.Cached, e.CachedTokens)
	return s
}

func (s *usageSums) add(o usageSums) {
	s.Requests, s.Errors = sum(s.Requests, o.Requests), sum(s.Errors, o.Errors)
	s.Input, s.Output, s.Cached = sum(s.Input, o.Input), sum(s.Output, o.Output), sum(s.Cached, o.Cached)
	s.Credits, s.Simulated = sum(s.Credits, o.Credits), sum(s.Simulated, o.Simulated)
	s.Latencies.add(o.Latencies, 1)
}

func (s usageSums) negative() usageSums {
	n := usageSums{Requests: -s.Requests, Errors: -s.Errors, Input: -s.Input, Output: -s.Output, Cached: -s.Cached, Credits: -s.Credits, Simulated: -s.Simulated}
	n.Latencies.add(s.Latencies, -1)
	return n
}

func (s *usageSums) columns() []any {
	return []any{s.Requests, s.Errors, s.Input, s.Output, s.Cached, s.Credits, s.Simulated}
}

// usageMap is usage by a key.
type usageMap[K comparable] map[K]*usageSums

// at returns the sums of a key, to add to them.
func (m usageMap[K]) at(key K) *usageSums {
	s := m[key]
	if s == nil {
		s = &usageSums{}
		m[key] = s
	}
	return s
}

// usageTotals is the usage of a number of entries.
type usageTotals struct {
	models usageMap[usageKey] // by the minute
	users  usageMap[userKey]  // by the day
}

// modelUsage and userUsage are stored in the journal.
type modelUsage struct {
	usageKey
	usageSums
}

type userUsage struct {
	userKey
	usageSums
}

func newUsageTotals() usageTotals {
	return usageTotals{usageMap[usageKey]{}, usageMap[userKey]{}}
}

func (t usageTotals) isEmpty() bool { return len(t.models) == 0 && len(t.users) == 0 }

// count adds an entry in place of its earlier settlement. Only model requests count.
func (t usageTotals) count(b audit.Settlement) {
	if b.Entry.Model == "" {
		return
	}
	t.add(b.Entry, sumsOf(b.Entry))
	if b.Previous != nil {
		t.add(b.Previous, sumsOf(b.Previous).negative())
	}
}

func (t usageTotals) add(e *audit.Entry, sums usageSums) {
	t.models.at(usageKey{Tenant: e.Tenant, Key: e.KeyID, Project: e.Project, Model: e.Model, Provider: e.Provider,
		Start: e.CreatedAt.Truncate(minutes.step).Unix()}).add(sums)
	if e.EndUser != "" {
		sums.Latencies = Latencies{}
		t.users.at(userKey{e.Tenant, e.CreatedAt.Truncate(userStep).Unix(), e.EndUser}).add(sums)
	}
}

// write adds the totals to the rollups.
func (t usageTotals) write(ctx context.Context, tx *db.Tx) error {
	for _, r := range []rollup{minutes, hours, days} {
		if err := r.write(ctx, tx, t.models); err != nil {
			return err
		}
	}
	return t.writeUsers(ctx, tx)
}

// write adds usage by the minute to the rollup, in the order in which all transactions lock rows.
func (r rollup) write(ctx context.Context, tx *db.Tx, byMinute usageMap[usageKey]) error {
	sums := byMinute
	if r.step > minutes.step {
		sums = usageMap[usageKey]{}
		for k, s := range byMinute {
			k.Start -= k.Start % int64(r.step/time.Second)
			sums.at(k).add(*s)
		}
	}
	var rows [][]any
	for _, k := range slices.SortedFunc(maps.Keys(sums), usageKey.compare) {
		if s := sums[k]; *s != (usageSums{}) {
			rows = append(rows, append([]any{k.WorkspaceID, string(k.Environment), k.Start, k.Key, k.Project, k.Model, k.Provider}, slices.Concat(s.columns(), s.Latencies.columns())...))
		}
	}
	err := r.add.Send(ctx, tx, rows, nil)
	return db.Wrap(err, "add usage")
}
