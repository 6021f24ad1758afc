package access

import (
	"context"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
)

// PinToProject pins a key that is about to be stored to a project, which it
// creates if needed. It checks the caller's pin first, so that callers learn
// nothing about other projects.
func (m *Keys) PinToProject(ctx context.Context, tx *db.Tx, by Caller, k *Key, project string) error {
	if by.Principal != nil {
		if err := by.Principal.checkProject(project); err != nil {
			return err
		}
	}
	k.Project = project
	p := &accounts.Project{Tenant: k.Tenant, ID: project}
	_, err := accounts.EnsureProject(ctx, tx, accounts.ProjectUse{By: by.Actor, Project: p, Param: "project"}, m.now())
	return err
}
