package gemini

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"mime"
	"strconv"
	"strings"

	sound "turnpike/internal/audio"
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

// speechExtras is what is read of the caller's body beside the request's own
// fields.
type speechExtras struct {
	Instructions string   `json:"instructions"`
	Speed        *float64 `json:"speed"`
}

// usualRate is the samples per second of Gemini's sound, and of OpenAI's pcm.
const usualRate = 24000

// Speech reads a text aloud. The sound comes in one piece, without a header:
// one is put before it for wav, of which ffmpeg makes the other formats.
func (p *Provider) Speech(ctx context.Context, req *providers.SpeechRequest) (*providers.Content, error) {
	call, err := speechCall(req)
	if err != nil {
		return nil, err
	}
	var r mediaResponse
	if err := p.postMedia(ctx, req.Model, "generateContent", call, &r); err != nil {
		return nil, err
	}
	return p.readSpeech(ctx, &r, req.Format)
}

func (p *Provider) readSpeech(ctx context.Context, r *mediaResponse, format string) (*providers.Content, error) {
	blobs, err := p.blobs(r)
	if err != nil {
		return nil, err
	}
	var samples []byte
	rate := 0
	for _, b := range blobs {
		var ok bool
		if rate, ok = sampleRate(b.MimeType); !ok {
			return nil, protocolFailure("a sound of type %s", wire.Loggable(b.MimeType, p.key))
		}
		samples = append(samples, b.Data...)
	}
	if len(samples) == 0 {
		return nil, protocolFailure("an answer without a sound")
	}
	if format == "pcm" {
		kind := "audio/pcm"
		if rate != usualRate {
			kind += ";rate=" + strconv.Itoa(rate)
		}
		return soundOf(kind, bytes.NewReader(samples), len(samples)), nil
	}
	header := wavHeader(len(samples), rate)
	wav := io.MultiReader(bytes.NewReader(header), bytes.NewReader(samples))
	if format != "wav" {
		return encoded(ctx, wav, format, sound.Format{Rate: rate, Channels: 1}, int64(len(samples)))
	}
	return soundOf("audio/wav", wav, len(header)+len(samples)), nil
}

// encoded has ffmpeg make another format of a WAV file with so many bytes of
// samples.
func encoded(ctx context.Context, wav io.Reader, format string, pcm sound.Format, size int64) (*providers.Content, error) {
	out, err := sound.Encode(ctx, io.NopCloser(wav), format)
	if err != nil {
		return nil, err
	}
	var body io.Reader = out
	if format == "flac" {
		if body, err = sound.WithLength(out, pcm, size); err != nil {
			_ = out.Close()
			return nil, err
		}
	}
	return &providers.Content{ContentType: sound.Types[format], Body: begun{body, out}, Size: -1}, nil
}

func soundOf(kind string, from io.Reader, size int) *providers.Content {
	return &providers.Content{ContentType: kind, Body: io.NopCloser(from), Size: int64(size)}
}

func speechCall(req *providers.SpeechRequest) (*mediaRequest, error) {
	if sound.Types[req.Format] == "" {
		return nil, fault.Invalid("response_format", "response_format must be wav, mp3, opus, aac, flac or pcm")
	}
	if req.Format != "wav" && req.Format != "pcm" && !sound.CanTranscode() {
		return nil, fault.Invalid("response_format", "response_format must be wav or pcm: for %s the server needs ffmpeg, which is not installed", req.Format)
	}
	var extras speechExtras
	if req.Body != nil {
		if err := jsonbody.DecodeLenient(req.Body, &extras); err != nil {
			return nil, err
		}
	}
	if extras.Speed != nil && *extras.Speed != 1 {
		return nil, fault.Invalid("speed", "this model knows no speed: leave it out, and say in instructions how fast to speak")
	}
	text := req.Input
	if style := strings.TrimRight(extras.Instructions, " \n\t.:"); style != "" {
		text = style + ":\n" + text // as Google writes it: the style, a colon, the words
	}
	call := &mediaRequest{Contents: []content{{Role: "user", Parts: []part{{Text: text}}}}}
	call.GenerationConfig.ResponseModalities = []string{"AUDIO"}
	if req.Voice != "" {
		voice := new(speechConfig)
		voice.VoiceConfig.PrebuiltVoiceConfig.VoiceName = req.Voice
		call.GenerationConfig.SpeechConfig = voice
	}
	return call, nil
}

// sampleRate reads a type such as audio/L16;codec=pcm;rate=24000. In spite of
// that name's standard, the samples begin with their lower byte.
func sampleRate(kind string) (int, bool) {
	name, params, err := mime.ParseMediaType(kind)
	if err != nil || name != "audio/l16" && name != "audio/pcm" {
		return 0, false
	}
	if params["rate"] == "" {
		return usualRate, true
	}
	rate, err := strconv.Atoi(params["rate"])
	return rate, err == nil && rate > 0 && rate <= 384000
}

// wavHeader is for sound of one channel with samples of 16 bits.
func wavHeader(size, rate int) []byte {
	const fmtSize, pcm, channels, sample = 16, 1, 1, 2
	h := append(make([]byte, 0, 44), "RIFF"...)
	h = binary.LittleEndian.AppendUint32(h, uint32(36+size))
	h = append(h, "WAVEfmt "...)
	h = binary.LittleEndian.AppendUint32(h, fmtSize)
	h = binary.LittleEndian.AppendUint16(h, pcm)
	h = binary.LittleEndian.AppendUint16(h, channels)
	h = binary.LittleEndian.AppendUint32(h, uint32(rate))
	h = binary.LittleEndian.AppendUint32(h, uint32(rate*sample*channels))
	h = binary.LittleEndian.AppendUint16(h, sample*channels)
	h = binary.LittleEndian.AppendUint16(h, 8*sample)
	h = append(h, "data"...)
	return binary.LittleEndian.AppendUint32(h, uint32(size))
}
