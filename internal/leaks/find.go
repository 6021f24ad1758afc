package leaks

import (
	"bytes"
	"errors"
	"io"

	"turnpike/internal/keyring"
)

// Find returns all secrets in a text, in order. The checksum excludes lookalikes, so
// the surrounding text does not matter. Its time is linear.
func Find(text []byte) []string {
	var found []string
	for at := 0; ; {
		i, secret := keyring.FindSecret(text[at:])
		if i < 0 {
			return found
		}
		found = append(found, secret)
		at += i + len(secret)
	}
}

// Read is Find for a stream. It calls found with each secret and the line in which it
// begins, counted from 1. buf must have room for a few secrets.
func Read(r io.Reader, buf []byte, found func(line int64, secret string)) error {
	line := int64(1)
	have := 0
	for {
		n, err := io.ReadFull(r, buf[have:])
		have += n
		last := err != nil
		if last && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		text := buf[:have]
		at, counted := 0, 0
		for {
			i, secret := keyring.FindSecret(text[at:])
			if i < 0 {
				break
			}
			at += i
			line += int64(bytes.Count(text[counted:at], newline))
			counted = at
			found(line, secret)
			at += len(secret)
		}
		if last {
			return nil
		}
		// A secret may begin at the end of the buffer.
		keep := max(at, have-(keyring.MaxSecret-1))
		line += int64(bytes.Count(text[counted:keep], newline))
		have = copy(buf, text[keep:])
	}
}

var newline = []byte("\n")
