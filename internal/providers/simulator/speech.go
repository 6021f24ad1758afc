package simulator

import (
	"bytes"
	"context"
	"io"
	"strings"

	"turnpike/internal/audio"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

var _ providers.SpeechMaker = (*Simulator)(nil)

// Sample rates. A voice whose name ends in lowRateVoice takes a third of the space.
const (
	defaultRate  = 24_000
	lowRate      = 8_000
	lowRateVoice = "-8k"
)

// Speech returns a tone instead of a voice. It lasts as long as the text would
// take to be read aloud, and its pitch follows from the text and the voice.
func (s *Simulator) Speech(ctx context.Context, req *providers.SpeechRequest) (*providers.Content, error) {
	contentType, ok := audio.Types[req.Format]
	if !ok {
		return nil, fault.Invalid("response_format", "response_format must be wav, mp3, opus, aac, flac or pcm.")
	}
	if req.Format != "wav" && req.Format != "pcm" && !audio.CanTranscode() {
		return nil, fault.Invalid("response_format", "response_format must be wav or pcm. For %s the server needs ffmpeg, which is not installed.", req.Format)
	}
	if strings.TrimSpace(req.Input) == "" {
		return nil, fault.Missing("input", "input is required: the text to read aloud.")
	}
	speed, err := readSpeed(req.Body)
	if err != nil {
		return nil, err
	}
	m, text, err := extractMediaMagic("input", req.Input)
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, m.delay); err != nil {
		return nil, err
	}
	if err := m.requestedError(); err != nil {
		return nil, err
	}
	return speak(ctx, req, text, speed, contentType)
}

// speechFields holds the fields that the simulator reads.
type speechFields struct {
	Speed *float64 `json:"speed"`
}

// readSpeed returns the speed, which is 1 by default.
func readSpeed(body []byte) (float64, error) {
	var in speechFields
	if len(body) > 0 {
		if err := jsonbody.DecodeLenient(body, &in); err != nil {
			return 0, err
		}
	}
	if in.Speed == nil {
		return 1, nil
	}
	if !(*in.Speed >= 0.25 && *in.Speed <= 4) {
		return 0, fault.Invalid("speed", "speed must be from 0.25 to 4.")
	}
	return *in.Speed, nil
}

func speak(ctx context.Context, req *providers.SpeechRequest, text string, speed float64, contentType string) (*providers.Content, error) {
	rate := defaultRate
	if strings.HasSuffix(req.Voice, lowRateVoice) {
		rate = lowRate
	}
	// A text of magic inputs alone still gets some audio.
	if strings.TrimSpace(text) == "" {
		text = "-"
	}
	pcm := newTone(text, req.Voice, rate, speed)
	if req.Format == "pcm" {
		return &providers.Content{ContentType: contentType, Body: io.NopCloser(pcm), Size: pcm.size}, nil
	}
	header := audio.Header(audio.Format{Rate: rate, Channels: 1}, pcm.size)
	wav := io.NopCloser(io.MultiReader(bytes.NewReader(header), pcm))
	if req.Format == "wav" {
		return &providers.Content{ContentType: contentType, Body: wav, Size: pcm.size + int64(len(header))}, nil
	}
	out, err := audio.Encode(ctx, wav, req.Format)
	if err != nil {
		return nil, &providers.Failure{Kind: providers.KindServer, Err: err}
	}
	return &providers.Content{ContentType: contentType, Body: out, Size: -1}, nil
}
