package gemini

import (
	"encoding/base64"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	sound "turnpike/internal/audio"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/test/fakes/upstreams"
)

const tts = "gemini-2.5-flash-preview-tts"

func speak(t *testing.T, p *Provider, format string) (*providers.Content, []byte) {
	t.Helper()
	content, err := p.Speech(t.Context(), &providers.SpeechRequest{Model: tts, Input: "Good day.", Voice: "Kore", Format: format})
	if err != nil {
		t.Fatal(err)
	}
	defer content.Body.Close()
	sound, err := io.ReadAll(content.Body)
	if err != nil || content.Size != int64(len(sound)) {
		t.Errorf("%d bytes of %d, %v", len(sound), content.Size, err)
	}
	return content, sound
}

func TestSpeechIsGenerated(t *testing.T) {
	t.Parallel()
	p, server := start(t)
	raw, sound := speak(t, p, "pcm")
	if raw.ContentType != "audio/pcm" || len(sound) != 4800 {
		t.Errorf("%d bytes of %s", len(sound), raw.ContentType)
	}
	file, wav := speak(t, p, "wav")
	u16, u32 := binary.LittleEndian.Uint16, binary.LittleEndian.Uint32
	if file.ContentType != "audio/wav" || len(wav) != 44+4800 || string(wav[:4])+string(wav[8:16])+string(wav[36:40]) != "RIFFWAVEfmt data" || string(wav[44:]) != string(sound) {
		t.Fatalf("%d bytes of %s", len(wav), file.ContentType)
	}
	if u32(wav[4:]) != uint32(len(wav)-8) || u32(wav[16:]) != 16 || u16(wav[20:]) != 1 || u16(wav[22:]) != 1 || u32(wav[24:]) != 24000 || u32(wav[28:]) != 48000 || u16(wav[32:]) != 2 || u16(wav[34:]) != 16 || u32(wav[40:]) != 4800 {
		t.Errorf("the header is %x", wav[:44])
	}
	if want := `{"contents":[{"role":"user","parts":[{"text":"Good day."}]}],"generationConfig":{"responseModalities":["AUDIO"],"speechConfig":{"voiceConfig":{"prebuiltVoiceConfig":{"voiceName":"Kore"}}}}}`; string(server.Requests()[0].Body) != want {
		t.Errorf("got %s", server.Requests()[0].Body)
	}
}

