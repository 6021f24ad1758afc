//go:build clients

package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"turnpike/internal/audio"
	"turnpike/test/harness"
)

// TestNodeSDKTranscribes runs the published npm package against the simulator and a mock of OpenAI.
func TestNodeSDKTranscribes(t *testing.T) {
	t.Parallel()
	pkg, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	withMakers(t, "sqlite", func(t *testing.T, s *harness.Server, m maker) {
		if m.name == "gemini" {
			t.Skip("Gemini has no such endpoint")
		}
		format := audio.Format{Rate: 8000, Channels: 1}
		file := filepath.Join(t.TempDir(), "speech.wav")
		if err := os.WriteFile(file, append(audio.Header(format, 64_000), make([]byte, 64_000)...), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "node", "testdata/transcribe.mjs")
		cmd.Env = append(os.Environ(), "PACKAGE="+pkg, "BASE_URL="+s.URL+"/v1", "KEY="+m.key, "FILE="+file)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}
