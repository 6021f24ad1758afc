package gemini

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const (
	// maxPictures is OpenAI's limit.
	maxPictures = 10
	// atOnce is how many calls for one request run at the same time.
	atOnce = 4
	// perPrediction is how many pictures Imagen makes in one call.
	perPrediction = 4
)

// imagesRequest is what is read of a request for pictures; other fields have
// no counterpart in Gemini.
type imagesRequest struct {
	Prompt       string `json:"prompt"`
	N            *int   `json:"n"`
	Size         string `json:"size"`
	OutputFormat string `json:"output_format"`

	size size // Size, read
	n    int
}

type imageConfig struct {
	AspectRatio string `json:"aspectRatio,omitempty"`
	ImageSize   string `json:"imageSize,omitempty"`
}

// Images makes pictures, or edits those that are given. What a filter takes out
// of several is missing in the answer; if it takes all, that is a failure.
func (p *Provider) Images(ctx context.Context, req *providers.ImageRequest) (*providers.ImageAnswer, error) {
	in, err := readImages(req)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(strings.TrimPrefix(req.Model, "models/"), "imagen-") {
		if len(req.Sources) > 0 {
			return nil, fault.Invalid("image", "this model makes new pictures only: leave image out, or take another model")
		}
		calls := (in.n + perPrediction - 1) / perPrediction
		return together(ctx, calls, func(ctx context.Context, i int) (*providers.ImageAnswer, error) {
			return p.predict(ctx, req.Model, in, min(perPrediction, in.n-i*perPrediction))
		})
	}
	call := in.generate(req)
	return together(ctx, in.n, func(ctx context.Context, _ int) (*providers.ImageAnswer, error) {
		return p.picture(ctx, req.Model, in.Prompt, call)
	})
}

func readImages(req *providers.ImageRequest) (*imagesRequest, error) {
	in := &imagesRequest{n: 1}
	if err := jsonbody.DecodeLenient(req.Body, in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Prompt) == "" {
		return nil, fault.Missing("prompt", "prompt is required: what the picture should show")
	}
	if in.N != nil {
		in.n = *in.N
	}
	if in.n < 1 || in.n > maxPictures {
		return nil, fault.Invalid("n", "n must be a whole number from 1 to %d", maxPictures)
	}
	if req.Mask != nil {
		return nil, fault.Invalid("mask", "this model takes no mask: say in the prompt what should change")
	}
	var err error
	in.size, err = parseSize(in.Size)
	return in, err
}

// generate is the call for one picture.
func (in *imagesRequest) generate(req *providers.ImageRequest) *mediaRequest {
	parts := []part{{Text: in.Prompt}}
	for i := range req.Sources {
		parts = append(parts, part{InlineData: inline(&req.Sources[i])})
	}
	call := &mediaRequest{Contents: []content{{Role: "user", Parts: parts}}}
	version := parseModel(req.Model).version
	call.GenerationConfig.ResponseModalities = []string{"IMAGE"}
	if version > 0 && version < 2.5 {
		call.GenerationConfig.ResponseModalities = []string{"TEXT", "IMAGE"} // it refuses to be silent
		return call
	}
	config := imageConfig{AspectRatio: in.size.aspectRatio(geminiRatios)}
	if version >= 3 {
		config.ImageSize = in.size.grade()
	}
	if config != (imageConfig{}) {
		call.GenerationConfig.ImageConfig = &config
	}
	return call
}

// inline is a caller's file as part of a request. Its type is what its bytes
// say, if they say anything.
func inline(file *providers.Upload) *blob {
	kind := http.DetectContentType(file.Data)
	if !strings.HasPrefix(kind, "image/") && file.ContentType != "" {
		kind = file.ContentType
	}
	return &blob{MimeType: kind, Data: base64.StdEncoding.EncodeToString(file.Data)}
}

func (p *Provider) picture(ctx context.Context, model, prompt string, call *mediaRequest) (*providers.ImageAnswer, error) {
	var r mediaResponse
	if err := p.postMedia(ctx, model, "generateContent", call, &r); err != nil {
		return nil, err
	}
	return p.readPicture(&r, prompt)
}

func (p *Provider) readPicture(r *mediaResponse, prompt string) (*providers.ImageAnswer, error) {
	files, err := p.blobs(r)
	if err != nil {
		return nil, err
	}
	// One was asked for, and one is paid for: the last is the finished one.
	picture, err := wire.NewPicture(files[len(files)-1].Data, "")
	if err != nil {
		return nil, err
	}
	count := counter{prompt: estimateTokens(len(prompt)), metadata: r.UsageMetadata}
	return &providers.ImageAnswer{Images: []providers.Picture{picture}, Usage: count.usage()}, nil
}

// together makes several calls, a few at a time, and joins their answers in
// order. The first failure ends all others, unless a filter has blocked one of
// several.
func together(ctx context.Context, calls int, one func(ctx context.Context, i int) (*providers.ImageAnswer, error)) (*providers.ImageAnswer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make([]*providers.ImageAnswer, calls)
	var (
		group   sync.WaitGroup
		mu      sync.Mutex
		blocked error
		failed  error
	)
	slots := make(chan struct{}, atOnce)
	for i := range calls {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			answer, err := one(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				answers[i] = answer
			case isBlocked(err):
				blocked = err
			case failed == nil: // those that it ends fail, too
				failed = err
				cancel()
			}
		})
	}
	group.Wait()
	if failed != nil {
		return nil, failed
	}
	return join(answers, blocked)
}

func isBlocked(err error) bool {
	var f *providers.Failure
	return errors.As(err, &f) && (f.Kind == providers.KindBlockedInput || f.Kind == providers.KindBlockedOutput)
}

// join makes one answer of several. Those that are missing were blocked.
func join(answers []*providers.ImageAnswer, blocked error) (*providers.ImageAnswer, error) {
	all := new(providers.ImageAnswer)
	for _, answer := range answers {
		if answer == nil {
			continue
		}
		all.Images = append(all.Images, answer.Images...)
		all.Usage.InputTokens += answer.Usage.InputTokens
		all.Usage.OutputTokens += answer.Usage.OutputTokens
		all.Usage.CachedInput += answer.Usage.CachedInput
		all.Usage.Estimated = all.Usage.Estimated || answer.Usage.Estimated
	}
	if len(all.Images) == 0 {
		return nil, blocked
	}
	all.Usage.Images = int64(len(all.Images))
	return all, nil
}
