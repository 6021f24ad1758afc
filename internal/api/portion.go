package api

import (
	"context"

	"turnpike/internal/db"
)

// pageBytes is how much text a page has before it ends, whatever its limit: rows
// such as events have up to a megabyte each, and a hundred of them at once, asked
// for by several callers, took all memory.
const pageBytes = 4 << 20

// portion reads rows until they have come to so many bytes of text, and always
// one. They are read one by one, so that nothing of the others is held.
type portion struct {
	db.Querier
	left int
	cut  bool // there are more rows than were read
}

func (c *Call) portion() *portion { return &portion{Querier: c.s.DB, left: pageBytes} }

// Query is a query whose rows end with the portion.
func (p *portion) Query(ctx context.Context, query string, args ...any) (db.Rows, error) {
	rows, err := p.Querier.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &portionRows{rows, p}, nil
}

// take counts texts.
func (p *portion) take(texts ...string) {
	for _, s := range texts {
		p.left -= len(s)
	}
}

type portionRows struct {
	db.Rows
	p *portion
}

func (r *portionRows) Next() bool {
	if !r.Rows.Next() {
		return false
	}
	r.p.cut = r.p.left <= 0
	return !r.p.cut
}

func (r *portionRows) Scan(dest ...any) error {
	if err := r.Rows.Scan(dest...); err != nil {
		return err
	}
	for _, d := range dest {
		switch s := d.(type) {
		case *string:
			r.p.take(*s)
		case **string:
			r.p.take(db.Text(*s))
		}
	}
	return nil
}

// cutPage says where a page goes on that its portion has ended.
func cutPage[T any](p *portion, found *db.Found[T], id func(T) string) {
	if n := len(found.Rows); p.cut && n > 0 {
		found.More, found.Cursor = true, id(found.Rows[n-1])
	}
}
