package gemini

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const (
	maxConcurrent   = 4 // upstream requests for one request
	imagesPerImagen = 4 // in one upstream request
)

// imagesRequest has the fields of a request that Gemini has a counterpart for.
type imagesRequest struct {
	*providers.ImageFields
	size size
}

type imageConfig struct {
	AspectRatio string `json:"aspectRatio,omitempty"`
	ImageSize   string `json:"imageSize,omitempty"`
}

// Images generates or edits images. If a filter blocks some of them, they are
// missing in the response. If it blocks all, the request fails.
func (p *Provider) Images(ctx context.Context, req *providers.ImageRequest) (*providers.ImageResult, error) {
	result, err := p.images(ctx, req)
	if err == nil {
		result.Ignored = openai.UnknownFields(req.Body, "model", "prompt", "n", "size", "response_format", "image", "mask")
		result.Ignored = append(result.Ignored, slices.Sorted(maps.Keys(req.Files))...)
	}
	return result, err
}

func (p *Provider) images(ctx context.Context, req *providers.ImageRequest) (*providers.ImageResult, error) {
	in, err := readImages(req)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(strings.TrimPrefix(req.Model, "models/"), "imagen-") {
		if len(req.Sources) > 0 {
			return nil, fault.Invalid("image", "This model cannot edit images. Omit image or use another model.")
		}
		n := int(*in.N)
		requests := (n + imagesPerImagen - 1) / imagesPerImagen
		return concurrently(ctx, requests, func(ctx context.Context, i int) (*providers.ImageResult, error) {
			return p.predict(ctx, req.Model, in, min(imagesPerImagen, n-i*imagesPerImagen))
		})
	}
	call := in.generate(req)
	return concurrently(ctx, int(*in.N), func(ctx context.Context, _ int) (*providers.ImageResult, error) {
		return p.generateImage(ctx, req.Model, in.Prompt, call)
	})
}

func readImages(req *providers.ImageRequest) (*imagesRequest, error) {
	in, err := req.Fields()
	if err != nil {
		return nil, err
	}
	if req.Mask != nil {
		return nil, fault.Invalid("mask", "This model does not support mask. Describe in the prompt what to change.")
	}
	size, err := parseSize(in.Size)
	return &imagesRequest{in, size}, err
}

func (in *imagesRequest) generate(req *providers.ImageRequest) *generateRequest {
	parts := []part{{Text: in.Prompt}}
	for i := range req.Sources {
		parts = append(parts, part{InlineData: inline(&req.Sources[i])})
	}
	call := &generateRequest{Contents: []content{{Role: "user", Parts: parts}}}
	call.GenerationConfig.ResponseModalities = []string{"IMAGE"}
	config := imageConfig{AspectRatio: in.size.aspectRatio(geminiRatios)}
	if parseModel(req.Model).version >= 3 {
		config.ImageSize = in.size.imageSize()
	}
	if config != (imageConfig{}) {
		call.GenerationConfig.ImageConfig = &config
	}
	return call
}

// inline returns a file of the client as part of a request. Its content decides
// its type, if it can.
func inline(file *providers.Upload) *blob {
	kind := http.DetectContentType(file.Data)
	if !strings.HasPrefix(kind, "image/") && file.ContentType != "" {
		kind = file.ContentType
	}
	return &blob{MimeType: kind, Data: base64.StdEncoding.EncodeToString(file.Data)}
}

func (p *Provider) generateImage(ctx context.Context, model, prompt string, call *generateRequest) (*providers.ImageResult, error) {
	var r generateResponse
	if err := p.post(ctx, p.url(model, "generateContent"), call, &r, explainMedia); err != nil {
		return nil, err
	}
	return p.readImage(&r, prompt)
}

func (p *Provider) readImage(r *generateResponse, prompt string) (*providers.ImageResult, error) {
	files, err := p.files(r)
	if err != nil {
		return nil, err
	}
	// One was requested and is paid for. The last one is final.
	image, err := wire.NewImage(files[len(files)-1].Data, "")
	if err != nil {
		return nil, err
	}
	count := counter{prompt: wire.EstimateTokens(len(prompt)), metadata: r.UsageMetadata}
	return &providers.ImageResult{Images: []providers.Image{image}, Usage: count.usage()}, nil
}

