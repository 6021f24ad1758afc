package scene

import (
	"image"
	"image/color"
	"math"
)

// canvas fills stretches of rows, the quickest way to draw areas.
type canvas struct {
	to            *image.Paletted
	width, height int
	unit          float64 // the shorter side
	rows          [colours][]byte
}

func newCanvas(width, height int, p color.Palette) *canvas {
	c := &canvas{
		to:    image.NewPaletted(image.Rect(0, 0, width, height), p),
		width: width, height: height, unit: float64(min(width, height)),
	}
	// A row of each colour to copy from, which is quicker than a loop.
	space := make([]byte, colours*width)
	for i := range c.rows {
		c.rows[i], space = space[:width], space[width:]
		for x := range c.rows[i] {
			c.rows[i][x] = uint8(i)
		}
	}
	return c
}

// span fills a row between two places, as far as they are in the picture.
func (c *canvas) span(y int, from, to float64, colour uint8) {
	x0, x1 := max(0, int(math.Ceil(from-0.5))), min(c.width, int(math.Ceil(to-0.5)))
	if x0 < x1 {
		copy(c.to.Pix[y*c.to.Stride+x0:y*c.to.Stride+x1], c.rows[colour])
	}
}

func (c *canvas) band(from, to int, colour uint8) {
	for y := from; y < to; y++ {
		c.span(y, 0, float64(c.width), colour)
	}
}

func (c *canvas) disc(d disc, colour uint8) {
	x, y, r := d.x*float64(c.width), d.y*float64(c.height), d.r*c.unit
	for row := max(0, int(y-r)); row < min(c.height, int(y+r)+1); row++ {
		off := float64(row) + 0.5 - y
		if half := r*r - off*off; half > 0 {
			half = math.Sqrt(half)
			c.span(row, x-half, x+half, colour)
		}
	}
}

func (c *canvas) peak(p peak) {
	x, y := p.x*float64(c.width), p.y*float64(c.height)
	for row := max(0, int(y)); row < c.height; row++ {
		half := (float64(row) + 0.5 - y) * p.slope
		c.span(row, x-half, x+half, p.colour)
	}
}
