package conversations

import (
	"context"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// isMessage reports whether an ID is that of a message of a thread. The Messages API and the Responses API don't see
// what the other has stored.
func isMessage(id string) bool { return strings.HasPrefix(id, ids.Message) }

// Thread is a conversation of the Messages API up to one of its messages.
type Thread struct {
	Fields   map[string]jsontext.Value // of the request that began it
	Messages []jsontext.Value
}

// Thread returns the thread that ends with a message.
func (s *Store) Thread(ctx context.Context, q db.Querier, f visibility.Filter, id string) (t Thread, err error) {
	if !isMessage(id) {
		return t, noSuchResponse(id)
	}
	chain, err := s.chain(ctx, q, f, id)
	if err != nil {
		return t, err
	}
	t.Fields = chain[0].Fields
	for _, r := range chain {
		t.Messages = append(append(t.Messages, r.Input...), r.Response)
	}
	return t, nil
}
