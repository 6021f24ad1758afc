package spend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
)

// TestUsageIsReadByBucketAndGroup runs on both engines, with requests around
// the ends of minutes, hours, days and months.
func TestUsageIsReadByBucketAndGroup(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		at := func(s string) time.Time {
			v, err := time.Parse("2006-01-02 15:04:05", s)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		var list []audit.Settlement
		for i, c := range []struct{ time, key, project, model, provider string }{
			{"2026-10-31 23:59:59", "k1", "p1", "a", "x"},
			{"2026-11-01 00:00:00", "k1", "p1", "a", "x"},
			{"2026-11-01 00:00:59", "k1", "p2", "a", "y"},
			{"2026-11-01 00:01:00", "k2", "p1", "b", "x"},
			{"2026-11-01 01:00:00", "k2", "", "b", "y"},
			{"2026-11-02 00:00:00", "k1", "p1", "a", "x"},
			{"2026-12-01 00:00:00", "k1", "p1", "a", "x"},
		} {
			tokens := int64(1) << i // so that each sum shows its parts
			list = append(list, audit.Settlement{Entry: &audit.Entry{RequestID: ids.New(ids.Request), Tenant: accounts.Tenant{WorkspaceID: "ws", Environment: "live"}, KeyID: c.key, Project: c.project,
				Model: c.model, Provider: c.provider, CreatedAt: at(c.time), Status: 200, InputTokens: &tokens, Credits: credits.Micro(tokens)}})
		}
		// Other tenants, which no sum includes.
		for _, other := range []accounts.Tenant{{WorkspaceID: "other", Environment: "live"}, {WorkspaceID: "ws", Environment: "test"}} {
			e := *list[1].Entry
			e.Tenant = other
			list = append(list, audit.Settlement{Entry: &e})
		}
		// Two commits, so that existing rows are added to.
		for _, part := range [][]audit.Settlement{list[:3], list[3:]} {
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return addUsage(t.Context(), tx, part) }); err != nil {
				t.Fatal(err)
			}
		}
		for _, test := range []struct {
			start, end string
			bucket     Bucket
			groups     []string
			want       []string
		}{
			{"2026-11-01 00:00:00", "2026-11-01 00:02:00", ByMinute, nil, []string{"01 00:00 6", "01 00:01 8"}},
			{"2026-10-31 23:59:30", "2026-11-01 00:00:00", ByMinute, nil, []string{"31 23:59 1"}},
			{"2026-11-01 00:00:00", "2026-11-01 02:00:00", ByHour, nil, []string{"01 00:00 14", "01 01:00 16"}},
			{"2026-10-31 12:00:00", "2026-11-03 00:00:00", ByDay, nil, []string{"31 00:00 1", "01 00:00 30", "02 00:00 32"}},
			{"2026-10-15 00:00:00", "2027-01-01 00:00:00", ByMonth, nil, []string{"01 00:00 1", "01 00:00 62", "01 00:00 64"}},
			{"2026-11-01 00:00:00", "2026-12-01 00:00:00", ByMonth, []string{"key"}, []string{"01 00:00 k1 38", "01 00:00 k2 24"}},
			{"2026-11-01 00:00:00", "2026-12-01 00:00:00", ByMonth, []string{"model", "provider"}, []string{"01 00:00 a x 34", "01 00:00 a y 4", "01 00:00 b x 8", "01 00:00 b y 16"}},
			{"2026-11-01 00:00:00", "2026-11-02 00:00:00", ByDay, []string{"project"}, []string{"01 00:00 16", "01 00:00 p1 10", "01 00:00 p2 4"}},
			{"2026-11-01 00:00:00", "2026-11-01 01:00:00", ByHour, Dimensions, []string{"01 00:00 k1 p1 a x 2", "01 00:00 k1 p2 a y 4", "01 00:00 k2 p1 b x 8"}},
			{"2026-09-01 00:00:00", "2026-10-01 00:00:00", ByDay, nil, nil},
		} {
			got, err := ReadUsage(t.Context(), d, UsageQuery{Tenant: accounts.Tenant{WorkspaceID: "ws", Environment: "live"}, Start: at(test.start), End: at(test.end), Bucket: test.bucket, GroupBy: test.groups})
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, u := range got {
				line := u.Start.Format("02 15:04")
				for _, name := range []string{u.KeyID, u.Project, u.Model, u.Provider} {
					if name != "" {
						line += " " + name
					}
				}
				lines = append(lines, fmt.Sprintf("%s %d", line, u.InputTokens))
				if int64(u.Credits) != u.InputTokens {
					t.Errorf("%d credits for %d tokens", u.Credits, u.InputTokens)
				}
			}
			if fmt.Sprint(lines) != fmt.Sprint(test.want) {
				t.Errorf("by %s and %v from %s to %s: %q, not %q", test.bucket, test.groups, test.start, test.end, lines, test.want)
			}
		}
	})
}

