package openai

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// Transcribe turns speech into text. The form, the response and its events stay as they are, except
// for the name of the model.
func (p *Provider) Transcribe(ctx context.Context, req *providers.TranscriptionRequest) (*providers.Response, error) {
	path := "/audio/transcriptions"
	if req.Translate {
		path = "/audio/translations"
	}
	form := wire.NewForm()
	form.Field("model", req.Model)
	for _, f := range req.Fields {
		form.Field(f.Name, f.Value)
	}
	form.File("file", "audio", &req.File)
	call := wire.Call{Method: http.MethodPost, URL: p.url(req.Model, path)}
	var kind string
	call.Body, kind = form.Close()
	call.Header = http.Header{"Content-Type": {kind}}
	resp, err := p.doMedia(ctx, call)
	if err != nil {
		return nil, err
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); req.Stream && kind == "text/event-stream" {
		return &providers.Response{Stream: &transcriptStream{provider: p, events: wire.NewEvents(resp, req.BeforeWait)}}, nil
	}
	return p.readTranscript(resp)
}

// readTranscript reads a transcript, which is JSON or text.
func (p *Provider) readTranscript(resp *http.Response) (*providers.Response, error) {
	body, err := wire.ReadAll(resp)
	if err != nil {
		return nil, err
	}
	kind := resp.Header.Get("Content-Type")
	r := &providers.Response{Body: body, ContentType: cmp.Or(kind, "text/plain; charset=utf-8")}
	var o object
	if o.parse(body) != nil {
		if media, _, _ := mime.ParseMediaType(kind); media == "text/html" || strings.HasSuffix(media, "json") {
			return nil, wire.ProtocolFailure("the response (%s) isn't a transcript", wire.Loggable(kind, p.secrets()...))
		}
		r.Usage.OutputTokens = (int64(utf8.RuneCount(body)) + 3) / 4
		return r, nil
	}
	if err := p.mediaFailure(resp.StatusCode, o.get("error")); err != nil {
		return nil, err
	}
	if o.get("text").Kind() != '"' {
		return nil, wire.ProtocolFailure("the response has no text")
	}
	r.ContentType = "application/json"
	r.Usage = transcriptUsage(&o)
	return r, nil
}

// transcriptUsage returns the usage of a transcript. OpenAI's models count tokens or seconds, and
// other servers only tell the duration, if that. The output is estimated by the text.
func transcriptUsage(o *object) (u providers.Usage) {
	var in struct {
		Input   float64 `json:"input_tokens"`
		Output  float64 `json:"output_tokens"`
		Seconds float64 `json:"seconds"`
	}
	if value := o.get("usage"); value.Kind() == '{' {
		_ = json.Unmarshal(value, &in, wire.Lenient) // what can't be read is unknown
	}
	if in.Seconds <= 0 {
		in.Seconds = number(o.get("duration"))
	}
	plausible := func(n float64) int64 {
		if !(n > 0 && n <= maxPlausible) {
			return 0
		}
		return int64(n)
	}
	u.InputTokens, u.OutputTokens, u.Milliseconds = plausible(in.Input), plausible(in.Output), plausible(in.Seconds*1000)
	if u.OutputTokens == 0 {
		u.OutputTokens = (int64(utf8.RuneCountInString(text(o.get("text")))) + 3) / 4
	}
	return u
}

// number returns a JSON number, or 0. Some servers send it as a string.
func number(value jsontext.Value) (n float64) {
	_ = json.Unmarshal([]byte(text(value)), &n)
	return n
}

// transcriptStream forwards the events of a transcript.
type transcriptStream struct {
	provider   *Provider
	events     *wire.Events
	object     object
	characters int64
	done       bool // the transcript is complete
	err        error
}

func (s *transcriptStream) Next() (providers.Chunk, error) {
	for s.err == nil {
		name, data, err := s.events.Next()
		switch {
		case string(data) == "[DONE]" && (err == nil || isCut(err)):
			s.done, s.err = true, io.EOF
		case err == io.EOF && !s.done:
			s.err = &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended before the transcript")}
		case err != nil:
			s.err = err
		case len(data) == 0:
		case s.object.parse(data) != nil:
			s.err = wire.ProtocolFailure("an event isn't a JSON object")
		default:
			return s.forward(name, data)
		}
	}
	return providers.Chunk{}, s.err
}

func (s *transcriptStream) forward(name string, data []byte) (providers.Chunk, error) {
	kind := cmp.Or(text(s.object.get("type")), name)
	if e, failed := findError(&s.object); failed || kind == "error" {
		if !failed {
			e = readError(&s.object)
		}
		s.err = e.failure(0, s.provider.secrets())
		return providers.Chunk{}, s.err
	}
	chunk := providers.Chunk{Data: oneLine(data), Event: name}
	switch {
	case kind == "transcript.text.done":
		s.done = true
		u := transcriptUsage(&s.object)
		chunk.Usage = &u
	case kind == "transcript.text.delta":
		s.characters += int64(utf8.RuneCountInString(text(s.object.get("delta"))))
	case kind == "": // vLLM's events are those of a chat
		var c chunkText
		if json.Unmarshal(data, &c, wire.Lenient) == nil {
			s.characters += c.characters()
		}
	}
	return chunk, nil
}

// chunkText is the text of a chat's chunk.
type chunkText struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
}

func (c *chunkText) characters() (n int64) {
	for _, choice := range c.Choices {
		n += int64(utf8.RuneCountInString(choice.Delta.Content))
	}
	return n
}

// SoFar returns an estimate of the output.
func (s *transcriptStream) SoFar() providers.Usage {
	return providers.Usage{OutputTokens: (s.characters + 3) / 4}
}

// Close ends the request, and keeps the connection if the stream has ended.
func (s *transcriptStream) Close() error {
	if s.done {
		s.events.Drain()
	}
	return s.events.Close()
}
