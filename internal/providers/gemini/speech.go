package gemini

import (
	"bytes"
	"context"
	"io"
	"mime"
	"strconv"
	"strings"

	"turnpike/internal/audio"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

type speechConfig struct {
	VoiceConfig struct {
		PrebuiltVoiceConfig struct {
			VoiceName string `json:"voiceName"`
		} `json:"prebuiltVoiceConfig"`
	} `json:"voiceConfig"`
}

type speechExtras struct {
	Instructions string   `json:"instructions"`
	Speed        *float64 `json:"speed"`
}

// Speech turns text into speech. Gemini returns PCM.
func (p *Provider) Speech(ctx context.Context, req *providers.SpeechRequest) (*providers.Content, error) {
	call, err := speechCall(req)
	if err != nil {
		return nil, err
	}
	var r generateResponse
	if err := p.post(ctx, p.url(req.Model, "generateContent"), call, &r, explainMedia); err != nil {
		return nil, err
	}
	return p.readSpeech(ctx, &r, req.Format)
}

func (p *Provider) readSpeech(ctx context.Context, r *generateResponse, format string) (*providers.Content, error) {
	files, err := p.files(r)
	if err != nil {
		return nil, err
	}
	var samples []byte
	rate := 0
	for _, f := range files {
		var ok bool
		if rate, ok = sampleRate(f.ContentType); !ok {
			return nil, wire.ProtocolFailure("audio of type %s", wire.Loggable(f.ContentType, p.client.Secrets()...))
		}
		samples = append(samples, f.Data...)
	}
	if len(samples) == 0 {
		return nil, wire.ProtocolFailure("a response without audio")
	}
	pcm := audio.Format{Rate: rate, Channels: 1}
	body, size, err := audio.Content(ctx, pcm, io.NopCloser(bytes.NewReader(samples)), int64(len(samples)), format)
	if err != nil {
		return nil, err
	}
	return &providers.Content{ContentType: audio.Types[format], Body: body, Size: size}, nil
}

func speechCall(req *providers.SpeechRequest) (*generateRequest, error) {
	if _, err := req.ContentType(); err != nil {
		return nil, err
	}
	var extras speechExtras
	if req.Body != nil {
		if err := jsonbody.DecodeLenient(req.Body, &extras); err != nil {
			return nil, err
		}
	}
	if extras.Speed != nil && *extras.Speed != 1 {
		return nil, fault.Invalid("speed", "This model does not support speed. Omit it, and describe the speed in instructions.")
	}
	text := req.Input
	if style := strings.TrimRight(extras.Instructions, " \n\t.:"); style != "" {
		text = style + ":\n" + text // Google's format: the style, a colon, the text
	}
	call := &generateRequest{Contents: []content{{Role: "user", Parts: []part{{Text: text}}}}}
	call.GenerationConfig.ResponseModalities = []string{"AUDIO"}
	if req.Voice != "" {
		voice := new(speechConfig)
		voice.VoiceConfig.PrebuiltVoiceConfig.VoiceName = req.Voice
		call.GenerationConfig.SpeechConfig = voice
	}
	return call, nil
}

// sampleRate parses a type such as audio/L16;codec=pcm;rate=24000. Contrary to
// the standard for that name, the samples are little-endian.
func sampleRate(kind string) (int, bool) {
	name, params, err := mime.ParseMediaType(kind)
	if err != nil || name != "audio/l16" && name != "audio/pcm" {
		return 0, false
	}
	if params["rate"] == "" {
		return audio.RawPCM.Rate, true
	}
	rate, err := strconv.Atoi(params["rate"])
	return rate, err == nil && rate > 0 && rate <= 384000
}
