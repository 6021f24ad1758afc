package conversations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/db"
	"turnpike/internal/visibility"
)

// Create stores a background response that is queued. Finish stores its output.
func (s *Store) Create(ctx context.Context, tx *db.Tx, r *Response) error {
	p, err := s.prepare(r)
	if err != nil {
		return fmt.Errorf("stored response: %w", err)
	}
	if _, err := insertResponses.Write(ctx, tx, [][]any{p.row()}); err != nil {
		return err
	}
	tx.OnCommit(func() { s.usage.add(r.WorkspaceID, int64(len(p.sealed))) })
	return nil
}

// SetInProgress marks background responses as being created.
func (s *Store) SetInProgress(ctx context.Context, tx *db.Tx, ids []string) error {
	places, args := db.Places([]any{string(InProgress)}, ids)
	_, err := tx.Exec(ctx, "UPDATE responses SET status = $1 WHERE id IN "+places, args...)
	return err
}

// Queued returns a background response as it was queued and locks it, or ErrNotFound if it is no longer stored. The
// caller holds the lock that keeps it from ending.
func (s *Store) Queued(ctx context.Context, tx *db.Tx, id string) (*Response, error) {
	return s.scan(tx.QueryRow(ctx, "SELECT "+responseColumns+" FROM responses r WHERE r.id = $1"+tx.Lock("r"), id))
}

// Finish stores the end of a background response.
func (s *Store) Finish(ctx context.Context, tx *db.Tx, r *Response, ended jsontext.Value) error {
	r.Response, r.Status = ended, ""
	p, err := s.prepare(r)
	if err != nil {
		return fmt.Errorf("stored response: %w", err)
	}
	s.ended.Add(tx, p)
	return nil
}

// writeEnded writes the ends of all background responses of a transaction, by workspace: each statement locks the count
// of stored bytes.
func (s *Store) writeEnded(ctx context.Context, tx *db.Tx, list []*pendingResponse) error {
	found, err := renew(ctx, tx, list)
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b *pendingResponse) int { return strings.Compare(a.WorkspaceID, b.WorkspaceID) })
	for _, p := range list {
		_, err := tx.Exec(ctx, `UPDATE responses SET content = $2, status = NULL,
			bytes = CAST($3 AS BIGINT) + (SELECT CAST(coalesce(sum(e.bytes), 0) AS BIGINT) FROM response_events e WHERE e.response_id = $1) WHERE id = $1`, p.ID, p.sealed, int64(len(p.sealed)))
		if err != nil {
			return err
		}
	}
	return s.addItems(ctx, tx, list, found)
}

// Events are consecutive events of a background response.
type Events struct {
	ResponseID string
	Last       int64 // the sequence number of the last one
	Data       []jsontext.Value
}

var insertEvents = db.NewBulk("response_events", "", "response_id text", "last_event bigint", "content text", "bytes bigint")

func eventsPlace(id string, last int64) string { return fmt.Sprintf("response/%s/events/%d", id, last) }

// AddEvents stores events.
func (s *Store) AddEvents(ctx context.Context, tx *db.Tx, list []Events) error {
	rows := make([][]any, len(list))
	for i, e := range list {
		plain, err := json.Marshal(e.Data, lenient)
		if err != nil {
			return fmt.Errorf("stored events: %w", err)
		}
		sealed := s.ring.Seal(plain, eventsPlace(e.ResponseID, e.Last))
		rows[i] = []any{e.ResponseID, e.Last, sealed, int64(len(sealed))}
	}
	_, err := insertEvents.Write(ctx, tx, rows)
	return err
}

// DropEvents deletes the events of a response after a sequence number.
func (s *Store) DropEvents(ctx context.Context, tx *db.Tx, id string, after int64) error {
	_, err := tx.Exec(ctx, "DELETE FROM response_events WHERE response_id = $1 AND last_event > $2", id, after)
	return err
}

// ReadEvents returns up to n rows of events, the first of which has events after a sequence number.
func (s *Store) ReadEvents(ctx context.Context, q db.Querier, id string, after int64, n int) ([]Events, error) {
	return db.List(ctx, q, func(row db.Row) (Events, error) {
		e := Events{ResponseID: id}
		var sealed string
		if err := row.Scan(&e.Last, &sealed); err != nil {
			return e, err
		}
		plain, err := s.ring.Open(sealed, eventsPlace(id, e.Last))
		if err == nil {
			err = json.Unmarshal(plain, &e.Data, lenient)
		}
		return e, db.Wrap(err, "stored events")
	}, "SELECT last_event, content FROM response_events WHERE response_id = $1 AND last_event > $2 ORDER BY last_event LIMIT $3", id, after, int64(n))
}

// GetStatus returns the state of a stored response.
func (s *Store) GetStatus(ctx context.Context, q db.Querier, id string) (status Status, err error) {
	row := q.QueryRow(ctx, "SELECT coalesce(r.status, '') FROM responses r WHERE r.id = $1 AND "+unexpired("$2"), id, s.now().UnixMicro())
	if err = row.Scan((*string)(&status)); errors.Is(err, db.ErrNotFound) {
		err = noSuchResponse(id)
	}
	return status, err
}

// IsStreamed reports whether a visible response has stored events.
func (s *Store) IsStreamed(ctx context.Context, q db.Querier, f visibility.Filter, id string) (bool, error) {
	if _, err := s.Get(ctx, q, f, id); err != nil {
		return false, err
	}
	_, err := db.Value[int64](q.QueryRow(ctx, "SELECT last_event FROM response_events WHERE response_id = $1 LIMIT 1", id))
	if errors.Is(err, db.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
