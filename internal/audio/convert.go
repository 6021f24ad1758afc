package audio

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Convert converts PCM to another format. It mixes channels and interpolates linearly,
// which is good enough for speech: the pieces of one file rarely differ.
func Convert(dst, src Format, r io.Reader) io.Reader {
	if dst == src {
		return r
	}
	return &converter{
		dst: dst, src: src,
		from: bufio.NewReaderSize(r, 16<<10),
		raw:  make([]byte, src.frame()),
		this: make([]int, dst.Channels),
		next: make([]int, dst.Channels),
	}
}

// converter reads the source sample by sample, and holds the two samples around its position.
type converter struct {
	dst, src   Format
	from       *bufio.Reader
	raw        []byte
	this, next []int
	// passed is the position after this, in units of 1/dst.Rate of a sample.
	passed  int
	started bool
	last    bool // this is the last sample
	ended   bool
	output
}

func (c *converter) Read(p []byte) (int, error) { return c.read(p, c.fill) }

const convertAtOnce = 16 << 10

func (c *converter) fill() {
	c.out = c.out[:0]
	if !c.started {
		c.started = true
		c.advance() // the first into next
		c.advance() // and on into this
	}
	for len(c.out) < convertAtOnce && c.err == nil {
		for c.passed >= c.dst.Rate && c.err == nil && !c.ended {
			c.passed -= c.dst.Rate
			c.advance()
		}
		if c.ended && c.err == nil {
			c.err = io.EOF
		}
		if c.err != nil {
			return
		}
		for i, a := range c.this {
			value := a + (c.next[i]-a)*c.passed/c.dst.Rate
			c.out = binary.LittleEndian.AppendUint16(c.out, uint16(int16(value)))
		}
		c.passed += c.src.Rate
	}
}

// advance moves on by one sample. After the last one the value stays the same.
func (c *converter) advance() {
	if c.last {
		c.ended = true
		return
	}
	c.this, c.next = c.next, c.this
	_, err := io.ReadFull(c.from, c.raw)
	switch {
	case err == nil:
		c.mix()
	case err == io.EOF:
		c.last = true
		copy(c.next, c.this)
	default:
		c.err = fmt.Errorf("audio: convert: %w", err)
	}
}

// mix sets next from the sample that was read. It averages or repeats channels.
func (c *converter) mix() {
	n, m := c.src.Channels, c.dst.Channels
	for i := range m {
		sum, count := 0, 0
		for k := i % n; k < n; k += m {
			sum += int(int16(binary.LittleEndian.Uint16(c.raw[2*k:])))
			count++
			if n < m {
				break
			}
		}
		c.next[i] = sum / count
	}
}
