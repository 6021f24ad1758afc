package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// scanBound is how many entries one page looks through for filters that have
// no index. A page may then be short or empty and still have a cursor.
const scanBound = 10_000

// Filter selects entries. Time and key have an index; the others are found by
// looking through a bounded number of entries.
type Filter struct {
	Since   time.Time // inclusive; zero: from the beginning
	Until   time.Time // exclusive; zero: until now
	KeyID   string
	Model   string
	Project string
	IP      string
	Status  int
}

// Result is a page of entries. Cursor is where the next page goes on from.
type Result struct {
	Entries []*Entry
	Cursor  string
	More    bool
}

// List returns a page of a workspace's entries in one environment.
func List(ctx context.Context, q db.Querier, workspaceID, environment string, f Filter, page db.Page) (*Result, error) {
	var c conditions
	c.add("workspace_id =", workspaceID)
	c.add("environment =", environment)
	if f.KeyID != "" {
		c.add("key_id =", f.KeyID)
	}
	if !f.Since.IsZero() {
		c.add("id >=", ids.Floor(ids.Request, f.Since))
	}
	if !f.Until.IsZero() {
		c.add("id <", ids.Floor(ids.Request, f.Until))
	}
	if page.After != "" {
		c.add("id "+page.Past(), page.After)
	}
	order := " ORDER BY id " + page.Order()
	if f.Model == "" && f.Project == "" && f.IP == "" && f.Status == 0 {
		return readPage(ctx, q, "SELECT "+entryColumns+" FROM requests WHERE "+c.sql()+order, c.args, page)
	}

	looked := fmt.Sprintf(" FROM requests WHERE %s%s LIMIT %d", c.sql(), order, scanBound)
	filtered := conditions{args: slices.Clone(c.args)}
	for _, by := range []struct{ column, value string }{{"model", f.Model}, {"project", f.Project}, {"ip", f.IP}} {
		if by.value != "" {
			filtered.add(by.column+" =", by.value)
		}
	}
	if f.Status != 0 {
		filtered.add("status =", int64(f.Status))
	}
	r, err := readPage(ctx, q, "SELECT "+entryColumns+" FROM (SELECT *"+looked+") AS looked WHERE "+filtered.sql()+order, filtered.args, page)
	if err != nil || r.More {
		return r, err
	}
	// What was looked through has no more: go on from its end, if the bound
	// and not the log ended it.
	edge := "min(id)"
	if page.Asc {
		edge = "max(id)"
	}
	var n int64
	var last *string
	err = q.QueryRow(ctx, "SELECT count(*), "+edge+" FROM (SELECT id"+looked+") AS looked", c.args...).Scan(&n, &last)
	if err != nil {
		return nil, err
	}
	if n == scanBound {
		r.More, r.Cursor = true, db.Text(last)
	}
	return r, nil
}

func readPage(ctx context.Context, q db.Querier, query string, args []any, page db.Page) (*Result, error) {
	rows, err := q.Query(ctx, fmt.Sprintf("%s LIMIT $%d", query, len(args)+1), append(args, int64(page.Limit+1))...)
	list, err := db.All(rows, err, scanEntry)
	if err != nil {
		return nil, err
	}
	r := &Result{}
	r.Entries, r.More = db.Cut(page, list)
	if n := len(r.Entries); n > 0 {
		r.Cursor = r.Entries[n-1].RequestID
	}
	return r, nil
}

// conditions is a WHERE clause in the making, with numbered parameters.
type conditions struct {
	list []string
	args []any
}

func (c *conditions) add(comparison string, value any) {
	c.args = append(c.args, value)
	c.list = append(c.list, fmt.Sprintf("%s $%d", comparison, len(c.args)))
}

func (c *conditions) sql() string { return strings.Join(c.list, " AND ") }

// Get returns one entry.
func Get(ctx context.Context, q db.Querier, workspaceID, environment, requestID string) (*Entry, error) {
	e, err := scanEntry(q.QueryRow(ctx, "SELECT "+entryColumns+" FROM requests WHERE id = $1 AND workspace_id = $2 AND environment = $3",
		requestID, workspaceID, environment))
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("request", requestID)
	}
	return e, err
}
