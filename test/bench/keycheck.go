package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/keyring"
)

// keyChecks measures how long it takes to know whose a key is, once it is in
// memory. Every ten seconds that includes asking the store again.
func keyChecks(folder string, rounds int) (took []time.Duration, err error) {
	ctx := context.Background()
	d, err := db.Open(ctx, filepath.Join(folder, "keys.db"))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if _, err := d.Migrate(ctx); err != nil {
		return nil, err
	}
	ring, err := keyring.New(make([]byte, keyring.Size))
	if err != nil {
		return nil, err
	}
	var value string
	err = d.Write(ctx, func(tx *db.Tx) error {
		w := &accounts.Workspace{Name: "bench", RotationGrace: accounts.DefaultRotationGrace}
		if err := accounts.CreateWorkspace(ctx, tx, w, time.Now()); err != nil {
			return err
		}
		value, err = access.NewKeys(ring, time.Now).Create(ctx, tx, access.Caller{Actor: audit.Operator},
			&access.Key{WorkspaceID: w.ID, Environment: accounts.Test, Name: "bench", Scopes: []string{"*"}})
		return err
	})
	if err != nil {
		return nil, err
	}
	auth, err := access.NewAuthenticator(d, ring, access.NewLastUsed(d), time.Now)
	if err != nil {
		return nil, err
	}
	for range rounds {
		result := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				if _, checkErr := auth.Authenticate(ctx, value, "127.0.0.1"); checkErr != nil {
					err = checkErr
					b.FailNow()
				}
			}
		})
		took = append(took, time.Duration(result.NsPerOp()))
	}
	return took, err
}
