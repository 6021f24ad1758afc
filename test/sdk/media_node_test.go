//go:build clients

package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// TestNodeSDKMakesMedia runs the npm package, as it is published, through the
// same as Go's.
func TestNodeSDKMakesMedia(t *testing.T) {
	t.Parallel()
	pkg, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	withMakers(t, "sqlite", func(t *testing.T, s *harness.Server, m maker) {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "source.png"), upstreams.PNGOf(64, 64), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "node", "testdata/media.mjs")
		cmd.Env = append(os.Environ(), "PACKAGE="+pkg, "BASE_URL="+s.URL+"/v1", "KEY="+m.key, "FOLDER="+folder, "IMAGE="+m.image, "SPEECH="+m.speech,
			"VOICE="+m.voice, "VIDEO="+m.video, "MASKS="+yes(m.masks), "MP3="+yes(m.mp3))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		m.checkFolder(t, folder)
	})
}

// yes is what a script takes for true; empty is false.
func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// checkFolder looks at every file that the script has made.
func (m maker) checkFolder(t *testing.T, folder string) {
	t.Helper()
	found := map[string]int{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		kind := strings.TrimPrefix(filepath.Ext(e.Name()), ".")
		found[kind]++
		switch kind {
		case "png":
			checkPNG(t, data)
		case "wav":
			checkWAV(t, data)
		case "mp3":
			m.checkMP3(t, data)
		case "mp4":
			m.checkMP4(t, data)
		}
	}
	if found["png"] != 4 || found["wav"] != 1 || found["mp4"] != 4 || (found["mp3"] == 1) != m.mp3 {
		t.Errorf("the script has made %v", found)
	}
}
