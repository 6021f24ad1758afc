package conversations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// Conversation holds items that responses continue.
type Conversation struct {
	ID string
	Owner
	Metadata  map[string]string
	CreatedAt time.Time
	ExpiresAt time.Time // renewed by each use
}

func conversationPlace(id string) string { return "conversation/" + id }

func itemPlace(conversationID string, position int64) string {
	return fmt.Sprintf("%s/%d", conversationPlace(conversationID), position)
}

// CreateConversation stores a new conversation and sets its ID.
func (s *Store) CreateConversation(ctx context.Context, tx *db.Tx, c *Conversation, items []jsontext.Value) ([]jsontext.Value, error) {
	c.ID = ids.New(ids.Conversation)
	sealed, err := s.sealMetadata(c)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, db.Insert("conversations", "id, workspace_id, environment, project, reader, metadata, created_at, expires_at"),
		c.ID, c.WorkspaceID, string(c.Environment), db.OrNull(c.Project), c.Reader, sealed, c.CreatedAt.UnixMicro(), c.ExpiresAt.UnixMicro())
	if err != nil {
		return nil, err
	}
	return s.AddItems(ctx, tx, c, items)
}

func (s *Store) sealMetadata(c *Conversation) (string, error) {
	plain, err := json.Marshal(c.Metadata, json.Deterministic(true))
	if err != nil {
		return "", err
	}
	return s.ring.Seal(plain, conversationPlace(c.ID)), nil
}

// GetConversation returns a conversation.
func (s *Store) GetConversation(ctx context.Context, q db.Querier, f visibility.Filter, id string) (*Conversation, error) {
	return s.getConversation(ctx, q, f, id, "")
}

// GetConversationLocked returns a conversation and locks it until the transaction ends.
func (s *Store) GetConversationLocked(ctx context.Context, tx *db.Tx, f visibility.Filter, id string) (*Conversation, error) {
	return s.getConversation(ctx, tx, f, id, tx.Lock("conversations"))
}

func (s *Store) getConversation(ctx context.Context, q db.Querier, f visibility.Filter, id, lock string) (*Conversation, error) {
	var c Conversation
	var sealed string
	err := db.Scan(q.QueryRow(ctx, `SELECT id, workspace_id, environment, project, reader, metadata, created_at, expires_at FROM conversations
		WHERE id = $1 AND expires_at > $2 AND `+retention("conversations")+" > 0"+lock, id, s.now().UnixMicro()), &c.ID, &c.WorkspaceID, &c.Environment, &c.Project, &c.Reader, &sealed, &c.CreatedAt, &c.ExpiresAt)
	if errors.Is(err, db.ErrNotFound) || err == nil && !c.visibleTo(f) {
		return nil, fault.NoSuch("conversation", id)
	}
	if err != nil {
		return nil, err
	}
	plain, err := s.ring.Open(sealed, conversationPlace(c.ID))
	if err == nil {
		err = json.Unmarshal(plain, &c.Metadata)
	}
	return &c, db.Wrap(err, "stored conversation")
}

// SetMetadata stores the conversation's metadata.
func (s *Store) SetMetadata(ctx context.Context, tx *db.Tx, c *Conversation) error {
	sealed, err := s.sealMetadata(c)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE conversations SET metadata = $2 WHERE id = $1", c.ID, sealed)
	return err
}

// DeleteConversation deletes a conversation and its items. Its responses stay.
func (s *Store) DeleteConversation(ctx context.Context, tx *db.Tx, f visibility.Filter, id string) error {
	if _, err := s.GetConversationLocked(ctx, tx, f, id); err != nil {
		return err
	}
	n, err := deleteItems(ctx, tx, []string{id}, itemsDeleted)
	if err == nil && n == itemsDeleted { // there may be more, which PurgeConversations deletes
		_, err = tx.Exec(ctx, "UPDATE conversations SET expires_at = 0 WHERE id = $1", id)
		return err
	}
	if err == nil {
		_, err = tx.Exec(ctx, "DELETE FROM conversations WHERE id = $1", id)
	}
	return err
}

// itemsDeleted is how many items a request deletes.
const itemsDeleted = 1000

// deleteItems deletes at most limit items of conversations.
func deleteItems(ctx context.Context, tx *db.Tx, conversations []string, limit int64) (n int64, err error) {
	for _, id := range conversations {
		deleted, err := tx.Exec(ctx, `DELETE FROM conversation_items WHERE conversation_id = $1 AND position <=
			(SELECT max(position) FROM (SELECT position FROM conversation_items WHERE conversation_id = $1 ORDER BY position LIMIT $2) AS first)`, id, limit-n)
		if n += deleted; err != nil || n == limit {
			return n, err
		}
	}
	return n, nil
}

// AddItems adds items to a conversation, and returns them with their IDs.
func (s *Store) AddItems(ctx context.Context, tx *db.Tx, c *Conversation, items []jsontext.Value) ([]jsontext.Value, error) {
	added := make([]jsontext.Value, len(items))
	for i, item := range items {
		added[i] = withID(item, ids.New(prefixOf(item)+"_"))
	}
	n, err := tx.Exec(ctx, "UPDATE conversations SET expires_at = $2 WHERE id = $1", c.ID, c.ExpiresAt.UnixMicro())
	if err == nil && n == 0 {
		err = fault.NoSuch("conversation", c.ID)
	}
	if err != nil {
		return nil, err
	}
	return added, s.appendItems(ctx, tx, c, added)
}

