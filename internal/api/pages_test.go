package api_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"turnpike/docs"
	"turnpike/internal/access"
	"turnpike/internal/operators"
)

// scopeName matches what pages write as a scope of a key.
var scopeName = regexp.MustCompile("[`\", ]([a-z_.]+:(?:create|read|write|approve|replay|call))\\b")

func TestPagesNameOnlyScopesThatExist(t *testing.T) {
	t.Parallel()
	found := 0
	err := fs.WalkDir(docs.Files, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		page, err := fs.ReadFile(docs.Files, path)
		for _, m := range scopeName.FindAllStringSubmatch(string(page), -1) {
			found++
			if _, _, err := access.ParseScopes(m[1:]); err != nil && !slices.Contains(operators.Scopes(), operators.Scope(m[1])) {
				t.Errorf("docs/%s names the scope %s: %v", path, m[1], err)
			}
		}
		return err
	})
	if err != nil || found < 100 {
		t.Errorf("found %d scopes, %v", found, err)
	}
}

// TestKeysPageListsEveryScopeAndField compares docs/reference/keys.md with the scopes of the code and with the fields of
// POST /v1/keys. Some fields have their own sections there instead of a row in the table.
func TestKeysPageListsEveryScopeAndField(t *testing.T) {
	t.Parallel()
	page, err := fs.ReadFile(docs.Files, "reference/keys.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range access.Scopes() {
		if !strings.Contains(string(page), "`"+string(s)+"`") {
			t.Errorf("docs/reference/keys.md lacks the scope %s", s)
		}
	}
	fields := loadDocument(t).Components.Schemas["KeyCreate"].Value.Properties
	for name := range fields {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/reference/keys.md lacks the field %s", name)
		}
	}
	_, table, _ := strings.Cut(string(page), "| Field | Meaning | If omitted |")
	table, _, _ = strings.Cut(table, "\n\n")
	var listed []string
	for _, row := range strings.Split(table, "\n") {
		if cells := strings.Split(row, "|"); len(cells) > 1 {
			for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
				listed = append(listed, m[1])
			}
		}
	}
	if unknown := slices.DeleteFunc(slices.Clone(listed), func(name string) bool { return fields[name] != nil }); len(unknown) > 0 || len(listed) < 10 {
		t.Errorf("docs/reference/keys.md lists %v; POST /v1/keys lacks %v", listed, unknown)
	}
}
