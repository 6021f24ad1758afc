package audit

import (
	"context"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

var markPendingRows = db.NewBulkInsertFor("log_sink_pending (sink, request_id, version)", "SELECT name, v.request_id, 1 FROM log_sinks",
	"ON CONFLICT (sink, request_id) DO UPDATE SET version = log_sink_pending.version + 1", "request_id text")

// markPending makes every sink send entries, or send them again.
func markPending(ctx context.Context, tx *db.Tx, requestIDs ...string) error {
	rows := make([][]any, len(requestIDs))
	for i, id := range requestIDs {
		rows[i] = []any{id}
	}
	return db.Wrap(markPendingRows.Send(ctx, tx, rows, nil), "mark log entries as pending")
}

// Floors are the lowest and the highest floor of all nodes. The lowest is empty while a node has none.
type Floors struct{ Lowest, Highest string }

// ReadFloors returns the floors of all nodes.
func ReadFloors(ctx context.Context, q db.Querier) (f Floors, err error) {
	err = q.QueryRow(ctx, "SELECT COALESCE(min(log_floor), ''), COALESCE(max(log_floor), '') FROM nodes").Scan(&f.Lowest, &f.Highest)
	return f, db.Wrap(err, "read the floors of nodes")
}

// ReadBetween returns the first entries of all tenants after an ID and before another one, in the order of
// their IDs, whether or not they are settled.
func ReadBetween(ctx context.Context, q db.Querier, after, before string, limit int64) ([]*Entry, error) {
	list, err := db.List(ctx, q, scanEntry, "SELECT "+entryColumns+" FROM requests WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3", after, before, limit)
	return list, db.Wrap(err, "read the request log")
}

// PendingEntry is an entry that a sink sends apart from its position. Its version changes with the entry.
type PendingEntry struct {
	*Entry
	Version int64
}

// ReadPending returns the first settled entries after an ID that are pending for a sink.
func ReadPending(ctx context.Context, q db.Querier, sink, after string, limit int64) ([]PendingEntry, error) {
	list, err := db.List(ctx, q, func(r db.Row) (p PendingEntry, err error) {
		p.Entry = &Entry{}
		err = db.Scan(r, append(entryFields(p.Entry), &p.Version)...)
		return p, err
	}, "SELECT "+entryColumns+`, version FROM log_sink_pending JOIN requests ON id = request_id
		WHERE sink = $1 AND request_id > $2 AND settled ORDER BY request_id LIMIT $3`, sink, after, limit)
	return list, db.Wrap(err, "read pending log entries")
}

var insertPending = db.NewBulk("log_sink_pending", "ON CONFLICT (sink, request_id) DO NOTHING", "sink text", "request_id text", "version bigint")

// AddPending makes entries pending for a sink.
func AddPending(ctx context.Context, tx *db.Tx, sink string, requestIDs []string) error {
	rows := make([][]any, len(requestIDs))
	for i, id := range requestIDs {
		rows[i] = []any{sink, id, int64(1)}
	}
	_, err := insertPending.Write(ctx, tx, rows)
	return db.Wrap(err, "store pending log entries")
}

var deletePending = db.NewBulkDelete("log_sink_pending", "log_sink_pending.sink = v.sink AND log_sink_pending.request_id = v.request_id AND log_sink_pending.version = v.version",
	"sink text", "request_id text", "version bigint")

// RemovePending ends what a sink has sent. Entries that have changed since stay pending.
func RemovePending(ctx context.Context, tx *db.Tx, sink string, sent []PendingEntry) error {
	rows := make([][]any, len(sent))
	for i, p := range sent {
		rows[i] = []any{sink, p.RequestID, p.Version}
	}
	return db.Wrap(deletePending.Send(ctx, tx, rows, nil), "remove pending log entries")
}

// Unsent returns the time of the oldest entry that a sink may not have sent, or the limit if that is earlier.
// Entries from then on must stay in the database.
func Unsent(ctx context.Context, q db.Querier, limit time.Time) (time.Time, error) {
	id, err := db.Value[string](q.QueryRow(ctx, `SELECT min(id) FROM
		(SELECT position AS id FROM log_sinks WHERE position <> '' UNION ALL SELECT min(request_id) FROM log_sink_pending) AS unsent`))
	if err != nil || id == "" || ids.Time(id).After(limit) {
		return limit, db.Wrap(err, "read log sinks")
	}
	return ids.Time(id), nil
}