var (
	insertItems = db.NewBulk("conversation_items", "", "conversation_id text", "position bigint", "workspace_id text", "id text", "content text", "bytes bigint")
	renewals    = db.NewBulkUpdate("conversations", "expires_at = v.expires_at", "conversations.id = v.id", "id text", "expires_at bigint").Returning("conversations.id")
)

// renew locks the conversations that responses belong to, and postpones when they expire. It returns those that
// exist. Every transaction locks conversations in the order of their IDs, before the count of stored bytes.
func renew(ctx context.Context, tx *db.Tx, list []*pendingResponse) (map[string]bool, error) {
	until := map[string]int64{}
	for _, p := range list {
		if p.ConversationID != "" {
			until[p.ConversationID] = p.ExpiresAt.UnixMicro()
		}
	}
	rows := make([][]any, 0, len(until))
	for _, id := range slices.Sorted(maps.Keys(until)) {
		rows = append(rows, []any{id, until[id]})
	}
	found := map[string]bool{}
	return found, renewals.Read(ctx, tx, rows, func(r db.Row) error {
		id, err := db.Value[string](r)
		found[id] = true
		return err
	})
}

// appendItems adds items with IDs to a locked conversation.
func (s *Store) appendItems(ctx context.Context, tx *db.Tx, c *Conversation, items []jsontext.Value) error {
	if len(items) == 0 {
		return nil
	}
	var last int64
	if err := tx.QueryRow(ctx, "SELECT coalesce(max(position), -1) FROM conversation_items WHERE conversation_id = $1", c.ID).Scan(&last); err != nil {
		return err
	}
	rows := make([][]any, len(items))
	for i, item := range items {
		position := last + 1 + int64(i)
		sealed := s.ring.Seal(item, itemPlace(c.ID, position))
		rows[i] = []any{c.ID, position, c.WorkspaceID, itemID(item), sealed, int64(len(sealed))}
	}
	_, err := insertItems.Write(ctx, tx, rows)
	return err
}

// ListItems returns items of a conversation, and whether there are more.
func (s *Store) ListItems(ctx context.Context, q db.Querier, c *Conversation, p db.Page) (items []jsontext.Value, more bool, err error) {
	from, compare, order := int64(1)<<62, "<", "DESC"
	if p.Asc {
		from, compare, order = -1, ">", "ASC"
	}
	if p.After != "" {
		if from, err = itemPosition(ctx, q, c.ID, p.After); err != nil {
			return nil, false, err
		}
	}
	items, err = s.items(ctx, q, c.ID, "position "+compare+" $2 ORDER BY position "+order+" LIMIT $3", from, p.Limit+1)
	if more = len(items) > p.Limit; more {
		items = items[:p.Limit]
	}
	return items, more, err
}

// AllItems returns the items of a conversation in their order.
func (s *Store) AllItems(ctx context.Context, q db.Querier, c *Conversation) ([]jsontext.Value, error) {
	return s.items(ctx, q, c.ID, "TRUE ORDER BY position")
}

func (s *Store) items(ctx context.Context, q db.Querier, conversationID, condition string, args ...any) ([]jsontext.Value, error) {
	return db.List(ctx, q, func(row db.Row) (jsontext.Value, error) {
		var position int64
		var sealed string
		if err := row.Scan(&position, &sealed); err != nil {
			return nil, err
		}
		plain, err := s.ring.Open(sealed, itemPlace(conversationID, position))
		return plain, db.Wrap(err, "stored item")
	}, "SELECT position, content FROM conversation_items WHERE conversation_id = $1 AND "+condition, append([]any{conversationID}, args...)...)
}

func itemPosition(ctx context.Context, q db.Querier, conversationID, id string) (position int64, err error) {
	err = q.QueryRow(ctx, "SELECT position FROM conversation_items WHERE conversation_id = $1 AND id = $2 ORDER BY position DESC LIMIT 1", conversationID, id).Scan(&position)
	return position, db.OrNoSuch(err, "item", id)
}

// GetItem returns an item of a conversation.
func (s *Store) GetItem(ctx context.Context, q db.Querier, c *Conversation, id string) (jsontext.Value, error) {
	position, err := itemPosition(ctx, q, c.ID, id)
	if err != nil {
		return nil, err
	}
	items, err := s.items(ctx, q, c.ID, "position = $2", position)
	if err == nil && len(items) == 0 { // it was deleted meanwhile
		err = fault.NoSuch("item", id)
	}
	if err != nil {
		return nil, err
	}
	return items[0], nil
}

// DeleteItem deletes an item of a conversation.
func (s *Store) DeleteItem(ctx context.Context, tx *db.Tx, c *Conversation, id string) error {
	position, err := itemPosition(ctx, tx, c.ID, id)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "DELETE FROM conversation_items WHERE conversation_id = $1 AND position = $2", c.ID, position)
	return err
}

// PurgeConversations deletes at most limit items of expired conversations, and the conversations without items.
func (s *Store) PurgeConversations(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	expired, err := s.claimExpired(ctx, tx, "conversations", limit)
	if err != nil {
		return 0, err
	}
	if n, err := deleteItems(ctx, tx, expired, limit); err != nil || n == limit {
		return n, err
	}
	return deleteAll(ctx, tx, expired, "conversations.id")
}
