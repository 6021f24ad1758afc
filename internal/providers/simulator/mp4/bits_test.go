package mp4

import (
	"bytes"
	"testing"
)

// Zeros are broken up, as decoders look for them to find the next unit.
func TestUnitsHoldNoMarks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want []byte }{
		{[]byte{0, 0, 1}, []byte{0x65, 0, 0, 3, 1, 0x80}},
		{[]byte{0, 0, 0, 0, 0}, []byte{0x65, 0, 0, 3, 0, 0, 3, 0, 0x80}},
		{[]byte{0, 0, 4, 0, 1}, []byte{0x65, 0, 0, 4, 0, 1, 0x80}},
	} {
		w := &bitWriter{}
		for _, b := range c.in {
			w.bits(8, uint32(b))
		}
		if got := w.nal(0x65); !bytes.Equal(got, c.want) {
			t.Errorf("%x became %x, want %x", c.in, got, c.want)
		}
	}
}
