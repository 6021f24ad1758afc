//go:build clients

package sdk_test

import (
	"os"
	"path/filepath"
	"testing"

	"turnpike/internal/audio"
	"turnpike/test/harness"
)

// TestNodeSDKTranscribes runs the published npm package against the simulator and a mock of OpenAI.
func TestNodeSDKTranscribes(t *testing.T) {
	t.Parallel()
	withMakers(t, "sqlite", func(t *testing.T, s *harness.Server, m maker) {
		if m.name == "gemini" {
			t.Skip("Gemini has no such endpoint")
		}
		format := audio.Format{Rate: 8000, Channels: 1}
		file := filepath.Join(t.TempDir(), "speech.wav")
		if err := os.WriteFile(file, append(audio.Header(format, 64_000), make([]byte, 64_000)...), 0o600); err != nil {
			t.Fatal(err)
		}
		runScript(t, "transcribe.mjs", []string{"openai"}, "BASE_URL="+s.URL+"/v1", "KEY="+m.key, "FILE="+file)
	})
}
