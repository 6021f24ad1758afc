package gateway

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

const (
	maxPrompt = 32_000
	maxImages = 10
	// maxPartialImages is OpenAI's limit.
	maxPartialImages = 3
	// maxImageTokens is the maximum for one image that is generated or edited, where images
	// are priced by token.
	maxImageTokens = 16_384

	minImageSide, maxImageSide = 64, 4096
)

// ImageParams are the parameters of an image request that the gateway reads.
type ImageParams struct {
	Models []string
	N      int
	// AsURL means that the client wants links instead of the files themselves.
	AsURL bool
	// Stream means that the client wants the image in events.
	Stream bool
	// PartialImages is how many unfinished images a stream may have.
	PartialImages int
	// Size, Quality and Background are as requested, or auto.
	Size, Quality, Background string
	// MaxUnits are the most units that the request can use.
	MaxUnits catalog.Units
}

type imageFields struct {
	Model          *string  `json:"model"`
	Models         []string `json:"models"`
	Prompt         *string  `json:"prompt"`
	N              *int64   `json:"n"`
	Size           *string  `json:"size"`
	Stream         *bool    `json:"stream"`
	PartialImages  *int64   `json:"partial_images"`
	ResponseFormat *string  `json:"response_format"`
	Quality        *string  `json:"quality"`
	Background     *string  `json:"background"`
}

// ParseImageRequest reads a request in OpenAI's format with a number of source images. Unknown
// fields are left to the provider.
func ParseImageRequest(body []byte, sources int) (*ImageParams, error) {
	var in imageFields
	if err := jsonbody.DecodeForwarded(body, &in, providers.ImageNames); err != nil {
		return nil, err
	}
	p := &ImageParams{N: 1}
	switch {
	case in.Prompt == nil || strings.TrimSpace(*in.Prompt) == "":
		return nil, fault.Missing("prompt", "prompt must describe the image.")
	case utf8.RuneCountInString(*in.Prompt) > maxPrompt:
		return nil, fault.Invalid("prompt", "prompt must have at most %d characters.", maxPrompt)
	case in.PartialImages != nil && (*in.PartialImages < 0 || *in.PartialImages > maxPartialImages):
		return nil, fault.Invalid("partial_images", "partial_images must be from 0 to %d.", maxPartialImages)
	case in.Size != nil && !isImageSize(*in.Size):
		return nil, fault.Invalid("size", "size must be auto, or a width and a height from %d to %d, such as 1024x1024.", minImageSide, maxImageSide)
	}
	if in.N != nil {
		if *in.N < 1 || *in.N > maxImages {
			return nil, fault.Invalid("n", "n must be from 1 to %d.", maxImages)
		}
		p.N = int(*in.N)
	}
	if in.ResponseFormat != nil {
		switch *in.ResponseFormat {
		case "b64_json":
		case "url":
			p.AsURL = true
		default:
			return nil, fault.Invalid("response_format", "response_format must be b64_json or url.")
		}
	}
	p.Size, p.Quality, p.Background = orAuto(in.Size), orAuto(in.Quality), orAuto(in.Background)
	if p.Stream = in.Stream != nil && *in.Stream; p.Stream {
		switch {
		case p.N > 1:
			return nil, fault.Invalid("n", "n must be 1 with stream. Send a request for each image.")
		case p.AsURL:
			return nil, fault.Invalid("response_format", "response_format must be b64_json with stream.")
		}
		if in.PartialImages != nil {
			p.PartialImages = int(*in.PartialImages)
		}
	}
	if in.Model != nil || len(in.Models) > 0 {
		var err error
		if p.Models, err = modelList(in.Model, in.Models); err != nil {
			return nil, err
		}
	}
	p.MaxUnits = catalog.Units{Images: int64(p.N), Tokens: catalog.Tokens{Input: int64(len(body)) + frameTokens + int64(sources)*maxImageTokens, Output: int64(p.N) * maxImageTokens}}
	return p, nil
}

func orAuto(s *string) string {
	if s == nil || *s == "" {
		return "auto"
	}
	return *s
}

