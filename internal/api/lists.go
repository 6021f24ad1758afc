package api

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/web"
)

const (
	defaultLimit = 20
	maxLimit     = 100
)

type list[T any] struct {
	Object  string  `json:"object"`
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

func newList[T any](data []T, id func(T) string, more bool) *list[T] {
	l := &list[T]{Object: "list", Data: data, HasMore: more}
	if n := len(data); n > 0 {
		first, last := id(data[0]), id(data[n-1])
		l.FirstID, l.LastID = &first, &last
	}
	return l
}

// foundList returns a page of a search. If the search reached its scan limit, the
// next page starts at the last row it looked at.
func foundList[R, T any](found *db.Found[R], data []T, id func(R) string) *list[T] {
	rows := newList(found.Rows, id, found.More)
	if found.More {
		rows.LastID = &found.Cursor
	}
	return &list[T]{rows.Object, data, rows.FirstID, rows.LastID, rows.HasMore}
}

// query reads a request's query parameters and rejects unknown ones.
type query struct {
	values url.Values
	err    error
}

func (c *Call) query(known ...string) *query {
	values, err := url.ParseQuery(c.R.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.fail(fault.New(fault.InvalidParameter, "The query string is malformed."))
		return q
	}
	for name, list := range values {
		switch {
		case !slices.Contains(known, name):
			q.fail(fault.Param(fault.UnknownParameter, web.Sanitize(name, 64), "Unknown query parameter %q. Allowed parameters: %s.", web.Sanitize(name, 64), strings.Join(known, ", ")))
		case len(list) > 1:
			q.fail(fault.Invalid(name, "%s can be given only once.", name))
		case !web.ValidText(list[0]):
			q.fail(fault.Invalid(name, "%s must be valid UTF-8.", name))
		}
	}
	return q
}

// queryWithMetadata is query for lists with parameters such as metadata[team]=red.
func (c *Call) queryWithMetadata(known ...string) (*query, map[string]string) {
	values, _ := url.ParseQuery(c.R.URL.RawQuery) // query reports the error
	metadata := map[string]string{}
	for name, list := range values {
		inner, found := strings.CutPrefix(name, "metadata[")
		if inner, closed := strings.CutSuffix(inner, "]"); found && closed && len(list) == 1 {
			known = append(known, name)
			metadata[inner] = list[0]
		}
	}
	return c.query(known...), metadata
}

// fail keeps the first error. A nil error changes nothing.
func (q *query) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

func (q *query) text(name string) string { return q.values.Get(name) }

// number reads an integer within bounds, or returns the fallback if it is absent.
func (q *query) number(name string, low, high, fallback int64) int64 {
	s := q.values.Get(name)
	if s == "" {
		return fallback
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		q.fail(fault.Invalid(name, "%s must be an integer from %d to %d.", name, low, high))
		return fallback
	}
	return n
}

func (q *query) boolean(name string) bool {
	s := q.values.Get(name)
	if s != "" && s != "true" && s != "false" {
		q.fail(fault.Invalid(name, "Set %s to true or false.", name))
	}
	return s == "true"
}

// choice reads one of the allowed words, or returns an empty one if it is absent.
func choice[T ~string](q *query, name string, allowed []T) T {
	value := T(q.text(name))
	if value != "" && !slices.Contains(allowed, value) {
		words := web.Map(allowed, func(t T) string { return string(t) })
		last := len(words) - 1
		q.fail(fault.Invalid(name, "%s must be %s or %s.", name, strings.Join(words[:last], ", "), words[last]))
	}
	return value
}

// maxUnixTime is the end of the year 9999.
const maxUnixTime = 253402300799

func (q *query) time(name string) time.Time {
	if q.values.Get(name) == "" {
		return time.Time{}
	}
	return time.Unix(q.number(name, 0, maxUnixTime, 0), 0)
}

var pageParams = []string{"limit", "after", "order"}

// page reads pageParams. prefix is that of the IDs that after may name, or empty
// if the resource's IDs are chosen by the client.
func (q *query) page(prefix string) db.Page {
	p := db.Page{Limit: int(q.number("limit", 1, maxLimit, defaultLimit)), After: q.text("after")}
	if p.After != "" && prefix != "" && !ids.Valid(prefix, p.After) {
		q.fail(fault.Invalid("after", "after must be an ID from this list, such as last_id of the previous page."))
	}
	p.Asc = choice(q, "order", []string{"asc", "desc"}) == "asc"
	return p
}

// id returns the ID in the path. If the route is in pathIDs, it has the right format.
func (c *Call) id() string { return c.R.PathValue("id") }

func unix(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	s := t.Unix()
	return &s
}

// fromUnix reads an optional Unix time in a body.
func fromUnix(param string, seconds *int64) (*time.Time, error) {
	if seconds == nil {
		return nil, nil
	}
	if *seconds < 0 || *seconds > maxUnixTime {
		return nil, fault.Invalid(param, "%s must be a Unix time in seconds.", param)
	}
	t := time.Unix(*seconds, 0)
	return &t, nil
}

// fromSeconds converts seconds to a duration. If there are too many, it returns more than
// the limit, so that the caller's check of the range fails.
func fromSeconds(n int64, limit time.Duration) time.Duration {
	return time.Duration(min(max(n, -1), int64(limit/time.Second)+1)) * time.Second
}

// orNil returns nil for the zero value.
func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// maxPageBytes is how much text a page has before it ends, whatever its limit:
// rows such as events have up to a megabyte each, and several requests for a
// hundred of them used up all memory.
const maxPageBytes = 4 << 20

// pageBudget is a db.Querier whose rows end when they have used up a number of
// bytes, but not before the first row. Rows are read one by one, so the others
// are never in memory.
type pageBudget struct {
	db.Querier
	left     int
	exceeded bool // there are more rows than were read
}

func (c *Call) pageBudget() *pageBudget { return &pageBudget{Querier: c.s.DB, left: maxPageBytes} }

// Query runs a query whose rows count toward the budget.
func (b *pageBudget) Query(ctx context.Context, query string, args ...any) (db.Rows, error) {
	rows, err := b.Querier.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &budgetRows{rows, b}, nil
}

func (b *pageBudget) spend(values ...string) {
	for _, s := range values {
		b.left -= len(s)
	}
}

type budgetRows struct {
	db.Rows
	budget *pageBudget
}

func (r *budgetRows) Next() bool {
	if !r.Rows.Next() {
		return false
	}
	r.budget.exceeded = r.budget.left <= 0
	return !r.budget.exceeded
}

func (r *budgetRows) Scan(dest ...any) error {
	if err := r.Rows.Scan(dest...); err != nil {
		return err
	}
	for _, d := range dest {
		r.budget.left -= db.TextSize(d)
	}
	return nil
}

// truncatePage sets where the next page starts if the budget was exceeded.
func truncatePage[T any](b *pageBudget, found *db.Found[T], id func(T) string) {
	if n := len(found.Rows); b.exceeded && n > 0 {
		found.More, found.Cursor = true, id(found.Rows[n-1])
	}
}
