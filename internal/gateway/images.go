package gateway

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

const (
	maxPrompt = 32_000
	maxImages = 10
	// pictureTokens is what a picture comes to at most where it is sold by
	// tokens, one that is made and one that is looked at.
	pictureTokens = 16_384

	leastSide, mostSide = 64, 4096
)

// ImageOrder is what the gateway reads of a request for pictures.
type ImageOrder struct {
	Models []string
	N      int
	// AsURL means that the caller wants links, and not the files themselves.
	AsURL bool
	// Most is what can come of it.
	Most catalog.Units
}

// imageFields are the members of an image request that the gateway reads.
type imageFields struct {
	Model          *string  `json:"model"`
	Models         []string `json:"models"`
	Prompt         *string  `json:"prompt"`
	N              *int64   `json:"n"`
	Size           *string  `json:"size"`
	Stream         *bool    `json:"stream"`
	ResponseFormat *string  `json:"response_format"`
}

// ReadImages reads a request in OpenAI's format. What it does not know is the
// provider's.
func ReadImages(body []byte, sources int) (*ImageOrder, error) {
	var in imageFields
	if err := jsonbody.DecodeForwarded(body, &in, providers.ImageNames); err != nil {
		return nil, err
	}
	o := &ImageOrder{N: 1}
	switch {
	case in.Prompt == nil || strings.TrimSpace(*in.Prompt) == "":
		return nil, fault.Missing("prompt", "prompt must say what the picture shows")
	case utf8.RuneCountInString(*in.Prompt) > maxPrompt:
		return nil, fault.Invalid("prompt", "prompt must have at most %d characters", maxPrompt)
	case in.Stream != nil && *in.Stream:
		return nil, fault.Invalid("stream", "pictures are not streamed here; leave stream out")
	case in.Size != nil && !isSize(*in.Size):
		return nil, fault.Invalid("size", "size must be auto, or a width and a height from %d to %d such as 1024x1024", leastSide, mostSide)
	}
	if in.N != nil {
		if *in.N < 1 || *in.N > maxImages {
			return nil, fault.Invalid("n", "n must be from 1 to %d", maxImages)
		}
		o.N = int(*in.N)
	}
	if in.ResponseFormat != nil {
		switch *in.ResponseFormat {
		case "b64_json":
		case "url":
			o.AsURL = true
		default:
			return nil, fault.Invalid("response_format", "response_format must be b64_json or url")
		}
	}
	if in.Model != nil || len(in.Models) > 0 {
		var err error
		if o.Models, err = modelList(in.Model, in.Models); err != nil {
			return nil, err
		}
	}
	o.Most = catalog.Units{Images: int64(o.N), Tokens: catalog.Tokens{Input: int64(len(body)) + frameTokens + int64(sources)*pictureTokens, Output: int64(o.N) * pictureTokens}}
	return o, nil
}

var sizeForm = regexp.MustCompile(`^([0-9]{2,4})x([0-9]{2,4})$`)

func isSize(s string) bool {
	if s == "auto" {
		return true
	}
	m := sizeForm.FindStringSubmatch(s)
	if m == nil {
		return false
	}
	for _, side := range m[1:] {
		if n, err := strconv.Atoi(side); err != nil || n < leastSide || n > mostSide {
			return false
		}
	}
	return true
}

// Painting is what there is to a request for pictures beside its body.
type Painting struct {
	// Sources are pictures to be changed, where Mask says, if it is not nil.
	Sources []providers.Upload
	Mask    *providers.Upload
	// Keep stores what was made, or is nil. Its failure is the call's, which
	// then costs nothing: nobody pays for what could not be handed over.
	Keep func(ctx context.Context, made *providers.ImageAnswer) error
}

// Images answers a request for pictures at once. With sources it is one to
// change them.
func (g *Gateway) Images(ctx context.Context, c Call, p Painting) (*Answer, *providers.ImageAnswer, error) {
	order, err := ReadImages(c.Body, len(p.Sources))
	if err != nil {
		return nil, nil, err
	}
	r := &request{operation: "image", body: c.Body, models: order.Models, inputBound: order.Most.Input, media: order.Most}
	if len(r.models) == 0 {
		r.models = []string{Auto}
	}
	targets, err := g.painters(c.Principal.Environment, r, len(p.Sources) > 0)
	if err != nil {
		return nil, nil, err
	}
	var made *providers.ImageAnswer
	if p.Keep != nil {
		r.keep = func(ctx context.Context) error { return p.Keep(ctx, made) }
	}
	answer, err := g.run(ctx, c, r, targets, func(ctx context.Context, t target, r *request, _ int64) (*providers.Answer, error) {
		var err error
		if made, err = t.provider.(providers.ImageMaker).Images(ctx, &providers.ImageRequest{Model: t.offer.Upstream, Body: r.body, Sources: p.Sources, Mask: p.Mask}); err != nil {
			return nil, err
		}
		return &providers.Answer{Usage: made.Usage}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return answer, made, nil
}

// painters are who may make the pictures. To change some a model must look at
// them first, which not all do; where none is known to, any may try.
func (g *Gateway) painters(env accounts.Environment, r *request, look bool) ([]target, error) {
	r.needs.vision = look
	targets, err := g.route(env, r.models, catalog.Image, r)
	if err != nil && look {
		r.needs.vision = false
		return g.route(env, r.models, catalog.Image, r)
	}
	return targets, err
}
