package dashboard_test

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"turnpike/test/harness"
)

func TestFirstRunFileIsDeletedOnceThereIsAnOwner(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg := harness.Config(t, engine)
			s := harness.Start(t, cfg, harness.NewClock())
			path, err := s.App.SaveFirstRun("a key and a link")
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Fatalf("the file: %v, %v", info, err)
			}
			gone := func(path string) {
				t.Helper()
				if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is still there: %v", path, err)
				}
			}
			b, link := newBrowser(t, s), s.App.FirstRun.SetUp.URL("")
			b.get(t, link).shows(t, "Set up Turnpike")
			if _, err := os.Stat(path); err != nil {
				t.Errorf("the file is deleted before anyone is the owner: %v", err)
			}
			b.post(t, link, url.Values{"email": {"ada@example.com"}, "name": {"Ada"}, "password": {password}}).redirectsTo(t, "/dashboard/")
			gone(path)
			if engine == "sqlite" { // a data directory belongs to one server
				return
			}
			// Another node, where an older version left the file.
			cfg.Data = t.TempDir()
			left := filepath.Join(cfg.Data, "first-run.txt")
			if err := os.WriteFile(left, []byte("a key and a link"), 0o600); err != nil {
				t.Fatal(err)
			}
			harness.Start(t, cfg, s.Clock)
			gone(left)
		})
	}
}
