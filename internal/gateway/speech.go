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

// SpeechFormats are the supported audio formats.
var SpeechFormats = []string{"mp3", "wav", "opus", "aac", "flac", "pcm"}

const (
	// MaxSpeech is the maximum number of characters of one speech request.
	MaxSpeech    = 4096
	maxVoiceName = 128

	// The slowest voices take slowestFactor times as long as the average.
	charactersPerSecond = 15
	slowestFactor       = 3
)

// SpeechUnits returns the maximum units of speech for a text.
func SpeechUnits(characters, bytes int64) catalog.Units {
	ms := slowestFactor * (characters*1000/charactersPerSecond + 2000)
	return catalog.Units{Characters: characters, Milliseconds: ms, Tokens: catalog.Tokens{Input: bytes + frameTokens}}
}

// CheckVoice checks that a voice's name is well formed. Which voices exist, only the provider knows.
func CheckVoice(param, voice string) error {
	if voice == "" || len(voice) > maxVoiceName || !isName(voice) {
		return fault.Invalid(param, "%s must be the name of a voice, such as alloy, of at most %d bytes.", param, maxVoiceName)
	}
	return nil
}

// CheckSpeechFormat checks the requested audio format.
func CheckSpeechFormat(format string) error {
	if !slices.Contains(SpeechFormats, format) {
		return fault.Invalid("response_format", "response_format must be one of %s.", strings.Join(SpeechFormats, ", "))
	}
	return nil
}

type speechFields struct {
	Model  *string        `json:"model"`
	Models []string       `json:"models"`
	Input  *string        `json:"input"`
	Voice  jsontext.Value `json:"voice"`
	Format *string        `json:"response_format"`
	Stream *string        `json:"stream_format"`
	Speed  *float64       `json:"speed"`
}

func readSpeech(body []byte) (*request, *providers.SpeechRequest, error) {
	var in speechFields
	if err := jsonbody.DecodeForwarded(body, &in, providers.SpeechNames); err != nil {
		return nil, nil, err
	}
	out := &providers.SpeechRequest{Format: "mp3", Body: body}
	switch {
	case in.Input == nil || strings.TrimSpace(*in.Input) == "":
		return nil, nil, fault.Missing("input", "input must be the text to speak.")
	case utf8.RuneCountInString(*in.Input) > MaxSpeech:
		return nil, nil, fault.Invalid("input", "input must have at most %d characters. For up to a million, use POST /v1/voice/renders.", MaxSpeech)
	case in.Stream != nil && *in.Stream != "audio" && *in.Stream != speechEvents:
		return nil, nil, fault.Invalid("stream_format", "stream_format must be audio or sse.")
	case in.Speed != nil && (*in.Speed < 0.25 || *in.Speed > 4):
		return nil, nil, fault.Invalid("speed", "speed must be from 0.25 to 4.")
	}
	out.Input = *in.Input
	if in.Format != nil {
		out.Format = *in.Format
	}
	if err := CheckSpeechFormat(out.Format); err != nil {
		return nil, nil, err
	}
	var err error
	if out.Voice, err = parseVoice(in.Voice); err != nil {
		return nil, nil, err
	}
	r := &request{operation: "speech", body: body, asEvents: in.Stream != nil && *in.Stream == speechEvents, maxInput: int64(len(out.Input)) + frameTokens}
	if r.models, err = modelList(in.Model, in.Models); err != nil {
		return nil, nil, err
	}
	r.maxUnits = SpeechUnits(int64(utf8.RuneCountInString(out.Input)), int64(len(out.Input)))
	return r, out, nil
}

// speechEvents asks for the audio in events, instead of the file itself.
const speechEvents = "sse"

func parseVoice(v jsontext.Value) (string, error) {
	var name string
	switch v.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			return "", fault.Invalid("voice", "voice must be a string.")
		}
		name = string(text)
	case '{':
		var in struct {
			ID string `json:"id"`
		}
		if err := jsonbody.DecodeLenient(v, &in); err != nil {
			return "", fault.Invalid("voice", "voice must be a name, or an object with an id.")
		}
		name = in.ID
	case jsontext.KindInvalid, jsontext.KindNull:
		return "", fault.Missing("voice", "voice must be the name of a voice, such as alloy.")
	}
	return name, CheckVoice("voice", name)
}

// Speech converts text to speech. Prices by duration are charged by an estimate: the file is
// sent while it is generated, and providers don't report its duration.
func (g *Gateway) Speech(ctx context.Context, c Call) (*Response, error) {
	r, text, err := readSpeech(c.Body)
	if err != nil {
		return nil, c.noteRequested(err)
	}
	s := g.current.Load()
	targets, err := s.route(ctx, c.owner(), r.models, catalog.Speech, r)
	if err != nil {
		return nil, err
	}
	n := r.maxUnits.Characters
	used := providers.Usage{InputTokens: estimateTokens(int64(len(text.Input))), Characters: n, Milliseconds: n * 1000 / charactersPerSecond}
	return s.run(ctx, c, r, targets, func(ctx context.Context, t target, _ int64) (*providers.Response, error) {
		req := *text
		req.Model = t.offer.Upstream
		content, err := t.provider.(providers.SpeechGenerator).Speech(ctx, &req)
		if err != nil {
			return nil, err
		}
		return &providers.Response{Content: content, Usage: used}, nil
	})
}

// Audio is an audio file on its way to the client.
type Audio struct {
	content *providers.Content
	call    *activeCall
	usage   providers.Usage
	end     error // io.EOF after the whole file, or why it failed
	closed  bool
}

// ContentType returns the file's media type.
func (a *Audio) ContentType() string { return a.content.ContentType }

// AsEvents reports whether the client wants the file in events.
func (a *Audio) AsEvents() bool { return a.call.request.asEvents }

// Usage returns the tokens of the input, and of the output if it were priced by token. Both are estimates.
func (a *Audio) Usage() (input, output int64) {
	return a.usage.InputTokens, a.usage.Milliseconds * catalog.SpeechTokensPerSecond / 1000
}

// Size returns the file's length, or -1 if it is unknown.
func (a *Audio) Size() int64 { return a.content.Size }

// Read reads the file. A provider's error is returned as a fault.
func (a *Audio) Read(p []byte) (int, error) {
	n, err := a.content.Body.Read(p)
	if err != nil {
		a.end = err
	}
	if err != nil && err != io.EOF {
		err = upstreamFault(err)
	}
	return n, err
}

// Close ends the upstream call and settles it. A client that leaves early pays for the whole
// file; a file that the provider broke off is free.
func (a *Audio) Close() error {
	if a.closed {
		return nil
	}
	a.closed = true
	defer a.call.finish()
	if a.end != nil && a.end != io.EOF && !errors.Is(a.end, context.Canceled) {
		a.call.observeFailure(upstreamFault(a.end))
		var f *providers.Failure
		if errors.As(a.end, &f) {
			a.call.recordBrokenResponse(f)
		}
	} else {
		if a.end != io.EOF {
			a.call.observeFailure(context.Canceled)
		}
		a.call.target.health.recordSuccess(a.call.attemptStarted)
		a.call.settle(a.usage, audit.UsageEstimated)
	}
	return a.content.Body.Close()
}
