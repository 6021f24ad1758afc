package audit

import (
	"context"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// markPending makes every sink send an entry, or send it again.
func markPending(tx *db.Tx, requestID string) error {
	err := tx.Send(nil, `INSERT INTO log_sink_pending (sink, request_id, version) SELECT name, $1, 1 FROM log_sinks WHERE true
		ON CONFLICT (sink, request_id) DO UPDATE SET version = log_sink_pending.version + 1`, requestID)
	return db.Wrap(err, "mark a log entry as pending")
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

// RemovePending ends what a sink has sent. Entries that have changed since stay pending.
func RemovePending(tx *db.Tx, sink string, sent []PendingEntry) error {
	for _, p := range sent {
		if err := tx.Send(nil, "DELETE FROM log_sink_pending WHERE sink = $1 AND request_id = $2 AND version = $3", sink, p.RequestID, p.Version); err != nil {
			return db.Wrap(err, "remove pending log entries")
		}
	}
	return nil
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
