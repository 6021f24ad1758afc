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
	maxPictures = 10
	usualSide   = 1024
	minSide     = 64
	maxSide     = 2048
	sideStep    = 8
	jpegQuality = 85
)

// imageRequest is what the simulator reads of a request for image. A form
// has its numbers as texts.
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
		return nil, fault.Missing("prompt", "prompt must say what to draw")
	}
	count, err := in.count()
	if err != nil {
		return nil, err
	}
	form, err := in.format()
	if err != nil {
		return nil, err
	}
	source, mask, err := readSources(req)
	if err != nil {
		return nil, err
	}
	want, err := in.size(source)
	if err != nil {
		return nil, err
	}
	m, prompt, err := readMedia("prompt", in.Prompt)
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, m.delay); err != nil {
		return nil, err
	}
	if err := m.refused(); err != nil {
		return nil, err
	}
	answer := &providers.ImageAnswer{Usage: providers.Usage{Images: int64(count), InputTokens: int64(len(prompt)+3) / 4,
		OutputTokens: int64(count) * pictureTokens(want.width, want.height)}}
	for i := range count {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("simulator: %w", err)
		}
		colors := gradient(sha256.Sum256([]byte(strconv.Itoa(i)+prompt)), want.width, want.height)
		var drawn image.Image = colors
		if source != nil {
			drawn = edit(source, mask, colors)
		}
		picture, err := form.pack(drawn)
		if err != nil {
			return nil, err
		}
		answer.Images = append(answer.Images, picture)
	}
	return answer, nil
}

// count is how many pictures are wanted.
func (r *imageRequest) count() (int, error) {
	switch r.N.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return 1, nil
	}
	text := string(r.N)
	if inner, ok := as[string](r.N); ok {
		text = inner
	}
	n, ok := number(text, 1, maxPictures)
	if !ok {
		return 0, fault.Invalid("n", "n must be a whole number from 1 to %d", maxPictures)
	}
	return n, nil
}

// size is how large the pictures are to be: as the source is, if that is not
// said and possible.
func (r *imageRequest) size(source image.Image) (size, error) {
	if r.Size == "" || r.Size == "auto" {
		if source != nil {
			if b := source.Bounds(); b.Dx() <= maxSide && b.Dy() <= maxSide {
				return size{b.Dx(), b.Dy()}, nil
			}
		}
		return size{usualSide, usualSide}, nil
	}
	s, ok := parseSize(r.Size, sideStep)
	if !ok {
		return size{}, fault.Invalid("size", "size must be auto or WIDTHxHEIGHT such as 1024x1024, each from %d to %d and a multiple of %d", minSide, maxSide, sideStep)
	}
	return s, nil
}

// size is a picture's or a video's.
type size struct{ width, height int }

// parseSize reads WIDTHxHEIGHT.
func parseSize(text string, step int) (size, bool) {
	width, height, _ := strings.Cut(text, "x")
	w, okWidth := number(width, minSide, maxSide)
	h, okHeight := number(height, minSide, maxSide)
	return size{w, h}, okWidth && okHeight && w%step == 0 && h%step == 0
}

// readSources reads the picture to be edited, of several the first, and where.
func readSources(req *providers.ImageRequest) (source, mask image.Image, err error) {
	for i, upload := range req.Sources {
		picture, err := decodeImage(upload.Data)
		if err != nil {
			return nil, nil, fault.Invalid("image", "image cannot be edited: %v", err)
		}
		if i == 0 {
			source = picture
		}
	}
	if req.Mask != nil && source != nil {
		if mask, err = decodeImage(req.Mask.Data); err != nil {
			return nil, nil, fault.Invalid("mask", "mask cannot be used: %v", err)
		}
	}
	return source, mask, nil
}

// packing is how a picture is stored.
type packing struct {
	contentType string
	encode      func(*bytes.Buffer, image.Image) error
}

var (
	asPNG = packing{"image/png", func(b *bytes.Buffer, m image.Image) error {
		return pngEncoder.Encode(b, m)
	}}
	asJPEG = packing{"image/jpeg", func(b *bytes.Buffer, m image.Image) error {
		return jpeg.Encode(b, m, &jpeg.Options{Quality: jpegQuality})
	}}
)

// pngEncoder uses its buffers again: for a small picture they cost more than
// the picture.
var pngEncoder = &png.Encoder{CompressionLevel: png.BestSpeed, BufferPool: new(pngBuffers)}

type pngBuffers struct{ pool sync.Pool }

func (p *pngBuffers) Get() *png.EncoderBuffer {
	b, _ := p.pool.Get().(*png.EncoderBuffer)
	return b
}

func (p *pngBuffers) Put(b *png.EncoderBuffer) { p.pool.Put(b) }

func (r *imageRequest) format() (packing, error) {
	switch r.OutputFormat {
	case "", "png":
		return asPNG, nil
	case "jpeg":
		return asJPEG, nil
	}
	return packing{}, fault.Invalid("output_format", "output_format must be png or jpeg: others are not simulated")
}

func (p packing) pack(m image.Image) (providers.Picture, error) {
	var b bytes.Buffer
	if err := p.encode(&b, m); err != nil {
		return providers.Picture{}, fmt.Errorf("simulator: %w", err)
	}
	return providers.Picture{ContentType: p.contentType, Data: b.Bytes()}, nil
}

// pictureTokens is about what models that sell pictures by tokens count for one
// of medium quality.
func pictureTokens(width, height int) int64 {
	return max(1, int64(width)*int64(height)*1056/(1024*1024))
}
