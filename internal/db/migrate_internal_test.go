package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// withFuture returns the migrations of a later version, which adds the given ones.
func withFuture(t *testing.T, scripts ...string) []Migration {
	t.Helper()
	files := fstest.MapFS{}
	known, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range known {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	for i, script := range scripts {
		files[fmt.Sprintf("migrations/%04d_future.sql", len(known)+1+i)] = &fstest.MapFile{Data: []byte(script)}
	}
	return parseMigrations(files)
}

func allowAll(context.Context, *Tx, Migration) error { return nil }

// TestOlderProgramWorksUntilAContractMigration covers the window of a rolling
// upgrade: nodes of the previous version restart, and can be rolled back to.
func TestOlderProgramWorksUntilAContractMigration(t *testing.T) {
	t.Parallel()
	d, err := Open(t.Context(), filepath.Join(t.TempDir(), "turnpike.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	now := len(Migrations())
	contract := fmt.Sprintf("-- contract: %04d\nALTER TABLE workspaces DROP COLUMN leak_policy;\n", now+1)
	for _, step := range []struct {
		program    []Migration
		works      bool // this program, afterward
		worksAfter int  // the oldest schema version of a program that works
	}{
		{withFuture(t), true, 0},
		{withFuture(t, "ALTER TABLE workspaces ADD COLUMN color TEXT;"), true, 0},
		{withFuture(t, "ALTER TABLE workspaces ADD COLUMN color TEXT;", contract), false, now + 1},
		{withFuture(t, "ALTER TABLE workspaces ADD COLUMN color TEXT;", contract, "SELECT 1;"), false, now + 1},
	} {
		if _, err := d.migrate(t.Context(), step.program, allowAll); err != nil {
			t.Fatal(err)
		}
		_, err := d.Migrate(t.Context())
		if checked := CheckProgram(t.Context(), d); (err == nil) != step.works || (checked == nil) != step.works {
			t.Errorf("a program at %d on schema version %d: got %v and %v, want it to work: %t", now, len(step.program), err, checked, step.works)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("programs from schema version %d on", step.worksAfter)) {
			t.Errorf("got %v, want an error that names schema version %d", err, step.worksAfter)
		}
		if err := checkProgram(t.Context(), d, now+1); err != nil {
			t.Errorf("a program at %d on schema version %d: %v", now+1, len(step.program), err)
		}
	}
}

func TestRejectedMigrationChangesNothing(t *testing.T) {
	t.Parallel()
	d, err := Open(t.Context(), filepath.Join(t.TempDir(), "turnpike.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	rejected := errors.New("old nodes are running")
	future := withFuture(t, "ALTER TABLE workspaces ADD COLUMN color TEXT;")
	_, err = d.migrate(t.Context(), future, func(_ context.Context, _ *Tx, m Migration) error {
		if m.Version != len(future) {
			t.Errorf("got a check of migration %d, want %d", m.Version, len(future))
		}
		return rejected
	})
	have, want, readErr := d.SchemaVersion(t.Context())
	if !errors.Is(err, rejected) || have != want || readErr != nil {
		t.Errorf("got %v and schema version %d (%v), want %v and %d", err, have, readErr, rejected, want)
	}
}

// oldRules is the last migration from before the rule that nodes of the previous
// version keep working.
const oldRules = 21

var (
	sqlComment = regexp.MustCompile(`--.*`)
	// restrictive matches what can break statements of an older program. The first
	// group of DROP and ADD is the object.
	restrictive = regexp.MustCompile(`(?is)\bRENAME\b|\bTRUNCATE\b|\bALTER COLUMN \w+ (SET DATA )?TYPE\b|\bSET NOT NULL\b|\bDROP (\w+)|\bADD (\w+)`)
	required    = regexp.MustCompile(`(?is)\bADD COLUMN \w+ .*\bNOT NULL\b`)
	createTable = regexp.MustCompile(`(?i)\bCREATE (?:UNLOGGED )?TABLE (\w+)`)
	uniqueIndex = regexp.MustCompile(`(?is)\bCREATE UNIQUE INDEX \w+ ON (\w+)`)
)

// restrictions lists the statements of a migration that can break a running program
// of the version before.
func restrictions(m Migration) (found []string) {
	for _, engine := range []string{"sqlite", "postgres"} {
		script := sqlComment.ReplaceAllString(m.forEngine(engine), "")
		var created []string
		for _, match := range createTable.FindAllStringSubmatch(script, -1) {
			created = append(created, match[1])
		}
		for statement := range strings.SplitSeq(script, ";") {
			statement = strings.TrimSpace(statement)
			match := restrictive.FindStringSubmatch(statement)
			harmless := match == nil || slices.Contains([]string{"NOT", "DEFAULT"}, strings.ToUpper(match[2])) || strings.EqualFold(match[3], "COLUMN")
			if required.MatchString(statement) && !strings.Contains(strings.ToUpper(statement), "DEFAULT") {
				harmless = false
			}
			if index := uniqueIndex.FindStringSubmatch(statement); index != nil && !slices.Contains(created, index[1]) {
				harmless = false
			}
			if !harmless && !slices.Contains(found, statement) {
				found = append(found, statement)
			}
		}
	}
	return found
}

// contractProblem returns what is wrong with a migration's declaration, or "".
func contractProblem(m Migration) string {
	marked := strings.Contains(strings.ToLower(m.sql), "-- contract")
	switch found := restrictions(m); {
	case marked && (m.OldestProgram < tolerantVersion || m.OldestProgram >= m.Version):
		return fmt.Sprintf("its contract line must be \"-- contract: NNNN\", with a schema version from %04d to %04d", tolerantVersion, m.Version-1)
	case len(found) > 0 && !marked:
		return fmt.Sprintf("it breaks nodes of the version before, so it needs a line \"-- contract: NNNN\" (see CONTRIBUTING.md): %s", strings.Join(found, "; "))
	}
	return ""
}

// TestMigrationsKeepThePreviousVersionRunning enforces the part of the rule in
// CONTRIBUTING.md that a program can check.
func TestMigrationsKeepThePreviousVersionRunning(t *testing.T) {
	t.Parallel()
	for _, m := range Migrations()[oldRules:] {
		if problem := contractProblem(m); problem != "" {
			t.Errorf("migration %04d_%s: %s", m.Version, m.Name, problem)
		}
	}
	for script, ok := range map[string]bool{
		"ALTER TABLE keys ADD COLUMN color TEXT;":                                       true,
		"ALTER TABLE keys ADD COLUMN color TEXT NOT NULL DEFAULT '';":                   true,
		"ALTER TABLE keys ALTER COLUMN color DROP NOT NULL; --postgres":                 true,
		"CREATE TABLE a (\n  id TEXT PRIMARY KEY\n);\nCREATE UNIQUE INDEX b ON a (id);": true,
		"-- DROP TABLE keys":                                               true,
		"CREATE INDEX a ON keys (name);":                                   true,
		"UPDATE keys SET name = '';":                                       true,
		"ALTER TABLE keys ADD COLUMN color TEXT NOT NULL;":                 false,
		"ALTER TABLE keys DROP COLUMN name;":                               false,
		"ALTER TABLE keys RENAME COLUMN name TO title; --sqlite":           false,
		"ALTER TABLE keys ALTER COLUMN name TYPE BIGINT; --postgres":       false,
		"ALTER TABLE keys ALTER COLUMN name SET NOT NULL; --postgres":      false,
		"ALTER TABLE keys ADD CONSTRAINT a CHECK (name <> ''); --postgres": false,
		"DROP TABLE keys;":                                                 false,
		"DROP INDEX keys_by_workspace;":                                    false,
		"CREATE UNIQUE INDEX a ON keys (name);":                            false,
		"-- contract: 0025\nDROP TABLE keys;":                              true,
		"-- contract: 0030\nDROP TABLE keys;":                              false, // itself
		"-- contract: 0001\nDROP TABLE keys;":                              false, // such programs don't read the mark
		"-- Contract: the version after next\nDROP TABLE keys;":            false,
		"-- contract: 0025\nALTER TABLE keys ADD COLUMN a BIGINT;":         true,
	} {
		m := Migration{Version: 30, sql: script}
		if mark := contractLine.FindStringSubmatch(script); mark != nil {
			m.OldestProgram = map[string]int{"0025": 25, "0030": 30, "0001": 1}[mark[1]]
		}
		if problem := contractProblem(m); (problem == "") != ok {
			t.Errorf("%s\ngot %q, want it to be accepted: %t", script, problem, ok)
		}
	}
}

// B6: what was stored before the count existed is counted, too.
func TestMigrationCountsStoredBytes(t *testing.T) {
	t.Parallel()
	d, err := Open(t.Context(), filepath.Join(t.TempDir(), "turnpike.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := slices.IndexFunc(Migrations(), func(m Migration) bool { return m.Name == "bounded_queries" })
	if _, err := d.migrate(t.Context(), Migrations()[:before], allowAll); err != nil {
		t.Fatal(err)
	}
	err = d.Write(t.Context(), func(tx *Tx) error {
		for _, statement := range []string{
			"INSERT INTO responses (id, workspace_id, bytes, environment, reader, content, created_at, expires_at) VALUES ('1', 'ws_1', 1, '', '', '', 0, 0), ('2', 'ws_2', 10, '', '', '', 0, 0)",
			"INSERT INTO conversation_items (conversation_id, position, workspace_id, bytes, id, content) VALUES ('c', 1, 'ws_1', 100, '', '')",
			"INSERT INTO api_files (id, workspace_id, bytes, environment, purpose, filename, sha256, created_at, expires_at) VALUES ('1', 'ws_1', 1000, '', '', '', '', 0, 0)",
		} {
			if _, err := tx.Exec(t.Context(), statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := List(t.Context(), d, Value[int64], "SELECT bytes FROM stored_bytes ORDER BY workspace_id")
	if want := []int64{1101, 10}; err != nil || !slices.Equal(got, want) {
		t.Errorf("counted %v bytes (%v), want %v", got, err, want)
	}
}
