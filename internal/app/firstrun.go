package app

import (
	"context"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// FirstRun is what the first start on an empty database made. TestKey and SetUp
// are shown once.
type FirstRun struct {
	TestKey string
	SetUp   *people.Link // by which the first owner comes in
}

// firstRun makes a workspace, a test key and the set-up link when there is no workspace yet.
// Nodes that start at once agree through the workspace's unique name.
func firstRun(ctx context.Context, s *Store, folk *people.People, now func() time.Time) (*FirstRun, error) {
	var made *FirstRun
	err := s.DB.Write(ctx, func(tx *db.Tx) error {
		made = nil
		all, err := accounts.ListWorkspaces(ctx, tx)
		if err != nil || len(all) > 0 {
			return err
		}
		w := &accounts.Workspace{Name: accounts.DefaultWorkspace, RotationGrace: accounts.DefaultRotationGrace}
		if err := accounts.CreateWorkspace(ctx, tx, w, now()); err != nil {
			return err
		}
		value, err := access.NewKeys(s.Ring, now).Create(ctx, tx, access.Caller{Actor: audit.Operator},
			&access.Key{WorkspaceID: w.ID, Environment: accounts.Test, Name: "first run", Scopes: []string{"*"}})
		if err != nil {
			return err
		}
		link, err := folk.NewSetUpLink(ctx, tx, w.ID)
		made = &FirstRun{TestKey: value, SetUp: link}
		return err
	})
	if fault.Is(err, fault.Conflict) {
		return nil, nil // another node was faster
	}
	return made, err
}
