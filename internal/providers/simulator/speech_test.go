package simulator

import (
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"turnpike/internal/audio"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

func heard(t *testing.T, req providers.SpeechRequest) []byte {
	t.Helper()
	if req.Format == "" {
		req.Format = "wav"
	}
	c, err := newSimulator().Speech(t.Context(), &req)
	if err != nil {
		t.Fatalf("%+v: %v", req, err)
	}
	data, err := io.ReadAll(c.Body)
	if err != nil {
		t.Fatalf("%+v: %v", req, err)
	}
	c.Body.Close()
	if c.ContentType != audio.Types[req.Format] || c.Size >= 0 && c.Size != int64(len(data)) {
		t.Errorf("%s: %s, %d bytes of %d", req.Format, c.ContentType, len(data), c.Size)
	}
	return data
}

func TestSpeechDurationFollowsFromTheText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a", "Hello there", strings.Repeat("fifteen letters", 20), "مرحبا بالعالم", "日本語を話す", "🦩 👨‍👩‍👧‍👦", "one\n\n  two", "bad \xff bytes", "[[sim:delay=0s]]"} {
		for voice, rate := range map[string]int{"alloy": 24_000, "alloy-8k": 8_000} {
			wav := heard(t, providers.SpeechRequest{Voice: voice, Input: text})
			f, pcm, err := audio.ReadWAV(bytes.NewReader(wav))
			if err != nil || f != (audio.Format{Rate: rate, Channels: 1}) {
				t.Fatalf("%q: %v, %v", text, f, err)
			}
			samples, err := io.ReadAll(pcm)
			characters := utf8.RuneCountInString(text)
			if strings.Contains(text, "sim:") {
				characters = 1
			}
			want := time.Duration(characters) * time.Second / 15
			if got := f.Duration(int64(len(samples))); err != nil || (got-want).Abs() > time.Millisecond {
				t.Errorf("%q lasts %v, want %v, %v", text, got, want, err)
			}
			loudest := int16(0)
			for i := 0; i < len(samples); i += 2 {
				loudest = max(loudest, int16(binary.LittleEndian.Uint16(samples[i:])))
			}
			if loudest < 2000 || loudest > 8000 {
				t.Errorf("%q has %d at its loudest", text, loudest)
			}
			if raw := heard(t, providers.SpeechRequest{Voice: voice, Input: text, Format: "pcm"}); !bytes.Equal(raw, samples) {
				t.Errorf("%q: pcm is not what is in wav", text)
			}
		}
	}
}

func TestSpeechFollowsFromTextAndVoice(t *testing.T) {
	t.Parallel()
	one := heard(t, providers.SpeechRequest{Input: "Hello there", Voice: "alloy"})
	if !bytes.Equal(one, heard(t, providers.SpeechRequest{Input: "Hello [[sim:delay=0s]]there", Voice: "alloy"})) {
		t.Error("the same text sounds different, or magic is spoken")
	}
	for _, other := range []providers.SpeechRequest{{Input: "Hello Peter", Voice: "alloy"}, {Input: "Hello there", Voice: "echo"}} {
		if bytes.Equal(one, heard(t, other)) {
			t.Errorf("%+v sounds the same", other)
		}
	}
	if fast := heard(t, providers.SpeechRequest{Input: "Hello there", Body: []byte(`{"speed":2}`)}); len(fast) > len(one)/2+44 {
		t.Errorf("twice as fast takes %d bytes instead of %d", len(fast), len(one))
	}
}

func TestSpeechInOtherFormats(t *testing.T) {
	t.Parallel()
	for format, begins := range map[string]string{"opus": "OggS", "flac": "fLaC", "aac": "\xff", "mp3": ""} {
		first := heard(t, providers.SpeechRequest{Input: "Hello there", Format: format})
		if len(first) < 500 || !bytes.HasPrefix(first, []byte(begins)) || !bytes.Equal(first, heard(t, providers.SpeechRequest{Input: "Hello there", Format: format})) {
			t.Errorf("%s has %d bytes that begin with %q, or others each time", format, len(first), first[:4])
		}
	}
}

func TestSpeechWithoutFFmpeg(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	heard(t, providers.SpeechRequest{Input: "hello", Format: "wav"})
	heard(t, providers.SpeechRequest{Input: "hello", Format: "pcm"})
	_, err := newSimulator().Speech(t.Context(), &providers.SpeechRequest{Input: "hello", Format: "mp3"})
	if f, ok := fault.As(err); !ok || f.Param != "response_format" || !strings.Contains(f.Message, "ffmpeg") {
		t.Errorf("mp3: %v", err)
	}
}

func TestInvalidSpeechRequestIsRejected(t *testing.T) {
	t.Parallel()
	for param, req := range map[string]*providers.SpeechRequest{
		"input": {Input: " \n", Format: "wav"}, "response_format": {Input: "a", Format: "exe"}, "speed": {Input: "a", Format: "wav", Body: []byte(`{"speed":9}`)},
	} {
		_, err := newSimulator().Speech(t.Context(), req)
		if f, ok := fault.As(err); !ok || f.Param != param {
			t.Errorf("%s: %v", param, err)
		}
	}
}

// A long text is hours of audio, and only a small part of it is in memory.
func TestSpeechIsGeneratedWhileItIsRead(t *testing.T) {
	text := strings.Repeat("a long story and ", 60_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := newSimulator().Speech(t.Context(), &providers.SpeechRequest{Voice: "alloy-8k", Input: text, Format: "wav"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, iotest.OneByteReader(c.Body), 100_000); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 || c.Size < 1<<30 {
		t.Errorf("%d bytes were taken for a file of %d", used, c.Size)
	}
}
