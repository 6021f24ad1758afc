// Package conversations stores responses of the Responses API, conversations, and the threads of the
// Messages API. The content is encrypted, and purged when it expires.
package conversations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/budget"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

// Owner says who can see a response or a conversation.
type Owner struct {
	visibility.Tenant
	Project string
	Reader  string // of a scoped token, as in visibility.Filter; empty for a key
}

func (o *Owner) visibleTo(f visibility.Filter) bool {
	return f.Includes(o.Tenant, o.Project) && (f.Reader == "" || f.Reader == o.Reader)
}

// Response is a stored response, or a stored message of a thread, whose ID has another prefix.
type Response struct {
	ID string
	Owner
	PreviousID     string // the response that it continues, or ""
	ConversationID string // the conversation that it belongs to, or ""
	CreatedAt      time.Time
	ExpiresAt      time.Time
	Status         Status // of a background response that has not ended
	Content
	size int // of the encrypted content
}

// Status is the state of a background response. It is empty for all responses that have ended.
type Status string

// The states.
const (
	Queued     Status = "queued"
	InProgress Status = "in_progress"
)

// Content is the encrypted part of a response.
type Content struct {
	Input    []jsontext.Value          `json:"input"`            // its own input, without what it continues
	Fields   map[string]jsontext.Value `json:"fields,omitempty"` // of the request that begins a thread
	Response jsontext.Value            `json:"response"`
}

// Output returns the items of the response.
func (c *Content) Output() ([]jsontext.Value, error) {
	var read struct {
		Output []jsontext.Value `json:"output"`
	}
	err := json.Unmarshal(c.Response, &read, lenient)
	return read.Output, err
}

// lenient is for JSON of providers, which was checked when it arrived.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// Store stores responses and conversations.
type Store struct {
	// MaxBytes limits the stored content of a workspace. Set it before the store is used.
	MaxBytes atomic.Int64

	db    *db.DB
	ring  *keyring.Ring
	now   func() time.Time
	queue *db.Queue[*pendingResponse]
	ended *db.Last[*pendingResponse]
	usage usageCache
}

// New creates a store that writes in a group. It must not be the group of the request log: the transaction waits for
// the locks of conversations and of the workspace's count of stored bytes, and the first bytes of all responses
// wait for the request log.
func New(d *db.DB, g *db.Group, ring *keyring.Ring, now func() time.Time) *Store {
	s := &Store{db: d, ring: ring, now: now}
	s.queue = db.NewQueue(g, false, s.write)
	s.ended = db.NewLast(s.writeEnded)
	return s
}

type pendingResponse struct {
	*Response
	sealed string
	items  []indexedItem
	added  []jsontext.Value // to the conversation
}

type indexedItem struct{ id, response string }

var (
	insertResponses = db.NewBulk("responses", "ON CONFLICT (id) DO NOTHING", "id text", "workspace_id text", "environment text", "project text", "reader text",
		"previous_id text", "conversation_id text", "content text", "bytes bigint", "created_at bigint", "expires_at bigint", "status text")
	insertIndex = db.NewBulk("response_items", "ON CONFLICT (workspace_id, environment, id) DO UPDATE SET response_id = excluded.response_id",
		"workspace_id text", "environment text", "id text", "response_id text")
)

// Save queues a response for the next commit. The response may be announced as stored when the
// write is done.
func (s *Store) Save(r *Response) (*db.Pending, error) {
	p, err := s.prepare(r)
	if err != nil {
		return nil, fmt.Errorf("stored response: %w", err)
	}
	s.usage.add(r.WorkspaceID, int64(len(p.sealed)))
	return s.queue.Add(p), nil
}

// prepare encrypts a response, and lists the items that it adds.
func (s *Store) prepare(r *Response) (*pendingResponse, error) {
	plain, err := json.Marshal(r.Content, lenient)
	if err != nil {
		return nil, err
	}
	p := &pendingResponse{Response: r, sealed: s.ring.Seal(plain, responsePlace(r.ID))}
	output, err := r.Output()
	if err != nil {
		return nil, err
	}
	for _, item := range output {
		if id := itemID(item); id != "" && !derivedFrom(id, r.ID) {
			p.items = append(p.items, indexedItem{id, r.ID})
		}
	}
	if r.ConversationID != "" {
		for i, item := range r.Input {
			p.added = append(p.added, withID(item, inputID(r.ID, i, item)))
		}
		p.added = append(p.added, output...)
	}
	return p, nil
}

func responsePlace(id string) string { return "response/" + id }

func (p *pendingResponse) row() []any {
	return []any{p.ID, p.WorkspaceID, string(p.Environment), db.OrNull(p.Project), p.Reader, db.OrNull(p.PreviousID), db.OrNull(p.ConversationID),
		p.sealed, int64(len(p.sealed)), p.CreatedAt.UnixMicro(), p.ExpiresAt.UnixMicro(), db.OrNull(p.Status)}
}

