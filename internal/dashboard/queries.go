package dashboard

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/media"
	"turnpike/internal/spend"
	"turnpike/internal/webhooks"
)

// Queries across the tables of several records. Each uses an index or scans a bounded
// number of rows.

// keyAddress is an address that a key was used from.
type keyAddress struct {
	IP       string
	Requests int64
	LastAt   time.Time
}

// addressesOf returns the addresses of a key's newest requests, the latest first. The
// caller checks that the key belongs to the workspace.
func addressesOf(ctx context.Context, q db.Querier, keyID string) ([]keyAddress, error) {
	rows, err := q.Query(ctx, `SELECT ip, count(*), max(created_at) FROM
		(SELECT ip, created_at FROM requests WHERE key_id = $1 ORDER BY id DESC LIMIT $2) AS newest
		GROUP BY ip ORDER BY 3 DESC, ip LIMIT $3`, keyID, int64(recentRequests), int64(shortList))
	return db.All(rows, err, func(r db.Row) (a keyAddress, err error) {
		err = db.Scan(r, &a.IP, &a.Requests, &a.LastAt)
		return a, err
	})
}

// maxErrorScan is how many of the newest requests are scanned for errors.
const maxErrorScan = 1000

type errorCount struct {
	Code  string
	Count int64
	Share int64 // of the most frequent one, in percent
}

// recentErrors is what the log says about the failed requests of two days, or of the newest requests if those are too
// many to scan. Usage lacks requests that were refused before a model was chosen.
type recentErrors struct {
	Codes []errorCount // the most frequent ones of the last day
	Seen  int64        // requests of the last day
	Back  *time.Time   // how far back they were counted; nil if all of the day were

	hours    [48]logHour // by age
	complete int         // how many of them are
}

// logHour is an hour of the log.
type logHour struct {
	Requests int64
	Failed   int64
	First    *time.Time // failed request
}

// sum adds up the hours from one age to another.
func (e *recentErrors) sum(from, to int) (sum logHour) {
	for _, h := range e.hours[from:to] {
		sum.Requests += h.Requests
		sum.Failed += h.Failed
		if h.First != nil && (sum.First == nil || h.First.Before(*sum.First)) {
			sum.First = h.First
		}
	}
	return sum
}

// readRecentErrors reads the newest requests of two days.
func readRecentErrors(ctx context.Context, q db.Querier, t accounts.Tenant, now time.Time) (*recentErrors, error) {
	out := &recentErrors{}
	since := now.Add(-time.Duration(len(out.hours)) * time.Hour)
	rows, err := q.Query(ctx, `SELECT COALESCE(error_code, ''), ($1 - created_at) / 3600000000, count(*), min(created_at), count(failed_at), min(failed_at) FROM
		(SELECT error_code, created_at, CASE WHEN status >= 400 THEN created_at END AS failed_at
			FROM requests WHERE workspace_id = $2 AND environment = $3 AND id >= $4 ORDER BY id DESC LIMIT $5) AS newest
		GROUP BY 1, 2 ORDER BY 1, 2`,
		now.UnixMicro(), t.WorkspaceID, t.Environment, ids.Floor(ids.Request, since), int64(maxErrorScan))
	oldest, scanned := now, int64(0)
	codes := map[string]int64{}
	err = db.Each(rows, err, func(r db.Row) error {
		var code string
		var age int
		var h logHour
		var first time.Time
		if err := db.Scan(r, &code, &age, &h.Requests, &first, &h.Failed, &h.First); err != nil {
			return err
		}
		scanned += h.Requests
		if first.Before(oldest) {
			oldest = first
		}
		age = min(max(age, 0), len(out.hours)-1) // clocks of nodes may differ
		if code != "" && age < 24 {
			codes[code] += h.Requests
		}
		at := &out.hours[age]
		at.Requests, at.Failed = at.Requests+h.Requests, at.Failed+h.Failed
		if h.First != nil && (at.First == nil || h.First.Before(*at.First)) {
			at.First = h.First
		}
		return nil
	})
	if err != nil {
		return nil, db.Wrap(err, "count errors")
	}
	out.Seen, out.complete = out.sum(0, 24).Requests, len(out.hours)
	if scanned == maxErrorScan {
		out.complete = min(out.complete, int(now.Sub(oldest)/time.Hour))
	}
	if out.complete < 24 {
		out.Back = &oldest
	}
	for code, n := range codes {
		out.Codes = append(out.Codes, errorCount{Code: code, Count: n})
	}
	slices.SortFunc(out.Codes, func(a, b errorCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Code, b.Code))
	})
	out.Codes = out.Codes[:min(len(out.Codes), topRows)]
	for i, e := range out.Codes {
		out.Codes[i].Share = percent(e.Count, out.Codes[0].Count)
	}
	return out, nil
}

