package lanes

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/db"
)

// Row is an item in a table: a record, or a part of one.
type Row struct {
	ID       string
	Position int64 // of the part; 0 for a record
	Due      int64 // microseconds
}

// Key is the row's position in its lane.
func (r *Row) Key() Key {
	return Key{Due: r.Due, ID: fmt.Sprintf("%s/%09d", r.ID, r.Position)}
}

// splitKey returns the ID and the position of a row's key.
func splitKey(k Key) (id string, position int64) {
	id, number, _ := strings.Cut(k.ID, "/")
	position, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return "", -1 // before all rows
	}
	return id, position
}

// Table is a table of items, with the columns lane and due_at.
type Table struct {
	DB       *db.DB
	Now      func() time.Time
	Name     string
	ID       string // the column of the record's ID
	Position string // the column of the part's position; empty in a table of records
}

// Fetch returns the rows that are due in a lane.
func (t Table) Fetch(ctx context.Context, lane string, after Key, n int) (b Batch[*Row], err error) {
	now := t.Now().UnixMicro()
	id, position := splitKey(after)
	columns, bounds, args := t.ID, "$4", []any{lane, now, after.Due, id}
	fields := func(r *Row) []any { return []any{&r.Due, &r.ID} }
	if t.Position != "" {
		columns, bounds, args = columns+", "+t.Position, bounds+", $5", append(args, position)
		fields = func(r *Row) []any { return []any{&r.Due, &r.ID, &r.Position} }
	}
	// The limit is part of the text because SQLite compiles a statement again
	// whenever the parameter of a LIMIT is bound.
	query := fmt.Sprintf("SELECT due_at, %[2]s FROM %[1]s WHERE lane = $1 AND due_at <= $2 AND (due_at, %[2]s) > ($3, %[3]s) ORDER BY due_at, %[2]s LIMIT %[4]d",
		t.Name, columns, bounds, n)
	b.Items, err = db.List(ctx, t.DB, db.Scanner(fields), query, args...)
	if err != nil || len(b.Items) > 0 {
		return b, err
	}
	b.Next, err = db.Value[time.Time](t.DB.QueryRow(ctx, "SELECT min(due_at) FROM "+t.Name+" WHERE lane = $1 AND due_at > $2", lane, now))
	return b, db.Wrap(err, "read when the next row is due")
}
