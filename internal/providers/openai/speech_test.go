package openai_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"turnpike/internal/providers"
	"turnpike/internal/providers/openai"
	"turnpike/internal/providers/wire"
	"turnpike/test/fakes/upstreams"
)

func readContent(c *providers.Content) ([]byte, error) {
	defer c.Body.Close()
	return io.ReadAll(c.Body)
}

func TestSpeechIsForwarded(t *testing.T) {
	t.Parallel()
	for format, c := range map[string]struct{ begins, kind, fallback string }{
		"mp3":  {"ID3", "audio/mpeg", "audio/mpeg"},
		"opus": {"OggS", "audio/opus", "audio/opus"},
		"aac":  {"\xff\xf1", "audio/aac", "audio/aac"},
		"flac": {"fLaC", "audio/flac", "audio/flac"},
		"wav":  {"RIFF", "audio/wav", "audio/wav"},
		"pcm":  {"\x00\x00", "audio/pcm", "audio/pcm"},
		"":     {"ID3", "audio/mpeg", "audio/mpeg"},
	} {
		upstream, p := start(t)
		upstream.Queue(media(upstreams.OpenAIMedia{}), media(upstreams.OpenAIMedia{Type: "none"}), media(upstreams.OpenAIMedia{Type: "application/octet-stream"}))
		for _, want := range []string{c.kind, c.fallback, c.fallback} {
			content, err := p.Speech(t.Context(), &providers.SpeechRequest{Model: "tts-1", Input: "Good day.", Voice: "alloy", Format: format})
			if err != nil {
				t.Fatalf("%s: %v", format, err)
			}
			sound, err := readContent(content)
			if err != nil || content.ContentType != want || len(sound) < 4800 || !strings.HasPrefix(string(sound), c.begins) {
				t.Errorf("%s: %d bytes of %s, want %s: %v", format, len(sound), content.ContentType, want, err)
			}
		}
	}
}

func TestSpeechRequestChangesOnlyItsFields(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	for _, c := range []struct {
		req  providers.SpeechRequest
		want string
	}{
		{providers.SpeechRequest{Input: "a \"b\"", Voice: "alloy", Format: "wav"}, `{"model":"tts-1","input":"a \"b\"","voice":"alloy","response_format":"wav"}`},
		{providers.SpeechRequest{Input: "a", Voice: "echo", Format: "pcm", Body: []byte(`{"model":"ours","input":"all of it", "voice":"alloy","stream_format":"sse", "speed":1.5,"instructions":"slowly"}`)},
			`{"model":"tts-1","input":"a","voice":"echo","speed":1.5,"instructions":"slowly","response_format":"pcm"}`},
		{providers.SpeechRequest{Input: "a", Body: []byte(`{"voice":{"id":"voice_1"}}`)}, `{"voice":{"id":"voice_1"},"model":"tts-1","input":"a"}`},
	} {
		c.req.Model = "tts-1"
		content, err := p.Speech(t.Context(), &c.req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = readContent(content)
		requests := upstream.Requests()
		if req := requests[len(requests)-1]; string(req.Body) != c.want || req.Path != "/audio/speech" {
			t.Errorf("%s got  %s\nwant %s", req.Path, req.Body, c.want)
		}
	}
}

func TestSpeechIsForwardedAsItArrives(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	upstream.Queue(upstreams.OpenAIReply{Stall: 100})
	content, err := p.Speech(t.Context(), &providers.SpeechRequest{Model: "tts-1", Input: "x", Voice: "alloy", Format: "wav"})
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 100) // nothing else arrives
	if _, err := io.ReadFull(content.Body, first); err != nil || string(first[:4]) != "RIFF" {
		t.Errorf("got %q, %v", first[:4], err)
	}
	_ = content.Body.Close()
	<-upstream.Requests()[0].Gone
}