type failingEndpoint struct {
	ID           string
	URL          string
	Description  string
	Paused       bool
	PausedReason string
	LastError    string
	LastFailure  *time.Time
}

// failingEndpoints returns the endpoints that are paused, or whose last attempt failed
// since a time. A workspace has few endpoints.
func failingEndpoints(ctx context.Context, q db.Querier, t accounts.Tenant, since time.Time) ([]failingEndpoint, error) {
	rows, err := q.Query(ctx, `SELECT e.id, e.url, e.description, e.status = $4, e.paused_reason, s.last_error, s.last_failure_at
		FROM endpoints e LEFT JOIN endpoint_stats s ON s.endpoint_id = e.id
		WHERE e.workspace_id = $1 AND e.environment = $2 AND e.kind = $3 AND e.deleted_at IS NULL
			AND (e.status = $4 OR s.last_failure_at >= $5 AND (s.last_success_at IS NULL OR s.last_success_at < s.last_failure_at))
		ORDER BY e.id DESC LIMIT $6`,
		t.WorkspaceID, t.Environment, string(webhooks.HTTP), string(webhooks.Paused), since.UnixMicro(), int64(homeRows))
	return db.All(rows, err, func(r db.Row) (e failingEndpoint, err error) {
		err = db.Scan(r, &e.ID, &e.URL, &e.Description, &e.Paused, &e.PausedReason, &e.LastError, &e.LastFailure)
		return e, err
	})
}

type teamMember struct {
	ID       string
	Email    string
	Name     string
	Role     accounts.Role
	Since    time.Time
	HasApp   bool // an authenticator app
	Passkeys int64
	Content  bool // reads the content of requests
}

func teamMembers(ctx context.Context, q db.Querier, workspaceID string, page db.Page) (*db.Found[*teamMember], error) {
	s := db.Search{Columns: "id, email, name, role, since, has_app, passkeys, content_access", Table: `(SELECT u.id, u.email, u.name, m.workspace_id, m.role, m.created_at AS since, m.content_access,
			EXISTS (SELECT 1 FROM totp t WHERE t.user_id = u.id AND t.enabled_at IS NOT NULL) AS has_app,
			(SELECT count(*) FROM passkeys p WHERE p.user_id = u.id) AS passkeys
		FROM members m JOIN users u ON u.id = m.user_id) AS team`}
	s.Where.Add("workspace_id =", workspaceID)
	scan := func(r db.Row) (*teamMember, error) {
		m := new(teamMember)
		return m, db.Scan(r, &m.ID, &m.Email, &m.Name, &m.Role, &m.Since, &m.HasApp, &m.Passkeys, &m.Content)
	}
	return db.Find(ctx, q, s, page, db.Record[*teamMember]{Scan: scan, ID: func(m *teamMember) string { return m.ID }})
}

func countOwners(ctx context.Context, q db.Querier, workspaceID string) (int, error) {
	return db.Value[int](q.QueryRow(ctx, "SELECT count(*) FROM members WHERE workspace_id = $1 AND role = $2", workspaceID, accounts.Owner))
}

type spender struct {
	ID    string
	Name  string
	Spent credits.Micro
}

// maxKeyScan limits the search for top spenders to the newest keys. The usage page has
// the others.
const maxKeyScan = 10_000

func keySpenders(ctx context.Context, q db.Querier, workspaceID string, p spend.Period) ([]spender, error) {
	return spenders(ctx, q, `SELECT k.id, k.name, s.settled
		FROM (SELECT id, name FROM keys WHERE workspace_id = $1 AND environment = $2 ORDER BY id DESC LIMIT $6) AS k
		JOIN spend s ON s.level = $3 AND s.account_id = k.id AND s.period = $4
		WHERE s.settled > 0 ORDER BY s.settled DESC, k.id LIMIT $5`,
		workspaceID, string(accounts.Live), string(spend.Key), string(p), int64(spendersShown), int64(maxKeyScan))
}