// concurrently sends several requests, a few at a time, and joins their results in order. The first
// failure cancels the others, unless a filter has blocked one of several.
func concurrently(ctx context.Context, n int, send func(ctx context.Context, i int) (*providers.ImageResult, error)) (*providers.ImageResult, error) {
	results, blocked := make([]*providers.ImageResult, n), make([]error, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrent)
	for i := range n {
		group.Go(func() (err error) {
			if results[i], err = send(ctx, i); isBlocked(err) {
				blocked[i], err = err, nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return join(results, cmp.Or(blocked...))
}

func isBlocked(err error) bool {
	var f *providers.Failure
	return errors.As(err, &f) && (f.Kind == providers.KindBlockedInput || f.Kind == providers.KindBlockedOutput)
}

// join joins the results. Missing ones were blocked.
func join(results []*providers.ImageResult, blocked error) (*providers.ImageResult, error) {
	all := new(providers.ImageResult)
	for _, result := range results {
		if result == nil {
			continue
		}
		all.Images = append(all.Images, result.Images...)
		all.Usage.InputTokens += result.Usage.InputTokens
		all.Usage.OutputTokens += result.Usage.OutputTokens
		all.Usage.CachedInput += result.Usage.CachedInput
		all.Usage.Estimated = all.Usage.Estimated || result.Usage.Estimated
	}
	if len(all.Images) == 0 {
		return nil, blocked
	}
	all.Usage.Images = int64(len(all.Images))
	return all, nil
}

type predictRequest struct {
	Instances  []predictInstance `json:"instances"`
	Parameters any               `json:"parameters,omitzero"`
}

type predictInstance struct {
	Prompt string        `json:"prompt"`
	Image  *predictImage `json:"image,omitzero"`
}

type predictImage struct {
	Data     string `json:"bytesBase64Encoded"`
	MimeType string `json:"mimeType"`
}

type imagenParameters struct {
	SampleCount      int            `json:"sampleCount"`
	AspectRatio      string         `json:"aspectRatio,omitempty"`
	SampleImageSize  string         `json:"sampleImageSize,omitempty"`
	IncludeRaiReason bool           `json:"includeRaiReason"` // otherwise a blocked image is just missing
	OutputOptions    *outputOptions `json:"outputOptions,omitzero"`
}

type outputOptions struct {
	MimeType string `json:"mimeType"`
}

type predictResponse struct {
	Predictions []struct {
		Data              wire.Base64 `json:"bytesBase64Encoded"`
		RaiFilteredReason string      `json:"raiFilteredReason"`
	} `json:"predictions"`
	Error *apiError `json:"error"`
}

// predict generates up to four images with Imagen, which counts no tokens.
func (p *Provider) predict(ctx context.Context, model string, in *imagesRequest, n int) (*providers.ImageResult, error) {
	parameters := imagenParameters{SampleCount: n, AspectRatio: in.size.aspectRatio(imagenRatios), IncludeRaiReason: true}
	if in.size.imageSize() != "" && strings.Contains(model, "imagen-4") && !strings.Contains(model, "fast") {
		parameters.SampleImageSize = "2K" // there is no 4K, and other models have one size
	}
	if in.OutputFormat == "jpeg" {
		parameters.OutputOptions = &outputOptions{"image/jpeg"}
	}
	var r predictResponse
	err := p.post(ctx, p.url(model, "predict"), predictRequest{[]predictInstance{{Prompt: in.Prompt}}, parameters}, &r, explainMedia)
	if err != nil {
		return nil, err
	}
	return p.readPredictions(&r)
}

func (p *Provider) readPredictions(r *predictResponse) (*providers.ImageResult, error) {
	if r.Error != nil {
		return nil, r.Error.mediaFailure(p.client.Secrets())
	}
	result := new(providers.ImageResult)
	var blocked *providers.Failure
	for _, prediction := range r.Predictions {
		if len(prediction.Data) == 0 {
			if reason := prediction.RaiFilteredReason; reason != "" {
				blocked = p.blocked(filterKind(reason), reason)
			}
			continue
		}
		image, err := wire.NewImage(prediction.Data, "")
		if err != nil {
			return nil, err
		}
		result.Images = append(result.Images, image)
	}
	switch {
	case len(result.Images) > 0:
		return result, nil
	case blocked != nil:
		return nil, blocked
	}
	return nil, wire.ProtocolFailure("a response without images")
}

// size is the size of an image in pixels. The zero size is the model's default.
type size struct{ width, height int }

// maxSide is twice the longest side of any model.
const maxSide = 16384

func parseSize(text string) (size, error) {
	if text == "" || text == "auto" {
		return size{}, nil
	}
	w, h, _ := strings.Cut(text, "x")
	width, err1 := strconv.Atoi(w)
	height, err2 := strconv.Atoi(h)
	if err1 != nil || err2 != nil || width < 1 || height < 1 || width > maxSide || height > maxSide {
		return size{}, fault.Invalid("size", "size must be auto or a width and a height, such as 1024x1024.")
	}
	return size{width, height}, nil
}

// The aspect ratios that Google documents.
var (
	imagenRatios = []string{"1:1", "3:4", "4:3", "9:16", "16:9"}
	geminiRatios = []string{"1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9"}
	veoRatios    = []string{"16:9", "9:16"}
)

// aspectRatio returns the nearest of the known ratios, or "" for the zero size.
// Twice as wide is as far off as twice as high.
func (s size) aspectRatio(known []string) string {
	if s.width == 0 {
		return ""
	}
	best, distance := "", math.Inf(1)
	for _, ratio := range known {
		w, h, _ := strings.Cut(ratio, ":")
		width, _ := strconv.ParseFloat(w, 64)
		height, _ := strconv.ParseFloat(h, 64)
		if d := math.Abs(math.Log(float64(s.width) / float64(s.height) * height / width)); d < distance {
			best, distance = ratio, d
		}
	}
	return best
}

// imageSize returns the nearest of Google's sizes: 1K has a million pixels, 2K
// four times as many, 4K sixteen times. It returns "" for 1K, the default.
func (s size) imageSize() string {
	switch pixels := s.width * s.height; {
	case pixels > 8_000_000:
		return "4K"
	case pixels > 2_000_000:
		return "2K"
	}
	return ""
}

// resolution returns the nearest resolution of videos, by the shorter side.
func (s size) resolution() string {
	switch shorter := min(s.width, s.height); {
	case shorter == 0:
		return ""
	case shorter > 1620:
		return "4k"
	case shorter > 900:
		return "1080p"
	}
	return "720p"
}
