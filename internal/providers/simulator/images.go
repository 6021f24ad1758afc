package simulator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
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

	"turnpike/internal/budget"
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
	source, err := checkSources(req)
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
	pixels := int64(size.width) * int64(size.height)
	// The sources and the files stay in memory.
	if err := budget.Of(ctx).Reserve(pixels * int64(2*nrgbaBytes+count)); err != nil {
		return nil, err
	}
	d := drawing{size: size, prompt: prompt, format: format}
	if err := d.readSources(ctx, req); err != nil {
		return nil, err
	}
	result := &providers.ImageResult{Usage: providers.Usage{Images: int64(count), InputTokens: int64(len(prompt)+3) / 4,
		OutputTokens: int64(count) * imageTokens(size.width, size.height)}}
	for i := range count {
		var files []providers.Image
		err := budget.Of(ctx).Decode(ctx, pixels*3*nrgbaBytes, func() (err error) {
			files, err = d.draw(i, req.PartialImages)
			return err
		})
		if err != nil {
			return nil, err
		}
		for n, file := range files[:req.PartialImages] {
			if err := req.Partial(n, file); err != nil {
				return nil, err
			}
		}
		result.Images = append(result.Images, files[req.PartialImages])
	}
	return result, nil
}

// drawing is what the images of a request have in common.
type drawing struct {
	size
	prompt       string
	format       imageFormat
	source, mask *image.NRGBA // nil without one; of the size of the drawing
}

// draw returns the files of an image, after partial ones with more and more of its rows.
func (d *drawing) draw(i, partials int) (files []providers.Image, err error) {
	colors := gradient(sha256.Sum256([]byte(strconv.Itoa(i)+d.prompt)), d.width, d.height)
	var drawn image.Image = colors
	if d.source != nil {
		drawn = edit(d.source, d.mask, colors)
	}
	for n := range partials + 1 {
		part := drawn
		if n < partials {
			rows := image.NewNRGBA(drawn.Bounds())
			top := drawn.Bounds()
			top.Max.Y = top.Dy() * (n + 1) / (partials + 1)
			draw.Draw(rows, top, drawn, top.Min, draw.Src)
			part = rows
		}
		file, err := d.format.file(part)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// imageSize returns the requested size. The default is the size of the source, if
// there is one that isn't too large.
func imageSize(text string, source size) (size, error) {
	if text == "" || text == "auto" {
		if source.width > 0 && source.width <= maxSide && source.height <= maxSide {
			return source, nil
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

// checkSources checks the images to edit and returns the size of the first, the only one that is used.
func checkSources(req *providers.ImageRequest) (first size, err error) {
	for i, upload := range req.Sources {
		s, _, err := readConfig("image", upload.Data)
		if err != nil {
			return size{}, err
		}
		if i == 0 {
			first = s
		}
	}
	return first, nil
}

// readConfig returns the size of an image and the memory that decoding it takes.
func readConfig(param string, data []byte) (s size, bytesNeeded int64, err error) {
	config, kind, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || config.Width < 1 || config.Height < 1 {
		return size{}, 0, fault.Invalid(param, "%s cannot be used: it is not a PNG, JPEG or GIF file.", param)
	}
	perPixel := bytesPerPixel(config, kind)
	if config.Width > budget.MaxDecode/perPixel/config.Height {
		return size{}, 0, fault.Invalid(param, "%s cannot be used: it has %dx%d pixels, and decoding them takes more than %d bytes.", param, config.Width, config.Height, budget.MaxDecode)
	}
	return size{config.Width, config.Height}, int64(config.Width * config.Height * perPixel), nil
}

func (d *drawing) readSources(ctx context.Context, req *providers.ImageRequest) (err error) {
	if len(req.Sources) == 0 {
		return nil
	}
	if d.source, err = d.read(ctx, "image", req.Sources[0].Data); err != nil || req.Mask == nil {
		return err
	}
	d.mask, err = d.read(ctx, "mask", req.Mask.Data)
	return err
}

// read decodes an image and scales it to the size of the drawing.
func (d *drawing) read(ctx context.Context, param string, data []byte) (*image.NRGBA, error) {
	_, memory, err := readConfig(param, data)
	if err != nil {
		return nil, err
	}
	scaled := image.NewNRGBA(image.Rect(0, 0, d.width, d.height))
	return scaled, budget.Of(ctx).Decode(ctx, memory, func() error {
		m, _, err := image.Decode(bytes.NewReader(data))
		if err != nil {
			return fault.Invalid(param, "%s cannot be used: it is damaged.", param)
		}
		b := m.Bounds()
		for y := range d.height {
			for x := range d.width {
				scaled.Set(x, y, m.At(b.Min.X+x*b.Dx()/d.width, b.Min.Y+y*b.Dy()/d.height))
			}
		}
		return nil
	})
}

const nrgbaBytes = 4 // of a pixel

// bytesPerPixel is the memory for decoding: progressive JPEGs need the coefficients of all pixels, and
// interlaced PNGs half as much again as the image.
func bytesPerPixel(c image.Config, kind string) int {
	switch {
	case kind == "jpeg":
		return 16
	case c.ColorModel == color.RGBA64Model || c.ColorModel == color.NRGBA64Model:
		return 12
	}
	return 6
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

// edit mixes the source and the gradient where the mask is transparent. Without a mask, it changes
// the lower half.
func edit(source, mask *image.NRGBA, over *image.Paletted) *image.NRGBA {
	size := over.Bounds().Size()
	out := image.NewNRGBA(over.Bounds())
	for y := range size.Y {
		for x := range size.X {
			c := source.NRGBAAt(x, y)
			if mask == nil && y >= size.Y/2 || mask != nil && mask.NRGBAAt(x, y).A < 0x80 {
				o := over.At(x, y).(color.NRGBA)
				c = color.NRGBA{c.R/2 + o.R/2, c.G/2 + o.G/2, c.B/2 + o.B/2, 255}
			}
			out.SetNRGBA(x, y, c)
		}
	}
	return out
}