var imageSize = regexp.MustCompile(`^([0-9]{2,4})x([0-9]{2,4})$`)

func isImageSize(s string) bool {
	if s == "auto" {
		return true
	}
	m := imageSize.FindStringSubmatch(s)
	if m == nil {
		return false
	}
	for _, side := range m[1:] {
		if n, err := strconv.Atoi(side); err != nil || n < minImageSide || n > maxImageSide {
			return false
		}
	}
	return true
}

// ImageInput is what an image request has in addition to its body.
type ImageInput struct {
	// Sources are images to edit, where the optional Mask allows it.
	Sources []providers.Upload
	Mask    *providers.Upload
	// Files are other files of the form, which only providers with OpenAI's API get.
	Files map[string][]providers.Upload
	// Store, if set, stores the images. If it fails, the call fails and costs nothing.
	Store func(ctx context.Context, images *providers.ImageResult) error
	// Partial, if set, gets the unfinished images of a stream.
	Partial func(by *Response, index int, image providers.Image) error
}

// Count returns the number of images and other files.
func (in *ImageInput) Count() int {
	n := len(in.Sources)
	for _, list := range in.Files {
		n += len(list)
	}
	return n
}

// Images generates images, or edits the sources if there are any.
func (g *Gateway) Images(ctx context.Context, c Call, in ImageInput) (*Response, *providers.ImageResult, error) {
	params, err := ParseImageRequest(c.Body, in.Count())
	if err != nil {
		return nil, nil, err
	}
	r := &request{operation: "image", endpoint: "image", body: c.Body, models: params.Models, maxInput: params.MaxUnits.Input, maxUnits: params.MaxUnits}
	if len(r.models) == 0 {
		r.models = []string{Auto}
	}
	s := g.current.Load()
	targets, err := s.imageTargets(ctx, c.owner(), r, len(in.Sources) > 0)
	if err != nil {
		return nil, nil, err
	}
	var images *providers.ImageResult
	if in.Store != nil {
		r.store = func(ctx context.Context) error { return in.Store(ctx, images) }
	}
	response, err := s.run(ctx, c, r, targets, func(ctx context.Context, t target, _ int64) (*providers.Response, error) {
		req := &providers.ImageRequest{Model: t.offer.Upstream, Body: r.body, Sources: in.Sources, Mask: in.Mask, Files: in.Files}
		if in.Partial != nil && params.PartialImages > 0 {
			var done func()
			ctx, done = in.forwardPartials(ctx, r, t, req)
			defer done()
			req.PartialImages = params.PartialImages
		}
		var err error
		if images, err = t.provider.(providers.ImageGenerator).Images(ctx, req); err != nil {
			return nil, err
		}
		return &providers.Response{Usage: images.Usage, Ignored: images.Ignored}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return response, images, nil
}

// forwardPartials sends unfinished images to the client. From the first one on, the call goes on even
// if the client disconnects, because it would otherwise have an image for the price of the prompt.
func (in *ImageInput) forwardPartials(ctx context.Context, r *request, t target, req *providers.ImageRequest) (context.Context, func()) {
	calling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var sent atomic.Bool
	unwatch := context.AfterFunc(ctx, func() {
		if !sent.Load() {
			cancel()
		}
	})
	by := &Response{Model: t.offer.ID, Provider: t.provider.Name()}
	req.Partial = func(index int, image providers.Image) error {
		sent.Store(true) // before the client has the image, and can leave with it
		if err := in.Partial(by, index, image); err != nil {
			return err
		}
		r.begun = true
		return nil
	}
	return calling, func() {
		unwatch()
		cancel()
	}
}

// imageTargets returns the targets of an image request. Edits need a model with vision; if none
// is known to have it, any may try.
func (g *snapshot) imageTargets(ctx context.Context, o Owner, r *request, edit bool) ([]target, error) {
	r.needs.vision = edit
	targets, err := g.route(ctx, o, r.models, catalog.Image, r)
	if err != nil && edit {
		r.needs.vision = false
		return g.route(ctx, o, r.models, catalog.Image, r)
	}
	return targets, err
}
