package db

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/ids"
)

// scanLimit is how many rows a page scans for filters without an index. A page may be
// short or empty and still have a cursor.
const scanLimit = 10_000

// scanSteps are the parts of a scan. The first one is enough for filters that match often.
var scanSteps = []int{500, scanLimit - 500}

// Search lists a large table by ID. Conditions in Where have an index; those in Filter
// scan a limited number of rows.
type Search struct {
	Table   string
	Columns string
	Where   Conditions
	Filter  Conditions
	Lock    string // the result of Tx.Lock, or empty
}

// Record says how to read a row.
type Record[T any] struct {
	Scan func(Row) (T, error)
	ID   func(T) string
}

// Found is a page of a search. The next page starts after Cursor.
type Found[T any] struct {
	Rows   []T
	Cursor string
	More   bool
	Looked int // number of scanned rows if scanLimit ended the page
}

// Find reads a page.
func Find[T any](ctx context.Context, q Querier, s Search, page Page, of Record[T]) (*Found[T], error) {
	f := &Found[T]{}
	for _, n := range scanSteps {
		edge := ""
		if !s.Filter.empty() {
			var err error
			if edge, err = s.edge(ctx, q, page, n); err != nil {
				return nil, err
			}
		}
		query, args := s.selectUpTo(page, edge)
		rows, err := q.Query(ctx, fmt.Sprintf("%s LIMIT $%d", query, len(args)+1), append(args, int64(page.Limit+1-len(f.Rows)))...)
		list, err := All(rows, err, of.Scan)
		if err != nil {
			return nil, err
		}
		f.Rows, f.More = Cut(page, append(f.Rows, list...))
		if n := len(f.Rows); n > 0 {
			f.Cursor = of.ID(f.Rows[n-1])
		}
		if f.More || edge == "" {
			return f, nil
		}
		page.After = edge
	}
	f.More, f.Cursor, f.Looked = true, page.After, scanLimit
	return f, nil
}

// selectUpTo returns the query for the rows of a page, as far as an ID if it isn't empty.
func (s Search) selectUpTo(page Page, edge string) (string, []any) {
	where := s.past(page)
	if edge != "" {
		where.Bound(page.upTo(), edge)
	}
	query, args := "SELECT "+s.Columns+" FROM "+s.Table+" WHERE "+where.sql(0), where.args
	if !s.Filter.empty() {
		query, args = query+" AND "+s.Filter.sql(len(args)), slices.Concat(args, s.Filter.args)
	}
	return query + " ORDER BY id " + page.Order(), args
}

// past returns the conditions with an index, for the rows after those of the last page.
func (s Search) past(page Page) Conditions {
	where := s.Where.clone()
	if page.After != "" {
		where.Bound(page.Past(), page.After)
	}
	return where
}

// edge returns the ID of the last row that a scan of n rows reaches, or an empty string if
// there are fewer. It reads only the index. With it the database filters while it scans,
// which took half as long as filtering a subquery with a LIMIT.
func (s Search) edge(ctx context.Context, q Querier, page Page, n int) (string, error) {
	where := s.past(page)
	id, err := Value[string](q.QueryRow(ctx, fmt.Sprintf("SELECT id FROM %s WHERE %s ORDER BY id %s LIMIT 1 OFFSET %d", s.Table, where.sql(0), page.Order(), n-1), where.args...))
	return id, IgnoreNotFound(err)
}

// timelineLimit is how many rows a timeline scans, which takes a few milliseconds.
const timelineLimit = 3000

// Timeline divides a time range into steps.
type Timeline struct {
	Start  time.Time
	Step   time.Duration
	Steps  int
	Failed string // the SQL condition of rows that are also counted as failed; without a value
	// Rollup counts the rows in another way, if there are too many to scan. It returns nil
	// if it can't. It may be nil.
	Rollup func() (*TimelineCounts, error)
}

// End returns the end of the last step.
func (t Timeline) End() time.Time { return t.Start.Add(time.Duration(t.Steps) * t.Step) }

// StepCount is how many rows a step of a timeline has.
type StepCount struct{ Rows, Failed int64 }

