package simulator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	_ "image/gif" // for Decode
	"image/jpeg"
	"image/png"
	"strconv"
	"strings"

	"github.com/HugoSmits86/nativewebp"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

var _ providers.ImageGenerator = (*Simulator)(nil)

const (
	defaultSide = 1024
	minSide     = 64
	maxSide     = 2048
	sideStep    = 8
	jpegQuality = 85
)

// Images draws gradients whose colors depend on the prompt.
func (s *Simulator) Images(ctx context.Context, req *providers.ImageRequest) (*providers.ImageResult, error) {
	in, err := req.Fields()
	if err != nil {
		return nil, err
	}
	format, ok := imageFormats[cmp.Or(in.OutputFormat, "png")]
	if !ok {
		return nil, fault.Invalid("output_format", "output_format must be png, jpeg or webp.")
	}
	source, mask, err := readSources(req)
	if err != nil {
		return nil, err
	}
	size, err := imageSize(in.Size, source)
	if err != nil {
		return nil, err
	}
	prompt, err := obeyMagic(ctx, "prompt", in.Prompt)
	if err != nil {
		return nil, err
	}
	count := int(*in.N)
	result := &providers.ImageResult{Usage: providers.Usage{Images: int64(count), InputTokens: int64(len(prompt)+3) / 4,
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
		if err := sendPartials(req, format, drawn); err != nil {
			return nil, err
		}
		file, err := format.file(drawn)
		if err != nil {
			return nil, err
		}
		result.Images = append(result.Images, file)
	}
	return result, nil
}

// sendPartials sends the image with more and more of its rows.
func sendPartials(req *providers.ImageRequest, format imageFormat, m image.Image) error {
	for i := range req.PartialImages {
		part := image.NewNRGBA(m.Bounds())
		top := m.Bounds()
		top.Max.Y = top.Min.Y + top.Dy()*(i+1)/(req.PartialImages+1)
		draw.Draw(part, top, m, top.Min, draw.Src)
		file, err := format.file(part)
		if err != nil {
			return err
		}
		if err := req.Partial(i, file); err != nil {
			return err
		}
	}
	return nil
}

// imageSize returns the requested size. The default is the size of the source, if
// there is one that isn't too large.
func imageSize(text string, source image.Image) (size, error) {
	if text == "" || text == "auto" {
		if source != nil {
			if b := source.Bounds(); b.Dx() <= maxSide && b.Dy() <= maxSide {
				return size{b.Dx(), b.Dy()}, nil
			}
		}
		return size{defaultSide, defaultSide}, nil
	}
	s, ok := parseSize(text, sideStep)
	if !ok {
		return size{}, fault.Invalid("size", "size must be auto or WIDTHxHEIGHT such as 1024x1024, each from %d to %d and a multiple of %d.", minSide, maxSide, sideStep)
	}
	return s, nil
}

type size struct{ width, height int }

// parseSize parses WIDTHxHEIGHT. Both must be multiples of step.
func parseSize(text string, step int) (size, bool) {
	width, height, _ := strings.Cut(text, "x")
	w, okWidth := number(width, minSide, maxSide)
	h, okHeight := number(height, minSide, maxSide)
	return size{w, h}, okWidth && okHeight && w%step == 0 && h%step == 0
}

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

type imageFormat struct {
	contentType string
	encode      func(*bytes.Buffer, image.Image) error
}

var imageFormats = map[string]imageFormat{
	"png": {"image/png", func(b *bytes.Buffer, m image.Image) error { return pngEncoder.Encode(b, m) }},
	"jpeg": {"image/jpeg", func(b *bytes.Buffer, m image.Image) error {
		return jpeg.Encode(b, m, &jpeg.Options{Quality: jpegQuality})
	}},
	"webp": {"image/webp", func(b *bytes.Buffer, m image.Image) error { return nativewebp.Encode(b, m, nil) }},
}

var pngEncoder = &png.Encoder{CompressionLevel: png.BestSpeed}

func (f imageFormat) file(m image.Image) (providers.Image, error) {
	var b bytes.Buffer
	if err := f.encode(&b, m); err != nil {
		return providers.Image{}, fmt.Errorf("simulator: %w", err)
	}
	return providers.Image{ContentType: f.contentType, Data: b.Bytes()}, nil
}

// imageTokens estimates the tokens of an image of medium quality.
func imageTokens(width, height int) int64 {
	return max(1, int64(width)*int64(height)*1056/(1024*1024))
}

// gradient draws rows from one color to another. The seed contains both.
func gradient(seed [32]byte, width, height int) *image.Paletted {
	palette := make(color.Palette, 256)
	for i := range palette {
		channel := func(c int) uint8 { return uint8((int(seed[c])*(255-i) + int(seed[c+3])*i) / 255) }
		palette[i] = color.NRGBA{channel(0), channel(1), channel(2), 255}
	}
	m := image.NewPaletted(image.Rect(0, 0, width, height), palette)
	for y := range height {
		row := m.Pix[y*m.Stride : y*m.Stride+width]
		row[0] = uint8(y * 256 / height)
		for n := 1; n < width; n *= 2 {
			copy(row[n:], row[:n])
		}
	}
	return m
}

// edit scales the source to the size of the gradient and mixes both where the
// mask is transparent. Without a mask, it changes the lower half.
func edit(source, mask image.Image, over *image.Paletted) *image.NRGBA {
	size := over.Bounds().Size()
	out := image.NewNRGBA(over.Bounds())
	scaled := func(m image.Image, x, y int) color.NRGBA {
		b := m.Bounds()
		return color.NRGBAModel.Convert(m.At(b.Min.X+x*b.Dx()/size.X, b.Min.Y+y*b.Dy()/size.Y)).(color.NRGBA)
	}
	for y := range size.Y {
		for x := range size.X {
			c := scaled(source, x, y)
			if mask == nil && y >= size.Y/2 || mask != nil && scaled(mask, x, y).A < 0x80 {
				o := over.At(x, y).(color.NRGBA)
				c = color.NRGBA{c.R/2 + o.R/2, c.G/2 + o.G/2, c.B/2 + o.B/2, 255}
			}
			out.SetNRGBA(x, y, c)
		}
	}
	return out
}

// maxPixels limits the memory that an uploaded image takes: a small file can claim any size.
const maxPixels = 4096 * 4096

func decodeImage(data []byte) (image.Image, error) {
	config, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, errors.New("it is not a PNG, JPEG or GIF file")
	}
	if config.Width < 1 || config.Height < 1 || config.Width > maxPixels/config.Height {
		return nil, fmt.Errorf("it has %dx%d pixels, and at most %d are allowed", config.Width, config.Height, maxPixels)
	}
	m, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, errors.New("it is damaged")
	}
	return m, nil
}
