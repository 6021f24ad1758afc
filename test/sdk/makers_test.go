//go:build clients

package sdk_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"image/png"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/audio"
	"turnpike/internal/config"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// maker creates images, speech and videos for a key: the simulator or a mock provider.
type maker struct {
	name, key            string
	image, speech, video string // models
	voice                string
	masks                bool // supports masks in edits
	mp3                  bool // supports audio formats other than WAV
	plays                bool // its files are complete, not only their first bytes
}

// withMakers runs fn once for each maker, with a server that has all of them.
func withMakers(t *testing.T, engine string, fn func(t *testing.T, s *harness.Server, m maker)) {
	t.Helper()
	o, g := upstreams.NewOpenAI(t, upstreamKey), upstreams.NewGemini(t, upstreamKey)
	cfg := harness.Config(t, engine)
	cfg.Media.Espeak = false
	cfg.Providers = []config.Provider{
		{Name: "openai", Type: config.OpenAI, BaseURL: config.Address(o.BaseURL()), APIKey: upstreamKey, Weight: 1},
		{Name: "gemini", Type: config.Gemini, BaseURL: config.Address(g.BaseURL()), APIKey: upstreamKey, Weight: 1},
	}
	s := harness.Start(t, cfg, harness.NewClock())
	s.Clock.Run(t)
	w := s.Workspace(t, "acme")
	for _, m := range []maker{
		{name: "simulator", image: "gpt-image-1.5", speech: "tts-1", voice: "alloy", video: "sora-2", masks: true, mp3: true, plays: true},
		{name: "openai", image: "gpt-image-1.5", speech: "tts-1", voice: "alloy", video: "sora-2", masks: true, mp3: true},
		{name: "gemini", image: "gemini-2.5-flash-image", speech: "gemini-2.5-flash-preview-tts", voice: "Kore", video: "veo-3.1-generate-preview", mp3: audio.CanTranscode()},
	} {
		env := accounts.Live
		if m.name == "simulator" {
			env = accounts.Test
		}
		m.key, _ = s.Key(t, w, env)
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			fn(t, s, m)
		})
	}
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// fetch downloads a URL without a key, as a browser does.
func fetch(t *testing.T, url string) []byte {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v\n%s", url, res.StatusCode, err, data)
	}
	return data
}

func checkPNG(t *testing.T, data []byte) {
	t.Helper()
	if _, err := png.Decode(bytes.NewReader(data)); err != nil {
		t.Errorf("%d bytes are no picture: %v", len(data), err)
	}
}

func checkWAV(t *testing.T, data []byte) {
	t.Helper()
	f, sound, err := audio.ReadWAV(bytes.NewReader(data))
	if err != nil {
		t.Errorf("%d bytes are no sound: %v", len(data), err)
		return
	}
	samples, err := io.ReadAll(sound)
	if err != nil || f.Duration(int64(len(samples))) <= 0 {
		t.Errorf("%v for %v, %v", f, f.Duration(int64(len(samples))), err)
	}
}

func (m maker) checkMP3(t *testing.T, data []byte) {
	t.Helper()
	if m.plays {
		probe(t, data, "mp3")
	} else if !bytes.HasPrefix(data, []byte("ID3")) && !bytes.HasPrefix(data, []byte{0xff}) { // an ID3 tag or the first frame
		t.Errorf("the sound begins with %q", data[:min(8, len(data))])
	}
}

func (m maker) checkMP4(t *testing.T, data []byte) {
	t.Helper()
	if m.plays {
		probe(t, data, "h264")
	} else if sum(data) != sum(upstreams.MP4()) {
		t.Errorf("%d bytes are not the video that the provider made", len(data))
	}
}

// probe decodes a whole file and checks its codec.
func probe(t *testing.T, data []byte, codec string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ffmpeg", "-v", "error", "-i", path, "-f", "null", "-").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%d bytes do not play: %v\n%s", len(data), err, out)
	}
	out, err := exec.Command("ffprobe", "-v", "error", "-show_entries", "stream=codec_name", "-of", "csv=p=0", path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), codec) {
		t.Errorf("it is %s, and not %s: %v", out, codec, err)
	}
}
