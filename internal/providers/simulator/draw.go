package simulator

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/gif" // for Decode
)

// gradient draws rows from one color to another. The seed has both.
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

// maxPixels limits the memory that an uploaded image takes: a small file can
// claim any size.
const maxPixels = 4096 * 4096

// decodeImage reads a PNG, JPEG or GIF file.
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