func (s *Store) write(ctx context.Context, tx *db.Tx, list []*pendingResponse) error {
	found, err := renew(ctx, tx, list)
	if err != nil {
		return err
	}
	rows := make([][]any, len(list))
	for i, p := range list {
		rows[i] = p.row()
	}
	if _, err := insertResponses.Write(ctx, tx, rows); err != nil {
		return err
	}
	return s.addItems(ctx, tx, list, found)
}

// addItems writes the items of responses that have ended, to the conversations that were found.
func (s *Store) addItems(ctx context.Context, tx *db.Tx, list []*pendingResponse, found map[string]bool) error {
	var index [][]any
	for _, p := range list {
		for _, item := range p.items {
			index = append(index, []any{p.WorkspaceID, string(p.Environment), item.id, item.response})
		}
	}
	if len(index) > 0 {
		if _, err := insertIndex.Write(ctx, tx, lastOfEach(index)); err != nil {
			return err
		}
	}
	for _, p := range list {
		if !found[p.ConversationID] {
			continue
		}
		if err := s.appendItems(ctx, tx, &Conversation{ID: p.ConversationID, Owner: p.Owner}, p.added); err != nil {
			return err
		}
	}
	return nil
}

// lastOfEach removes rows whose key a later one has: a statement can't insert a row twice.
func lastOfEach(rows [][]any) (out [][]any) {
	seen := map[[3]any]bool{}
	for _, row := range slices.Backward(rows) {
		key := [3]any{row[0], row[1], row[2]}
		if !seen[key] {
			seen[key] = true
			out = append(out, row)
		}
	}
	return out
}

const responseColumns = "r.id, r.workspace_id, r.environment, r.project, r.reader, r.previous_id, r.conversation_id, r.content, r.created_at, r.expires_at, r.status"

func (s *Store) scan(row db.Row) (*Response, error) {
	var r Response
	var sealed string
	if err := db.Scan(row, &r.ID, &r.WorkspaceID, &r.Environment, &r.Project, &r.Reader, &r.PreviousID, &r.ConversationID, &sealed, &r.CreatedAt, &r.ExpiresAt, &r.Status); err != nil {
		return nil, err
	}
	r.size = len(sealed)
	plain, err := s.ring.Open(sealed, responsePlace(r.ID))
	if err == nil {
		err = json.Unmarshal(plain, &r.Content, lenient)
	}
	if err != nil {
		return nil, fmt.Errorf("stored response %s: %w", r.ID, err)
	}
	if r.Status == InProgress { // the content has the response as it was queued
		r.Response = jsonbody.ReplaceMember(r.Response, "status", `"`+string(InProgress)+`"`)
	}
	return &r, nil
}

func noSuchResponse(id string) error { return fault.NoSuch("response", id) }

// Get returns a response.
func (s *Store) Get(ctx context.Context, q db.Querier, f visibility.Filter, id string) (*Response, error) {
	if isMessage(id) {
		return nil, noSuchResponse(id)
	}
	r, err := s.scan(q.QueryRow(ctx, "SELECT "+responseColumns+" FROM responses r WHERE r.id = $1 AND "+unexpired("$2"), id, s.now().UnixMicro()))
	if errors.Is(err, db.ErrNotFound) || err == nil && !r.visibleTo(f) {
		return nil, noSuchResponse(id)
	}
	return r, err
}

// maxChain limits how many responses a chain has. Conversations have no such limit.
const maxChain = 1000

// Chain returns a response and those that it continues, oldest first.
func (s *Store) Chain(ctx context.Context, q db.Querier, f visibility.Filter, id string) ([]*Response, error) {
	if isMessage(id) {
		return nil, noSuchResponse(id)
	}
	return s.chain(ctx, q, f, id)
}

// chain returns a response or message and those that it continues. Their memory counts toward the budget of the request.
func (s *Store) chain(ctx context.Context, q db.Querier, f visibility.Filter, id string) ([]*Response, error) {
	rows, err := q.Query(ctx, `WITH RECURSIVE chain (id, depth) AS (
			SELECT id, 0 FROM responses WHERE id = $1
			UNION ALL SELECT p.previous_id, c.depth + 1 FROM chain c JOIN responses p ON p.id = c.id WHERE p.previous_id IS NOT NULL AND c.depth < $3)
		SELECT `+responseColumns+` FROM chain c CROSS JOIN responses r WHERE r.id = c.id AND `+unexpired("$2")+` ORDER BY c.depth DESC`, id, s.now().UnixMicro(), maxChain)
	list, err := db.All(rows, err, func(row db.Row) (*Response, error) {
		r, err := s.scan(row)
		if err == nil {
			err = budget.Of(ctx).Reserve(int64(r.size))
		}
		return r, err
	})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 || list[len(list)-1].ID != id || slices.ContainsFunc(list, func(r *Response) bool { return !r.visibleTo(f) }) {
		return nil, noSuchResponse(id)
	}
	for i, r := range list {
		if i == 0 && r.PreviousID != "" || i > 0 && r.PreviousID != list[i-1].ID {
			return nil, fault.New(fault.NotFound, "Response %s continues a response that is no longer stored. Send the whole conversation in input, or use a conversation.", id)
		}
	}
	return list, nil
}

