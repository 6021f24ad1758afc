package simulator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

var _ providers.ImageMaker = (*Simulator)(nil)

const (
	maxImages   = 10
	defaultSide = 1024
	minSide     = 64
	maxSide     = 2048
	sideStep    = 8
	jpegQuality = 85
)

// imageRequest holds the fields that the simulator reads. In a form, numbers are strings.
type imageRequest struct {
	Prompt       string         `json:"prompt"`
	N            jsontext.Value `json:"n"`
	Size         string         `json:"size"`
	OutputFormat string         `json:"output_format"`
}

// Images draws gradients whose colors follow from the prompt.
func (s *Simulator) Images(ctx context.Context, req *providers.ImageRequest) (*providers.ImageAnswer, error) {
	var in imageRequest
	if err := jsonbody.DecodeLenient(req.Body, &in); err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Prompt) == "" {
		return nil, fault.Missing("prompt", "prompt is required.")
	}
	count, err := in.count()
	if err != nil {
		return nil, err
	}
	format, err := in.format()
	if err != nil {
		return nil, err
	}
	source, mask, err := readSources(req)
	if err != nil {
		return nil, err
	}
	size, err := in.size(source)
	if err != nil {
		return nil, err
	}
	m, prompt, err := extractMediaMagic("prompt", in.Prompt)
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, m.delay); err != nil {
		return nil, err
	}
	if err := m.requestedError(); err != nil {
		return nil, err
	}
	answer := &providers.ImageAnswer{Usage: providers.Usage{Images: int64(count), InputTokens: int64(len(prompt)+3) / 4,
		OutputTokens: int64(count) * imageTokens(size.width, size.height)}}
	for i := range count {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("simulator: %w", err)
		}
		colors := gradient(sha256.Sum256([]byte(strconv.Itoa(i)+prompt)), size.width, size.height)
		var drawn image.Image = colors
		if source != nil {
			drawn = edit(source, mask, colors)
		}
		picture, err := format.file(drawn)
		if err != nil {
			return nil, err
		}
		answer.Images = append(answer.Images, picture)
	}
	return answer, nil
}

// count returns n, which is 1 by default.
func (r *imageRequest) count() (int, error) {
	switch r.N.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return 1, nil
	}
	text := string(r.N)
	if inner, ok := decodeAs[string](r.N); ok {
		text = inner
	}
	n, ok := number(text, 1, maxImages)
	if !ok {
		return 0, fault.Invalid("n", "n must be an integer from 1 to %d.", maxImages)
	}
	return n, nil
}

// size returns the requested size. The default is the size of the source, if
// there is one that isn't too large.
func (r *imageRequest) size(source image.Image) (size, error) {
	if r.Size == "" || r.Size == "auto" {
		if source != nil {
			if b := source.Bounds(); b.Dx() <= maxSide && b.Dy() <= maxSide {
				return size{b.Dx(), b.Dy()}, nil
			}
		}
		return size{defaultSide, defaultSide}, nil
	}
	s, ok := parseSize(r.Size, sideStep)
	if !ok {
		return size{}, fault.Invalid("size", "size must be auto or WIDTHxHEIGHT such as 1024x1024, each from %d to %d and a multiple of %d.", minSide, maxSide, sideStep)
	}
	return s, nil
}

// size is the size of an image or a video.
type size struct{ width, height int }

// parseSize parses WIDTHxHEIGHT. Both must be multiples of step.
func parseSize(text string, step int) (size, bool) {
	width, height, _ := strings.Cut(text, "x")
	w, okWidth := number(width, minSide, maxSide)
	h, okHeight := number(height, minSide, maxSide)
	return size{w, h}, okWidth && okHeight && w%step == 0 && h%step == 0
}

// readSources decodes the images and the mask, and returns the first image.
func readSources(req *providers.ImageRequest) (source, mask image.Image, err error) {
	for i, upload := range req.Sources {
		m, err := decodeImage(upload.Data)
		if err != nil {
			return nil, nil, fault.Invalid("image", "image cannot be edited: %v.", err)
		}
		if i == 0 {
			source = m
		}
	}
	if req.Mask != nil && source != nil {
		if mask, err = decodeImage(req.Mask.Data); err != nil {
			return nil, nil, fault.Invalid("mask", "mask cannot be used: %v.", err)
		}
	}
	return source, mask, nil
}

// imageFormat is a file format.
type imageFormat struct {
	contentType string
	encode      func(*bytes.Buffer, image.Image) error
}

var (
	formatPNG = imageFormat{"image/png", func(b *bytes.Buffer, m image.Image) error {
		return pngEncoder.Encode(b, m)
	}}
	formatJPEG = imageFormat{"image/jpeg", func(b *bytes.Buffer, m image.Image) error {
		return jpeg.Encode(b, m, &jpeg.Options{Quality: jpegQuality})
	}}
)

// pngEncoder reuses its buffers, which cost more than a small image.
var pngEncoder = &png.Encoder{CompressionLevel: png.BestSpeed, BufferPool: new(pngBuffers)}

type pngBuffers struct{ pool sync.Pool }

func (p *pngBuffers) Get() *png.EncoderBuffer {
	b, _ := p.pool.Get().(*png.EncoderBuffer)
	return b
}

func (p *pngBuffers) Put(b *png.EncoderBuffer) { p.pool.Put(b) }

func (r *imageRequest) format() (imageFormat, error) {
	switch r.OutputFormat {
	case "", "png":
		return formatPNG, nil
	case "jpeg":
		return formatJPEG, nil
	}
	return imageFormat{}, fault.Invalid("output_format", "output_format must be png or jpeg. Others are not simulated.")
}

func (f imageFormat) file(m image.Image) (providers.Picture, error) {
	var b bytes.Buffer
	if err := f.encode(&b, m); err != nil {
		return providers.Picture{}, fmt.Errorf("simulator: %w", err)
	}
	return providers.Picture{ContentType: f.contentType, Data: b.Bytes()}, nil
}

// imageTokens estimates the tokens of an image of medium quality.
func imageTokens(width, height int) int64 {
	return max(1, int64(width)*int64(height)*1056/(1024*1024))
}
