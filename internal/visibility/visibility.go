// Package visibility holds the rule about which rows a principal can see. The
// functions that read records take a Filter, so that no resource can forget it.
package visibility

import (
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// Environment separates production from the sandbox.
type Environment string

// The two environments.
const (
	Live Environment = "live"
	Test Environment = "test"
)

// Tenant is one environment of a workspace. Nearly every record belongs to one.
type Tenant struct {
	WorkspaceID string
	Environment Environment
}

// Path returns the tenant as part of a path, such as ws_01…/live.
func (t Tenant) Path() string { return t.WorkspaceID + "/" + string(t.Environment) }

// Filter selects the rows that a principal can see.
type Filter struct {
	Tenant
	// Project limits a pinned key to the rows of its project. Rows without a
	// project are not among them. Empty selects the whole environment.
	Project string
	// Reader limits a scoped token to the jobs and runs of tokens that share
	// its key and metadata. Empty selects all of them.
	Reader string
	// Shared includes entries of the admin log that belong to no environment,
	// such as sign-ins and changes to members.
	Shared bool
}

// Includes reports whether the filter selects a row with these values.
func (f Filter) Includes(t Tenant, project string) bool {
	return f.Tenant == t && (f.Project == "" || f.Project == project)
}

// InEnvironment returns the conditions for a table with the columns
// workspace_id and environment. The caller applies Project.
func (f Filter) InEnvironment() (c db.Conditions) {
	c.Add("workspace_id =", f.WorkspaceID)
	c.Add("environment =", f.Environment)
	return c
}

// Rows returns the conditions for a table that also has the column project.
func (f Filter) Rows() db.Conditions {
	c := f.InEnvironment()
	if f.Project != "" {
		c.Add("project =", f.Project)
	}
	return c
}

// Work returns the conditions for jobs and runs, which also have the column reader.
func (f Filter) Work() db.Conditions {
	c := f.Rows()
	if f.Reader != "" {
		c.Add("reader =", f.Reader)
	}
	return c
}

// WorkSearch narrows a list of jobs or runs. In its texts, * stands for any
// characters. Only the time has an index.
type WorkSearch struct {
	Since, Until time.Time // zero for no limit; Until is exclusive
	KeyIDs       []string  // any of them; nil for all
	Project      string
	Model        string
}

// Narrow adds the conditions to a search of records whose IDs have the prefix.
func (w WorkSearch) Narrow(s *db.Search, prefix string) {
	if !w.Since.IsZero() {
		s.Where.Bound(">=", ids.Floor(prefix, w.Since))
	}
	if !w.Until.IsZero() {
		s.Where.Bound("<", ids.Floor(prefix, w.Until))
	}
	if len(w.KeyIDs) > 0 {
		s.Filter.AddIn("key_id", w.KeyIDs)
	}
	s.Filter.AddMatch(w.Project, "project")
	s.Filter.AddMatch(w.Model, "model")
}
