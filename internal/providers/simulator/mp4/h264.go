package mp4

import (
	"image"
	"image/color"
)

// This is as much of H.264 (ITU-T H.264, baseline profile) as pictures of
// 16x16 squares take, each of one colour. A square is an intra macroblock that
// is predicted from its neighbour and corrected by three numbers, one each for
// the brightness and the two colours; one that is as before is skipped.
//
// The quantizers are those at which a correction by 1 is exactly 1 in the
// picture: 28 for the brightness, and 22 for the colours.
const (
	quantizer       = 28
	colourQuantizer = 22
)

// Headers of units: how much depends on it, and what it is.
const (
	unitSPS   = 0x67
	unitPPS   = 0x68
	unitKey   = 0x65
	unitFrame = 0x61
)

// side is a macroblock's.
const side = 16

// grid is how many macroblocks cover so many pixels.
func grid(pixels int) int { return (pixels + side - 1) / side }

// ycc is a square's colour.
type ycc struct{ y, cb, cr uint8 }

// grey is what the first square is predicted to be.
var grey = ycc{128, 128, 128}

// toYCC converts to the range of video, which leaves out the ends.
func toYCC(c color.Color) ycc {
	r, g, b, _ := c.RGBA()
	y, cb, cr := color.RGBToYCbCr(uint8(r>>8), uint8(g>>8), uint8(b>>8))
	return ycc{
		uint8(16 + int(y)*219/255),
		uint8(128 + (int(cb)-128)*224/255),
		uint8(128 + (int(cr)-128)*224/255),
	}
}

// encoder turns pictures, of which each pixel is a square, into frames.
type encoder struct {
	across  int // squares in a row
	now     []ycc
	before  []ycc
	sinceID int // frames since the last that needs no other
	keys    int
}

// frame encodes the next picture. A key frame needs no other.
func (e *encoder) frame(picture *image.Paletted, key bool) []byte {
	e.before, e.now = e.now, e.before[:0]
	var colours [256]ycc
	for i, c := range picture.Palette {
		colours[i] = toYCC(c)
	}
	for _, i := range picture.Pix {
		e.now = append(e.now, colours[i])
	}
	w := &bitWriter{out: make([]byte, 0, len(e.now)/8)}
	if key {
		e.sinceID = 0
		e.keys++
	} else {
		e.sinceID++
	}
	e.header(w, key)
	skipped := uint32(0)
	for i, c := range e.now {
		if !key {
			if c == e.before[i] {
				skipped++
				continue
			}
			w.ue(skipped)
			skipped = 0
		}
		e.square(w, i, key)
	}
	if skipped > 0 {
		w.ue(skipped)
	}
	if key {
		return w.nal(unitKey)
	}
	return w.nal(unitFrame)
}

// header writes a slice's header: a frame is one slice.
func (e *encoder) header(w *bitWriter, key bool) {
	w.ue(0) // from the first macroblock on
	if key {
		w.ue(7) // I slices only
	} else {
		w.ue(5) // P slices only
	}
	w.ue(0)                          // its picture parameters
	w.bits(8, uint32(e.sinceID)%256) // frame_num
	if key {
		w.ue(uint32(e.keys) % 2) // neighbours must differ
		w.bits(2, 0)             // how it is kept
	} else {
		w.bits(1, 0) // as many references as usual
		w.bits(1, 0) // in the usual order
		w.bits(1, 0) // how it is kept
	}
	w.se(0) // the usual quantizer
	w.ue(1) // edges are not smoothed
}

// square writes one macroblock: Intra_16x16 with nothing but DC coefficients.
func (e *encoder) square(w *bitWriter, i int, key bool) {
	predicted, lumaMode, chromaMode := grey, uint32(2), uint32(0) // by the middle of the range
	switch {
	case i%e.across > 0:
		predicted, lumaMode, chromaMode = e.now[i-1], 1, 1 // by the left one
	case i > 0:
		predicted, lumaMode, chromaMode = e.now[i-e.across], 0, 2 // by the upper one
	}
	c := e.now[i]
	y, cb, cr := int(c.y)-int(predicted.y), int(c.cb)-int(predicted.cb), int(c.cr)-int(predicted.cr)
	kind := 1 + lumaMode
	if cb != 0 || cr != 0 {
		kind += 4 // with the colours' DC
	}
	if !key {
		kind += 5 // behind the kinds of P macroblocks
	}
	w.ue(kind)
	w.ue(chromaMode)
	w.se(0) // the quantizer as before
	coefficient(w, y, lumaTokens)
	if cb != 0 || cr != 0 {
		coefficient(w, cb, chromaTokens)
		coefficient(w, cr, chromaTokens)
	}
}

// token says how many coefficients there are, and how many of them are ±1 at
// the end: none, one that is not ±1, one that is.
type token struct {
	bits  int
	value uint32
}

var (
	lumaTokens   = [3]token{{1, 1}, {6, 5}, {2, 1}} // where the neighbours have none
	chromaTokens = [3]token{{2, 1}, {6, 7}, {1, 1}}
)

// coefficient writes a block that has at most its DC coefficient, by CAVLC.
func coefficient(w *bitWriter, level int, tokens [3]token) {
	negative, size := uint32(0), level
	if level < 0 {
		negative, size = 1, -level
	}
	switch size {
	case 0:
		w.bits(tokens[0].bits, tokens[0].value)
		return
	case 1:
		w.bits(tokens[2].bits, tokens[2].value)
		w.bits(1, negative)
	default:
		w.bits(tokens[1].bits, tokens[1].value)
		code := uint32(2*(size-2)) + negative
		switch {
		case code < 14:
			w.bits(int(code)+1, 1)
		case code < 30:
			w.bits(15, 1)
			w.bits(4, code-14)
		default:
			w.bits(16, 1)
			w.bits(12, code-30)
		}
	}
	w.bits(1, 1) // no zeros before it
}

// level is the class of decoders that can play it, by the size alone.
func level(width, height int) uint32 {
	if grid(width)*grid(height) <= 8192 {
		return 40
	}
	return 51
}

// sequence are the parameters of the whole video.
func sequence(width, height int) []byte {
	w := &bitWriter{}
	w.bits(8, 66)   // baseline
	w.bits(8, 0xC0) // the constrained one
	w.bits(8, level(width, height))
	w.ue(0)
	w.ue(4)      // frame_num has 8 bits
	w.ue(2)      // shown in the order they are stored
	w.ue(1)      // one reference
	w.bits(1, 0) // no gaps
	w.ue(uint32(grid(width) - 1))
	w.ue(uint32(grid(height) - 1))
	w.bits(2, 3)                                                     // no interlacing; direct_8x8
	right, below := grid(width)*side-width, grid(height)*side-height // cut off, in steps of 2
	if right+below > 0 {
		w.bits(1, 1)
		w.ue(0)
		w.ue(uint32(right / 2))
		w.ue(0)
		w.ue(uint32(below / 2))
	} else {
		w.bits(1, 0)
	}
	w.bits(1, 0) // nothing on how to show it
	return w.nal(unitSPS)
}

// picture are the parameters of every frame.
func picture() []byte {
	w := &bitWriter{}
	w.ue(0)
	w.ue(0)
	w.bits(2, 0) // CAVLC; no fields
	w.ue(0)      // one slice group
	w.ue(0)      // one reference
	w.ue(0)
	w.bits(3, 0) // no weights
	w.se(quantizer - 26)
	w.se(0)
	w.se(colourQuantizer - quantizer)
	w.bits(3, 4) // a slice can say that edges are not smoothed
	return w.nal(unitPPS)
}