// Items returns all items of a chain in the order of the conversation, each with an ID.
func Items(chain []*Response) (items []jsontext.Value, err error) {
	for _, r := range chain {
		items = append(items, r.InputItems()...)
		output, err := r.Output()
		if err != nil {
			return nil, err
		}
		items = append(items, output...)
	}
	return items, nil
}

// InputItems returns the response's own input, each item with an ID.
func (r *Response) InputItems() []jsontext.Value {
	out := make([]jsontext.Value, len(r.Input))
	for i, item := range r.Input {
		out[i] = withID(item, inputID(r.ID, i, item))
	}
	return out
}

// Delete deletes a response.
func (s *Store) Delete(ctx context.Context, tx *db.Tx, f visibility.Filter, id string) error {
	r, err := s.Get(ctx, tx, f, id)
	if err != nil {
		return err
	}
	if r.Status != "" {
		return fault.New(fault.InvalidState, "The response is %s. Cancel it first with POST /v1/responses/%s/cancel.", r.Status, id)
	}
	if _, err := tx.Exec(ctx, "DELETE FROM response_events WHERE response_id = $1", id); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM response_items WHERE response_id = $1", id); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "DELETE FROM responses WHERE id = $1", id)
	return err
}

// Find returns the items with the given IDs that responses have stored.
func (s *Store) Find(ctx context.Context, q db.Querier, f visibility.Filter, ids []string) (map[string]jsontext.Value, error) {
	byResponse := map[string][]string{}
	var indexed []string
	for _, id := range ids {
		if from := derivedResponse(id); from != "" {
			byResponse[from] = append(byResponse[from], id)
		} else {
			indexed = append(indexed, id)
		}
	}
	in := db.InQuery{SQL: "SELECT id, response_id FROM response_items WHERE workspace_id = $1 AND environment = $2 AND id IN", Args: []any{f.WorkspaceID, string(f.Environment)}}
	err := db.ByIDs(ctx, q, in, indexed, func(row db.Row) error {
		var id, response string
		err := row.Scan(&id, &response)
		byResponse[response] = append(byResponse[response], id)
		return err
	})
	if err != nil {
		return nil, err
	}
	found := map[string]jsontext.Value{}
	var responses []string
	for id := range byResponse {
		responses = append(responses, id)
	}
	in = db.InQuery{SQL: "SELECT " + responseColumns + " FROM responses r WHERE " + unexpired("$1") + " AND r.id IN", Args: []any{s.now().UnixMicro()}}
	err = db.ByIDs(ctx, q, in, responses, func(row db.Row) error {
		r, err := s.scan(row)
		if err != nil || !r.visibleTo(f) {
			return err
		}
		output, err := r.Output()
		for _, item := range append(r.InputItems(), output...) {
			found[itemID(item)] = item
		}
		return err
	})
	return found, err
}

// Purge deletes at most limit expired responses.
func (s *Store) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	expired, err := s.claimExpired(ctx, tx, "responses", limit)
	if err != nil {
		return 0, err
	}
	return deleteAll(ctx, tx, expired, "response_items.response_id", "response_events.response_id", "responses.id")
}

// claimExpired locks expired rows of a table and returns their IDs by workspace, the order in which all transactions
// lock the counts of stored bytes.
func (s *Store) claimExpired(ctx context.Context, tx *db.Tx, table string, limit int64) ([]string, error) {
	workspaces := map[string]string{}
	rows, err := tx.Query(ctx, "SELECT id, workspace_id FROM "+table+" WHERE expires_at <= $1 ORDER BY expires_at, id LIMIT $2"+tx.Claim(table), s.now().UnixMicro(), limit)
	err = db.Each(rows, err, func(r db.Row) error {
		var id, workspace string
		err := r.Scan(&id, &workspace)
		workspaces[id] = workspace
		return err
	})
	return slices.SortedFunc(maps.Keys(workspaces), func(a, b string) int {
		return cmp.Or(strings.Compare(workspaces[a], workspaces[b]), strings.Compare(a, b))
	}), err
}

// deleteAll deletes the rows in which columns, such as responses.id, have the IDs. It returns the number of rows of the last one.
func deleteAll(ctx context.Context, tx *db.Tx, ids []string, columns ...string) (n int64, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	places, args := db.Places(nil, ids)
	for _, c := range columns {
		table, column, _ := strings.Cut(c, ".")
		if n, err = tx.Exec(ctx, "DELETE FROM "+table+" WHERE "+column+" IN "+places, args...); err != nil {
			return 0, err
		}
	}
	return n, nil
}
