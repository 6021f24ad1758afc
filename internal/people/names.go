package people

import (
	"context"
	"fmt"

	"turnpike/internal/db"
)

// Names are what people are called by their ids: the name, or the e-mail
// address of who has none. It is for whoever knows the ids already.
func (p *People) Names(ctx context.Context, q db.Querier, ids []string) (map[string]string, error) {
	out := make(map[string]string, len(ids))
	err := db.ByIDs(ctx, q, "SELECT id, name, email FROM users WHERE id IN", nil, ids, func(r db.Row) error {
		var id, name, email string
		err := r.Scan(&id, &name, &email)
		if name == "" {
			name = email
		}
		out[id] = name
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("names of people: %w", err)
	}
	return out, nil
}