// TimelineCounts are the rows of each step.
type TimelineCounts struct {
	Steps []StepCount
	Since time.Time // older rows aren't counted; zero if all are
}

// CountRows counts the newest rows of a search by time. The table must have the column
// created_at, and the caller limits the search to the time range.
func CountRows(ctx context.Context, q Querier, s Search, t Timeline) (*TimelineCounts, error) {
	edge, err := s.edge(ctx, q, Page{}, timelineLimit)
	if err != nil {
		return nil, err
	}
	out := &TimelineCounts{Steps: make([]StepCount, t.Steps)}
	where := s.Where.clone()
	if edge != "" {
		if t.Rollup != nil {
			if counts, err := t.Rollup(); err != nil || counts != nil {
				return counts, err
			}
		}
		out.Since = ids.Time(edge)
		where.Bound(">=", edge)
	}
	failed := t.Failed
	if failed == "" {
		failed = "1 = 0"
	}
	conditions, args := where.sql(0), slices.Concat(where.args, s.Filter.args)
	if !s.Filter.empty() {
		conditions += " AND " + s.Filter.sql(len(where.args))
	}
	rows, err := q.Query(ctx, fmt.Sprintf(`SELECT (created_at - $%d) / $%d AS step, count(*), sum(CASE WHEN %s THEN 1 ELSE 0 END) FROM %s WHERE %s GROUP BY 1`,
		len(args)+1, len(args)+2, failed, s.Table, conditions), append(args, t.Start.UnixMicro(), t.Step.Microseconds())...)
	err = Each(rows, err, func(r Row) error {
		var step, n, failed int64
		err := r.Scan(&step, &n, &failed)
		if step >= 0 && step < int64(t.Steps) {
			out.Steps[step] = StepCount{n, failed}
		}
		return err
	})
	return out, err
}

// FindOne reads the row with the ID and the conditions of Where.
func FindOne[T any](ctx context.Context, q Querier, s Search, id string, scan func(Row) (T, error)) (T, error) {
	where := s.Where.clone()
	where.Add("id =", id)
	return scan(q.QueryRow(ctx, "SELECT "+s.Columns+" FROM "+s.Table+" WHERE "+where.sql(0)+s.Lock, where.args...))
}

// Conditions builds a WHERE clause.
type Conditions struct {
	fixed []string // without a value
	list  []string
	args  []any
}

// Require adds a condition without a value, such as "deleted_at IS NULL".
func (c *Conditions) Require(condition string) { c.fixed = append(c.fixed, condition) }

// Add adds a comparison, such as "status =", or a condition with a ? for the value.
func (c *Conditions) Add(comparison string, value any) {
	if !strings.Contains(comparison, "?") {
		comparison += " ?"
	}
	c.list = append(c.list, comparison)
	c.args = append(c.args, value)
}

// Bound limits the ID by an operator. It replaces the condition in the same direction, if the
// new one is as tight: of two, SQLite uses either for its index, and scans the rows of the other.
func (c *Conditions) Bound(operator, id string) {
	at := 0 // the argument of the condition
	for i, condition := range c.list {
		if old, ok := strings.CutPrefix(condition, "id "+operator[:1]); ok && (old == " ?" || old == "= ?") {
			if order := strings.Compare(id, c.args[at].(string)); operator[0] == '<' && order > 0 || operator[0] == '>' && order < 0 || order == 0 && old == " ?" {
				return
			}
			c.list, c.args = slices.Delete(c.list, i, i+1), slices.Delete(c.args, at, at+1)
			break
		}
		at += strings.Count(condition, "?")
	}
	c.Add("id "+operator, id)
}

// AddIn adds the condition that a column has one of the values.
func (c *Conditions) AddIn(column string, values []string) {
	c.list = append(c.list, column+" IN (?"+strings.Repeat(", ?", len(values)-1)+")")
	for _, v := range values {
		c.args = append(c.args, v)
	}
}

// Range is a range of whole numbers. Both ends are inclusive, and nil is open.
type Range struct{ Min, Max *int64 }