func projectSpenders(ctx context.Context, q db.Querier, workspaceID string, p spend.Period) ([]spender, error) {
	return spenders(ctx, q, `SELECT p.id, p.name, s.settled FROM projects p
		JOIN spend s ON s.level = $3 AND s.account_id = p.workspace_id || '/' || p.id AND s.period = $4
		WHERE p.workspace_id = $1 AND p.environment = $2 AND s.settled > 0 ORDER BY s.settled DESC, p.id LIMIT $5`,
		workspaceID, string(accounts.Live), string(spend.Project), string(p), int64(spendersShown))
}

func spenders(ctx context.Context, q db.Querier, query string, args ...any) ([]spender, error) {
	rows, err := q.Query(ctx, query, args...)
	return db.All(rows, err, func(r db.Row) (s spender, err error) {
		err = r.Scan(&s.ID, &s.Name, (*int64)(&s.Spent))
		return s, err
	})
}

// newestKeyNames returns the names of the newest keys, for pickers. The hidden keys of playgrounds are left out.
func newestKeyNames(ctx context.Context, q db.Querier, t accounts.Tenant) ([]string, error) {
	rows, err := q.Query(ctx, `SELECT name FROM keys WHERE workspace_id = $1 AND environment = $2 AND member_id IS NULL ORDER BY id DESC LIMIT $3`, t.WorkspaceID, t.Environment, int64(maxChoices))
	return db.All(rows, err, scanName)
}

// keysNamed returns the IDs of the newest keys whose name matches a pattern with *. Case
// doesn't matter.
func keysNamed(ctx context.Context, q db.Querier, t accounts.Tenant, pattern string) ([]string, error) {
	rows, err := q.Query(ctx, `SELECT id, name FROM keys WHERE workspace_id = $1 AND environment = $2 ORDER BY id DESC LIMIT $3`,
		t.WorkspaceID, t.Environment, int64(maxKeyScan))
	var out []string
	err = db.Each(rows, err, func(r db.Row) error {
		var id, name string
		err := r.Scan(&id, &name)
		if len(out) < maxChoices && (db.Match(pattern, name) || strings.EqualFold(pattern, name)) {
			out = append(out, id)
		}
		return err
	})
	return out, err
}

// maxModelScan is how many rows of daily usage are scanned for models.
const maxModelScan = 1000

// modelsInUse returns the models and providers of the last 30 days, by name.
func modelsInUse(ctx context.Context, q db.Querier, t accounts.Tenant, now time.Time) (models, providers []string, err error) {
	rows, err := q.Query(ctx, `SELECT DISTINCT model, provider FROM
		(SELECT model, provider FROM usage_days WHERE workspace_id = $1 AND environment = $2 AND start >= $3 ORDER BY start DESC LIMIT $4) AS newest`,
		t.WorkspaceID, t.Environment, now.AddDate(0, 0, -30).Unix(), int64(maxModelScan))
	err = db.Each(rows, err, func(r db.Row) error {
		var model, provider string
		err := r.Scan(&model, &provider)
		models, providers = append(models, model), append(providers, provider)
		return err
	})
	return named(models), named(providers), err
}

// maxWorkScan is how many of the newest jobs or runs are scanned for models.
const maxWorkScan = 200

// modelsOfJobs returns the models of the newest jobs of a kind, by name.
func modelsOfJobs(ctx context.Context, q db.Querier, t accounts.Tenant, kind media.Kind) ([]string, error) {
	rows, err := q.Query(ctx, `SELECT DISTINCT model FROM
		(SELECT model FROM media_jobs WHERE workspace_id = $1 AND environment = $2 AND kind = $3 ORDER BY id DESC LIMIT $4) AS newest`,
		t.WorkspaceID, t.Environment, string(kind), int64(maxWorkScan))
	list, err := db.All(rows, err, scanName)
	return named(list), err
}

// modelsOfRuns returns the models of the newest runs, by name.
func modelsOfRuns(ctx context.Context, q db.Querier, t accounts.Tenant) ([]string, error) {
	rows, err := q.Query(ctx, `SELECT DISTINCT model FROM
		(SELECT model FROM agent_runs WHERE workspace_id = $1 AND environment = $2 ORDER BY id DESC LIMIT $3) AS newest`,
		t.WorkspaceID, t.Environment, int64(maxWorkScan))
	list, err := db.All(rows, err, scanName)
	return named(list), err
}

func scanName(r db.Row) (name string, err error) {
	err = r.Scan(&name)
	return name, err
}

// named returns the names in order, without duplicates and empty ones.
func named(list []string) []string {
	return slices.DeleteFunc(unique(list), func(s string) bool { return s == "" })
}
