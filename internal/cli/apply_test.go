package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"turnpike/internal/db"
)

// TestSpendingIsNoChange covers a limit whose budget is partly spent: applying the same
// file again must change nothing.
func TestSpendingIsNoChange(t *testing.T) {
	t.Parallel()
	var before, after stateObject
	for text, o := range map[string]*stateObject{
		`{"limits":[{"id":"lim_1","budget":4,"window":"day","models":null,"spent":0}],"metadata":{"spent":"a"}}`:      &before,
		`{"limits":[{"id":"lim_1","budget":4,"window":"day","models":null,"spent":0.1494}],"metadata":{"spent":"b"}}`: &after,
	} {
		if err := json.Unmarshal([]byte(text), o); err != nil {
			t.Fatal(err)
		}
	}
	if !sameJSON(before["limits"], after["limits"]) {
		t.Errorf("spending changed %s to %s", before["limits"], after["limits"])
	}
	if declared := json.RawMessage(`[{"id":"lim_1","budget":4,"window":"day"}]`); !sameJSON(before["limits"], declared) {
		t.Errorf("%s is not the same as %s", before["limits"], declared)
	}
	if sameJSON(before["metadata"], after["metadata"]) {
		t.Error("a change of metadata was missed")
	}
}

// newSecretsTest returns an applier that has made two secrets, and the paths of their files. The second file has the
// secrets of an earlier run.
func newSecretsTest(t *testing.T) (a *applier, value, all string) {
	dir := t.TempDir()
	value, all = filepath.Join(dir, "worker.key"), filepath.Join(dir, "secrets.json")
	a = &applier{applyOptions: applyOptions{secrets: all}, values: map[string]string{}}
	if err := os.WriteFile(all, []byte(`[{"id":"key_1","value":"earlier"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	a.makeSecrets(t, "first", value)
	return a, value, all
}

// makeSecrets is an attempt that makes two secrets.
func (a *applier) makeSecrets(t *testing.T, secret, path string) {
	t.Helper()
	a.made = []newSecret{{ID: "key_2", Value: secret + " one", path: path}, {ID: "key_3", Value: secret + " two"}}
	if err := a.writeSecrets(); err != nil {
		t.Fatal(err)
	}
}

// secretsIn returns the values in a file of secrets.
func secretsIn(t *testing.T, path string) (values []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	var list []newSecret
	if err := errors.Join(err, json.Unmarshal(text, &list)); err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		values = append(values, s.Value)
	}
	return values
}

func TestSecretsOfRolledBackChangesAreRemoved(t *testing.T) {
	t.Parallel()
	a, value, all := newSecretsTest(t)
	// A transaction that lost a race is repeated.
	if err := a.undoSecrets(); err != nil {
		t.Fatal(err)
	}
	a.makeSecrets(t, "second", value)
	if got := secretsIn(t, all); !slices.Equal(got, []string{"earlier", "second two"}) {
		t.Errorf("after two attempts the file has %q", got)
	}
	if text, err := os.ReadFile(value); string(text) != "second one\n" {
		t.Errorf("after two attempts the key's file has %q, %v", text, err)
	}
	failed := errors.New("refused")
	if err := a.finish(failed); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	if got := secretsIn(t, all); !slices.Equal(got, []string{"earlier"}) {
		t.Errorf("after the failure the file has %q", got)
	}
	if _, err := os.Stat(value); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key's file is left: %v", err)
	}
}

func TestSecretsAreKeptIfTheCommitIsInDoubt(t *testing.T) {
	t.Parallel()
	a, value, all := newSecretsTest(t)
	if err := a.finish(errors.Join(db.ErrInDoubt, db.ErrUnavailable)); !errors.Is(err, db.ErrInDoubt) {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(value); string(text) != "first one\n" {
		t.Errorf("the key's file has %q, %v", text, err)
	}
	if got := secretsIn(t, all); !slices.Equal(got, []string{"earlier", "first two"}) {
		t.Errorf("the file has %q", got)
	}
}
