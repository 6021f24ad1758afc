package gateway

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// SpeechFormats are what a text can become.
var SpeechFormats = []string{"mp3", "wav", "opus", "aac", "flac", "pcm"}

const (
	// MaxSpeech is how many characters are read aloud at once.
	MaxSpeech = 4096
	maxVoice  = 128

	// A second of speech is about so many characters, and the slowest reader
	// takes slowest times as long.
	charactersPerSecond = 15
	slowest             = 3
)

// SpeechUnits are what reading so many characters can come to.
func SpeechUnits(characters, bytes int64) catalog.Units {
	ms := slowest * (characters*1000/charactersPerSecond + 2000)
	return catalog.Units{Characters: characters, Milliseconds: ms, Tokens: catalog.Tokens{Input: bytes + frameTokens}}
}

// CheckVoice checks the name of a voice, which is the provider's to know.
func CheckVoice(param, voice string) error {
	if voice == "" || len(voice) > maxVoice || !isName(voice) {
		return fault.Invalid(param, "%s must name a voice, such as alloy, in at most %d bytes", param, maxVoice)
	}
	return nil
}

// CheckSpeechFormat checks the format that a file is wanted in.
func CheckSpeechFormat(format string) error {
	if !slices.Contains(SpeechFormats, format) {
		return fault.Invalid("response_format", "response_format must be one of %s", strings.Join(SpeechFormats, ", "))
	}
	return nil
}

// speechFields are the members of a speech request that the gateway reads.
type speechFields struct {
	Model  *string        `json:"model"`
	Models []string       `json:"models"`
	Input  *string        `json:"input"`
	Voice  jsontext.Value `json:"voice"`
	Format *string        `json:"response_format"`
	Stream *string        `json:"stream_format"`
	Speed  *float64       `json:"speed"`
}

// readSpeech reads a request in OpenAI's format.
func readSpeech(body []byte) (*request, *providers.SpeechRequest, error) {
	var in speechFields
	if err := jsonbody.DecodeForwarded(body, &in, providers.SpeechNames); err != nil {
		return nil, nil, err
	}
	out := &providers.SpeechRequest{Format: "mp3", Body: body}
	switch {
	case in.Input == nil || strings.TrimSpace(*in.Input) == "":
		return nil, nil, fault.Missing("input", "input must be the text to read aloud")
	case utf8.RuneCountInString(*in.Input) > MaxSpeech:
		return nil, nil, fault.Invalid("input", "input must have at most %d characters; POST /v1/voice/renders takes a million", MaxSpeech)
	case in.Stream != nil && *in.Stream != "audio":
		return nil, nil, fault.Invalid("stream_format", "stream_format must be audio: the file itself is sent as it is made")
	case in.Speed != nil && (*in.Speed < 0.25 || *in.Speed > 4):
		return nil, nil, fault.Invalid("speed", "speed must be from 0.25 to 4")
	}
	out.Input = *in.Input
	if in.Format != nil {
		out.Format = *in.Format
	}
	if err := CheckSpeechFormat(out.Format); err != nil {
		return nil, nil, err
	}
	var err error
	if out.Voice, err = voiceOf(in.Voice); err != nil {
		return nil, nil, err
	}
	r := &request{operation: "speech", body: body, inputBound: int64(len(out.Input)) + frameTokens}
	if r.models, err = modelList(in.Model, in.Models); err != nil {
		return nil, nil, err
	}
	r.media = SpeechUnits(int64(utf8.RuneCountInString(out.Input)), int64(len(out.Input)))
	return r, out, nil
}

// voiceOf reads a voice: its name, or an object with its id.
func voiceOf(v jsontext.Value) (string, error) {
	var name string
	switch v.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			return "", fault.Invalid("voice", "voice must be a text")
		}
		name = string(text)
	case '{':
		var in struct {
			ID string `json:"id"`
		}
		if err := jsonbody.DecodeLenient(v, &in); err != nil {
			return "", fault.Invalid("voice", "voice must be a name, or an object with an id")
		}
		name = in.ID
	case jsontext.KindInvalid, jsontext.KindNull:
		return "", fault.Missing("voice", "voice must name a voice, such as alloy")
	}
	return name, CheckVoice("voice", name)
}

// Speech reads a text aloud. What is charged for its length is an estimate:
// the file is sent as it is made, and providers do not say how long it is.
func (g *Gateway) Speech(ctx context.Context, c Call) (*Answer, error) {
	r, text, err := readSpeech(c.Body)
	if err != nil {
		return nil, err
	}
	targets, err := g.route(c.Principal.Environment, r.models, catalog.Speech, r)
	if err != nil {
		return nil, err
	}
	n := r.media.Characters
	used := providers.Usage{InputTokens: aboutTokens(int64(len(text.Input))), Characters: n, Milliseconds: n * 1000 / charactersPerSecond}
	return g.run(ctx, c, r, targets, func(ctx context.Context, t target, _ *request, _ int64) (*providers.Answer, error) {
		ask := *text
		ask.Model = t.offer.Upstream
		content, err := t.provider.(providers.SpeechMaker).Speech(ctx, &ask)
		if err != nil {
			return nil, err
		}
		return &providers.Answer{Content: content, Usage: used}, nil
	})
}

// Sound is speech on its way to the client.
type Sound struct {
	content *providers.Content
	meter   *meter
	request *request
	used    providers.Usage
	ended   bool // it was read to its end
	broke   error
	closed  bool
}

// ContentType is the file's, and Size its length or -1.
func (s *Sound) ContentType() string { return s.content.ContentType }

// Size is the file's length, or -1.
func (s *Sound) Size() int64 { return s.content.Size }

// Read reads the file. An error of the provider's is a fault.
func (s *Sound) Read(p []byte) (int, error) {
	n, err := s.content.Body.Read(p)
	switch {
	case err == io.EOF:
		s.ended = true
	case err != nil:
		s.broke = err
		err = upstreamFault(err)
	}
	return n, err
}

// Close ends the upstream call and settles it. Who leaves before the end has
// had it read nevertheless; a file that broke off costs nothing.
func (s *Sound) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	defer s.meter.end()
	if s.broke != nil && !errors.Is(s.broke, context.Canceled) {
		s.meter.broke(upstreamFault(s.broke))
		var f *providers.Failure
		if errors.As(s.broke, &f) {
			s.meter.failedAt(f)
		}
	} else {
		if !s.ended {
			s.meter.broke(context.Canceled)
		}
		s.meter.target.health.worked(s.meter.began)
		s.meter.settle(s.used, audit.UsageEstimated, s.request)
	}
	return s.content.Body.Close()
}
