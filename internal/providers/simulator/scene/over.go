package scene

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/gif"  // readable
	_ "image/jpeg" // readable
	_ "image/png"  // readable
)

// maxPixels bounds what a picture takes in memory: a small file can say that
// it is huge.
const maxPixels = 4096 * 4096

// Decode reads a PNG, JPEG or GIF file.
func Decode(data []byte) (image.Image, error) {
	config, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, errors.New("it is not a PNG, JPEG or GIF file")
	}
	if config.Width < 1 || config.Height < 1 || config.Width > maxPixels/config.Height {
		return nil, fmt.Errorf("its %dx%d pixels are too many: at most %d are read", config.Width, config.Height, maxPixels)
	}
	picture, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, errors.New("it is damaged")
	}
	return picture, nil
}

// Over draws the scene without its sky over a picture, which is scaled. With a
// mask it draws only where that is transparent.
func (s *Scene) Over(base, mask image.Image, width, height int) *image.NRGBA {
	out := image.NewNRGBA(image.Rect(0, 0, width, height))
	drawn := s.Draw(width, height, 0)
	for y := range height {
		for x := range width {
			c := color.NRGBAModel.Convert(near(base, x, y, width, height)).(color.NRGBA)
			if i := drawn.ColorIndexAt(x, y); i >= skies && (mask == nil || transparent(near(mask, x, y, width, height))) {
				c = mix(c, s.palette[i].(color.RGBA))
			}
			out.SetNRGBA(x, y, c)
		}
	}
	return out
}

// near is the colour of a picture at a place in one of another size.
func near(m image.Image, x, y, width, height int) color.Color {
	b := m.Bounds()
	return m.At(b.Min.X+x*b.Dx()/width, b.Min.Y+y*b.Dy()/height)
}

func transparent(c color.Color) bool {
	_, _, _, alpha := c.RGBA()
	return alpha < 0x8000
}

// mix is half of each, and opaque.
func mix(a color.NRGBA, b color.RGBA) color.NRGBA {
	half := func(a, b uint8) uint8 { return uint8((int(a) + int(b)) / 2) }
	return color.NRGBA{half(a.R, b.R), half(a.G, b.G), half(a.B, b.B), 255}
}
