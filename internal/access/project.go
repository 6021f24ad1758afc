package access

import (
	"context"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
)

// PinToProject pins a key that is about to be stored to a project, which it creates if needed. The
// caller's own pin is checked first, so that it learns nothing about other projects.
func (m *Keys) PinToProject(ctx context.Context, tx *db.Tx, by Caller, k *Key, project string) error {
	if by.Principal != nil {
		if err := by.Principal.checkProject(project); err != nil {
			return err
		}
	}
	k.Project = project
	p := &accounts.Project{WorkspaceID: k.WorkspaceID, Environment: k.Environment, ID: project}
	_, err := accounts.EnsureProject(ctx, tx, accounts.ProjectUse{By: by.Actor, Project: p, Param: "project"}, m.now())
	return err
}
