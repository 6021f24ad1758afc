package mail

import (
	"context"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
)

// EnqueueAdmins is Enqueue for a workspace's owners and admins. data gets the
// workspace's name.
func (o *Outbox) EnqueueAdmins(ctx context.Context, tx *db.Tx, workspaceID, once string, data func(workspace string) Data) error {
	w, err := accounts.GetWorkspace(ctx, tx, workspaceID)
	if err != nil {
		return err
	}
	people, err := accounts.ListUsers(ctx, tx, workspaceID)
	if err != nil {
		return err
	}
	var messages []Message
	for _, p := range people {
		if p.Role == accounts.Owner || p.Role == accounts.Admin {
			messages = append(messages, Message{WorkspaceID: workspaceID, To: p.Email, Once: once, Data: data(w.Name)})
		}
	}
	return o.Enqueue(ctx, tx, messages...)
}
