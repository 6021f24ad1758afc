package dbtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMissingBinariesSayHowToGetThem(t *testing.T) {
	t.Parallel()
	_, err := findBinaries(t.TempDir(), filepath.Join(t.TempDir(), "*", "bin"))
	if err == nil || !strings.Contains(err.Error(), "make setup") {
		t.Errorf("got %v, want an error that names `make setup`", err)
	}
}

func TestBinariesComeFromPathThenNewestVersion(t *testing.T) {
	t.Parallel()
	root := realDir(t)
	for _, version := range []string{"9.6", "15", "17"} {
		install(t, filepath.Join(root, version, "bin"), "initdb", "postgres")
	}
	install(t, filepath.Join(root, "18", "bin"), "psql") // only the client
	versions := filepath.Join(root, "*", "bin")

	clientOnly := filepath.Join(root, "18", "bin")
	if got, err := findBinaries(clientOnly, versions); err != nil || got != filepath.Join(root, "17", "bin") {
		t.Errorf("without a server on the path: %s, %v", got, err)
	}
	linked := realDir(t)
	if err := os.Symlink(filepath.Join(root, "15", "bin", "postgres"), filepath.Join(linked, "postgres")); err != nil {
		t.Fatal(err)
	}
	if got, err := findBinaries(linked, versions); err != nil || got != filepath.Join(root, "15", "bin") {
		t.Errorf("with a link to one on the path: %s, %v", got, err)
	}
}

func TestDirectoryInsideAPrivateOneIsNotTraversable(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(realDir(t), "closed")
	if err := os.MkdirAll(filepath.Join(dir, "open"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if traversable(filepath.Join(dir, "open")) {
		t.Error("a directory inside one of mode 0700 is traversable, want not")
	}
	if !traversable("/") {
		t.Error("the root directory is not traversable, want traversable")
	}
}

func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func install(t *testing.T, dir string, programs ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if err := os.WriteFile(filepath.Join(dir, p), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
