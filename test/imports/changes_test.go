package imports

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// tableDefinition matches the tables that db.Table.Update writes.
	tableDefinition = regexp.MustCompile(`db\.Table\{Name: "(\w+)", Key: \d+, Columns: "([^"]+)"\}`)
	updateStatement = regexp.MustCompile("UPDATE (\\w+) SET ([^\"`]*)")
	assignedColumn  = regexp.MustCompile(`(\w+) = `)
)

// TestOnlyOneStatementChangesAColumn of a record that people change: db.Table.Update, under the row's lock. Another one
// could revert a concurrent change, and would skip what follows from a change.
func TestOnlyOneStatementChangesAColumn(t *testing.T) {
	t.Parallel()
	columns, statements := map[string][]string{}, map[string][]string{}
	err := filepath.WalkDir("../../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // our source
		for _, m := range tableDefinition.FindAllStringSubmatch(string(text), -1) {
			columns[m[1]] = strings.Split(m[2], ", ")
		}
		for _, m := range updateStatement.FindAllStringSubmatch(string(text), -1) {
			set, _, _ := strings.Cut(m[2], "WHERE")
			for _, c := range assignedColumn.FindAllStringSubmatch(set, -1) {
				name := m[1] + "." + c[1]
				statements[name] = append(statements[name], path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"workspaces", "projects", "keys", "end_users", "endpoints", "workspace_routes"} {
		if columns[table] == nil {
			t.Errorf("%s has no db.Table", table)
		}
	}
	for table, list := range columns {
		for _, column := range list {
			if found := statements[table+"."+column]; found != nil {
				t.Errorf("%s.%s is changed by a statement in %v besides db.Table.Update", table, column, found)
			}
		}
	}
	// Records with a statement of their own have one.
	for _, column := range []string{"federation_rules.name", "tool_servers.label", "definitions.sealed", "conversations.metadata"} {
		if found := statements[column]; len(slices.Compact(found)) != 1 {
			t.Errorf("%s is changed in %v, want one place", column, found)
		}
	}
}
