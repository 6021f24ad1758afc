package gemini

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// post sends a request and decodes its response.
func (p *Provider) post(ctx context.Context, url string, request, into any, explain wire.Explain) error {
	body, err := json.Marshal(request, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return fmt.Errorf("gemini: encode request: %w", err)
	}
	resp, err := p.client.Post(ctx, url, nil, body, explain)
	if err != nil {
		return err
	}
	return wire.ReadJSON(resp, wire.MaxMedia, into, p.client.Secrets()...)
}

func explainMedia(f *providers.Failure, body []byte) string {
	e := readError(body)
	e.refineMedia(f)
	return e.Message
}

// mediaFailure is for an error in a successful response.
func (e *apiError) mediaFailure(secrets []string) *providers.Failure {
	f := e.failure(secrets)
	e.refineMedia(f)
	return f
}

// refineMedia is refine for the fields of media requests. It also recognizes
// content filters, which Google reports as an invalid argument.
func (e *apiError) refineMedia(f *providers.Failure) {
	e.refine(f)
	if f.Kind != providers.KindInvalid {
		return
	}
	f.Param = e.mediaParam()
	message := strings.ToLower(e.Message)
	if strings.Contains(message, "responsible ai") || strings.Contains(message, "violat") || strings.Contains(message, "safety") {
		f.Kind, f.Param = filterKind(e.Message), ""
	}
}

// mediaFields are words in Google's errors, and the client's fields.
var mediaFields = []struct{ word, field string }{
	{"aspectratio", "size"},
	{"aspect_ratio", "size"},
	{"aspect ratio", "size"},
	{"imagesize", "size"},
	{"image_size", "size"},
	{"resolution", "size"},
	{"durationseconds", "seconds"},
	{"duration", "seconds"},
	{"samplecount", "n"},
	{"voice", "voice"},
	{"prompt", "prompt"},
}

func (e *apiError) mediaParam() string {
	path := strings.ToLower(e.violation(e.Message))
	for _, f := range mediaFields {
		if strings.Contains(path, f.word) {
			return f.field
		}
	}
	return ""
}

// filterKind returns whether a content filter has blocked the input or the
// output. Google has a sentence for each and no code.
func filterKind(message string) providers.Kind {
	message = strings.ToLower(message)
	for _, output := range []string{"generated", "response is blocked", "output", "audio"} {
		if strings.Contains(message, output) {
			return providers.KindBlockedOutput
		}
	}
	for _, input := range []string{"prompt", "input", "reference image"} {
		if strings.Contains(message, input) {
			return providers.KindBlockedInput
		}
	}
	return providers.KindBlockedOutput
}

func (p *Provider) blocked(kind providers.Kind, reason string) *providers.Failure {
	return &providers.Failure{Kind: kind, Err: errors.New(wire.Loggable(reason, p.client.Secrets()...))}
}

// files returns the files of a response, without those that the model made while
// thinking. If there are none, the failure says why.
func (p *Provider) files(r *generateResponse) (files []providers.Upload, err error) {
	if r.Error != nil {
		return nil, r.Error.mediaFailure(p.client.Secrets())
	}
	reason := "no reason"
	for _, c := range r.Candidates {
		for _, part := range c.Content.Parts {
			if part.InlineData == nil || part.Thought {
				continue
			}
			data, err := wire.DecodeBase64(part.InlineData.Data)
			if err != nil {
				return nil, wire.ProtocolFailure("%w", err)
			}
			files = append(files, providers.Upload{ContentType: part.InlineData.MimeType, Data: data})
		}
		reason = cmp.Or(c.FinishReason, reason)
	}
	if len(files) > 0 {
		return files, nil
	}
	if r.PromptFeedback.BlockReason != "" {
		return nil, p.blocked(providers.KindBlockedInput, r.PromptFeedback.BlockReason)
	}
	if finish, err := finishReason(reason, false, false); err == nil && finish == "content_filter" {
		return nil, p.blocked(providers.KindBlockedOutput, reason)
	}
	return nil, wire.ProtocolFailure("a response without a file that ended with %s", wire.Loggable(reason, p.client.Secrets()...))
}
