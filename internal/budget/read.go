package budget

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// These are the lowest rates at which bytes may arrive, in bytes per second, in addition to
// Source.Patience: a slow connection can send a large body, but a trickle can't hold a connection
// and its memory.
const (
	firstRate = 8 << 10 // of the first MiB
	largeRate = 64 << 10
	firstMiB  = 1 << 20
)

// arrivalTime returns how long the first bytes of a source may take.
func arrivalTime(bytes int64) time.Duration {
	first := min(bytes, firstMiB)
	return time.Duration(first)*time.Second/firstRate + time.Duration(bytes-first)*time.Second/largeRate
}

// Source is where bytes come from.
type Source struct {
	From     io.Reader
	Limit    int64 // bytes
	Expected int64 // bytes that were announced, or 0 or less
	JSON     bool  // also reserve what the values take once they are decoded
	// Deadline, if set, sets the deadline of reads. Patience is how long any source may take.
	Deadline func(time.Time)
	Patience time.Duration
}

// TooLargeError is the error for a source with more bytes than its limit.
type TooLargeError struct{ Limit int64 }

func (e *TooLargeError) Error() string { return fmt.Sprintf("more than %d bytes", e.Limit) }

// ReadAll reads a source to its end. The memory grows with what arrives, not with what was announced.
func (b *Budget) ReadAll(s Source) ([]byte, error) {
	s.Limit = b.limit(s.Limit)
	from := &charged{stream{Source: s, start: time.Now()}, b}
	if s.Expected <= 0 || s.Expected > freeBytes {
		return io.ReadAll(from)
	}
	body := bytes.NewBuffer(make([]byte, 0, s.Expected+bytes.MinRead))
	_, err := body.ReadFrom(from)
	return body.Bytes(), err
}

// Charge returns a reader that reserves memory for what is read, which a decoder keeps.
func (b *Budget) Charge(from io.Reader, limit int64) io.Reader {
	return &charged{stream{Source: Source{From: from, Limit: b.limit(limit)}}, b}
}

// ChargeJSON is Charge for a decoder of JSON. It also reserves what the values take.
func (b *Budget) ChargeJSON(from io.Reader, limit int64) io.Reader {
	return &charged{stream{Source: Source{From: from, Limit: b.limit(limit), JSON: true}}, b}
}

// bytesPerObject is the memory of an empty object or array once it is decoded: a struct of
// some hundred bytes for two or three bytes of JSON.
const bytesPerObject = 512

// Decoded returns the memory that the values of JSON take once they are decoded, beyond its own
// bytes. Small JSON counts as nothing.
func Decoded(text []byte) int64 {
	if len(text) <= freeBytes {
		return 0
	}
	return decoded(text)
}

func decoded(text []byte) int64 {
	return bytesPerObject * int64(bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("["))+bytes.Count(text, []byte("null")))
}

func (b *Budget) limit(bytes int64) int64 {
	if b.unowned {
		return min(bytes, unownedBytes)
	}
	return bytes
}

type charged struct {
	stream
	budget *Budget
}

func (c *charged) Read(p []byte) (int, error) {
	n, err := c.stream.Read(p)
	more := int64(n)
	if c.JSON && c.bytes > freeBytes {
		more += decoded(p[:n])
	}
	if reserved := c.budget.Reserve(more); reserved != nil {
		return 0, reserved
	}
	return n, err
}

// Stream returns a reader that applies the limit and the deadlines of a source whose bytes aren't
// kept in memory.
func Stream(s Source) io.Reader { return &stream{Source: s, start: time.Now()} }

type stream struct {
	Source
	start time.Time
	bytes int64
}

func (s *stream) Read(p []byte) (int, error) {
	if s.Deadline != nil {
		s.Deadline(s.start.Add(s.Patience + arrivalTime(s.bytes)))
	}
	n, err := s.From.Read(p[:min(int64(len(p)), s.Limit+1-s.bytes)])
	if s.bytes += int64(n); s.bytes > s.Limit {
		return n, &TooLargeError{s.Limit}
	}
	if err == io.EOF && s.Deadline != nil {
		s.Deadline(time.Time{})
	}
	return n, err
}
