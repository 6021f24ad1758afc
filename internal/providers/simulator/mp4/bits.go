package mp4

import "math/bits"

// bitWriter writes H.264's syntax: bits from the left, and numbers of as many
// bits as they need.
type bitWriter struct {
	out  []byte
	rest uint64 // bits that are no whole byte yet, at its low end
	n    int
}

func (w *bitWriter) bits(n int, value uint32) {
	w.rest = w.rest<<n | uint64(value)
	w.n += n
	for w.n >= 8 {
		w.n -= 8
		w.out = append(w.out, byte(w.rest>>w.n))
	}
}

// ue writes an unsigned Exp-Golomb number.
func (w *bitWriter) ue(value uint32) {
	length := bits.Len32(value + 1)
	w.bits(length-1, 0)
	w.bits(length, value+1)
}

// se writes a signed one.
func (w *bitWriter) se(value int) {
	if value > 0 {
		w.ue(uint32(2*value - 1))
	} else {
		w.ue(uint32(-2 * value))
	}
}

// nal ends the bits and returns them as a unit with its header byte. Two zero
// bytes are never followed by a byte up to 3, as that would be a mark of the
// stream: a 3 goes between.
func (w *bitWriter) nal(header byte) []byte {
	w.bits(1, 1)
	if w.n > 0 {
		w.bits(8-w.n, 0)
	}
	unit := make([]byte, 0, len(w.out)+len(w.out)/100+8)
	unit = append(unit, header)
	zeros := 0
	for _, b := range w.out {
		if zeros == 2 && b <= 3 {
			unit = append(unit, 3)
			zeros = 0
		}
		if b == 0 {
			zeros++
		} else {
			zeros = 0
		}
		unit = append(unit, b)
	}
	return unit
}
