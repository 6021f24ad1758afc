package db

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// scanBound is how many rows one page looks through for filters that have no
// index. A page may then be short or empty and still have a cursor.
const scanBound = 10_000

// Search is a list of a big table by id with filters. Those of Where have an
// index; those of Filter are found by looking through a bounded number of rows.
type Search struct {
	Table   string
	Columns string
	Where   Conditions
	Filter  Conditions
}

// Found is a page of a search. Cursor is where the next page goes on from.
type Found[T any] struct {
	Rows   []T
	Cursor string
	More   bool
	Looked int // how many rows were looked through, when that bound has ended the page
}

// Find reads a page.
func Find[T any](ctx context.Context, q Querier, s Search, page Page, scan func(Row) (T, error), id func(T) string) (*Found[T], error) {
	where := s.Where.clone()
	if page.After != "" {
		where.Add("id "+page.Past(), page.After)
	}
	order := " ORDER BY id " + page.Order()
	read := func(query string, args []any) (*Found[T], error) {
		rows, err := q.Query(ctx, fmt.Sprintf("%s LIMIT $%d", query, len(args)+1), append(args, int64(page.Limit+1))...)
		list, err := All(rows, err, scan)
		if err != nil {
			return nil, err
		}
		f := &Found[T]{}
		f.Rows, f.More = Cut(page, list)
		if n := len(f.Rows); n > 0 {
			f.Cursor = id(f.Rows[n-1])
		}
		return f, nil
	}
	if s.Filter.empty() {
		return read("SELECT "+s.Columns+" FROM "+s.Table+" WHERE "+where.sql(0)+order, where.args)
	}

	looked := fmt.Sprintf(" FROM %s WHERE %s%s LIMIT %d", s.Table, where.sql(0), order, scanBound)
	f, err := read("SELECT "+s.Columns+" FROM (SELECT *"+looked+") AS looked WHERE "+s.Filter.sql(len(where.args))+order,
		slices.Concat(where.args, s.Filter.args))
	if err != nil || f.More {
		return f, err
	}
	// What was looked through has no more: go on from its end, if the bound
	// and not the table ended it.
	edge := "min(id)"
	if page.Asc {
		edge = "max(id)"
	}
	var n int64
	var last *string
	err = q.QueryRow(ctx, "SELECT count(*), "+edge+" FROM (SELECT id"+looked+") AS looked", where.args...).Scan(&n, &last)
	if err != nil {
		return nil, err
	}
	if n == scanBound {
		f.More, f.Cursor, f.Looked = true, Text(last), scanBound
	}
	return f, nil
}

// FindOne reads the row with the ID, if it meets the conditions of Where. lock is
// what Tx.Lock returns, or empty.
func FindOne[T any](ctx context.Context, q Querier, s Search, id, lock string, scan func(Row) (T, error)) (T, error) {
	where := s.Where.clone()
	where.Add("id =", id)
	return scan(q.QueryRow(ctx, "SELECT "+s.Columns+" FROM "+s.Table+" WHERE "+where.sql(0)+lock, where.args...))
}

// Conditions is a WHERE clause in the making.
type Conditions struct {
	fixed []string // without a value
	list  []string
	args  []any
}

// Require adds a condition without a value, such as "deleted_at IS NULL".
func (c *Conditions) Require(condition string) { c.fixed = append(c.fixed, condition) }

// Add adds a comparison, such as "status =", with its right side, or a whole
// condition with a ? where the value belongs.
func (c *Conditions) Add(comparison string, value any) {
	c.list = append(c.list, comparison)
	c.args = append(c.args, value)
}

func (c *Conditions) clone() Conditions {
	return Conditions{fixed: slices.Clone(c.fixed), list: slices.Clone(c.list), args: slices.Clone(c.args)}
}

func (c *Conditions) empty() bool { return len(c.fixed) == 0 && len(c.list) == 0 }

// sql numbers the parameters from offset on.
func (c *Conditions) sql(offset int) string {
	out := slices.Clone(c.fixed)
	for i, comparison := range c.list {
		before, after, _ := strings.Cut(comparison, "?")
		out = append(out, fmt.Sprintf("%s $%d%s", before, offset+i+1, after))
	}
	return strings.Join(out, " AND ")
}

// perStatement is how many ids one statement names: it has room for more.
const perStatement = 500

// ByIDs reads the rows of a list of ids. The query ends in IN; the list is put
// behind it.
func ByIDs(ctx context.Context, q Querier, query string, args []any, ids []string, each func(Row) error) error {
	for some := range slices.Chunk(ids, perStatement) {
		all, places := slices.Clone(args), make([]string, len(some))
		for i, id := range some {
			all = append(all, id)
			places[i] = fmt.Sprintf("$%d", len(all))
		}
		rows, err := q.Query(ctx, query+" ("+strings.Join(places, ", ")+")", all...)
		if err := Each(rows, err, each); err != nil {
			return err
		}
	}
	return nil
}
