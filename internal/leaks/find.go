package leaks

import (
	"bytes"
	"errors"
	"io"

	"turnpike/internal/access"
)

const (
	afterPrefix = 38 // bytes: 32 random ones and the checksum
	maxSecret   = len(access.PrefixScoped) + afterPrefix
)

var prefixes = [][]byte{[]byte(access.PrefixLive), []byte(access.PrefixTest), []byte(access.PrefixScoped), []byte(access.PrefixAdmin)}

// Find returns all keys and tokens in a text, in order. The checksum excludes
// lookalikes, so the surrounding text does not matter. Its time is linear.
func Find(text []byte) []string {
	var found []string
	for at := 0; ; {
		i, secret := next(text[at:])
		if i < 0 {
			return found
		}
		found = append(found, secret)
		at += i + len(secret)
	}
}

// next returns the position of the first key in a text, or -1, and the key.
func next(text []byte) (at int, secret string) {
	for {
		// Searching for the rarest letter of "tp_" is faster than for all three.
		i := bytes.IndexByte(text[min(at+2, len(text)):], '_')
		if i < 0 {
			return -1, ""
		}
		at += i
		if text[at] != 't' || text[at+1] != 'p' {
			at++
			continue
		}
		for _, p := range prefixes {
			rest := text[at:]
			if !bytes.HasPrefix(rest, p) || len(rest) < len(p)+afterPrefix {
				continue
			}
			secret := string(rest[:len(p)+afterPrefix])
			if _, ok := access.ParseSecret(secret); ok {
				return at, secret
			}
		}
		at++
	}
}

// Hint returns the part of a secret that may be shown.
func Hint(secret string) string {
	prefix, ok := access.ParseSecret(secret)
	if !ok {
		return ""
	}
	return prefix + "…" + secret[len(secret)-4:]
}

// Read is Find for a stream. It calls found with each key and the line in which it
// begins, counted from 1. buf must have room for a few keys.
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
			i, secret := next(text[at:])
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
		// A key may begin at the end of the buffer.
		keep := max(at, have-(maxSecret-1))
		line += int64(bytes.Count(text[counted:keep], newline))
		have = copy(buf, text[keep:])
	}
}

var newline = []byte("\n")
