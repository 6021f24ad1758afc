package gemini

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

var (
	_ providers.ImageMaker  = (*Provider)(nil)
	_ providers.SpeechMaker = (*Provider)(nil)
	_ providers.VideoMaker  = (*Provider)(nil)
)

// mediaRequest is a GenerateContentRequest for a picture or a sound.
type mediaRequest struct {
	Contents         []content   `json:"contents"`
	GenerationConfig mediaConfig `json:"generationConfig"`
}

type mediaConfig struct {
	ResponseModalities []string      `json:"responseModalities"`
	ImageConfig        *imageConfig  `json:"imageConfig,omitzero"`
	SpeechConfig       *speechConfig `json:"speechConfig,omitzero"`
}

// mediaResponse is a GenerateContentResponse with files.
type mediaResponse struct {
	Candidates []struct {
		Content struct {
			Parts []mediaPart `json:"parts"`
		} `json:"content"`
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
	PromptFeedback promptFeedback `json:"promptFeedback"`
	UsageMetadata  *usageMetadata `json:"usageMetadata"`
	Error          *apiError      `json:"error"`
}

type mediaPart struct {
	InlineData *mediaBlob `json:"inlineData"`
	Thought    bool       `json:"thought"`
}

type mediaBlob struct {
	MimeType string      `json:"mimeType"`
	Data     wire.Base64 `json:"data"`
}

// postMedia sends a call to a model's method and reads the answer.
func (p *Provider) postMedia(ctx context.Context, model, method string, call, into any) error {
	body, err := json.Marshal(call, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return fmt.Errorf("gemini: encode request: %w", err)
	}
	return p.doMedia(ctx, wire.Call{
		Method: http.MethodPost,
		URL:    p.base + "/models/" + escape(model) + ":" + method,
		Body:   [][]byte{body},
	}, into)
}

func (p *Provider) doMedia(ctx context.Context, call wire.Call, into any) error {
	var said apiError
	call.Header, call.Explain = p.header(), said.explainMedia
	resp, err := p.client.Do(ctx, call)
	if err != nil {
		return said.refineMedia(err)
	}
	return wire.ReadJSON(resp, wire.MaxMedia, into, p.key)
}

// header has the key: a URL ends up in logs and error messages.
func (p *Provider) header() http.Header { return http.Header{"X-Goog-Api-Key": {p.key}} }

// explainMedia reads an error, and keeps it.
func (e *apiError) explainMedia(_ int, body []byte) (param, message string) {
	*e = readError(body)
	return e.mediaParam(), e.Message
}

// refineMedia says what the HTTP status alone could not.
func (e *apiError) refineMedia(err error) error {
	var f *providers.Failure
	if errors.As(err, &f) && f.Status != 0 {
		e.refine(f)
		e.judge(f)
	}
	return err
}

// mediaFailure is for an error that came inside an answer.
func (e *apiError) mediaFailure(key string) *providers.Failure {
	f := e.failure(key)
	if f.Kind == providers.KindInvalid {
		f.Param = e.mediaParam()
	}
	e.judge(f)
	return f
}

// judge finds a filter's refusal, which Google calls an invalid argument.
func (e *apiError) judge(f *providers.Failure) {
	text := strings.ToLower(e.Message)
	if f.Kind != providers.KindInvalid || !strings.Contains(text, "responsible ai") && !strings.Contains(text, "violat") && !strings.Contains(text, "safety") {
		return
	}
	f.Kind, f.Param = filterVerdict(e.Message), ""
}

// mediaFields are words in Google's errors and what the caller knows them as.
var mediaFields = []struct{ gemini, ours string }{
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
	place := strings.ToLower(e.Message)
	for _, d := range e.Details {
		if len(d.FieldViolations) > 0 {
			place = strings.ToLower(d.FieldViolations[0].Field)
		}
	}
	for _, f := range mediaFields {
		if strings.Contains(place, f.gemini) {
			return f.ours
		}
	}
	return ""
}

// filterVerdict is whether a filter's words are about what was asked for or
// about what was made of it. Google has a sentence for each, and no code.
func filterVerdict(words string) providers.Kind {
	words = strings.ToLower(words)
	for _, made := range []string{"generated", "response is blocked", "output", "audio"} {
		if strings.Contains(words, made) {
			return providers.KindBlockedOutput
		}
	}
	for _, asked := range []string{"prompt", "input", "reference image"} {
		if strings.Contains(words, asked) {
			return providers.KindBlockedInput
		}
	}
	return providers.KindBlockedOutput
}

// blocked is the failure of what a filter has refused.
func (p *Provider) blocked(kind providers.Kind, words string) *providers.Failure {
	return &providers.Failure{Kind: kind, Err: errors.New(wire.Loggable(words, p.key))}
}

func protocolFailure(format string, args ...any) *providers.Failure {
	return &providers.Failure{Kind: providers.KindProtocol, Err: fmt.Errorf(format, args...)}
}

// blobs are the files of an answer, without those that the model made while it
// thought. An answer without any is a failure that says why.
func (p *Provider) blobs(r *mediaResponse) ([]*mediaBlob, error) {
	if r.Error != nil {
		return nil, r.Error.mediaFailure(p.key)
	}
	var files []*mediaBlob
	reason := "no reason"
	for _, c := range r.Candidates {
		for _, part := range c.Content.Parts {
			if part.InlineData != nil && !part.Thought {
				files = append(files, part.InlineData)
			}
		}
		if c.FinishReason != "" {
			reason = c.FinishReason
		}
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
	return nil, protocolFailure("an answer without a file that ended with %s", wire.Loggable(reason, p.key))
}