// TestMinuteUsageIsPurgedAndHourlyUsageStays purges usage by the minute past
// its retention.
func TestMinuteUsageIsPurgedAndHourlyUsageStays(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Now().UTC().Truncate(time.Minute)
		var list []audit.Settlement
		for i := range 5 {
			list = append(list, audit.Settlement{Entry: &audit.Entry{Tenant: accounts.Tenant{WorkspaceID: "ws", Environment: "live"}, KeyID: "k", Model: "m", CreatedAt: now.Add(-time.Duration(i) * time.Minute), Status: 200}})
		}
		var first, second int64
		err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
			if err := addUsage(t.Context(), tx, list); err != nil {
				return err
			}
			if first, err = PurgeUsage(t.Context(), tx, now.Add(-time.Minute), 2); err != nil {
				return err
			}
			second, err = PurgeUsage(t.Context(), tx, now.Add(-time.Minute), 2)
			return err
		})
		if err != nil || first != 2 || second != 1 {
			t.Fatalf("%d and %d went (%v)", first, second, err)
		}
		for bucket, want := range map[Bucket]int64{ByMinute: 2, ByHour: 5} {
			got, err := ReadUsage(t.Context(), d, UsageQuery{Tenant: accounts.Tenant{WorkspaceID: "ws", Environment: "live"}, Start: now.Add(-2 * time.Hour), End: now.Add(time.Minute), Bucket: bucket})
			var sum int64
			for _, u := range got {
				sum += u.Requests
			}
			if err != nil || sum != want {
				t.Errorf("by %s there are %d requests, not %d (%v)", bucket, sum, want, err)
			}
		}
	})
}

// TestUserUsageIsPurgedInBatches purges whole days before the retention of users' usage.
func TestUserUsageIsPurgedInBatches(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Now().UTC().Truncate(userStep)
		tenant := accounts.Tenant{WorkspaceID: "ws", Environment: "live"}
		var list []audit.Settlement
		for i := range 5 {
			list = append(list, audit.Settlement{Entry: &audit.Entry{Tenant: tenant, KeyID: "k", EndUser: "eu_1", Model: "m", CreatedAt: now.Add(-time.Duration(i) * userStep), Status: 200}})
		}
		var batches []int64
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			if err := addUsage(t.Context(), tx, list); err != nil {
				return err
			}
			for range 3 {
				n, err := PurgeUserUsage(t.Context(), tx, now.Add(-userStep), 2)
				if err != nil {
					return err
				}
				batches = append(batches, n)
			}
			return nil
		})
		if err != nil || !slices.Equal(batches, []int64{2, 1, 0}) {
			t.Fatalf("batches of %v, want 2, 1 and 0 (%v)", batches, err)
		}
		got, err := ReadUserUsage(t.Context(), d, UsageQuery{Tenant: tenant, Start: now.Add(-9 * userStep), End: now.Add(userStep), Bucket: ByDay})
		if err != nil || len(got) != 2 {
			t.Errorf("usage of %d days is left, want 2 (%v)", len(got), err)
		}
	})
}

// TestUsageOfOneKeyOrProjectMatchesGrouping covers a time range whose hours are
// listed, and one that is too long for that.
func TestUsageOfOneKeyOrProjectMatchesGrouping(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Date(2026, 11, 15, 12, 30, 0, 0, time.UTC)
		var list []audit.Settlement
		for i := range 60 {
			tokens := int64(i)
			list = append(list, audit.Settlement{Entry: &audit.Entry{Tenant: accounts.Tenant{WorkspaceID: "ws", Environment: "live"}, KeyID: fmt.Sprintf("k%d", i%3), Project: fmt.Sprintf("p%d", i%2), Model: "m",
				CreatedAt: now.Add(-time.Duration(i) * 23 * time.Hour), Status: 200, InputTokens: &tokens}})
		}
		if err := d.Write(t.Context(), func(tx *db.Tx) error { return addUsage(t.Context(), tx, list) }); err != nil {
			t.Fatal(err)
		}
		for _, days := range []int{1, 30, 60} {
			for _, bucket := range []Bucket{ByHour, ByDay, ByMonth} {
				q := UsageQuery{Tenant: accounts.Tenant{WorkspaceID: "ws", Environment: "live"}, Start: now.AddDate(0, 0, -days), End: now, Bucket: bucket, GroupBy: []string{"key", "project"}}
				all, err := ReadUsage(t.Context(), d, q)
				if err != nil {
					t.Fatal(err)
				}
				for _, of := range []struct{ key, project string }{{"k1", ""}, {"", "p1"}, {"k1", "p1"}, {"none", ""}} {
					var want []Usage
					for _, u := range all {
						if (of.key == "" || u.KeyID == of.key) && (of.project == "" || u.Project == of.project) {
							want = append(want, u)
						}
					}
					q.KeyID, q.Project = of.key, of.project
					got, err := ReadUsage(t.Context(), d, q)
					if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("of %v in %d days by %s: %v, not %v (%v)", of, days, bucket, got, want, err)
					}
				}
				if len(all) == 0 {
					t.Error("there is nothing to tell apart")
				}
			}
		}
	})
}

