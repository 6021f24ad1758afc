package harness

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/operators"
	"turnpike/internal/people"
)

// Workspace creates a workspace.
func (s *Server) Workspace(t testing.TB, name string) *accounts.Workspace {
	t.Helper()
	if s.shared {
		name += " " + ids.New("") // names are unique on a server
	}
	w := &accounts.Workspace{Name: name, RotationGrace: accounts.DefaultRotationGrace}
	s.write(t, func(tx *db.Tx) error { return accounts.CreateWorkspace(t.Context(), tx, w, s.Clock.Now()) })
	return w
}

// RequireSecondFactor sets whether members of the workspace need a second factor.
func (s *Server) RequireSecondFactor(t testing.TB, w *accounts.Workspace, required bool) {
	t.Helper()
	s.ChangeWorkspace(t, w.ID, func(w *accounts.Workspace) { w.RequireSecondFactor = required })
}

// Key creates a key with the scopes, or with all scopes if none is given.
func (s *Server) Key(t testing.TB, w *accounts.Workspace, env accounts.Environment, scopes ...string) (value, id string) {
	t.Helper()
	if len(scopes) == 0 {
		scopes = []string{"*"}
	}
	return s.KeyOf(t, &access.Key{Tenant: w.In(env), Name: "test", Scopes: scopes})
}

// KeyOf creates the given key.
func (s *Server) KeyOf(t testing.TB, k *access.Key) (value, id string) {
	t.Helper()
	s.write(t, func(tx *db.Tx) (err error) {
		value, err = access.NewKeys(s.Ring, s.Clock.Now).Create(t.Context(), tx, access.Caller{Actor: audit.Operator}, k)
		return err
	})
	return value, k.ID
}

// AdminKey creates a key of the admin API.
func (s *Server) AdminKey(t testing.TB) string {
	t.Helper()
	return s.AdminKeyOf(t, &operators.Credential{Name: "test"})
}

// AdminKeyOf creates a key of the admin API with its limits.
func (s *Server) AdminKeyOf(t testing.TB, c *operators.Credential) (value string) {
	t.Helper()
	s.write(t, func(tx *db.Tx) (err error) {
		value, err = operators.Credentials{Ring: s.Ring, Now: s.Clock.Now}.Create(t.Context(), tx, c)
		return err
	})
	return value
}

// GrantOperator makes a person an operator, as the CLI does.
func (s *Server) GrantOperator(t testing.TB, userID string) {
	t.Helper()
	s.write(t, func(tx *db.Tx) error { return operators.Grant(t.Context(), tx, userID, s.Clock.Now()) })
}

// AllowContent lets a member read the content of requests, or no longer.
func (s *Server) AllowContent(t testing.TB, w *accounts.Workspace, userID string, allowed bool) {
	t.Helper()
	s.write(t, func(tx *db.Tx) error {
		return people.New(s.DB, s.Ring, people.Options{Now: s.Clock.Now}).AllowContent(t.Context(), tx, people.Operator(), people.Member{WorkspaceID: w.ID, UserID: userID}, allowed)
	})
}

func (s *Server) write(t testing.TB, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := s.DB.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// RevokeAsOperator revokes a key through the database, as the CLI does.
func (s *Server) RevokeAsOperator(t testing.TB, id string) {
	t.Helper()
	keys := access.NewKeys(s.Ring, s.Clock.Now)
	s.write(t, func(tx *db.Tx) error {
		k, err := keys.FindLocked(t.Context(), tx, id)
		if err != nil {
			return err
		}
		return keys.Revoke(t.Context(), tx, access.Caller{Actor: audit.Operator}, k)
	})
}

// MakeStrict makes the workspace reject unknown projects.
func (s *Server) MakeStrict(t testing.TB, w *accounts.Workspace) {
	t.Helper()
	s.ChangeWorkspace(t, w.ID, func(w *accounts.Workspace) { w.StrictProjects = true })
}

// ChangeWorkspace changes a workspace, as the operator can.
func (s *Server) ChangeWorkspace(t testing.TB, id string, apply func(*accounts.Workspace)) {
	t.Helper()
	s.write(t, func(tx *db.Tx) error {
		_, err := accounts.ChangeWorkspace(t.Context(), tx, id, accounts.Change[accounts.Workspace]{By: audit.Operator, At: s.Clock.Now(), Apply: func(w *accounts.Workspace) error {
			apply(w)
			return nil
		}})
		return err
	})
}

// FillProjects creates n projects.
func (s *Server) FillProjects(t testing.TB, w *accounts.Workspace, env accounts.Environment, n int) {
	t.Helper()
	bulk := db.NewBulk("projects", "", "workspace_id text", "environment text", "id text", "name text", "created_at bigint")
	rows := make([][]any, n)
	for i := range rows {
		id := fmt.Sprintf("p%d", i)
		rows[i] = []any{w.ID, string(env), id, id, s.Clock.Now().UnixMicro()}
	}
	s.write(t, func(tx *db.Tx) error {
		if err := tx.DisableTimeouts(t.Context()); err != nil { // a busy machine takes longer than a request may
			return err
		}
		_, err := bulk.Write(t.Context(), tx, rows)
		return err
	})
}

// FillRequests adds n log entries of the model "common", except for the oldest
// one, which is of the model "rare".
func (s *Server) FillRequests(t testing.TB, w *accounts.Workspace, keyID string, n int) {
	t.Helper()
	bulk := db.NewBulk("requests", "", "id text", "workspace_id text", "environment text", "key_id text", "key_hint text", "ip text",
		"method text", "path text", "user_agent text", "node_id text", "created_at bigint", "settled boolean", "status bigint", "model text",
		"reserved bigint", "credits bigint", "simulated_credits bigint")
	rows := make([][]any, n)
	for i := range rows {
		model := "common"
		if i == 0 {
			model = "rare"
		}
		rows[i] = []any{ids.New(ids.Request), w.ID, string(accounts.Test), keyID, "tp_test_…0000", "127.0.0.1", "POST", "/v1/chat/completions", "",
			"node_x", s.Clock.Now().UnixMicro(), true, int64(200), model, int64(0), int64(0), int64(0)}
	}
	s.write(t, func(tx *db.Tx) error {
		_, err := bulk.Write(t.Context(), tx, rows)
		return err
	})
}

// LeaveOpen adds an open log entry, as a node does that then crashes.
func (s *Server) LeaveOpen(t testing.TB, w *accounts.Workspace, keyID string, reserved int64) (requestID string) {
	t.Helper()
	requestID = ids.New(ids.Request)
	s.write(t, func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO requests (id, workspace_id, environment, key_id, key_hint, ip, method, path, user_agent, node_id,
			created_at, settled, reserved, credits, simulated_credits)
			VALUES ($1, $2, 'test', $3, '', '127.0.0.1', 'POST', '/v1/chat/completions', '', 'node_dead', $4, FALSE, $5, 0, 0)`,
			requestID, w.ID, keyID, s.Clock.Now().UnixMicro(), reserved)
		return err
	})
	return requestID
}

// HoldTheWriter holds SQLite's write lock, as another process could, until release.
func (s *Server) HoldTheWriter(t testing.TB) (release func()) {
	t.Helper()
	held, done, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.DB.Write(context.Background(), func(*db.Tx) error {
			close(held)
			<-done
			return nil
		})
	}()
	<-held
	return sync.OnceFunc(func() {
		close(done)
		<-ended
	})
}
