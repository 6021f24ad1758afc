package imports

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	usedAction   = regexp.MustCompile(`(?m)^\s*(?:- )?uses: *(.*)$`)
	pinnedAction = regexp.MustCompile(`^(?:\./.*|\S+@[0-9a-f]{40} # v[0-9.]+)$`)
	usedImage    = regexp.MustCompile(`(?m)^(?:\s*image:|FROM) *(\S+)`)
	pinnedImage  = regexp.MustCompile(`^(?:scratch|turnpike:.*|\S+:\S+@sha256:[0-9a-f]{64})$`) // turnpike is built from the Dockerfile
)

// TestActionsAndImagesArePinned checks that no one can change what the workflows, the Dockerfile and Compose run by moving
// a tag (N9).
func TestActionsAndImagesArePinned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		files        string
		used, pinned *regexp.Regexp
		atLeast      int
	}{
		{"../../.github/workflows/*.yml", usedAction, pinnedAction, 7},
		{"../../deploy/compose/*.yaml", usedImage, pinnedImage, 9},
		{"../../Dockerfile", usedImage, pinnedImage, 2},
	} {
		files, err := filepath.Glob(c.files)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range c.used.FindAllStringSubmatch(string(text), -1) {
				found++
				if used := strings.TrimSpace(m[1]); !c.pinned.MatchString(used) {
					t.Errorf("%s uses %s, want it pinned by commit or digest, with its version", path, used)
				}
			}
		}
		if found < c.atLeast {
			t.Errorf("%s uses %d actions or images, want at least %d", c.files, found, c.atLeast)
		}
	}
}

func TestReleaseIsTestedBeforeItPublishes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.github/workflows/release.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  test:\n    uses: ./.github/workflows/ci.yml\n", "  release:\n    needs: test\n", "if: ${{ !contains(github.ref_name, '-') }}\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("release.yml lacks %q", want)
		}
	}
}