// TestUsageWithTooManyRowsFails checks that a limited query returns an error
// instead of a part. A month is one row, however many days it has.
func TestUsageWithTooManyRowsFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		begun := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
		var list []audit.Settlement
		for day := range 31 + 30 {
			for key := range 2 {
				list = append(list, audit.Settlement{Entry: &audit.Entry{Tenant: accounts.Tenant{WorkspaceID: "ws", Environment: "live"}, KeyID: fmt.Sprintf("k%d", key), Model: "m",
					CreatedAt: begun.AddDate(0, 0, day), Status: 200}})
			}
		}
		if err := d.Write(t.Context(), func(tx *db.Tx) error { return addUsage(t.Context(), tx, list) }); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			bucket Bucket
			groups []string
			rows   int
		}{
			{ByMonth, nil, 2},
			{ByMonth, []string{"key"}, 4},
			{ByDay, nil, 61},
			{ByDay, []string{"key"}, 122},
			{ByHour, []string{"key", "model"}, 122},
		} {
			for _, most := range []int{0, c.rows, c.rows - 1, 1} {
				q := UsageQuery{Tenant: accounts.Tenant{WorkspaceID: "ws", Environment: "live"}, Start: begun, End: begun.AddDate(0, 2, 0), Bucket: c.bucket, GroupBy: c.groups, Most: most}
				got, err := ReadUsage(t.Context(), d, q)
				if most == 0 || most == c.rows {
					if err != nil || len(got) != c.rows {
						t.Errorf("%d by %s and %v, at most %d: %v", len(got), c.bucket, c.groups, most, err)
					}
				} else if !errors.Is(err, ErrTooMuchUsage) || got != nil {
					t.Errorf("%d by %s and %v, at most %d: %v", len(got), c.bucket, c.groups, most, err)
				}
			}
		}
	})
}

// TestRecentUsageReadsABoundedNumberOfRows checks that the returned usage is
// complete since the returned time.
func TestRecentUsageReadsABoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		noon := time.Date(2026, 3, 10, 12, 30, 0, 0, time.UTC)
		for hour := range 10 {
			for _, model := range []string{"a", "b", "c"} {
				e := o.entry(nil, credits.Credit)
				e.CreatedAt, e.Model = noon.Add(-time.Duration(hour)*time.Hour), model
				o.write(func(ctx context.Context, tx *db.Tx) error { return addUsage(ctx, tx, []audit.Settlement{{Entry: e}}) })
			}
		}
		u := UsageQuery{Tenant: o.workspace.In("live"), Start: noon.Add(-20 * time.Hour), End: noon, Bucket: ByHour, GroupBy: []string{"model"}}
		for bound, want := range map[int]struct {
			requests int64
			since    time.Time
		}{
			100: {30, time.Time{}}, 30: {30, time.Time{}},
			29: {27, time.Date(2026, 3, 10, 4, 0, 0, 0, time.UTC)}, 27: {27, time.Date(2026, 3, 10, 4, 0, 0, 0, time.UTC)},
			3: {3, time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)},
			// With fewer rows than one step has, that step is still returned,
			// and complete.
			2: {3, time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)}, 1: {3, time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)},
		} {
			list, since, err := RecentUsage(t.Context(), d, u, bound)
			if err != nil {
				t.Fatal(err)
			}
			var sum Usage
			for _, x := range list {
				sum.Add(x)
			}
			if sum.Requests != want.requests || !since.Equal(want.since) {
				t.Errorf("with a bound of %d: %d requests since %s", bound, sum.Requests, since)
			}
		}
	})
}