// Includes reports whether a number is in the range.
func (r Range) Includes(n int64) bool {
	return (r.Min == nil || n >= *r.Min) && (r.Max == nil || n <= *r.Max)
}

// AddRange adds the condition that a column is in a range.
func (c *Conditions) AddRange(column string, r Range) {
	if r.Min != nil {
		c.Add(column+" >=", *r.Min)
	}
	if r.Max != nil {
		c.Add(column+" <=", *r.Max)
	}
}

// AddMatch adds the condition that a column matches a pattern, in which * stands for any
// characters. Patterns ignore case; other text must be equal. An empty pattern adds
// nothing. With several columns, one of them must match.
func (c *Conditions) AddMatch(pattern string, columns ...string) {
	if pattern == "" {
		return
	}
	var either []string
	for _, column := range columns {
		if strings.Contains(pattern, "*") {
			either = append(either, "lower("+column+`) LIKE ? ESCAPE '\'`)
			c.args = append(c.args, likePattern.Replace(strings.ToLower(pattern)))
		} else {
			either = append(either, column+" = ?")
			c.args = append(c.args, pattern)
		}
	}
	c.list = append(c.list, "("+strings.Join(either, " OR ")+")")
}

// Match reports whether a text matches a pattern as AddMatch does.
func Match(pattern, text string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == text
	}
	parts := strings.Split(strings.ToLower(pattern), "*")
	rest, found := strings.CutPrefix(strings.ToLower(text), parts[0])
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		if found {
			_, rest, found = strings.Cut(rest, part)
		}
	}
	return found && strings.HasSuffix(rest, parts[last])
}

var likePattern = strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`, "*", "%")

func (c *Conditions) clone() Conditions {
	return Conditions{fixed: slices.Clone(c.fixed), list: slices.Clone(c.list), args: slices.Clone(c.args)}
}

func (c *Conditions) empty() bool { return len(c.fixed) == 0 && len(c.list) == 0 }

// sql numbers parameters after offset.
func (c *Conditions) sql(offset int) string {
	conditions := strings.Split(strings.Join(slices.Concat(c.fixed, c.list), " AND "), "?")
	for i := range conditions[1:] {
		conditions[i] += fmt.Sprintf("$%d", offset+i+1)
	}
	return strings.Join(conditions, "")
}

// perStatement limits the IDs of one statement.
const perStatement = 500

// InQuery is a query that ends in IN, and its arguments.
type InQuery struct {
	SQL  string
	Args []any
}

// ByIDs reads the rows of a list of IDs.
func ByIDs(ctx context.Context, q Querier, in InQuery, ids []string, each func(Row) error) error {
	for some := range slices.Chunk(ids, perStatement) {
		places, args := Places(in.Args, some)
		rows, err := q.Query(ctx, in.SQL+" "+places, args...)
		if err := Each(rows, err, each); err != nil {
			return err
		}
	}
	return nil
}

// Places adds values to the arguments of a statement, and returns their places for IN.
func Places[T any](args []any, values []T) (string, []any) {
	all, places := slices.Clone(args), make([]string, len(values))
	for i, v := range values {
		all = append(all, v)
		places[i] = fmt.Sprintf("$%d", len(all))
	}
	return "(" + strings.Join(places, ", ") + ")", all
}

// Page requests the rows after After. Lists read one row more than Limit to find
// out whether there are more.
type Page struct {
	Limit int
	After string
	Asc   bool
}

// Past returns the comparison that finds the rows after After.
func (p Page) Past() string {
	if p.Asc {
		return ">"
	}
	return "<"
}

// upTo returns the comparison that finds the rows up to an ID.
func (p Page) upTo() string {
	if p.Asc {
		return "<="
	}
	return ">="
}

// Order returns ASC or DESC.
func (p Page) Order() string {
	if p.Asc {
		return "ASC"
	}
	return "DESC"
}

// Cut drops the extra row and reports whether there was one.
func Cut[T any](p Page, rows []T) (page []T, more bool) {
	if len(rows) > p.Limit {
		return rows[:p.Limit], true
	}
	return rows, false
}