func TestInstructionsPrecedeTheText(t *testing.T) {
	t.Parallel()
	p, server := start(t)
	_, err := p.Speech(t.Context(), &providers.SpeechRequest{Model: tts, Input: "Good day.", Format: "wav", Body: []byte(`{"input":"another","instructions":"Say cheerfully. ","speed":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"contents":[{"role":"user","parts":[{"text":"Say cheerfully:\nGood day."}]}],"generationConfig":{"responseModalities":["AUDIO"]}}`; string(server.Requests()[0].Body) != want {
		t.Errorf("got %s", server.Requests()[0].Body)
	}
}

func TestSampleRateIsInTheHeader(t *testing.T) {
	t.Parallel()
	p, server := start(t)
	server.Queue(makeMedia(upstreams.GeminiMedia{Type: "audio/L16;rate=16000"}), makeMedia(upstreams.GeminiMedia{Type: "audio/L16;rate=16000"}))
	if _, wav := speak(t, p, "wav"); binary.LittleEndian.Uint32(wav[24:]) != 16000 {
		t.Errorf("the header is %x", wav[:44])
	}
	raw, err := p.Speech(t.Context(), &providers.SpeechRequest{Model: tts, Input: "x", Format: "pcm"})
	if err != nil {
		t.Fatal(err)
	}
	if samples, err := io.ReadAll(raw.Body); raw.ContentType != "audio/pcm" || len(samples) != 7200 || err != nil {
		t.Errorf("%d bytes of %s, want 7200 at 24 kHz: %v", len(samples), raw.ContentType, err)
	}
}

func TestInvalidSpeechRequestsAreRejected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ format, body, param string }{
		{"ogg", `{}`, "response_format"}, {"", `{}`, "response_format"}, {"wav", `{"speed":2}`, "speed"}, {"wav", `{"instructions":7}`, "instructions"},
	} {
		p, server := start(t)
		_, err := p.Speech(t.Context(), &providers.SpeechRequest{Model: tts, Input: "x", Format: c.format, Body: []byte(c.body)})
		if f, ok := fault.As(err); !ok || f.Param != c.param || len(server.Requests()) != 0 {
			t.Errorf("%s %s: %v", c.format, c.body, err)
		}
	}
}

// Gemini itself sends samples alone, and who does not say otherwise wants mp3.
func TestSpeechIsEncodedInEveryFormat(t *testing.T) {
	t.Parallel()
	if !sound.CanTranscode() {
		t.Fatal("the tests need ffmpeg: run scripts/setup.sh")
	}
	p, _ := start(t)
	for format, begins := range map[string]string{"mp3": "ID3", "opus": "OggS", "aac": "\xff\xf1", "flac": "fLaC"} {
		content, err := p.Speech(t.Context(), &providers.SpeechRequest{Model: tts, Input: "Good day.", Voice: "Kore", Format: format})
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		file, err := io.ReadAll(content.Body)
		if closed := content.Body.Close(); err != nil || closed != nil || content.ContentType != sound.Types[format] || content.Size != -1 || !strings.HasPrefix(string(file), begins) {
			t.Errorf("%s: %s that begins with %q (%v, %v)", format, content.ContentType, file[:min(4, len(file))], err, closed)
		}
		if format == "flac" && binary.BigEndian.Uint64(file[18:])&(1<<36-1) != 2400 {
			t.Errorf("the FLAC file does not say how long it is")
		}
	}
}

// Not parallel: it takes the programs away.
func TestSpeechErrorNamesFFmpeg(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p, server := start(t)
	_, err := p.Speech(t.Context(), &providers.SpeechRequest{Model: tts, Input: "x", Format: "mp3"})
	if f, ok := fault.As(err); !ok || f.Param != "response_format" || !strings.Contains(f.Message, "ffmpeg") || len(server.Requests()) != 0 {
		t.Errorf("got %v", err)
	}
}

func TestSpeechFailureHasItsKind(t *testing.T) {
	t.Parallel()
	sound := base64.StdEncoding.EncodeToString([]byte("sound"))
	for name, c := range map[string]struct {
		voice string
		reply upstreams.GeminiReply
		want  providers.Kind
		param string
	}{
		"voice":      {"alloy", upstreams.GeminiReply{}, providers.KindInvalid, "voice"},
		"blocked":    {"Kore", makeMedia(upstreams.GeminiMedia{Block: "SAFETY"}), providers.KindBlockedInput, ""},
		"output":     {"Kore", makeMedia(upstreams.GeminiMedia{Finish: "PROHIBITED_CONTENT"}), providers.KindBlockedOutput, ""},
		"no sound":   {"Kore", makeMedia(upstreams.GeminiMedia{Finish: "OTHER"}), providers.KindProtocol, ""},
		"other type": {"Kore", makeMedia(upstreams.GeminiMedia{Type: "audio/mpeg"}), providers.KindProtocol, ""},
		"other rate": {"Kore", makeMedia(upstreams.GeminiMedia{Type: "audio/L16;rate=-1"}), providers.KindProtocol, ""},
		"empty":      {"Kore", upstreams.GeminiReply{Body: `{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"audio/L16","data":""}}]}}]}`}, providers.KindProtocol, ""},
		"thought":    {"Kore", upstreams.GeminiReply{Body: `{"candidates":[{"content":{"parts":[{"thought":true,"inlineData":{"mimeType":"audio/L16","data":"` + sound + `"}}]}}]}`}, providers.KindProtocol, ""},
		"HTML":       {"Kore", upstreams.GeminiReply{Body: upstreams.HTML}, providers.KindProtocol, ""},
		"cut":        {"Kore", upstreams.GeminiReply{Cut: true}, providers.KindCut, ""},
	} {
		p, server := start(t)
		server.Queue(c.reply)
		_, err := p.Speech(t.Context(), &providers.SpeechRequest{Model: tts, Input: "x", Voice: c.voice, Format: "wav"})
		if f := failureOf(t, err); f.Kind != c.want || f.Param != c.param {
			t.Errorf("%s: %#v, %v, want %s", name, f, f, c.want)
		}
	}
}