func TestStepsCoverTheQueriedBuckets(t *testing.T) {
	t.Parallel()
	at := func(month time.Month, day, hour int) time.Time {
		return time.Date(2026, month, day, hour, 0, 0, 0, time.UTC)
	}
	for _, c := range []struct {
		bucket     Bucket
		start, end time.Time
		want       []time.Time
	}{
		{ByMonth, at(1, 31, 5), at(3, 1, 0), []time.Time{at(1, 1, 0), at(2, 1, 0)}},
		{ByDay, at(2, 27, 5), at(3, 1, 1), []time.Time{at(2, 27, 0), at(2, 28, 0), at(3, 1, 0)}},
		{ByHour, at(2, 1, 22), at(2, 2, 0), []time.Time{at(2, 1, 22), at(2, 1, 23)}},
	} {
		if got := (UsageQuery{Bucket: c.bucket, Start: c.start, End: c.end}).Steps(); !slices.EqualFunc(got, c.want, time.Time.Equal) {
			t.Errorf("by %s from %s to %s: %v", c.bucket, c.start, c.end, got)
		}
	}
}

func TestMonthsAreTheNewestWithSpending(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		o.write(func(ctx context.Context, tx *db.Tx) error {
			posted := newPostings()
			for p, amount := range map[Period]credits.Micro{"2025-12": 3, "2026-01": 0, "2026-02": 5, "2026-03": 7} {
				posted.at(accountPeriod{o.account(), p}).Settled = amount
			}
			posted.at(accountPeriod{Account{Workspace, "ws_other"}, "2026-02"}).Settled = 9
			return posted.write(ctx, tx)
		})
		got, err := Months(t.Context(), d, o.account(), 2)
		if want := []Month{{"2026-03", 7}, {"2026-02", 5}}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%v (%v)", got, err)
		}
		if got, err := Months(t.Context(), d, o.account(), 10); err != nil || len(got) != 3 {
			t.Errorf("%v (%v)", got, err)
		}
	})
}

// addUsage adds settled entries to the rollups.
func addUsage(ctx context.Context, tx *db.Tx, list []audit.Settlement) error {
	t := newUsageTotals()
	for _, b := range list {
		t.count(b)
	}
	return t.write(ctx, tx)
}

// B7: the users who spent most in a month are read by an index, and are those with the highest sums of usage.
func TestTopUsersHaveTheHighestSumsOfTheMonth(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tenant := accounts.Tenant{WorkspaceID: "ws", Environment: "live"}
		march := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
		entry := func(user string, at time.Time, cost int64) *audit.Entry {
			return &audit.Entry{Tenant: tenant, KeyID: "k", EndUser: user, Model: "m", CreatedAt: at, Status: 200, Credits: credits.Micro(cost)}
		}
		changed := entry("eu_c", march, 9)
		other := entry("eu_b", march, 100)
		other.Environment = "test"
		simulated := entry("eu_b", march, 0)
		simulated.SimulatedCredits = 3
		posts := [][]audit.Settlement{
			{{Entry: entry("eu_a", march.Add(-time.Second), 100)}, {Entry: entry("eu_a", march, 1)}, {Entry: entry("eu_a", march.AddDate(0, 0, 30), 1)}, {Entry: changed}, {Entry: other}},
			{{Entry: simulated}, {Entry: entry("eu_c", march, 1), Previous: changed}, {Entry: entry("eu_deleted", march, 50)}, {Entry: entry("eu_a", march.AddDate(0, 1, 0), 100)}},
		}
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			for _, u := range []string{"eu_a", "eu_b", "eu_c"} {
				if _, err := tx.Exec(t.Context(), "INSERT INTO end_users (id, workspace_id, environment, name, created_at, seen_at) VALUES ($1, 'ws', 'live', $1, 0, 0)", u); err != nil {
					return err
				}
			}
			for _, list := range posts {
				if err := addUsage(t.Context(), tx, list); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for limit, want := range [][]string{{}, {"eu_b"}, {"eu_b", "eu_a"}, {"eu_b", "eu_a", "eu_c"}, {"eu_b", "eu_a", "eu_c"}} {
			top, err := TopUsers(t.Context(), d, tenant, march.AddDate(0, 0, 3), limit)
			got := make([]string, len(top))
			for i, u := range top {
				got[i] = u.ID
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("the top %d are %v (%v), want %v", limit, got, err, want)
			}
		}
		differences, err := db.Value[int64](d.QueryRow(t.Context(), `SELECT count(*) FROM usage_user_months m WHERE cost <> (SELECT sum(credits + simulated_credits) FROM usage_users u
			WHERE u.workspace_id = m.workspace_id AND u.environment = m.environment AND u.end_user_id = m.end_user_id AND u.start >= m.start AND u.start < m.start + 28 * 86400 + CASE WHEN m.start = $1 THEN 3 * 86400 ELSE 0 END)`, march.Unix()))
		if err != nil || differences != 0 {
			t.Errorf("%d months differ from the sums of their days (%v)", differences, err)
		}
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			n, err := PurgeUserMonths(t.Context(), tx, march.AddDate(0, 0, 3), 10)
			if n != 1 {
				t.Errorf("%d months were purged, want only that before", n)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
