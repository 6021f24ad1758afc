package api

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

const (
	defaultLimit = 20
	maxLimit     = 100
)

// list is a page of any resource.
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

// goOnFrom sets where the next page begins: on a page that looked through its
// bound, that is where it stopped looking.
func (l *list[T]) goOnFrom(cursor string) {
	if l.HasMore {
		l.LastID = &cursor
	}
}

// query reads a request's query parameters and refuses those nobody knows.
type query struct {
	values url.Values
	err    error
}

func (c *Call) query(known ...string) *query {
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.fail(fault.New(fault.InvalidParameter, "the query string cannot be read"))
		return q
	}
	for name, list := range values {
		switch {
		case !slices.Contains(known, name):
			q.fail(fault.Param(fault.UnknownParameter, masked(name, 64), "there is no query parameter %q here; there are: %s", masked(name, 64), strings.Join(known, ", ")))
		case len(list) > 1:
			q.fail(fault.Invalid(name, "%s may be given once", name))
		case !plainText(list[0]):
			q.fail(fault.Invalid(name, "%s is not valid UTF-8 text", name))
		}
	}
	return q
}

// fail keeps the first problem.
func (q *query) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

func (q *query) text(name string) string { return q.values.Get(name) }

// number reads a whole number within bounds, or the fallback when it is absent.
func (q *query) number(name string, low, high, fallback int64) int64 {
	s := q.values.Get(name)
	if s == "" {
		return fallback
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		q.fail(fault.Invalid(name, "%s must be a whole number from %d to %d", name, low, high))
		return fallback
	}
	return n
}

// boolean reads true or false, which is what an absent parameter means.
func (q *query) boolean(name string) bool {
	switch q.values.Get(name) {
	case "", "false":
	case "true":
		return true
	default:
		q.fail(fault.Invalid(name, "Set %s to true or false.", name))
	}
	return false
}

// farFuture bounds times in queries: year 9999.
const farFuture = 253402300799

func (q *query) time(name string) time.Time {
	if q.values.Get(name) == "" {
		return time.Time{}
	}
	return time.Unix(q.number(name, 0, farFuture, 0), 0)
}

// pageParams are the query parameters of every list.
var pageParams = []string{"limit", "after", "order"}

// page reads them. prefix is that of the ids that after may name, or empty
// when the resource has ids of the customer's own.
func (q *query) page(prefix string) db.Page {
	p := db.Page{Limit: int(q.number("limit", 1, maxLimit, defaultLimit)), After: q.text("after")}
	if p.After != "" && prefix != "" && !ids.Valid(prefix, p.After) {
		q.fail(fault.Invalid("after", "after must be an id from this list, such as the last_id of the page before"))
	}
	switch q.text("order") {
	case "", "desc":
	case "asc":
		p.Asc = true
	default:
		q.fail(fault.Invalid("order", "order must be asc or desc"))
	}
	return p
}

// pathID returns the path's id when it has the right shape; nothing else can exist.
func (c *Call) pathID(prefix, kind string) (string, error) {
	id := c.r.PathValue("id")
	if !ids.Valid(prefix, id) {
		return "", fault.NoSuch(kind, masked(id, 64))
	}
	return id, nil
}

// unix is a time as the interface shows it.
func unix(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	s := t.Unix()
	return &s
}

// orNil is null for an empty text.
func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
