package gateway

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"turnpike/internal/audio/duration"
	"turnpike/internal/budget"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

const (
	// maxAudioTokensPerSecond is more than any provider counts. Four times less, the estimate where
	// a provider doesn't count, is what OpenAI's models use.
	maxAudioTokensPerSecond = 40
	// maxSpokenTokensPerSecond is more than anyone can say.
	maxSpokenTokensPerSecond = 20
	minSpokenTokens          = 256
)

// TranscriptionForm is a client's form: an audio file and other fields, in their order.
type TranscriptionForm struct {
	File      providers.Upload
	Fields    []providers.FormField
	Translate bool // into English
}

// TranscriptionParams are what the gateway reads of a form.
type TranscriptionParams struct {
	Models []string
	Format string
	Stream bool
	// Milliseconds is how long the file plays, or 0 if that can't be measured.
	Milliseconds int64
	// MaxUnits are the most units that the request can use.
	MaxUnits catalog.Units
	// Fields are those to forward.
	Fields []providers.FormField
}

// audioInput is the audio of a request.
type audioInput struct{ milliseconds int64 }

// singleFields can be given only once: a provider may use another one than Turnpike has priced.
var singleFields = []string{"model", "response_format", "stream", "language", "prompt"}

// ParseTranscription reads a form in OpenAI's format. Unknown fields are left to the provider.
func ParseTranscription(ctx context.Context, in *TranscriptionForm) (*TranscriptionParams, error) {
	p := &TranscriptionParams{Format: "json"}
	if err := checkFieldNames(in.Fields); err != nil {
		return nil, err
	}
	var model *string
	var models []string
	var promptBytes int64
	seen := map[string]bool{}
	for _, f := range in.Fields {
		name := strings.TrimSuffix(f.Name, "[]")
		if slices.Contains(singleFields, name) && (seen[name] || name != f.Name) {
			return nil, fault.Invalid(name, "%s can be given only once.", name)
		}
		seen[name] = true
		switch name {
		case "model":
			model = &f.Value
			continue
		case "models":
			models = append(models, f.Value)
			continue
		case "file":
			return nil, fault.Invalid("file", "file must be a file with a filename. With curl, use -F file=@speech.mp3.")
		case "response_format":
			p.Format = f.Value
		case "stream":
			var err error
			if p.Stream, err = parseFormBool(f.Value); err != nil {
				return nil, err
			}
		case "prompt":
			promptBytes = int64(len(f.Value))
		}
		p.Fields = append(p.Fields, f)
	}
	var err error
	if p.Models, err = modelList(model, models); err != nil {
		return nil, err
	}
	if len(in.File.Data) == 0 {
		return nil, fault.Missing("file", "file is required. Send the audio file to transcribe.")
	}
	err = budget.Of(ctx).Decode(ctx, 0, func() error {
		if d, err := duration.Measure(ctx, in.File.Data); err == nil {
			p.Milliseconds = max(1, (d + time.Millisecond - 1).Milliseconds())
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	// Providers round up to seconds.
	seconds := (p.Milliseconds + 999) / 1000
	p.MaxUnits = catalog.Units{Milliseconds: seconds * 1000,
		Tokens: catalog.Tokens{Input: seconds*maxAudioTokensPerSecond + promptBytes + frameTokens, Output: seconds*maxSpokenTokensPerSecond + minSpokenTokens}}
	return p, nil
}

// checkFieldNames rejects other spellings of the fields that Turnpike reads.
func checkFieldNames(fields []providers.FormField) error {
	names := map[string]bool{}
	for _, f := range fields {
		names[strings.TrimSuffix(f.Name, "[]")] = true
	}
	text, err := json.Marshal(names, json.Deterministic(true))
	if err != nil {
		return err
	}
	return jsonbody.CheckNames("", text, providers.TranscriptionNames)
}

func parseFormBool(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true", "1":
		return true, nil
	case "false", "0", "":
		return false, nil
	}
	return false, fault.Invalid("stream", "stream must be true or false.")
}

// checkDuration rejects a file of unknown duration if it would cost something.
func (p *TranscriptionParams) checkDuration(targets []target) error {
	if p.Milliseconds > 0 || !slices.ContainsFunc(targets, func(t target) bool { return !t.offer.Price.IsFree() }) {
		return nil
	}
	return fault.Invalid("file", "The duration of file cannot be determined, and the model is priced by it. Send a complete %s file.", duration.Formats)
}

// CheckTranscription checks that the request can be priced.
func (g *Gateway) CheckTranscription(ctx context.Context, o Owner, p *TranscriptionParams) error {
	targets, err := g.current.Load().jobTargets(ctx, o, p.Models, catalog.Transcription)
	if err != nil {
		return err
	}
	return p.checkDuration(targets)
}

// Transcribe turns speech into text. The price is by the second or by token: the provider's count,
// or else how long the file plays.
func (g *Gateway) Transcribe(ctx context.Context, c Call, in *TranscriptionForm) (*Response, error) {
	p, err := ParseTranscription(ctx, in)
	if err != nil {
		return nil, err
	}
	r := &request{operation: "transcription", models: p.Models, stream: p.Stream, maxInput: p.MaxUnits.Input, maxUnits: p.MaxUnits,
		audio: &audioInput{p.Milliseconds}}
	s := g.current.Load()
	targets, err := s.route(ctx, c.owner(), r.models, catalog.Transcription, r)
	if err != nil {
		return nil, err
	}
	if err := p.checkDuration(targets); err != nil {
		return nil, err
	}
	return s.run(ctx, c, r, targets, func(ctx context.Context, t target, _ int64) (*providers.Response, error) {
		return t.provider.(providers.Transcriber).Transcribe(ctx, p.request(t, in, c.BeforeWait))
	})
}

func (p *TranscriptionParams) request(t target, in *TranscriptionForm, beforeWait func() error) *providers.TranscriptionRequest {
	return &providers.TranscriptionRequest{Model: t.offer.Upstream, File: in.File, Fields: p.Fields, Translate: in.Translate, Stream: p.Stream, Format: p.Format,
		Milliseconds: p.Milliseconds, BeforeWait: beforeWait}
}

// withAudio completes the usage of a transcription: providers count seconds, tokens or neither, and
// prices are by either.
func (a *activeCall) withAudio(u providers.Usage) providers.Usage {
	if a.request.audio == nil {
		return u
	}
	return completeAudioUsage(u, a.target.offer, a.request.audio.milliseconds)
}

func completeAudioUsage(u providers.Usage, offer *catalog.Offer, milliseconds int64) providers.Usage {
	counted := u.InputTokens > 0
	if offer.Price.PerSecond > 0 {
		counted = u.Milliseconds > 0
	}
	u.Estimated = u.Estimated || !counted
	if u.Milliseconds <= 0 {
		u.Milliseconds = milliseconds
	}
	if u.InputTokens <= 0 {
		u.InputTokens = estimateTokens(u.Milliseconds * maxAudioTokensPerSecond / 1000)
	}
	return u
}
