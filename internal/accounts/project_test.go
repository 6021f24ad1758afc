package accounts

import (
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
)

func TestReadFromBeforeArchivalIsNotCached(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dir := NewDirectory(d, time.Now)
		w := &Workspace{Name: "acme"}
		p := &Project{Tenant: Tenant{Environment: Test}, ID: "web"}
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			if err := CreateWorkspace(t.Context(), tx, w, time.Now()); err != nil {
				return err
			}
			p.WorkspaceID = w.ID
			return CreateProject(t.Context(), tx, p, time.Now())
		})
		if err != nil {
			t.Fatal(err)
		}
		began := dir.generation.Load() // a request reads the project as usable here
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			now := time.Now()
			_, err := ChangeProject(t.Context(), tx, ProjectChange{Tenant: p.Tenant, ID: p.ID, Action: "project.archived", Change: Change[Project]{By: audit.Operator, At: now, Apply: func(p *Project) error {
				p.Archive(now)
				return nil
			}}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		dir.store(w, projectKey{w.In(Test), "web"}, &Project{Tenant: w.In(Test), ID: "web"}, began)
		if _, err := dir.Use(t.Context(), Project{Tenant: w.In(Test), ID: "web"}, true); !fault.Is(err, fault.UnknownProject) {
			t.Errorf("an archived project can be used: %v", err)
		}
	})
}
