//go:build clients

package sdk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// TestNodeSDKMakesMedia runs the published npm package through the same steps as the Go
// SDK.
func TestNodeSDKMakesMedia(t *testing.T) {
	t.Parallel()
	withMakers(t, "sqlite", func(t *testing.T, s *harness.Server, m maker) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "source.png"), upstreams.PNGOf(64, 64), 0o600); err != nil {
			t.Fatal(err)
		}
		runScript(t, "media.mjs", []string{"openai"}, "BASE_URL="+s.URL+"/v1", "KEY="+m.key, "FOLDER="+dir, "IMAGE="+m.image, "SPEECH="+m.speech,
			"VOICE="+m.voice, "VIDEO="+m.video, "MASKS="+yes(m.masks), "MP3="+yes(m.mp3))
		m.checkDirectory(t, dir)
	})
}

// yes encodes a boolean for a script, in which an empty string is false.
func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// checkDirectory checks every file that the script has created.
func (m maker) checkDirectory(t *testing.T, dir string) {
	t.Helper()
	found := map[string]int{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
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
