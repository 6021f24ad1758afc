// Package scene draws small landscapes that follow from a text: the same text
// has the same picture, and another text another one. They have few colours
// and large areas of one, so that they are made and packed in no time.
package scene

import (
	"crypto/sha256"
	"image"
	"image/color"
	"math"
	"math/rand/v2"
)

// The palette: the sky from above to the horizon, then what is drawn on it.
const (
	skies = 6
	sun   = skies + iota - 1
	halo
	cloud
	farHills
	midHills
	nearHills
	lights
	colours
)

// Scene is a landscape in a frame of one by one, with what moves in it.
type Scene struct {
	palette color.Palette
	sun     disc
	orbit   float64 // how far the sun goes in a second
	clouds  []disc
	wind    float64
	peaks   []peak
	lights  []disc
}

// disc is round in a picture of any shape: r is a part of its shorter side.
type disc struct{ x, y, r float64 }

// peak is a triangle that stands on the picture's lower edge.
type peak struct {
	x, y   float64 // of its top
	slope  float64 // how much wider it gets on each side, by its height
	colour uint8
}

// New makes the landscape of some texts.
func New(texts ...string) *Scene {
	h := sha256.New()
	for _, text := range texts {
		h.Write([]byte(text))
		h.Write([]byte{0})
	}
	var seed [32]byte
	h.Sum(seed[:0])
	return FromSeed(seed)
}

// FromSeed makes the landscape of a number.
func FromSeed(seed [32]byte) *Scene {
	r := rand.New(rand.NewChaCha8(seed))
	between := func(low, high float64) float64 { return low + (high-low)*r.Float64() }
	s := &Scene{palette: palette(between)}
	s.sun = disc{between(0.1, 0.9), between(0.12, 0.45), between(0.06, 0.14)}
	s.orbit = between(0.01, 0.04)
	s.wind = between(0.02, 0.06)
	for range 2 + r.IntN(3) {
		x, y, size := between(0, 1), between(0.08, 0.4), between(0.03, 0.06)
		s.clouds = append(s.clouds, disc{x, y, size}, disc{x + size, y - size/3, size * 1.2}, disc{x + 2*size, y, size * 0.9})
	}
	for layer := range 3 {
		for range 2 + layer + r.IntN(2) {
			top := between(0.40, 0.55) + 0.14*float64(layer)
			s.peaks = append(s.peaks, peak{between(-0.1, 1.1), top, between(0.9, 2), uint8(farHills + layer)})
		}
	}
	for range 3 + r.IntN(6) {
		s.lights = append(s.lights, disc{between(0.05, 0.95), between(0.86, 0.97), between(0.006, 0.014)})
	}
	return s
}

// palette makes colours that go together: the hills are near the sky's, the
// sun and the lights opposite to it.
func palette(between func(low, high float64) float64) color.Palette {
	hue, dark := between(0, 1), between(0.25, 0.9)
	p := make(color.Palette, colours)
	for i := range skies {
		part := float64(i) / (skies - 1)
		p[i] = hsv(hue+0.08*part, 0.75-0.5*part, dark+(1-dark)*part*0.9)
	}
	other := hue + between(0.4, 0.6)
	p[sun] = hsv(other, 0.55, 1)
	p[halo] = hsv(other, 0.25, 0.95)
	p[cloud] = hsv(hue, 0.08, 0.97)
	for i := range 3 {
		p[farHills+i] = hsv(hue+0.1+0.03*float64(i), 0.35+0.15*float64(i), 0.62-0.18*float64(i))
	}
	p[lights] = hsv(other, 0.4, 0.95)
	// PNG packs two pixels of up to 16 colours into a byte, which takes longer
	// than all the rest: one more, and it does not.
	for len(p) <= 16 {
		p = append(p, p[lights])
	}
	return p
}

func hsv(hue, saturation, value float64) color.RGBA {
	channel := func(n float64) uint8 {
		k := math.Mod(n+6*(hue-math.Floor(hue)), 6)
		return uint8(255*(value-value*saturation*max(0, min(k, 4-k, 1))) + 0.5)
	}
	return color.RGBA{channel(5), channel(3), channel(1), 255}
}

// Draw draws the scene as it is after some seconds.
func (s *Scene) Draw(width, height int, seconds float64) *image.Paletted {
	c := newCanvas(width, height, s.palette)
	for i := range skies {
		c.band(i*height*2/3/skies, (i+1)*height*2/3/skies, uint8(i))
	}
	c.band(height*2/3, height, skies-1)
	star := s.sun
	star.x = wrap(star.x + s.orbit*seconds)
	c.disc(disc{star.x, star.y, star.r * 1.3}, halo)
	c.disc(star, sun)
	for _, d := range s.clouds {
		d.x = wrap(d.x + s.wind*seconds)
		c.disc(d, cloud)
	}
	for _, p := range s.peaks {
		c.peak(p)
	}
	for _, d := range s.lights {
		c.disc(d, lights)
	}
	return c.to
}

// wrap lets what leaves the picture on the right come back on the left.
func wrap(x float64) float64 {
	const outside = 0.25
	return math.Mod(x+outside, 1+2*outside) - outside
}
