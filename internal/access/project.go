package access

import (
	"context"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
)

// Pin binds a key that is about to be stored to a project, which must exist or
// may be made by its use. Who is pinned to another hears nothing about it.
func (m *Keys) Pin(ctx context.Context, tx *db.Tx, by Caller, k *Key, project string) error {
	if by.Principal != nil {
		if err := by.Principal.managesIn(project); err != nil {
			return err
		}
	}
	k.Project = project
	p := &accounts.Project{WorkspaceID: k.WorkspaceID, Environment: k.Environment, ID: project}
	return accounts.EnsureProject(ctx, tx, by.Actor, p, "project", m.now())
}