func TestSpeechFailureHasItsKind(t *testing.T) {
	t.Parallel()
	text := func(kind, file string) upstreams.OpenAIReply {
		return media(upstreams.OpenAIMedia{Type: kind, File: []byte(file)})
	}
	for name, c := range map[string]struct {
		reply upstreams.OpenAIReply
		want  providers.Kind
	}{
		"invalid":         {upstreams.OpenAIReply{Status: 400, Param: "voice"}, providers.KindInvalid},
		"blocked":         {upstreams.OpenAIBlocked("content_policy_violation", ""), providers.KindBlockedInput},
		"no model":        {upstreams.OpenAIReply{Status: 404, Code: "model_not_found"}, providers.KindNoModel},
		"error in a 200":  {upstreams.OpenAIReply{Body: `{"error":{"message":"strange"}}`}, providers.KindProtocol},
		"busy in a 200":   {upstreams.OpenAIReply{Body: `{"error":{"type":"overloaded_error"}}`}, providers.KindOverloaded},
		"error as audio":  {text("application/octet-stream", `{"error":{"message":"strange"}}`), providers.KindProtocol},
		"HTML":            {upstreams.OpenAIReply{Body: upstreams.HTML}, providers.KindProtocol},
		"HTML as audio":   {text("none", upstreams.HTML), providers.KindProtocol},
		"events":          {upstreams.OpenAIReply{Body: "data: {}\n\n"}, providers.KindProtocol},
		"nothing":         {upstreams.OpenAIReply{Empty: true, Type: "audio/wav"}, providers.KindProtocol},
		"hung up":         {upstreams.OpenAIReply{Cut: -1}, providers.KindConnect},
		"cut":             {upstreams.OpenAIReply{Cut: 1000}, providers.KindCut},
		"hangs":           {upstreams.OpenAIReply{Stall: -1}, providers.KindTimeout},
		"hangs in middle": {upstreams.OpenAIReply{Stall: 1000}, providers.KindTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := upstreams.NewOpenAI(t, key)
			upstream.Queue(c.reply)
			timeouts := wire.Timeouts{}
			if c.want == providers.KindTimeout {
				timeouts = wire.Timeouts{FirstByte: 150 * time.Millisecond, Idle: 150 * time.Millisecond}
			}
			content, err := newProvider(upstream.BaseURL(), timeouts).Speech(t.Context(), &providers.SpeechRequest{Model: "tts-1", Input: "x", Voice: "alloy", Format: "wav"})
			if err == nil {
				_, err = readContent(content)
			}
			if failure(err).Kind != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// PCM may begin with any byte: it must not be mistaken for text.
func TestPCMIsNotMistakenForText(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	upstream.Queue(media(upstreams.OpenAIMedia{Type: "application/octet-stream", File: []byte("{<{<")}))
	content, err := p.Speech(t.Context(), &providers.SpeechRequest{Model: "tts-1", Input: "x", Voice: "alloy", Format: "pcm"})
	if err != nil {
		t.Fatal(err)
	}
	if sound, err := readContent(content); string(sound) != "{<{<" || err != nil {
		t.Errorf("got %q, %v", sound, err)
	}
}

func TestAzureMediaURLsNameTheDeployment(t *testing.T) {
	t.Parallel()
	upstream := upstreams.NewOpenAI(t, key)
	p := openai.New(openai.Options{Name: "azure", BaseURL: upstream.BaseURL(), Key: key, APIVersion: "2025-04-01-preview", Client: wire.NewClient(wire.Timeouts{})})
	if _, err := p.Images(t.Context(), &providers.ImageRequest{Model: "gpt-image-1", Body: []byte(`{"prompt":"x"}`)}); err != nil {
		t.Error(err)
	}
	if _, err := p.Speech(t.Context(), &providers.SpeechRequest{Model: "tts", Input: "x", Voice: "alloy"}); err != nil {
		t.Error(err)
	}
	_, _ = p.PollVideo(t.Context(), "video_1")
	for i, want := range []string{"/v1/deployments/gpt-image-1/images/generations", "/v1/deployments/tts/audio/speech", "/v1/v1/videos/video_1"} {
		if req := upstream.Requests()[i]; req.Escaped != want || req.Header.Get("Api-Key") != key {
			t.Errorf("got URL %s, want %s", req.Escaped, want)
		}
	}
}
