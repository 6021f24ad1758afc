package media

import (
	"errors"
	"io"

	"turnpike/internal/providers"
)

// bounded is a provider's file of at most so many bytes. One that goes on would
// fill the disk.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more, to see whether there is
	}
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, &providers.Failure{Kind: providers.KindProtocol, Err: errors.New("a file that is larger than any that was asked for can be")}
	}
	return n, err
}
