package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnpike/internal/db"
)

func TestMigrateCheckChangesNothing(t *testing.T) {
	t.Parallel()
	l := dataDirectory(t)
	file := filepath.Join(l.Data, "turnpike.db")
	check := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := Main(append([]string{"migrate", "--check", "--data", l.Data}, args...), nil, &out, io.Discard)
		return code, out.String()
	}
	if code, out := check(); code != 0 || !strings.Contains(out, "nothing to migrate") {
		t.Errorf("a current schema: got %d, %q", code, out)
	}
	// As an older version left it.
	d, err := db.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	last := db.Migrations()[len(db.Migrations())-1]
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "DELETE FROM schema_migrations WHERE version = $1", int64(last.Version))
		return err
	})
	d.Close()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		code, out := check("--json")
		var got struct {
			Engine          string
			Version, Target int
			Pending         []string
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.Engine != "sqlite" || got.Version != last.Version-1 || got.Target != last.Version ||
			len(got.Pending) != 1 || !strings.HasSuffix(got.Pending[0], "_"+last.Name) {
			t.Errorf("got %d, %s, %v", code, out, err)
		}
	}
	if code, out := check(); code != 0 || !strings.Contains(out, "Would apply ") {
		t.Errorf("an older schema: got %d, %q", code, out)
	}
	empty := t.TempDir()
	if code := Main([]string{"migrate", "--check", "--data", empty}, nil, io.Discard, io.Discard); code != 1 {
		t.Errorf("no database: got exit code %d, want 1", code)
	}
	if files, _ := os.ReadDir(empty); len(files) != 0 {
		t.Errorf("it created %v", files)
	}
}

func TestMigrateCheckSaysWhetherOldNodesMayKeepRunning(t *testing.T) {
	t.Parallel()
	expand, contract := db.Migration{Version: 31, Name: "grow"}, db.Migration{Version: 32, Name: "shrink", OldestProgram: 30}
	for _, c := range []struct {
		have    int
		pending []db.Migration
		want    string
	}{
		{30, []db.Migration{expand}, "keep running and can restart"},
		{30, []db.Migration{expand, contract}, "0032_shrink (contract).\nNodes of the version before keep running and can restart"},
		{21, []db.Migration{expand}, "keep running, but can't restart"},
		{29, []db.Migration{expand, contract}, "Upgrade all nodes to a version with schema version 30 or later first"},
		{32, nil, "nothing to migrate"},
		{33, nil, "This program works with it"},
	} {
		if got := describePending(c.have, 32, c.pending, describeUpgrade(c.have, c.pending)); !strings.Contains(got, c.want) {
			t.Errorf("schema version %d: got %q, want %q", c.have, got, c.want)
		}
	}
}
